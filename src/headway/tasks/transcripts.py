"""A transcript: segments of a recording with their times, and its forms as text, SRT, WebVTT, TSV and JSON."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from headway.printable import as_cell

Format = Literal["txt", "srt", "vtt", "tsv", "json"]
FORMATS: tuple[str, ...] = get_args(Format)


@dataclass
class Word:
    text: str  # with the space before it
    start: float  # seconds
    end: float
    probability: float

    def to_dict(self) -> dict[str, Any]:
        return {"word": self.text, "start": self.start, "end": self.end, "probability": self.probability}


@dataclass
class Segment:
    start: float  # seconds
    end: float
    text: str  # with the space before it
    tokens: list[int]
    seek: int = 0  # first frame of the window
    temperature: float = 0.0  # of the answer that it is a part of, as are the numbers below
    average_logprob: float = 0.0
    compression_ratio: float = 0.0
    no_speech: float = 0.0  # probability
    words: list[Word] | None = None

    def to_dict(self, number: int) -> dict[str, Any]:
        """By the names of openai/whisper's JSON."""
        out: dict[str, Any] = {
            "id": number,
            "seek": self.seek,
            "start": self.start,
            "end": self.end,
            "text": self.text,
            "tokens": self.tokens,
            "temperature": self.temperature,
            "avg_logprob": self.average_logprob,
            "compression_ratio": self.compression_ratio,
            "no_speech_prob": self.no_speech,
        }
        return out if self.words is None else {**out, "words": [word.to_dict() for word in self.words]}


@dataclass
class Transcript:
    segments: list[Segment] = field(default_factory=list)
    language: str | None = None

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)

    def to_dict(self) -> dict[str, Any]:
        segments = [segment.to_dict(number) for number, segment in enumerate(self.segments)]
        return {"text": self.text.strip(), "segments": segments, "language": self.language}


class Writer:
    """A transcript in one of `FORMATS`, segment by segment: `begin`, `add` for each, `finish`."""

    def __init__(self, format: Format) -> None:
        self.format, self.count = format, 0

    def begin(self) -> str:
        return {"vtt": "WEBVTT\n\n", "tsv": "start\tend\ttext\n"}.get(self.format, "")

    def add(self, segment: Segment) -> str:
        if self.format == "json" or not segment.text.strip():
            return ""
        if self.format == "txt":
            return line(segment.text) + "\n"
        return "".join(map(self._cue, [segment] if self.format == "vtt" or not segment.words else segment.words))

    def finish(self, transcript: Transcript) -> str:
        return json.dumps(transcript.to_dict(), ensure_ascii=False, indent=2) + "\n" if self.format == "json" else ""

    def _cue(self, part: Segment | Word) -> str:
        self.count += 1
        if self.format == "tsv":
            return f"{round(1000 * part.start)}\t{round(1000 * part.end)}\t{as_cell(line(part.text))}\n"
        if self.format == "srt":
            times = f"{clock(part.start, ',')} --> {clock(part.end, ',')}"
            return f"{self.count}\n{times}\n{line(part.text).replace('-->', '->')}\n\n"
        return f"{clock(part.start, '.')} --> {clock(part.end, '.')}\n{_cue_text(part)}\n\n"


def _cue_text(part: Segment | Word) -> str:
    """The text of a WebVTT cue, each word after its own time if words have times."""
    words = getattr(part, "words", None)
    if not words:
        return html.escape(line(part.text), quote=False)
    pieces = [f"<{clock(word.start, '.')}>{html.escape(line(word.text), quote=False)}" for word in words]
    return " ".join(pieces)


def line(text: str) -> str:
    return " ".join(text.split())


def clock(seconds: float, point: str) -> str:
    """00:01:02.345"""
    milliseconds = round(max(0.0, seconds) * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{milliseconds // 1000:02d}{point}{milliseconds % 1000:03d}"


OnSegment = Callable[[Segment], None]
OnProgress = Callable[[float, float], None]  # seconds done, seconds of the recording
