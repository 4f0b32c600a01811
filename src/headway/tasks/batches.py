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


def prepare(
    task: Task, rows: Iterable[Row], folder: Path, *, key: str, progress: Progress | None = None,
    say: Callable[[str], object] | None = None,
) -> Store:  # fmt: skip
    """The rows as examples in a store, with the counts of truncated ones. An existing store for `key` is opened; an
    interrupted one is continued after its saved progress: rows before it are read again but not prepared again."""
    found = Store.open(folder, key)
    if found is not None and task.truncation.load_state_dict(found.metadata.get("truncation")):
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
        for number, row in enumerate(rows, 1):
            if number < done:
                continue
            examples = task.examples(row)  # also of the last row before: a task may depend on the previous row
            if number == done:
                continued = writer.ends_at(row.where) and task.truncation.load_state_dict(
                    writer.metadata.get("truncation")
                )
                if not continued:
                    raise damaged
                continue
            for example in examples:
                writer.add({**example, "where": row.where})
            if examples and writer.progress_due:
                writer.save_progress({"rows": number, "truncation": task.truncation.state_dict()})
            if progress is not None:
                progress(writer.count)
        if not continued:
            raise damaged
        if not writer.count:
            raise DataError("the data has no examples to train on; give some")
        writer.finish({"truncation": task.truncation.state_dict()})
    return Store.just_written(folder, key)
