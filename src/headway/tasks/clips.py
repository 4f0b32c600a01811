"""Recordings for a model of clips that was trained from scratch: whole, or cut where they are quietest."""

from __future__ import annotations

from collections.abc import Generator

import torch

from headway.generation import GenerationSettings, Hypothesis
from headway.preprocess.feature_stream import FeatureStream
from headway.preprocess.text import Tokenizer
from headway.tasks.long_form import Query
from headway.tasks.transcripts import OnProgress, OnSegment, Segment, Transcript

SEARCHED = 3  # the cut is in the last third of a window
QUIET = 20  # frames over which loudness is averaged


def clip_queries(
    stream: FeatureStream, limit: int, prompt: list[int], settings: GenerationSettings, tokenizer: Tokenizer, *,
    device: torch.device, on_segment: OnSegment | None, on_progress: OnProgress | None,
) -> Generator[Query, Hypothesis, Transcript]:  # fmt: skip
    """One segment for each clip of at most `limit` frames."""
    transcript, start, rate = Transcript(), 0, stream.processor.frames_per_second
    while start < stream.frames:
        size = clip_size(stream, start, limit)
        found = yield Query(stream.window(start, size).to(device), list(prompt), settings, ())
        text = tokenizer.decode(found.ids).strip()
        spaced = text if not transcript.segments else f" {text}"
        segment = Segment(start / rate, (start + size) / rate, spaced, found.ids, average_logprob=found.score)
        transcript.segments.append(segment)
        start += size
        if on_segment is not None:
            on_segment(segment)
        if on_progress is not None:
            on_progress(start / rate, stream.seconds)
    return transcript


def clip_size(stream: FeatureStream, start: int, limit: int) -> int:
    """Frames up to the end, or up to the quietest place of the last third of `limit`."""
    left = stream.frames - start
    if left <= limit:
        return left
    loud = (10 ** stream.log(start, limit)).mean(1)  # (frame,)
    smooth = torch.nn.functional.avg_pool1d(loud[None], min(QUIET, limit), stride=1)[0]
    first = len(smooth) - max(1, len(smooth) // SEARCHED)
    return max(1, first + int(smooth[first:].argmin()) + QUIET // 2)
