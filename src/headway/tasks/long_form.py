"""Speech to text over a recording of any length, by the rules of openai/whisper's `transcribe`.

A window of 30 seconds is decoded greedily. The answer is decoded again at a higher temperature if its text repeats
itself or is improbable, and dropped if the model finds no speech and is not sure of its words. Its timestamps cut it
into segments and say where the next window begins, whose prompt is the text so far.

What a window needs from the model is a `Query`, and a recording is a generator of them: `run_together` decodes those of
several recordings in one session.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headway.generation import GenerationSettings, Hypothesis, Session
from headway.generation.filters import Allow, Filter, Force, Suppress
from headway.generation.timestamp_rules import RecordProbability, TimestampRules
from headway.layers.cache import Encoded
from headway.preprocess.feature_stream import FeatureStream
from headway.preprocess.speech_activity import may_be_speech
from headway.preprocess.speech_tokens import WITHOUT_SPACES, SpeechTask, SpeechTokens
from headway.tasks import word_timing
from headway.tasks.transcripts import OnProgress, OnSegment, Segment, Transcript

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
MAX_RATIO = 2.4  # of a text's bytes to its compressed ones; above it repeats itself
MIN_LOGPROB = -1.0  # mean over the tokens of an answer
NO_SPEECH = 0.6  # probability
FRESH_ABOVE = 0.5  # temperature from which the next window does not see this one's text


@dataclass(frozen=True)
class Query:
    """One answer that a recording needs."""

    source: Encoded | Tensor
    prompt: list[int]
    settings: GenerationSettings
    filters: tuple[Filter, ...]


Queries = Generator[Query, Hypothesis, Transcript]


@dataclass(frozen=True)
class WindowAnswer:
    """What a window says."""

    tokens: list[int]  # without forced tokens and the end
    text: str
    temperature: float
    average_logprob: float
    no_speech: float

    @property
    def compression_ratio(self) -> float:
        data = self.text.strip().encode()
        return len(data) / len(zlib.compress(data))

    @property
    def improbable(self) -> bool:
        return self.average_logprob < MIN_LOGPROB

    @property
    def acceptable(self) -> bool:
        if self.improbable and self.no_speech > NO_SPEECH:  # silence, which a higher temperature does not change
            return True
        return self.compression_ratio <= MAX_RATIO and not self.improbable

    @property
    def silent(self) -> bool:
        return self.no_speech > NO_SPEECH and self.average_logprob <= MIN_LOGPROB


@dataclass(frozen=True)
class Decoding:
    """How recordings are transcribed: the model's tokens and what was asked for."""

    model: Any
    tokens: SpeechTokens
    text_of: Callable[[Sequence[int]], str]
    bytes_of: Callable[[int], bytes]
    stride: int  # frames of a timestamp
    window: int  # frames
    frames_per_second: float
    language: str | None = None  # None: detected in the first window
    task: SpeechTask = "transcribe"
    timestamps: bool = True
    words: bool = False
    beams: int = 1
    temperatures: tuple[float, ...] = TEMPERATURES
    seed: int = 0
    suppress: tuple[int, ...] = ()
    begin_suppress: tuple[int, ...] = ()
    latest_start: int | None = 50  # of the first timestamp, in timestamps
    heads: tuple[tuple[int, int], ...] = ()  # (layer, head) of the cross-attention, for word timings

    @property
    def context(self) -> int:
        return self.model.max_context

    def seconds(self, frames: float) -> float:
        return frames / self.frames_per_second


