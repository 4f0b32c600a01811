"""The terminal view: tokens, attention and candidates, and nothing in a text that steers the terminal."""

import io

import pytest
from rich.console import Console
from support.stories import bundle

from headway.explain.collect import collect
from headway.explain.examples import EXAMPLES, example
from headway.explain.story import Story
from headway.explain.terminal import printable, show


def printed(told: Story, *, width: int = 100) -> str:
    out = io.StringIO()
    show(told, Console(file=out, width=width, highlight=False, force_terminal=False))
    return out.getvalue()


@pytest.fixture(scope="module")
def told() -> Story:
    return collect(bundle("generate"), "the model reads", steps=3)


def test_tokens_attention_and_candidates_are_there(told: Story) -> None:
    text = printed(told)
    assert told.output is not None and told.generation is not None
    assert "the model reads" in text
    assert f"layer {told.attention[-1].layer}: where “" in text
    best = told.output.rows[-1].candidates[0]
    assert f"{best.logit:.3f}" in text
    mean = told.attention[-1].weights[:, -1].mean(0)
    assert all(f"{value:.3f}" in text for value in mean)
    assert "goes on" in text


@pytest.mark.parametrize(
    ("name", "text", "asked"),
    [
        ("classify", "a broken screen", "which class\n"),
        ("fill", "the [MASK] is red", "what stands at “[MASK]”\n"),
        ("translate", "May 3, 1998", "what comes after “<s>”\n"),
    ],
)
def test_it_says_what_was_to_be_chosen(name: str, text: str, asked: str) -> None:
    shown = printed(collect(bundle(name), text))
    assert asked in shown and ("cross-attention: where" in shown) == (name == "translate")


def test_the_word_with_a_tag_is_the_one_that_is_shown() -> None:
    told = collect(bundle("tag"), "Maria lives in Lisbon")
    rows = told.output.rows
    first = next((row for row in rows if row.candidates[0].text != "O"), rows[0])
    assert f"the tag of “{first.label}”" in printed(told)


def test_a_token_cannot_steer_the_terminal() -> None:
    hostile = "\x1b[31mred\x1b]0;title\x07 \u202eback \u200b"
    found = printable(hostile)
    assert found.isprintable() and "red" in found and "\\x1b[31m" in found and "\\u202e" in found
    shown = printed(collect(bundle("generate"), hostile, steps=1))
    assert "\x1b" not in shown and "\u202e" not in shown


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples_show_too(name: str) -> None:
    assert example(name).title in printed(example(name))
