"""Transcripts as text, SRT, WebVTT, TSV and JSON; words with times, by the path of least cost."""

import itertools
import json

import numpy as np
import pytest
import torch

from headway.tasks.transcripts import Segment, Transcript, Word, Writer, clock
from headway.tasks.word_timing import (
    Timing,
    agree_with_segment,
    join_punctuation,
    median,
    shorten_after_pause,
    split_words,
    time_warping,
    timed_words,
)

SEGMENTS = [
    Segment(0.0, 2.5, " One <two> & three", [5, 6]),
    Segment(2.5, 2.5, "", []),
    Segment(3661.25, 3662.0, " a --> b\tc", [7]),
]


def written(form: str, segments: list[Segment] = SEGMENTS) -> str:
    writer = Writer(form)  # type: ignore[arg-type]
    whole = Transcript(segments, "en")
    return writer.begin() + "".join(map(writer.add, segments)) + writer.finish(whole)


def test_every_form() -> None:
    assert written("txt") == "One <two> & three\na --> b c\n"
    assert written("srt") == (
        "1\n00:00:00,000 --> 00:00:02,500\nOne <two> & three\n\n2\n01:01:01,250 --> 01:01:02,000\na -> b c\n\n"
    )
    assert written("vtt") == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:02.500\nOne &lt;two&gt; &amp; three\n\n"
        "01:01:01.250 --> 01:01:02.000\na --&gt; b c\n\n"
    )
    assert written("tsv") == "start\tend\ttext\n0\t2500\tOne <two> & three\n3661250\t3662000\ta --> b c\n"
    found = json.loads(written("json"))
    assert found["text"] == "One <two> & three a --> b\tc" and [part["id"] for part in found["segments"]] == [0, 1, 2]


def test_words_have_their_own_times() -> None:
    words = [Word(" One", 0.1, 0.4, 0.9), Word(" two.", 0.5, 0.8, 0.8)]
    segments = [Segment(0.1, 0.8, " One two.", [1, 2], words=words)]
    assert written("srt", segments).count("-->") == 2 and "00:00:00,500 --> 00:00:00,800\ntwo.\n" in written(
        "srt", segments
    )
    assert "<00:00:00.100>One <00:00:00.500>two." in written("vtt", segments)
    assert json.loads(written("json", segments))["segments"][0]["words"][1]["probability"] == 0.8


def test_clocks_round_and_carry() -> None:
    assert (
        clock(59.9996, ".") == "00:01:00.000"
        and clock(-1, ",") == "00:00:00,000"
        and clock(7325.4, ".") == "02:02:05.400"
    )


def test_the_path_costs_least() -> None:
    """As found by trying all paths."""
    random = np.random.default_rng(0)
    for rows, columns in ((1, 1), (1, 5), (4, 1), (3, 5), (5, 3), (4, 6)):
        cost = random.standard_normal((rows, columns))
        i, j = time_warping(cost)
        steps = list(zip(np.diff(i), np.diff(j), strict=True))
        assert (i[0], j[0], i[-1], j[-1]) == (0, 0, rows - 1, columns - 1) and set(steps) <= {(0, 1), (1, 0), (1, 1)}
        assert cost[i, j].sum() == pytest.approx(least(cost), abs=1e-5)


def least(cost: np.ndarray) -> float:
    best = np.full(cost.shape, np.inf)
    for i, j in itertools.product(*map(range, cost.shape)):
        before = [best[a, b] for a, b in ((i - 1, j), (i, j - 1), (i - 1, j - 1)) if a >= 0 and b >= 0]
        best[i, j] = cost[i, j] + min(before, default=0)
    return float(best[-1, -1])


def test_the_median_is_of_mirrored_neighbours() -> None:
    x = torch.tensor([[[5.0, 1.0, 9.0, 2.0, 8.0, 3.0]]])
    assert median(x, 3).tolist() == [[[1.0, 5.0, 2.0, 8.0, 3.0, 8.0]]]
    assert torch.equal(median(x[..., :1], 3), x[..., :1]), "too short to mirror"


def test_tokens_are_split_into_words() -> None:
    pieces = [b" Hel", b"lo", b",", b" wor", b"ld", b"!", " \N{SNOWMAN}".encode()[:2], " \N{SNOWMAN}".encode()[2:]]
    assert split_words(pieces, spaced=True) == [(" Hello", 2), (",", 1), (" world", 2), ("!", 1), (" \N{SNOWMAN}", 2)]
    assert split_words(["日".encode(), "本語".encode()], spaced=False) == [("日", 1), ("本語", 1)]
    assert split_words([b"a", b"\xe2\x98"], spaced=False) == [("a", 1), ("\ufffd", 1)], "half a character at the end"


def test_punctuation_goes_with_its_word() -> None:
    texts = [" “", "Yes", ",", " she", " said", ".", "”"]
    timings = [Timing(text, 1, float(n), n + 1.0, 0.5) for n, text in enumerate(texts)]
    joined = [(timing.text, timing.tokens, timing.start) for timing in join_punctuation(timings) if timing.text]
    assert joined == [(" “Yes,", 3, 1.0), (" she", 1, 3.0), (" said.”", 3, 4.0)]
    words = timed_words([(" a", 2), (" b", 1)], np.array([0.0, 0.1, 0.4, 0.9]), [0.2, 0.4, 0.9])
    assert [(w.start, w.end, round(w.probability, 3)) for w in words] == [(0.0, 0.4, 0.3), (0.4, 0.9, 0.9)]


def test_pauses_are_not_words() -> None:
    words = [Word(" a", 10.0, 16.0, 1.0), Word(" b", 16.0, 16.3, 1.0)]
    shorten_after_pause(words, typical=0.3, speech_end=9.0)
    assert (words[0].start, words[0].end) == (pytest.approx(15.4), 16.0)
    segment = Segment(15.9, 16.2, " a b", [1, 2])
    agree_with_segment(words, segment, typical=0.3)
    assert (segment.start, segment.end) == (words[0].start, words[1].end)
