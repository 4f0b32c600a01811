"""Room: tasks. Where the loop's batches come from: prepared examples in a store, or windows over running text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headway.data.batch import Batch
from headway.data.order import Order
from headway.data.read import Row
from headway.data.store import Store
from headway.data.stream import TokenStream
from headway.errors import DataError
from headway.tasks.task import Task


class ExampleSource:
    """Examples batched with others of their length, each once an epoch."""

    def __init__(
        self, store: Store, task: Task, *, batch: int, unit: Literal["examples", "tokens"], seed: int, fingerprint: str
    ):
        self.store, self.task, self.seed, self.fingerprint = store, task, seed, fingerprint
        lengths = np.max([store.lengths(name) for name in store.fields], axis=0)
        self.order = Order(lengths, batch=batch, unit=unit, seed=seed)

    def __len__(self) -> int:
        return len(self.store)

    def epoch(self, number: int) -> Sequence[np.ndarray]:
        return self.order.epoch(number)

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
        self.order = Order(np.full(len(self.stream), context), batch=batch, seed=seed, bucket=False)

    def __len__(self) -> int:
        return len(self.stream)

    def epoch(self, number: int) -> Sequence[np.ndarray]:
        return self.order.epoch(number)

    def load(self, indices: np.ndarray, epoch: int) -> Batch:
        windows = [self.stream.window(int(index), epoch, seed=self.seed) for index in indices]
        seeds = [(self.seed, epoch, int(index)) for index in indices]
        return self.task.collate(
            [{"ids": window} for window in windows], seeds=seeds, where=[f"window {index}" for index in indices]
        )


def prepare(task: Task, rows: Iterable[Row], folder: Path, *, key: str, progress: Any = None) -> Store:
    """The rows as examples on disk, with the ledger of what was cut: written once, mapped into memory ever after."""
    found, ledger = Store.open(folder, key), folder.with_name(f"{folder.name}-cut.json")
    if found is not None and ledger.exists():
        task.ledger.recall(json.loads(ledger.read_text(encoding="utf-8")))
        return found

    def examples() -> Iterator[dict[str, Any]]:
        for row in rows:
            for example in task.examples(row):
                yield {**example, "where": row.where}

    try:
        store = Store.build(folder, examples(), key=key, progress=progress)
        ledger.write_text(json.dumps(task.ledger.to_dict()), encoding="utf-8")
        return store
    except DataError as error:
        if "no examples" in str(error):
            raise DataError("the data has no examples to train on") from error
        raise
