"""A toy run of several ranks, each a `TrainingProcess`, with the environment and the shutdown order of torchrun."""

from __future__ import annotations

import os
import signal
import socket
import time
from functools import cache, partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from torture.child_process import TrainingProcess

SHUTDOWN_SECONDS = 120  # before a rank is killed; torchrun waits 30


@cache
def warm_up() -> None:
    import headway.training.fsdp  # noqa: F401 – imported once, before the fork


class RankProcesses:
    def __init__(self, folder: Path, *, ranks: int, **options: Any) -> None:
        warm_up()
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        world = {"WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        self.processes = [
            TrainingProcess(folder, first=partial(self._init_rank, rank, world), **options) for rank in range(ranks)
        ]

    def _init_rank(self, rank: int, world: dict[str, object]) -> None:
        """Set the environment of a rank, in the child, and redirect its stderr to a file."""
        os.environ.update({name: str(value) for name, value in {**world, "RANK": rank}.items()})
        output = os.open(self._stderr(rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 2)

    def _stderr(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}.txt"

    @property
    def step(self) -> int:
        return self.processes[0].step

    def reach(self, step: int) -> bool:
        return self.processes[0].reach(step)

    def wait(self) -> None:
        """Wait for all ranks; they must succeed."""
        codes = [child.wait() for child in self.processes]
        errors = [child.error for child in self.processes]
        assert not any(codes), f"exit codes of the ranks: {codes}; {errors} {self.stderr(codes)}"

    def stderr(self, codes: list[int]) -> list[str]:
        """The last lines of the ranks that failed."""
        return [self._stderr(rank).read_text()[-2000:] for rank, code in enumerate(codes) if code]

    def kill(self, rank: int, *, notice: float) -> list[int]:
        """Kill a rank, and after `notice` seconds terminate the others. Returns all exit codes."""
        os.kill(self.processes[rank].pid, signal.SIGKILL)
        return self.terminate(notice=notice)

    def terminate(self, *, notice: float) -> list[int]:
        """Wait for the first rank to end, and after `notice` seconds terminate the others."""
        wait([child.process.sentinel for child in self.processes])
        time.sleep(notice)
        for child in self.processes:
            if child.process.is_alive():
                os.kill(child.pid, signal.SIGTERM)
        for child in self.processes:
            child.process.join(SHUTDOWN_SECONDS)
            child.process.kill()
        return [child.wait() for child in self.processes]
