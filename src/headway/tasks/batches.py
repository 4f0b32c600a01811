"""Batches of examples in a store, or of windows over running text; and the preparation of such a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from headway.data.batch import Batch
from headway.data.batch_sampler import BatchSampler
from headway.data.check import Checker, LengthHistograms
from headway.data.read import Row
from headway.data.store import Store
from headway.data.store_writer import StoreWriter
from headway.data.stream import TokenStream
from headway.errors import DataError
from headway.tasks.task import Example, Task

Progress = Callable[[int], object]
CHUNK_ROWS, CHUNK_CHARACTERS = 1000, 1 << 20  # of rows that are tokenised together


class ExampleSource:
    """Batches of examples of similar length, each example once per epoch."""

    def __init__(
        self, store: Store, task: Task, *, batch: int, unit: Literal["examples", "tokens"], seed: int, fingerprint: str
    ):
        self.store, self.task, self.seed, self.fingerprint = store, task, seed, fingerprint
        lengths = np.max([store.lengths(name) for name in store.fields], axis=0)
        self.sampler = BatchSampler(lengths, batch=batch, unit=unit, seed=seed)

    def __len__(self) -> int:
        return len(self.store)

    def spread_examples(self, count: int) -> list[Example]:
        """Some examples, evenly from all."""
        count = min(count, len(self.store))
        return [self.store[index * len(self.store) // count] for index in range(count)]

    def longest_examples(self, count: int) -> list[Example]:
        """The longest last."""
        order = np.argsort(self.sampler.lengths, kind="stable")
        return [self.store[int(index)] for index in order[-count:]]

    def epoch(self, number: int) -> Sequence[np.ndarray]:
        return self.sampler.epoch(number)

    def load(self, indices: np.ndarray, epoch: int) -> Batch:
        places = [int(index) for index in indices]
        seeds = [(self.seed, epoch, place) for place in places]
        examples = [self.store[place] for place in places]
        for example, key in zip(examples, seeds, strict=True):
            if partners := self.task.partners(key, len(self.store)):
                example["partners"] = [self.store[place] for place in partners]
        return self.task.collate(examples, seeds=seeds, where=[self.store.where(place) for place in places])


class StreamSource:
    """Batches of windows over one long text, at another offset each epoch."""

    def __init__(self, tokens: np.ndarray, task: Task, *, context: int, batch: int, seed: int, fingerprint: str):
        self.stream = TokenStream(tokens, context)
        self.task, self.seed, self.fingerprint = task, seed, fingerprint
        self.sampler = BatchSampler(np.full(len(self.stream), context), batch=batch, seed=seed, bucket=False)
        self.parts = min(batch, len(self.stream)) if task.stream_in_order else 0  # of the text, side by side in a batch

    def __len__(self) -> int:
        return len(self.stream)

    def spread_examples(self, count: int) -> list[Example]:
        """All examples have the same length."""
        return [{"ids": self.stream.window(index)} for index in range(min(count, len(self)))]

    longest_examples = spread_examples

    def epoch(self, number: int) -> Sequence[np.ndarray]:
        if self.parts:
            return list(np.arange(self.parts * self.part_length).reshape(self.parts, -1).T)
        return self.sampler.epoch(number)

    @property
    def part_length(self) -> int:
        """Windows of each part."""
        return len(self.stream) // self.parts

    def load(self, indices: np.ndarray, epoch: int) -> Batch:
        batch = self._windows(indices, epoch)
        if not self.parts:
            return batch
        # Each part of the text has two slots for its state, written in turn, so that a step can be repeated.
        part, number = indices // self.part_length, indices % self.part_length
        slots = np.eye(2 * self.parts, dtype=np.float32)
        read = slots[part + self.parts * (number % 2)] * (number > 0)[:, None]  # an epoch begins without a state
        write = slots[part + self.parts * ((number + 1) % 2)]
        carried = {"read_slots": torch.from_numpy(read), "write_slots": torch.from_numpy(write)}
        return replace(batch, inputs={**batch.inputs, **carried})

    def _windows(self, indices: np.ndarray, epoch: int) -> Batch:
        windows = [self.stream.window(int(index), epoch, seed=self.seed) for index in indices]
        seeds = [(self.seed, epoch, int(index)) for index in indices]
        return self.task.collate(
            [{"ids": window} for window in windows], seeds=seeds, where=[f"window {index}" for index in indices]
        )


def prepare(
    task: Task, rows: Iterable[Row], folder: Path, *, key: str, progress: Progress | None = None,
    say: Callable[[str], object] | None = None, checker: Checker | None = None,
) -> Store:  # fmt: skip
    """The rows as examples in a store, with the counts of truncated ones. Every row is tokenised once; `checker` gets
    each with its lengths. An existing store for `key` is opened; an interrupted one is continued after its saved
    progress: rows before it are read again but not tokenised."""
    checker = checker or Checker()
    found = Store.open(folder, key)
    if found is not None and _restore(found.metadata, task, checker):
        for row in rows:
            checker.add(row, {})
        return found
    if (reason := Store.why_unusable(folder, key)) is not None and say is not None:
        say(f"the examples in {folder} are prepared again: {reason}")
    with StoreWriter(folder, key=key) as writer:
        damaged = DataError(
            f"{folder}: the progress file of an earlier attempt was damaged and is removed; start again"
        )
        done = writer.metadata.get("rows", 0)
        continued = not writer.count  # whether the last row of the saved progress, if there is one, was found
        if type(done) is not int or (done == 0) != continued:
            raise damaged
        for number, row in enumerate(encoded_ahead(task, rows, skip=done - 1), 1):
            if number < done:
                checker.add(row, {})
                continue
            examples = task.training_examples(row)  # also of the last row before: a task may depend on the previous row
            if number == done:
                continued = writer.ends_at(row.where) and _restore(writer.metadata, task, checker)
                if not continued:
                    raise damaged
                checker.add(row, {})
                continue
            checker.add(row, task.token_lengths(row))
            for example in examples:
                writer.add({**example, "where": row.where})
            if examples and writer.progress_due:
                writer.save_progress({"rows": number, **_state(task, checker)})
            if progress is not None:
                progress(writer.count)
        if not continued:
            raise damaged
        if not writer.count:
            raise DataError("the data has no examples to train on; give some")
        writer.finish(_state(task, checker))
    return Store.just_written(folder, key)


def encoded_ahead(task: Task, rows: Iterable[Row], *, skip: int = 0) -> Iterator[Row]:
    """The rows, with their texts tokenised in batches on all cores, except those of the first `skip` rows."""
    number = 0
    for chunk in _chunks(rows):
        task.encode_ahead(chunk[max(0, skip - number) :])
        yield from chunk
        number += len(chunk)
    task.encode_ahead([])


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """If reading a row fails, the rows before it are yielded first."""
    iterator, chunk, size = iter(rows), list[Row](), 0
    while True:
        try:
            row = next(iterator, None)
        except BaseException:
            if chunk:
                yield chunk
            raise
        if row is not None:
            chunk.append(row)
            size += sum(len(value) for value in row.fields.values() if isinstance(value, str | list))
        if chunk and (row is None or len(chunk) >= CHUNK_ROWS or size >= CHUNK_CHARACTERS):
            yield chunk
            chunk, size = [], 0
        if row is None:
            return


def _state(task: Task, checker: Checker) -> dict[str, Any]:
    return {"truncation": task.truncation.state_dict(), "lengths": checker.lengths.state_dict()}


def _restore(metadata: Mapping[str, Any], task: Task, checker: Checker) -> bool:
    lengths = LengthHistograms()
    if not lengths.load_state_dict(metadata.get("lengths")):
        return False
    if not task.truncation.load_state_dict(metadata.get("truncation")):
        return False
    checker.lengths = lengths
    return True
