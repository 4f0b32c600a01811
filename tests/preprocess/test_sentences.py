"""Text → sentences."""

import pytest

from headway.preprocess.sentences import split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("The cat sat. Then it slept!", ["The cat sat.", "Then it slept!"]),
        ("Pi is 3.14 or so. Yes.", ["Pi is 3.14 or so.", "Yes."]),
        ("Use nets, e.g. CNNs. Did J. Smith? No.", ["Use nets, e.g. CNNs.", "Did J. Smith?", "No."]),
        ("all in lower case. another!", ["all in lower case.", "another!"]),
        ("one line\n\nanother  ", ["one line", "another"]),
        ("今日は晴れ。明日は雨。", ["今日は晴れ。", "明日は雨。"]),
        ("no end", ["no end"]),
        (" \n ", []),
    ],
)  # fmt: skip
def test_sentences(text, sentences):
    assert split_sentences(text) == sentences


def test_nothing_but_spaces_is_lost():
    text = "First. Second? «Third» … Fourth! fifth\nSixth."
    assert "".join(split_sentences(text)).replace(" ", "") == text.replace(" ", "").replace("\n", "")
