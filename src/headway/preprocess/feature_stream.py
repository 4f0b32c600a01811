"""The features of a recording of any length, window by window, in memory that does not grow with it.

Features are scaled by the loudest value of the whole recording, so it is decoded twice: once for that value, then again
as its windows are used. The frames of a short recording are kept from the first pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from headway.preprocess.audio import Sound
from headway.preprocess.audio_processor import AudioProcessor
from headway.preprocess.log_mel import FLOOR, LogMelStream, scaled

KEPT = 60_000  # frames of a short recording: ten minutes


class FeatureStream:
    def __init__(self, sound: Sound, processor: AudioProcessor) -> None:
        self.sound, self.processor = sound, processor
        self._loudest, self._start = math.log10(FLOOR), 0
        kept, seen, stream = list[Tensor](), 0, LogMelStream(processor.mel)
        for log in _frames(sound, stream):
            seen += len(log)
            if len(log):
                self._loudest = max(self._loudest, log.max().item())
            kept = [*kept, log] if seen <= KEPT else []
        self.frames = max(1, stream.content_frames)  # of the recording
        self._buffer = torch.cat(kept) if seen <= KEPT else torch.zeros(0, processor.bins)  # (frame, bin) from _start
        self._rest = iter(()) if seen <= KEPT else _frames(sound, LogMelStream(processor.mel))

    @property
    def seconds(self) -> float:
        return self.frames / self.processor.frames_per_second

    def log(self, start: int, size: int) -> Tensor:
        """Log power (frame, bin) of up to `size` frames, the last one behind the end of the sound. `start` must not
        decrease: frames before it are forgotten."""
        if start < self._start:
            raise ValueError(f"frame {start} was asked for after frame {self._start}")
        while len(self._buffer) < start - self._start + size:
            more = next(self._rest, None)
            if more is None:
                break
            self._buffer = torch.cat([self._buffer[start - self._start :], more])
            self._start = start
        self._buffer, self._start = self._buffer[start - self._start :], start
        return self._buffer[:size]

    def window(self, start: int, size: int) -> Tensor:
        """Features (frame, bin) of `size` frames of the recording."""
        return scaled(self.log(start, size), self._loudest)

    def beginning(self, size: int) -> Tensor:
        """Features of the first `size` frames, with silence behind the end of the recording."""
        log = self.log(0, size)
        silence = log.new_full((size - len(log), log.shape[1]), math.log10(FLOOR))
        return scaled(torch.cat([log, silence]), self._loudest)


def _frames(sound: Sound, stream: LogMelStream) -> Iterator[Tensor]:
    for block in sound.blocks():
        yield stream.push(block)
    yield stream.finish()