@dataclass
class Recording:
    """The state of one transcription."""

    how: Decoding
    stream: FeatureStream
    on_segment: OnSegment | None = None
    on_progress: OnProgress | None = None
    language: str | None = None
    transcript: Transcript = field(default_factory=Transcript)
    history: list[int] = field(default_factory=list)  # tokens of the segments so far that a prompt may contain
    speech_end: float = 0.0  # seconds: of the last word
    seek: int = 0  # the window's first frame

    def queries(self) -> Queries:
        how, frames = self.how, self.stream.frames
        self.language = how.language or ("en" if not how.tokens.languages else (yield from self._detect_language()))
        self.transcript.language = self.language
        while self.seek < frames:
            size = min(how.window, frames - self.seek)
            before = self.seek
            if not may_be_speech(self.stream.log(self.seek, size)):
                self.seek += size
            else:
                encoded = self._encode(self.stream.window(self.seek, size))
                answer = yield from self._decode(encoded)
                if answer.silent:
                    self.seek += size
                else:
                    self._accept(answer, encoded, size)
            self.seek = max(self.seek, before + 1)
            if self.on_progress is not None:
                self.on_progress(how.seconds(min(self.seek, frames)), how.seconds(frames))
        return self.transcript

    # --- decoding

    def _encode(self, features: Tensor) -> Encoded:
        """Of one window, filled up with zeros."""
        parameter = next(self.how.model.parameters())
        whole = torch.nn.functional.pad(features, (0, 0, 0, self.how.window - len(features)))
        with torch.no_grad():
            return self.how.model.encode(whole[None].to(parameter.device, parameter.dtype))

    def _detect_language(self) -> Generator[Query, Hypothesis, str]:
        codes = self.how.tokens.languages
        encoded = self._encode(self.stream.beginning(self.how.window))
        choice = Allow(tuple(codes.values()), at=0)
        found = yield Query(encoded, [self.how.tokens.start], GenerationSettings(max_new_tokens=1), (choice,))
        return next(code for code, token in codes.items() if token == found.ids[0])

    def _decode(self, encoded: Encoded) -> Generator[Query, Hypothesis, WindowAnswer]:
        """The first acceptable answer, or that at the highest temperature."""
        answer = None
        for number, temperature in enumerate(self.how.temperatures):
            answer = yield from self._answer(encoded, number, temperature)
            if answer.acceptable:
                break
        assert answer is not None
        return answer

    def _answer(self, encoded: Encoded, number: int, temperature: float) -> Generator[Query, Hypothesis, WindowAnswer]:
        how, tokens = self.how, self.how.tokens
        assert self.language is not None
        forced = tokens.forced(language=self.language, task=how.task, timestamps=how.timestamps)
        past = self.history[-(how.context // 2 - 1) :]
        prompt = [tokens.previous, *past, tokens.start] if past else [tokens.start]
        settings = GenerationSettings(
            max_new_tokens=min(how.context // 2 + len(forced), how.context + 1 - len(prompt)),
            beams=how.beams if temperature == 0 else 1,
            temperature=temperature,
            seed=(how.seed + self.seek * len(TEMPERATURES) + number) % 2**63,
            eos_ids=(tokens.end,),
            renormalize=True,
        )
        no_speech = RecordProbability(tokens.no_speech)
        found = yield Query(encoded, prompt, settings, (no_speech, *self._filters(forced)))
        ids = found.ids[len(forced) :]
        total = found.score * len(found.ids)  # log-probability; forced tokens have 0
        ids = ids[:-1] if ids[-1:] == [tokens.end] else ids
        return WindowAnswer(ids, how.text_of(ids), temperature, total / (len(ids) + 1), no_speech.probability)

    def _filters(self, forced: Sequence[int]) -> Iterator[Filter]:
        how, tokens, begin = self.how, self.how.tokens, len(forced)
        if how.begin_suppress:
            yield Suppress(how.begin_suppress, begin=begin, until=begin + 1)
        never = {*how.suppress, *tokens.never_generated(), *([tokens.no_timestamps] if how.timestamps else [])}
        yield Suppress(tuple(sorted(never)))
        if how.timestamps:
            yield TimestampRules(tokens.first_timestamp, tokens.end, how.latest_start, forced=begin)
        for at, token in enumerate(forced):
            yield Force((token,), at=at)

    # --- segments

    def _accept(self, answer: WindowAnswer, encoded: Encoded, size: int) -> None:
        """Appends the segments of an answer and moves to the next window."""
        window, before = self.seek, self.seek
        segments, used, ends = self._segments(answer, size)
        self.seek = window + used
        if self.how.words:
            self._time_words(segments, encoded, size)
            last = next((word.end for s in reversed(segments) for word in reversed(s.words or [])), None)
            last = segments[-1].end if last is None and segments else last
            if last is not None and not ends and last > self.how.seconds(before):
                self.seek = round(last * self.how.frames_per_second)
            self.speech_end = self.speech_end if last is None else last
        for segment in segments:
            if segment.start == segment.end or not segment.text.strip():
                segment.text, segment.tokens, segment.words = "", [], [] if self.how.words else None
            self.transcript.segments.append(segment)
            if self.on_segment is not None and segment.text:
                self.on_segment(segment)
        self.history += [token for segment in segments for token in segment.tokens]
        if answer.temperature > FRESH_ABOVE:
            self.history = []

    def _segments(self, answer: WindowAnswer, size: int) -> tuple[list[Segment], int, bool]:
        """(segments, frames of the window that they cover, whether nothing is said behind the last of them)."""
        first, tokens, stride = self.how.tokens.first_timestamp, answer.tokens, self.how.stride
        stamped = [token >= first for token in tokens]
        ends = stamped[-2:] == [False, True]
        cuts = [place for place, (a, b) in enumerate(itertools.pairwise(stamped), 1) if a and b]
        if not cuts:
            stamps = [token - first for token in tokens if token >= first]
            length = stamps[-1] * stride if stamps and stamps[-1] else size
            return [self._segment(answer, tokens, 0, length)], size, ends
        edges = [0, *cuts, *([len(tokens)] if ends else [])]
        parts = [tokens[a:b] for a, b in itertools.pairwise(edges)]
        segments = [self._segment(answer, part, *((part[at] - first) * stride for at in (0, -1))) for part in parts]
        return segments, size if ends else (parts[-1][-1] - first) * stride, ends

    def _segment(self, answer: WindowAnswer, tokens: list[int], start: int, end: int) -> Segment:
        """`start` and `end` are frames of the window."""
        offset = self.how.seconds(self.seek)
        return Segment(
            start=offset + self.how.seconds(start),
            end=offset + self.how.seconds(end),
            text=self.how.text_of(tokens),
            tokens=list(tokens),
            seek=self.seek,
            temperature=answer.temperature,
            average_logprob=answer.average_logprob,
            compression_ratio=answer.compression_ratio,
            no_speech=answer.no_speech,
        )

    def _time_words(self, segments: list[Segment], encoded: Encoded, size: int) -> None:
        how, tokens = self.how, self.how.tokens
        assert self.language is not None
        text = [[token for token in segment.tokens if token < tokens.end] for segment in segments]
        flat, timings = list(itertools.chain.from_iterable(text)), list[word_timing.Timing]()
        if flat:
            prefix = [tokens.start, *tokens.forced(language=self.language, task=how.task, timestamps=False)]
            frames, chances = word_timing.token_times(
                how.model, encoded, prefix, flat, end=tokens.end, heads=how.heads, frames=size // how.stride
            )
            words = word_timing.split_words(
                [how.bytes_of(token) for token in flat], spaced=self.language not in WITHOUT_SPACES
            )
            timings = word_timing.timed_words(words, frames * how.stride / how.frames_per_second, chances)
        typical = word_timing.typical_seconds(timings)
        word_timing.shorten_at_sentences(timings, 2 * typical)
        word_timing.place_words(
            word_timing.join_punctuation(timings), segments, [len(part) for part in text],
            offset=how.seconds(segments[0].seek) if segments else 0.0, typical=typical, speech_end=self.speech_end,
        )  # fmt: skip


def run_together(session: Session, recordings: Sequence[Queries], *, most: int) -> list[Transcript]:
    """The transcripts of recordings, of which up to `most` are decoded at a time."""
    found: list[Transcript | None] = [None] * len(recordings)
    waiting, running = list(range(len(recordings)))[::-1], dict[int, int]()  # request → recording

    def advance(number: int, answer: Hypothesis | None) -> None:
        """Adds what the recording needs next to the session, if anything."""
        try:
            query = recordings[number].send(answer)  # type: ignore[arg-type]
        except StopIteration as end:
            found[number] = end.value
            return
        id = session.add(query.prompt, query.settings, source=query.source, filters=query.filters)
        running[id] = number

    while waiting or running:
        while waiting and len(running) < most:
            advance(waiting.pop(), None)
        for event in session.step() if running else ():
            if event.error is not None:
                raise event.error
            if event.hypothesis is not None and event.sample == 0:
                advance(running.pop(event.id), event.hypothesis)
    return [each for each in found if each is not None]
