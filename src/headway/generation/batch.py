"""The running batch: rows with a cache in common that are decoded one token per step. Rows join after their prefill and
leave when they are finished."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headway.generation import beam
from headway.generation.attention_sinks import overflows
from headway.generation.beam import BeamSearch
from headway.generation.coverage import CrossAttention
from headway.generation.outputs import Event
from headway.generation.prefill import Job
from headway.generation.prompt_lookup import PromptLookup, is_exact
from headway.generation.request import Request
from headway.generation.sample import SampledAnswer, Sampler

Unit = SampledAnswer | BeamSearch  # what has rows of its own


@dataclass(frozen=True)
class SamplingPlan:
    """Which rows are chosen from in one call; valid until units join or leave."""

    sampler: Sampler | None
    sampled: Tensor | None  # rows of the sampler; None: all
    searches: list[tuple[list[BeamSearch], Tensor | None]]  # with their rows; None: all


class RunningBatch:
    def __init__(self, model: Any, device: torch.device) -> None:
        self.model, self.device = model, device
        self.units: list[Unit] = []  # in the order of their rows
        self.cache: Any = None
        self.logits: Tensor | None = None  # (row, vocab), between `decode` or `join` and `choose`
        self._tokens: list[int] = []  # last token of each row, not in the cache yet
        self._plan: SamplingPlan | None = None
        self._lookup: PromptLookup | None = None

    def __len__(self) -> int:
        return len(self.units)

    def clear(self) -> None:
        self.units, self.cache, self.logits, self._tokens, self._plan, self._lookup = [], None, None, [], None, None

    def join(self, job: Job, logits: Tensor) -> None:
        """Appends prefilled rows, each as often as the request has answers or beams."""
        copies = [entry.copies for entry in job.entries for _ in entry.rows]
        if max(copies) > 1:
            rows = [row for row, count in enumerate(copies) for _ in range(count)]
            job.cache.select(rows)
            logits = logits[rows]
            job.attention = None if job.attention is None else job.attention[rows]
        units = [unit for entry in job.entries for unit in entry.units]
        if job.attention is not None:
            add_coverage(units, job.attention)
        if self.cache is None:
            self.cache, self.logits = job.cache, logits
        else:
            self._end_lookup()
            self.cache.append_rows(job.cache)
            self.logits = logits if self.logits is None else torch.cat([self.logits, logits])
        self.units += units
        self._plan = None

    # ------------------------------------------------------------------------------------ decode

    def decode(self, attention: CrossAttention | None) -> None:
        """Feeds the last token of each row."""
        if len(self._tokens) == 1 and self._start_lookup():
            assert self._lookup is not None
            self.logits = self._lookup.step(self._tokens[0]).float()
            return
        ids = torch.tensor(self._tokens, device=self.device)[:, None]
        if attention is None:
            self.logits = self.model.step(ids, self.cache).float()
            return
        with attention:
            self.logits = self.model.step(ids, self.cache).float()
        assert attention.weights is not None
        add_coverage(self.units, attention.weights)

    def _start_lookup(self) -> bool:
        """Whether the only row may speculate."""
        if self._lookup is None:
            [unit] = self.units
            request = unit.request
            may = request.settings.speculate and request.settings.beams == 1 and request.window is None
            if not may or not is_exact(self.model, self.cache):
                return False
            source = request.source if self.model.shares_tokens and isinstance(request.source, Sequence) else None
            ids = [*(source or ()), -1, *unit.row_ids()[0][:-1]]
            self._lookup = PromptLookup(self.model, self.cache, ids=ids, capacity=request.capacity, device=self.device)
        return True

    def _end_lookup(self) -> None:
        if self._lookup is not None:
            self._lookup.drop_rejected()
            self._lookup = None

    # ------------------------------------------------------------------------------------ choose

    def choose(self) -> list[Event]:
        """Appends a token to each row, chosen from the logits. `settle` must follow."""
        logits, plan = self.logits, self._plan or self._make_plan()
        assert logits is not None
        self.logits, self._plan = None, plan
        events: list[Event] = []
        if plan.sampler is not None:
            events += plan.sampler.step(logits if plan.sampled is None else logits[plan.sampled])
        for searches, rows in plan.searches:
            events += beam.advance(searches, logits if rows is None else logits[rows])
        return events

    def _make_plan(self) -> SamplingPlan:
        answers, sampled = list[SampledAnswer](), list[int]()
        searches: dict[tuple[object, ...], tuple[list[BeamSearch], list[int]]] = {}
        row = 0
        for unit in self.units:
            if isinstance(unit, SampledAnswer):
                answers.append(unit)
                sampled.append(row)
            else:
                units, rows = searches.setdefault(unit.key, ([], []))
                units.append(unit)
                rows.extend(range(row, row + unit.rows))
            row += unit.rows
        return SamplingPlan(
            Sampler(answers, self.device) if answers else None,
            self._index(sampled, row),
            [(units, self._index(rows, row)) for units, rows in searches.values()],
        )

    def _index(self, rows: list[int], count: int) -> Tensor | None:
        return None if len(rows) == count else torch.tensor(rows, device=self.device)

    def settle(self, leaving: Collection[Unit]) -> None:
        """Removes the rows of `leaving`, and gives the others the order that the beams chose."""
        kept, rows, row = list[Unit](), list[int](), 0
        for unit in self.units:
            if unit not in leaving:
                kept.append(unit)
                rows += [row + parent for parent in unit.parents]
            row += unit.rows
        self._set_rows(kept, rows)

    def remove(self, request: Request) -> None:
        """Removes the rows of a request between two steps."""
        kept, rows, row = list[Unit](), list[int](), 0
        for unit in self.units:
            if unit.request is not request:
                kept.append(unit)
                rows += range(row, row + unit.rows)
            row += unit.rows
        if len(kept) < len(self.units):
            self._end_lookup()
            logits = self.logits
            rows = self._set_rows(kept, rows)
            self.logits = None if logits is None else logits[rows]

    def _set_rows(self, units: list[Unit], rows: list[int]) -> list[int]:
        """Keeps these units with their rows. Where each has one row, the last ones take the places of those that
        left, so that the cache moves few; returns the rows in their new order."""
        if not units:
            self.clear()
            return []
        if len(rows) == len(units) < len(self.cache):
            behind = [place for place, row in enumerate(rows) if row >= len(rows)]
            at = {row: place for place, row in enumerate(rows)}
            order = [at[place] if place in at else behind.pop() for place in range(len(rows))]
            units, rows = [units[place] for place in order], [rows[place] for place in order]
        if rows != list(range(len(self.cache))):  # else nothing is copied
            self.cache.select(rows)
        if len(units) < len(self.units):
            self._plan = None
        self.units, self._tokens = units, [token for unit in units for token in unit.tokens]
        return rows

    def rows(self) -> Iterable[tuple[int, Unit]]:
        """The units with their first rows."""
        row = 0
        for unit in self.units:
            yield row, unit
            row += unit.rows


def overflowing(unit: Unit) -> bool:
    """Whether the unit's newest token does not fit the context, so that its rows must be shortened."""
    window = unit.request.window
    return window is not None and overflows(unit.length, window)


def add_coverage(units: Sequence[Unit], attention: Tensor) -> None:
    """`attention` (row, source): of the newest token of each row."""
    row = 0
    for unit in units:
        if isinstance(unit, BeamSearch) and unit.coverage is not None:
            unit.coverage.add(attention[row : row + unit.rows], unit.parents)
        row += unit.rows
