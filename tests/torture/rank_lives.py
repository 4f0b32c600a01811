"""A toy run of several ranks, each a `Life`, that see each other as torchrun's do and end as torchrun ends them."""

from __future__ import annotations

import os
import signal
import socket
import time
from functools import cache, partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from torture.lives import Life

LAST = 120  # seconds a rank has to end by itself; torchrun gives it 30, on a machine that does nothing else


@cache
def warm_up() -> None:
    import headway.training.fsdp  # noqa: F401 – once here, every rank has it


class Lives:
    def __init__(self, folder: Path, *, ranks: int, **options: Any) -> None:
        warm_up()
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        world = {"WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        self.lives = [Life(folder, first=partial(self._become, rank, world), **options) for rank in range(ranks)]

    def _become(self, rank: int, world: dict[str, object]) -> None:
        """In the child. What it says when another rank is gone is kept for the one who asks."""
        os.environ.update({name: str(value) for name, value in {**world, "RANK": rank}.items()})
        said = os.open(self._said(rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 2)

    def _said(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}.txt"

    @property
    def step(self) -> int:
        return self.lives[0].step

    def reach(self, step: int) -> bool:
        return self.lives[0].reach(step)

    def end(self) -> None:
        """Wait for the end of all; they must succeed."""
        codes = [life.end() for life in self.lives]
        errors = [life.error for life in self.lives]
        assert not any(codes), f"exit codes of the ranks: {codes}; {errors} {self.said(codes)}"

    def said(self, codes: list[int]) -> list[str]:
        """The last words of the ranks that failed."""
        return [self._said(rank).read_text()[-2000:] for rank, code in enumerate(codes) if code]

    def kill(self, rank: int, *, notice: float) -> list[int]:
        """A rank dies. So many seconds later the others are asked to stop, and in the end made to; all exit codes."""
        os.kill(self.lives[rank].pid, signal.SIGKILL)
        return self.fall(notice=notice)

    def fall(self, *, notice: float) -> list[int]:
        """One has ended, or ends now, and not well: so do the others."""
        wait([life.process.sentinel for life in self.lives])
        time.sleep(notice)
        for life in self.lives:
            if life.process.is_alive():
                os.kill(life.pid, signal.SIGTERM)
        for life in self.lives:
            life.process.join(LAST)
            life.process.kill()
        return [life.end() for life in self.lives]
