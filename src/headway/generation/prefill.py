"""Prefill: prompts are read into caches of their own, in chunks between the decode steps of the running rows."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor

from headway.data.length_batches import BatchLimits, by_length
from headway.generation.attention_sinks import visible
from headway.generation.beam import BeamSearch
from headway.generation.coverage import CrossAttention
from headway.generation.request import Request
from headway.generation.sample import SampledAnswer
from headway.layers.cache import Encoded

CHUNK = 512  # most tokens of a prompt in one pass
PADDING, SOURCE_PADDING = 0.25, 0.5  # most padding of a batch of prompts or of sources, relative to its tokens
SHARED = 16  # common first tokens of all prompts that are worth a pass of their own


class Prefixes(Protocol):
    """Keeps the keys and values of past requests."""

    def restore(self, model: Any, ids: Sequence[int], cache: Any) -> int:
        """Fills an empty cache of one row with the longest known beginning of `ids`; returns its number of tokens."""

    def store(self, model: Any, ids: Sequence[int], cache: Any, row: int = 0) -> None:
        """Stores keys and values of `ids`, which are the first tokens of a row."""


class AbandonedError(Exception):
    """Nobody waits for any row of a forward pass."""


class PrefillEntry:
    """Rows of one request to be prefilled: its prompt, which all its answers or beams continue; or, after the context
    overflowed, what is still visible of each row."""

    def __init__(
        self, request: Request, units: Sequence[SampledAnswer | BeamSearch], rows: Iterable[Sequence[int]]
    ) -> None:
        self.request, self.units = request, units
        self.rows = [list(row) if request.window is None else visible(row, request.window) for row in rows]
        self.source = 0 if request.source is None else len(request.source)
        self.tokens = sum(map(len, self.rows)) + self.source

    @property
    def copies(self) -> int:
        """How many rows of the running batch continue each prefilled row."""
        return sum(unit.rows for unit in self.units) // len(self.rows)


class Job:
    """Entries that are prefilled in one cache. The first `shared` tokens, equal in all rows, are read once."""

    def __init__(self, entries: Sequence[PrefillEntry], *, shared: int = 0) -> None:
        self.entries, self.shared = list(entries), shared
        self.cache: Any = None
        self.position = 0  # tokens of each row that are in the cache
        self.attention: Tensor | None = None  # of each row's last token on the source, for the coverage penalty

    @property
    def rows(self) -> list[list[int]]:
        return [row for entry in self.entries for row in entry.rows]

    @property
    def started(self) -> bool:
        return self.cache is not None

    def start(self, model: Any, device: torch.device) -> None:
        capacity = max(entry.request.capacity for entry in self.entries)
        if not model.reads_source:
            self.cache = model.new_cache(1 if self.shared else len(self.rows), capacity=capacity)
            return
        sources: list[Any] = [entry.request.source for entry in self.entries]
        if isinstance(sources[0], Encoded):
            self.cache, *others = [model.new_cache(source, capacity=capacity) for source in sources]
            for other in others:
                self.cache.append_rows(other)
        else:
            join = padded_vectors if isinstance(sources[0], Tensor) else padded
            inputs, mask = join(sources, device=device)
            self.cache = model.encode_to_cache(inputs, padding_mask=mask, capacity=capacity)
        if len(self.rows) > len(self.entries):
            self.cache.select([i for i, entry in enumerate(self.entries) for _ in entry.rows])

    def advance(
        self, model: Any, columns: int, device: torch.device, attention: CrossAttention | None
    ) -> Tensor | None:
        """Reads the next tokens of each row: at most `columns` if the rows have one length, else all. Returns the
        logits (row, vocab) after the last token, or None if tokens are left."""
        rows = self.rows
        if self.position < self.shared:
            end = min(self.position + columns, self.shared)
            self._step(model, torch.tensor([rows[0][self.position : end]], device=device))
            self.position = end
            if end == self.shared:
                self.cache.select([0] * len(rows))
            return None
        left = [row[self.position :] for row in rows]
        lengths = list(map(len, left))
        width, ragged = max(lengths), min(lengths) < max(lengths)
        if width > columns and not ragged:
            left, width = [row[:columns] for row in left], columns
        ids, _ = padded(left, device=device)
        with attention or nullcontext():
            logits = self._step(model, ids, lengths=lengths if ragged else None)
        self.position += width
        if not ragged and self.position < len(rows[0]):
            return None
        self.attention = None if attention is None else attention.weights
        return logits.float()

    def _step(self, model: Any, ids: Tensor, lengths: Sequence[int] | None = None) -> Tensor:
        """A forward pass that looks before each layer whether anyone still waits for it."""
        self.cache.before_layer = self._check
        try:
            return model.step(ids, self.cache, lengths=lengths)
        finally:
            self.cache.before_layer = None

    def _check(self) -> None:
        if all(entry.request.abandoned for entry in self.entries):
            raise AbandonedError


class PrefillQueue:
    """Prompts waiting to be read, in turns: each has at most one chunk before the next one's turn."""

    def __init__(self, model: Any, *, budget: int | None, prefixes: Prefixes | None, device: torch.device) -> None:
        """`budget`: most tokens per step (None: no limit)."""
        self.model, self.budget, self.prefixes, self.device = model, budget, prefixes, device
        self._jobs: deque[Job] = deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, entry: PrefillEntry) -> None:
        self._jobs.append(Job([entry]))

    def remove(self, request: Request) -> None:
        for job in self._jobs:
            job.entries = [entry for entry in job.entries if entry.request is not request]
        self._jobs = deque(job for job in self._jobs if job.entries)

    def clear(self) -> None:
        self._jobs.clear()

    def run(self, attention: CrossAttention | None) -> Iterator[tuple[Job, Tensor | Exception]]:
        """One step: yields jobs whose rows are complete, with the logits after their last tokens; or with an exception,
        if the model raised one. `attention` records cross-attention where a request needs it."""
        budget = 10**12 if self.budget is None else self.budget
        self._share(budget)
        whole, spent = list[Job](), 0
        for _ in range(len(self._jobs)):
            if spent >= budget:
                break
            job = self._jobs.popleft()
            if not job.started and not job.shared:
                self._restore(job)
            if self._is_whole(job):
                [entry] = job.entries
                if spent and spent + entry.tokens > budget:
                    self._jobs.appendleft(job)
                    break
                whole.append(job)
                spent += entry.tokens
                continue
            before = job.position
            result = self._advance(job, budget - spent, attention)
            spent += (job.position - before) * (1 if job.position <= job.shared else len(job.rows))
            if result is None:
                self._jobs.append(job)
            else:
                yield job, result
        for job in self._batches(whole):
            result = self._advance(job, CHUNK, attention)
            if result is None:
                self._jobs.append(job)
            else:
                yield job, result

    def _advance(self, job: Job, budget: int, attention: CrossAttention | None) -> Tensor | Exception | None:
        """With an unlimited budget, to the end."""
        columns = max(1, min(CHUNK, budget // len(job.rows)))
        if self.model.rotary_depends_on_length:
            columns = 10**12
        wanted = attention if any(e.request.settings.coverage_penalty for e in job.entries) else None
        try:
            if not job.started:
                job.start(self.model, self.device)
            result = job.advance(self.model, columns, self.device, wanted)
            while result is None and (self.budget is None or job.position == job.shared):
                result = job.advance(self.model, columns, self.device, wanted)
            return result
        except AbandonedError:  # the request is about to be cancelled; what its layers hold is not known
            job.cache, job.position = None, 0
            return None
        except Exception as error:
            return error

    def _is_whole(self, job: Job) -> bool:
        """Whether it is a fresh prompt that one pass can read, alone or in a batch."""
        if job.started or job.shared or len(job.entries[0].rows) > 1:
            return False
        limit = CHUNK if self.budget is None else min(CHUNK, self.budget)
        return len(job.entries[0].rows[0]) <= limit or self.model.rotary_depends_on_length

    def _restore(self, job: Job) -> None:
        """Starts from the keys and values of a past request, if one began like this one."""
        [entry] = job.entries
        if self.prefixes is None or self.model.reads_source or entry.request.window is not None:
            return
        cache = self.model.new_cache(1, capacity=entry.request.capacity)
        known = self.prefixes.restore(self.model, entry.rows[0], cache)
        if known:
            job.cache, job.position = cache, known

    def _share(self, budget: int) -> None:
        """Joins the fresh prompts to one job if all of them begin with the same tokens and that saves work."""
        fresh = [
            job
            for job in self._jobs
            if not job.started and not job.shared and len(job.rows) == 1 and job.entries[0].request.window is None
        ]
        if (
            len(fresh) < 2
            or self.model.reads_source
            or self.prefixes is not None
            or self.model.rotary_depends_on_length
        ):
            return
        rows = [job.rows[0] for job in fresh]
        equal = itertools.takewhile(lambda tokens: len(set(tokens)) == 1, zip(*rows, strict=False))
        shared = min(sum(1 for _ in equal), min(map(len, rows)) - 1)
        rest = max(map(len, rows)) - shared
        saved = sum(map(len, rows)) - (shared + rest * len(rows))
        if shared >= SHARED and saved > 0 and rest <= CHUNK and rest * len(rows) <= budget:
            self._jobs = deque(job for job in self._jobs if job not in fresh)
            self._jobs.append(Job([entry for job in fresh for entry in job.entries], shared=shared))

    def _batches(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Jobs of similar lengths together. With sources, the prompts of a batch have one length (and are short), and
        the sources are what is padded."""
        if not self.model.reads_source:
            lengths = [len(job.rows[0]) for job in jobs]
            padding = 0.0 if self.model.rotary_depends_on_length else PADDING
            for group in by_length(lengths, BatchLimits(padding=padding), longest_first=True):
                yield Job([jobs[i].entries[0] for i in group])
            return
        kinds: dict[tuple[object, ...], list[PrefillEntry]] = {}
        for job in jobs:
            [entry] = job.entries
            source = entry.request.source
            shape = source.shape[1:] if isinstance(source, Tensor) else type(source)
            kinds.setdefault((len(entry.rows[0]), shape), []).append(entry)
        for entries in kinds.values():
            sources = [entry.source for entry in entries]
            for group in by_length(sources, BatchLimits(padding=SOURCE_PADDING), longest_first=True):
                yield Job([entries[i] for i in group])


def padded_vectors(rows: Sequence[Tensor], *, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """(row, length, …) and its padding mask (row, length), padded on the right with zeros; no mask if all rows have one
    length."""
    lengths = torch.tensor([len(row) for row in rows])
    whole = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True).to(device)
    if int(lengths.min()) == whole.shape[1]:
        return whole, None
    return whole, (torch.arange(whole.shape[1])[None] < lengths[:, None]).to(device)


def padded(rows: Sequence[Sequence[int]], *, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """(ids, padding mask), both (row, length), padded on the right; no mask if all rows have one length."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], dtype=torch.long, device=device)
    if min(map(len, rows)) == longest:
        return ids, None
    lengths = torch.tensor([len(row) for row in rows], device=device)[:, None]
    return ids, torch.arange(longest, device=device)[None] < lengths
