"""The models that a server has, by name. A request names an entry of this table; it never names a path.

With a memory budget, models are loaded when they are used, and the least recently used ones that are idle are unloaded.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.checkpoints import resolve
from headway.engine.thread_pool import release_threads
from headway.errors import HeadwayError, InputError, closest
from headway.loading import load
from headway.memory import return_freed_memory
from headway.serving.api_errors import ApiError, without_folders
from headway.serving.limits import ServerLimits
from headway.serving.metrics import Metrics
from headway.serving.served import Served, warm_up
from headway.serving.turns import Turns

log = logging.getLogger("headway.serving")


@dataclass(eq=False)
class ModelEntry:
    name: str
    folder: Path
    created: int
    task: str = ""  # known once it was loaded
    served: Served | None = None
    users: int = 0  # requests that use it now
    last_used: float = 0.0
    size: int = 0  # bytes: of the weights' files, and of the parameters once loaded


def named(given: str) -> tuple[str, str]:
    """(name, folder or hub id) of NAME=MODEL or MODEL; a folder's name is its last part."""
    name, equals, model = given.partition("=")
    if equals and name and "/" not in name:
        return name, model
    return (Path(given).resolve().name if Path(given).exists() else given), given


def entry_of(name: str, folder: Path) -> ModelEntry:
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return ModelEntry(name, folder, int(folder.stat().st_mtime), size=size)


class ModelTable:
    def __init__(
        self,
        models: Iterable[str],
        *,
        limits: ServerLimits,
        metrics: Metrics,
        memory: int | None = None,
        weights: str | None = None,
        device: str = "cpu",
        prefix_cache: bool = True,
        may_be_empty: bool = False,
    ) -> None:
        """Hub ids are downloaded here, before the server listens. `memory`: most bytes of all loaded models."""
        self.limits, self.metrics, self.memory = limits, metrics, memory
        self.turns = Turns()
        self._load_options = {"weights": weights, "device": device}
        self._prefix_cache = prefix_cache
        self._entries: dict[str, ModelEntry] = {}
        self._lock = asyncio.Lock()  # of loading and unloading
        self._idle = asyncio.Condition()
        for given in models:
            name, model = named(given)
            if name in self._entries:
                raise InputError(f"two models are named {name!r}: give one another name, as NAME={model}")
            self._entries[name] = entry_of(name, resolve(model))
        if not self._entries and not may_be_empty:
            raise InputError("there is no model to serve: name a folder or a hub id")

    def __iter__(self) -> Iterator[ModelEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, name: str) -> ModelEntry:
        if name not in self._entries:
            close = closest(name, self._entries)
            known = f"did you mean {close[0]!r}?" if close else f"models: {', '.join(self._entries)}"
            raise ApiError(404, f"there is no model {name!r:.100}; {known}", param="model", code="model_not_found")
        return self._entries[name]

    def only(self, *tasks: str) -> str:
        """The name of the only model for one of these tasks, for routes that name none."""
        found = [entry.name for entry in self if entry.task in tasks]
        if len(found) != 1:
            kind = " or ".join(tasks)
            raise ApiError(
                400 if found else 404,
                f"{len(found)} models are for task {kind}: name one as \"model\"" if found
                else f"no model is for task {kind}",
                param="model",
            )  # fmt: skip
        return found[0]

    def load_now(self) -> None:
        """Loads every model, so that one that cannot be served is found before the server listens; then unloads those
        over the budget. Before the event loop runs."""
        for entry in self:
            self._load(entry)
            entry.last_used = time.monotonic()
            while self.memory is not None and self._used() > self.memory:
                loaded = [each for each in self if each.served is not None]
                if len(loaded) == 1:
                    raise InputError(
                        f"model {entry.name!r} takes {entry.size / 1e6:,.0f} MB in memory, more than the budget of "
                        f"{self.memory / 1e6:,.0f} MB"
                    )
                self._unload(min(loaded, key=lambda each: each.last_used))

    async def add(self, name: str, folder: Path) -> str:
        """A further model, which is loaded here; returns the name that it has in the table."""
        base, number = name, 1
        while name in self._entries:
            number += 1
            name = f"{base}-{number}"
        entry = entry_of(name, folder)
        if self.memory is not None and entry.size > self.memory:
            raise ApiError(
                400, f"{name!r:.100} has {entry.size:,} bytes of weights, more than the budget", param="name"
            )
        try:
            await self._make_loaded(entry)
        except HeadwayError as error:
            raise ApiError(400, without_folders(str(error)), param="name") from error
        entry.last_used = time.monotonic()
        self._entries[name] = entry
        return name

    @asynccontextmanager
    async def use(self, name: str) -> Any:
        """The served model, loaded if it is not; it stays loaded inside."""
        entry = self.find(name)
        entry.users += 1
        try:
            if entry.served is None:
                await self._make_loaded(entry)
            entry.last_used = time.monotonic()
            yield entry.served
        finally:
            entry.users -= 1
            if self.memory is not None:
                async with self._idle:
                    self._idle.notify_all()

    async def _make_loaded(self, entry: ModelEntry) -> None:
        async with self._lock:
            while entry.served is None:
                if self.memory is None or self._used() + entry.size <= self.memory:
                    await asyncio.to_thread(self._load, entry)
                    return
                loaded = [each for each in self if each.served is not None and not each.users]
                idle = [each for each in loaded if each.served is not None and not each.served.worker.busy]
                if idle:
                    await asyncio.to_thread(self._unload, min(idle, key=lambda each: each.last_used))
                else:
                    async with self._idle:
                        await asyncio.wait_for(self._idle.wait(), self.limits.deadline)

    def _used(self) -> int:
        return sum(entry.size for entry in self if entry.served is not None)

    def _load(self, entry: ModelEntry) -> None:
        bundle = load(entry.folder, **self._load_options)  # type: ignore[arg-type]
        with self.turns:
            warm_up(bundle)
        release_threads()  # this thread does not compute again
        served = Served(
            entry.name, bundle, turns=self.turns, limits=self.limits, metrics=self.metrics,
            prefix_cache=self._prefix_cache,
        )  # fmt: skip
        tensors = {tensor.data_ptr(): tensor for tensor in bundle.model.state_dict().values()}  # tied ones once
        entry.size = sum(tensor.nbytes for tensor in tensors.values())
        entry.served, entry.task = served, served.task.name
        served.metrics.loaded.set(1)
        log.info("loaded %s (task %s, %.0f MB)", entry.name, served.task.name, entry.size / 1e6)

    def _unload(self, entry: ModelEntry) -> None:
        served, entry.served = entry.served, None
        assert served is not None
        served.worker.close()
        served.worker.join(self.limits.drain)
        served.metrics.loaded.set(0)
        del served
        gc.collect()
        return_freed_memory()
        log.info("unloaded %s", entry.name)

    def close(self) -> None:
        """No further requests; running ones finish."""
        for entry in self:
            if entry.served is not None:
                entry.served.worker.close()

    def join(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        return all(e.served is None or e.served.worker.join(max(0.0, end - time.monotonic())) for e in self)
