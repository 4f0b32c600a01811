"""One target under fire: inputs are made from seeds and from earlier inputs that were answered in a new way.

The only answers allowed are a result and a HeadwayError, within bounded time and memory, and without another program.
Anything else is a crash, and its input is kept.
"""

from __future__ import annotations

import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from headway.errors import HeadwayError
from headway.memory import peak_memory

SLOW = 10  # seconds of the processor: longer for one small input is a fault too
MEMORY = 1 << 30  # bytes that the process may grow by for one small input
MOST_KEPT = 3000
PROGRAMS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pty.spawn")
OWN = "limited_process.py"  # of Headway, with limits
started: list[str] = []  # programs


def _notice_programs(event: str, arguments: tuple[Any, ...]) -> None:
    if event in PROGRAMS and OWN not in str(arguments):
        started.append(f"{event} {arguments!r:.200}")


sys.addaudithook(_notice_programs)  # cannot be taken back


@dataclass(frozen=True)
class Target:
    """`read` is given a path with the input in it. `change` makes a new input of an old one."""

    name: str
    file: str  # its name decides how it is read
    seeds: Sequence[bytes]
    read: Callable[[Path], object]
    change: Callable[[bytes, Sequence[bytes], Random], bytes]
    share: float = 1.0  # of all inputs


@dataclass
class Crash:
    data: bytes
    trace: str

    @property
    def kind(self) -> str:
        """What was raised and where: crashes of one kind are one fault."""
        lines = self.trace.strip().splitlines()
        places = [line.strip() for line in lines if "/headway/" in line] or lines[-2:-1]
        return f"{lines[-1][:120]} | {places[-1].split('/headway/')[-1]}"


@dataclass
class Outcome:
    inputs: int = 0
    refused: int = 0
    read: int = 0
    ways: int = 0
    seconds: float = 0.0  # of the processor
    crashes: dict[str, Crash] = field(default_factory=dict)


def fire(target: Target, *, inputs: int, seed: int, folder: Path | None = None) -> Outcome:
    """Runs a target on that many inputs; the same seed makes the same inputs."""
    random, outcome, seen = Random(f"{target.name} {seed}"), Outcome(), set[str]()
    corpus = list(target.seeds)
    began = time.process_time()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        path = Path(scratch) / target.file
        path.parent.mkdir(parents=True, exist_ok=True)
        for number in range(inputs):
            fresh = number >= len(target.seeds)
            data = target.change(random.choice(corpus), corpus, random) if fresh else target.seeds[number]
            path.write_bytes(data)
            way = _answer(target, path, data, outcome)
            outcome.inputs += 1
            if way not in seen:
                seen.add(way)
                if fresh and len(corpus) < MOST_KEPT:
                    corpus.append(data)
    outcome.ways, outcome.seconds = len(seen), time.process_time() - began
    return outcome


def _answer(target: Target, path: Path, data: bytes, outcome: Outcome) -> str:
    """How the input was answered, in words without its own names and numbers."""
    before = peak_memory() or 0
    started.clear()
    try:
        with _time_limit():
            try:
                result: Any = target.read(path)
            finally:
                _check_process(before)
    except HeadwayError as error:
        outcome.refused += 1
        assert str(error).strip(), "an error without a message"
        return re.sub(r"'[^']*'|\"[^\"]*\"|\d+|/\S+", "", str(error))[:80]
    except KeyboardInterrupt:
        raise
    except BaseException:
        crash = Crash(data, traceback.format_exc())
        outcome.crashes.setdefault(crash.kind, crash)
        return crash.kind
    outcome.read += 1
    return f"read {result}"


def _check_process(before: int) -> None:
    if started:
        raise AssertionError(f"a program was started: {started[0]}")
    if (grown := (peak_memory() or 0) - before) > MEMORY:
        raise AssertionError(f"the process grew by {grown >> 20} MB")


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {SLOW} seconds for one input")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SLOW)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
