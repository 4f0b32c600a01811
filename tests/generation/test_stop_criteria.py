"""Stop strings across token borders; streamed text is never premature, repeated or half a character."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.generation.settings import GenerationSettings
from headway.generation.stop_criteria import StopCriteria
from headway.generation.text_stream import TextStream, find_stop, withheld
from headway.preprocess.text import Tokenizer

BYTES = Tokenizer.train(["a"], kind="bpe", size=259)  # a token a byte
ENDS = Tokenizer.train(["STOP STOP END ab abc"] * 9, kind="bpe", size=300)


def shown(tokenizer: Tokenizer, text: str, stop: list[str]) -> tuple[list[str], TextStream]:
    stream = TextStream(tokenizer, stop=stop)
    pieces = []
    for i in tokenizer.encode(text, special=False):
        pieces.append(stream.push(i))
        if stream.stopped:
            return pieces, stream
    return [*pieces, stream.finish()], stream


def test_a_stop_string_across_token_borders():
    pieces, stream = shown(BYTES, "one\n\nUser: two", ["\nUser:"])
    assert "".join(pieces) == "one\n" and stream.stopped
    assert pieces == ["o", "n", "e", "", "\n", "", "", "", "", ""]


def test_text_that_only_begins_like_a_stop_string_is_returned():
    pieces, stream = shown(BYTES, "a\nUse it", ["\nUser:"])
    assert "".join(pieces) == "a\nUse it" and not stream.stopped
    pieces, stream = shown(BYTES, "a\nUse", ["\nUser:"])
    assert pieces[-1] == "\nUse" and not stream.stopped


def test_a_stop_string_inside_a_token():
    tokens = ENDS.tokens(ENDS.encode(" STOP", special=False))
    assert tokens == [" STOP"], "control: it is one token"
    assert "".join(shown(ENDS, "ab STOP abc", ["TO"])[0]) == "ab S"


def test_characters_are_returned_whole():
    pieces, _ = shown(BYTES, "né€😀", ["x"])
    assert [piece for piece in pieces if piece] == ["n", "é", "€", "😀"]


@pytest.mark.parametrize(
    ("text", "stops", "at"),
    [
        ("abcd", ["bc"], 1),
        ("abcd", ["x"], None),
        ("abcd", [], None),
        ("abcd", ["abcd", "bc"], 1),  # complete first
        ("abcd", ["bc", "abc"], 0),  # together: the longer
    ],
)
def test_find_stop(text, stops, at):
    assert find_stop(text, stops) == at


@pytest.mark.parametrize(
    ("text", "stops", "count"),
    [
        ("aab", ["abc"], 2),
        ("aaa", ["aab"], 2),
        ("ab", ["abc", "b"], 2),
        ("x", ["abc"], 0),
        ("", ["abc"], 0),
        ("a", [], 0),
    ],
)
def test_withheld(text, stops, count):
    assert withheld(text, stops) == count


def one_by_one(text: str, stops: list[str]) -> tuple[str, bool]:
    """The plain rule: character by character, stop when the text so far ends in a stop string."""
    for end in range(1, len(text) + 1):
        hits = [stop for stop in stops if text[:end].endswith(stop)]
        if hits:
            return text[: end - max(map(len, hits))], True
    return text, False


@given(
    st.text("abé\n", max_size=30),
    st.lists(st.text("abé\n", min_size=1, max_size=4), max_size=3),
    st.sampled_from([BYTES, ENDS]),
)
@settings(max_examples=300, deadline=None)
def test_streams_return_what_the_plain_rule_returns(text, stops, tokenizer):
    pieces, stream = shown(tokenizer, text, stops)
    want, stopped = one_by_one(text, stops)
    assert ("".join(pieces), stream.stopped) == (want, stopped)
    for count in range(len(pieces)):
        assert want.startswith("".join(pieces[:count])), "text was returned that is not in the answer"


def test_prefix_is_returned_and_not_searched():
    stream = TextStream(BYTES, stop=["ab"], prefix=BYTES.encode("ab", special=False))
    assert stream.push(BYTES.id("c")) == "abc" and not stream.stopped
    chosen = GenerationSettings(stop=("b",), prefix=tuple(BYTES.encode("b>", special=False)))
    assert StopCriteria(chosen, BYTES).text(BYTES.encode("aabaa", special=False)) == "b>aa"


def test_ends_by_id():
    chosen = GenerationSettings(eos_ids=(1,), stop_ids=(2, 1))
    assert [StopCriteria(chosen).finished([i]) for i in (0, 1, 2)] == [None, "eos", "stop"]
