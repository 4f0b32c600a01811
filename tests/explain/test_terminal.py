"""The terminal view: tokens, attention and candidates; control characters are escaped."""

import io

import pytest
from rich.console import Console
from support.stories import bundle

from headway.explain.collect import collect
from headway.explain.examples import EXAMPLES, example
from headway.explain.story import Story
from headway.explain.terminal import printable, show


def printed(explained: Story, *, width: int = 100) -> str:
    out = io.StringIO()
    show(explained, Console(file=out, width=width, highlight=False, force_terminal=False))
    return out.getvalue()


@pytest.fixture(scope="module")
def explained() -> Story:
    return collect(bundle("generate"), "the model reads", steps=3)


def test_tokens_attention_and_candidates_are_there(explained: Story) -> None:
    text = printed(explained)
    assert explained.output is not None and explained.generation is not None
    assert "the model reads" in text
    assert f"layer {explained.attention[-1].layer}: attention weights of “" in text
    best = explained.output.rows[-1].candidates[0]
    assert f"{best.logit:.3f}" in text
    mean = explained.attention[-1].weights[:, -1].mean(0)
    assert all(f"{value:.3f}" in text for value in mean)
    assert "continued" in text


@pytest.mark.parametrize(
    ("name", "text", "caption"),
    [
        ("classify", "a broken screen", "class\n"),
        ("fill", "the [MASK] is red", "token at “[MASK]”\n"),
        ("translate", "May 3, 1998", "next token after “<s>”\n"),
    ],
)
def test_the_caption_names_the_choice(name: str, text: str, caption: str) -> None:
    shown = printed(collect(bundle(name), text))
    assert caption in shown and ("cross-attention: attention weights" in shown) == (name == "translate")


def test_the_word_with_a_tag_is_the_one_that_is_shown() -> None:
    explained = collect(bundle("tag"), "Maria lives in Lisbon")
    rows = explained.output.rows
    first = next((row for row in rows if row.candidates[0].text != "O"), rows[0])
    assert f"tag of “{first.label}”" in printed(explained)


def test_a_token_cannot_control_the_terminal() -> None:
    hostile = "\x1b[31mred\x1b]0;title\x07 \u202eback \u200b"
    found = printable(hostile)
    assert found.isprintable() and "red" in found and "\\x1b[31m" in found and "\\u202e" in found
    shown = printed(collect(bundle("generate"), hostile, steps=1))
    assert "\x1b" not in shown and "\u202e" not in shown


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples_show_too(name: str) -> None:
    assert example(name).title in printed(example(name))
