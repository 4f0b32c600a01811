"""Where the loop's batches come from: prepared examples in a store, or windows over running text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from headway.data.batch import Batch
from headway.data.batch_sampler import BatchSampler
from headway.data.read import Row
from headway.data.store import Store
from headway.data.store_writer import StoreWriter
from headway.data.stream import TokenStream
from headway.errors import DataError
from headway.tasks.task import Task

Progress = Callable[[int], object]


class ExampleSource:
    """Examples batched with others of their length, each once an epoch."""

    def __init__(
        self, store: Store, task: Task, *, batch: int, unit: Literal["examples", "tokens"], seed: int, fingerprint: str
    ):
        self.store, self.task, self.seed, self.fingerprint = store, task, seed, fingerprint
        lengths = np.max([store.lengths(name) for name in store.fields], axis=0)
        self.sampler = BatchSampler(lengths, batch=batch, unit=unit, seed=seed)

    def __len__(self) -> int:
        return len(self.store)

    def epoch(self, number: int) -> Sequence[np.ndarray]:
        return self.sampler.epoch(number)

    def load(self, indices: np.ndarray, epoch: int) -> Batch:
        places = [int(index) for index in indices]
        return self.task.collate(
            [self.store[place] for place in places],
            seeds=[(self.seed, epoch, place) for place in places],
            where=[self.store.where(place) for place in places],
        )


class StreamSource:
    """Windows over one long text, shifted anew each epoch."""

    def __init__(self, tokens: np.ndarray, task: Task, *, context: int, batch: int, seed: int, fingerprint: str):
        self.stream = TokenStream(tokens, context)
        self.task, self.seed, self.fingerprint = task, seed, fingerprint
        self.sampler = BatchSampler(np.full(len(self.stream), context), batch=batch, seed=seed, bucket=False)

    def __len__(self) -> int:
        return len(self.stream)

    def epoch(self, number: int) -> Sequence[np.ndarray]:
        return self.sampler.epoch(number)

    def load(self, indices: np.ndarray, epoch: int) -> Batch:
        windows = [self.stream.window(int(index), epoch, seed=self.seed) for index in indices]
        seeds = [(self.seed, epoch, int(index)) for index in indices]
        return self.task.collate(
            [{"ids": window} for window in windows], seeds=seeds, where=[f"window {index}" for index in indices]
        )


def prepare(task: Task, rows: Iterable[Row], folder: Path, *, key: str, progress: Progress | None = None) -> Store:
    """The rows as examples on disk, with the ledger of what was cut: written once, mapped into memory ever after.
    Interrupted, it goes on after its last mark: rows before it are read again but not prepared again."""
    found = Store.open(folder, key)
    if found is not None and task.truncation.load_state_dict(found.note.get("truncation")):
        return found
    with StoreWriter(folder, key=key) as draft:
        damaged = DataError(f"{folder}: the mark of an earlier attempt is damaged and now gone; start again")
        done, met = draft.note.get("rows", 0), not draft.count  # met: the last row before the mark, if there is one
        if type(done) is not int or (done == 0) != met:
            raise damaged
        for number, row in enumerate(rows, 1):
            if number < done:
                continue
            examples = task.examples(row)  # also of the last row before the mark: a task may look back at one
            if number == done:
                met = draft.ends_at(row.where) and task.truncation.load_state_dict(draft.note.get("truncation"))
                if not met:
                    raise damaged
                continue
            for example in examples:
                draft.add({**example, "where": row.where})
            if examples and draft.due:
                draft.mark({"rows": number, "truncation": task.truncation.state_dict()})
            if progress is not None:
                progress(draft.count)
        if not met:
            raise damaged
        if not draft.count:
            raise DataError("the data has no examples to train on; give some")
        draft.finish({"truncation": task.truncation.state_dict()})
    return Store.just_written(folder, key)
