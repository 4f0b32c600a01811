"""When each word was spoken, by the decoder's attention to the sound (as in openai/whisper).

The scores of some cross-attention heads are turned to weights over the frames of the window, standardised over the
tokens, smoothed by a median over seven frames and averaged; the path of least cost through them (dynamic time warping)
gives each token a time.
"""

from __future__ import annotations

import codecs
import itertools
import string
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.attend import score_scale
from headway.layers.cache import Encoded
from headway.tasks.transcripts import Segment, Word

MEDIAN = 7  # frames
OPENING, CLOSING = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"  # punctuation that belongs to the next and to the last word
SENTENCE_ENDS = ".。!！?？"
LONGEST_TYPICAL = 0.7  # seconds: the largest value that counts as the usual length of a word

Heads = Sequence[tuple[int, int]]  # (layer, head)


@dataclass
class Timing:
    """One word of a window; times count from the window's start."""

    text: str
    tokens: int
    start: float
    end: float
    probability: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


# ---------------------------------------------------------------------------------------- attention → times


def default_heads(decoder: Any) -> list[tuple[int, int]]:
    """All heads of the upper half of the layers."""
    layers, heads = len(decoder.stack.blocks), decoder.config.stack.block.cross.heads
    return [(layer, head) for layer in range(layers // 2, layers) for head in range(heads)]


@torch.no_grad()
def token_times(
    model: Any, encoded: Encoded, prefix: Sequence[int], text: Sequence[int], *, end: int, heads: Heads, frames: int
) -> tuple[np.ndarray, list[float]]:
    """(the output frame of the encoder at which each token of `text` begins, and at which the last one ends; the
    probability of each token). `frames` of the encoder's output are sound."""
    ids = torch.tensor([[*prefix, *text, end]], device=encoded.memory.device)
    with cross_scores(model.decoder, heads) as scores:
        logits = model.decoder(
            ids,
            memory=encoded.memory,
            memory_padding_mask=encoded.padding_mask,
            memory_positions=encoded.positions,
        ).logits
    first = len(prefix)
    chosen = logits[0, first - 1 : first - 1 + len(text), :end].float().softmax(-1)
    probabilities = chosen[torch.arange(len(text)), torch.tensor(text)].tolist()
    weights = torch.stack([scores[head] for head in heads])[..., :frames].float().softmax(-1)  # (head, token, frame)
    deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, correction=0)
    smooth = median((weights - mean) / deviation, MEDIAN).mean(0)  # (token, frame)
    tokens, times = time_warping(-smooth[first - 1 : -1].double().cpu().numpy())
    return times[np.diff(tokens, prepend=-1) > 0], probabilities


@contextmanager
def cross_scores(decoder: Any, heads: Heads) -> Iterator[dict[tuple[int, int], Tensor]]:
    """While inside, (query, key) scaled scores of these heads in the last pass are collected, by (layer, head)."""
    found: dict[tuple[int, int], Tensor] = {}

    def listen(layer: int, attention: Any, chosen: list[int], stack: ExitStack) -> None:
        query: list[Tensor] = []

        def on_query(_tap: nn.Module, _inputs: Any, q: Tensor) -> None:
            query[:] = [q]

        def on_key(_tap: nn.Module, _inputs: Any, k: Tensor) -> None:
            [q] = query
            scale, share = score_scale(q.shape[-1], attention.config.scale), q.shape[1] // k.shape[1]
            for head in chosen:
                found[layer, head] = q[0, head] @ k[0, head // share].T * scale

        for tap, hook in ((attention.q, on_query), (attention.k, on_key)):
            handle = tap.register_forward_hook(hook)
            stack.callback(handle.remove)

    with ExitStack() as stack:
        for layer, group in itertools.groupby(sorted(heads), key=lambda each: each[0]):
            listen(layer, decoder.stack.blocks[layer].cross, [head for _, head in group], stack)
        yield found


def median(x: Tensor, width: int) -> Tensor:
    """Over `width` neighbours in the last dimension, mirrored at its ends."""
    half = width // 2
    if x.shape[-1] <= half:
        return x
    return F.pad(x, (half, half), mode="reflect").unfold(-1, width, 1).median(-1).values


def time_warping(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The path of least total cost (row, column) from the first to the last: its rows and its columns. A step goes one
    row down, one column on, or both; equal sums prefer the next column. Computed by diagonals, which depend only on
    those before."""
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf, dtype=np.float32)
    step = np.full((rows + 1, columns + 1), 2, dtype=np.int8)  # 0: both, 1: down, 2: on
    total[0, 0], step[1:, 0] = 0, 1
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        both, down, on = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        is_both, is_down = (both < down) & (both < on), (down < both) & (down < on)
        best = np.where(is_both, both, np.where(is_down, down, on))
        total[i, j] = cost[i - 1, j - 1] + best.astype(np.float64)
        step[i, j] = np.where(is_both, 0, np.where(is_down, 1, 2))
    path, i, j = [], rows, columns
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        taken = step[i, j]
        i, j = i - (taken != 2), j - (taken != 1)
    found = np.array(path[::-1])
    return found[:, 0], found[:, 1]


# ---------------------------------------------------------------------------------------- tokens → words


def split_words(pieces: Sequence[bytes], *, spaced: bool) -> list[tuple[str, int]]:
    """(word, number of its tokens): at spaces and punctuation, or at every whole character in languages without
    spaces. `pieces` are the bytes of the tokens."""
    decoder, whole, count = codecs.getincrementaldecoder("utf-8")("replace"), list[tuple[str, int]](), 0
    text = ""
    for piece in pieces:
        text += decoder.decode(piece)
        count += 1
        if not decoder.getstate()[0]:
            whole.append((text, count))
            text, count = "", 0
    if count:
        whole.append((text + decoder.decode(b"", final=True), count))
    if not spaced:
        return whole
    words: list[tuple[str, int]] = []
    for text, count in whole:
        if not words or text.startswith(" ") or text.strip() in string.punctuation:
            words.append((text, count))
        else:
            words[-1] = words[-1][0] + text, words[-1][1] + count
    return words


def timed_words(words: Sequence[tuple[str, int]], times: np.ndarray, probabilities: Sequence[float]) -> list[Timing]:
    """`times`: seconds at which each token begins, and at which the last one ends."""
    edges = list(itertools.accumulate((count for _, count in words), initial=0))
    return [
        Timing(text, count, float(times[a]), float(times[b]), float(np.mean(probabilities[a:b])))
        for (text, count), (a, b) in zip(words, itertools.pairwise(edges), strict=True)
    ]


def typical_seconds(timings: Sequence[Timing]) -> float:
    """The median length of a word, at most LONGEST_TYPICAL; 0 without words."""
    lengths = [timing.seconds for timing in timings if timing.seconds]
    return min(LONGEST_TYPICAL, float(np.median(lengths))) if lengths else 0.0


def shorten_at_sentences(timings: list[Timing], longest: float) -> None:
    """Pauses between sentences are attributed to the punctuation or the word beside it: cut those off."""
    if not longest:
        return
    for before, timing in itertools.pairwise(timings):
        if timing.seconds > longest:
            if timing.text in SENTENCE_ENDS:
                timing.end = timing.start + longest
            elif before.text in SENTENCE_ENDS:
                timing.start = timing.end - longest


def join_punctuation(timings: list[Timing]) -> list[Timing]:
    """Opening signs go to the word behind them, closing ones to the word before. Words keep their own times; their
    tokens are counted with them. A word that was joined to another is left with no text."""
    following = len(timings) - 1
    for number in range(len(timings) - 2, -1, -1):
        sign, word = timings[number], timings[following]
        if sign.text.startswith(" ") and sign.text.strip() in OPENING:
            word.text, word.tokens = sign.text + word.text, sign.tokens + word.tokens
            sign.text, sign.tokens = "", 0
        else:
            following = number
    previous = 0
    for number in range(1, len(timings)):
        word, sign = timings[previous], timings[number]
        if not word.text.endswith(" ") and sign.text in CLOSING:
            word.text, word.tokens = word.text + sign.text, word.tokens + sign.tokens
            sign.text, sign.tokens = "", 0
        else:
            previous = number
    return timings


# ---------------------------------------------------------------------------------------- words → segments


def place_words(
    timings: Sequence[Timing], segments: Sequence[Segment], tokens: Sequence[int], *, offset: float, typical: float,
    speech_end: float,
) -> None:  # fmt: skip
    """Gives each segment its words, and the times of its first and last word. `tokens` are the numbers of text tokens
    of the segments, `offset` is the window's start, `speech_end` the end of the speech before it, in seconds."""
    rest = list(timings)[::-1]
    for segment, count in zip(segments, tokens, strict=True):
        words, taken = list[Word](), 0
        while rest and taken < count:
            timing = rest.pop()
            taken += timing.tokens
            if timing.text:
                start, end = round(offset + timing.start, 2), round(offset + timing.end, 2)
                words.append(Word(timing.text, start, end, timing.probability))
        if words:
            shorten_after_pause(words, typical=typical, speech_end=speech_end)
            agree_with_segment(words, segment, typical=typical)
            speech_end = segment.end
        segment.words = words


def shorten_after_pause(words: list[Word], *, typical: float, speech_end: float) -> None:
    """A pause before the first word is attributed to it, or to the first two: cut it off."""
    first, second, longest = words[0], words[1] if len(words) > 1 else None, 2 * typical
    long_pair = second is not None and second.end - first.start > 2 * longest
    if first.end - speech_end <= 4 * typical or not (first.end - first.start > longest or long_pair):
        return
    if second is not None and second.end - second.start > longest:
        first.end = second.start = max(second.end / 2, second.end - longest)
    first.start = max(0, first.end - longest)


def agree_with_segment(words: list[Word], segment: Segment, *, typical: float) -> None:
    """The times of the first and the last word are the segment's; where they are much too long, the segment's own
    timestamps cut them."""
    first, last = words[0], words[-1]
    if first.start < segment.start - 0.5 and segment.start < first.end:
        first.start = max(0, min(first.end - typical, segment.start))
    else:
        segment.start = first.start
    if last.start < segment.end and segment.end + 0.5 < last.end:
        last.end = max(last.start + typical, segment.end)
    else:
        segment.end = last.end
