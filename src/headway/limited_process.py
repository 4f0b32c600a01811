"""Python child processes. None of them imports modules from the working folder, where data lies: `python_command`,
`child_environment` and `start_process` are the only ways to start one.

`run_limited` runs a script of Headway's own on untrusted data with limits on CPU time and memory. Its process reads one
JSON object on standard input and writes one on standard output; a `KeptProcess` reads and writes one per line until its
input ends. This file imports nothing but the standard library.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess, SpawnProcess

SAFE_PATH = ("-P",)  # options of Python: the working folder is not on the path of imports
SAFE_ENVIRONMENT = {"PYTHONSAFEPATH": "1"}  # the same, also for the processes that a child starts
TIMEOUT_FACTOR = 20  # wall-clock limit in units of CPU seconds: other processes may use the CPU


CRASHES = (signal.SIGSEGV, signal.SIGILL, signal.SIGFPE)


def python_command(*arguments: str) -> list[str]:
    """A command that starts Python."""
    return [sys.executable, *SAFE_PATH, *arguments]


def child_environment() -> dict[str, str]:
    """This process's environment variables, for a process that may be or start a Python."""
    return os.environ | SAFE_ENVIRONMENT


def start_process(
    target: Callable[..., Any], *arguments: Any, preload: list[str] | None = None
) -> SpawnProcess | ForkServerProcess:
    """A process that calls a function of a module. `preload`: modules that a server process imports once, from which
    every process is then forked."""
    import multiprocessing

    with _safe_imports():
        if preload is None:
            process: Any = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
        else:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(preload)
            process = context.Process(target=target, args=arguments, daemon=True)
        process.start()
    return process


@contextlib.contextmanager
def _safe_imports() -> Iterator[None]:
    """What multiprocessing hands to the processes that it starts: the environment, the path without the working folder
    (a notebook has it; the folder that Headway itself is in stays), and a main module without a file, because it would
    run the caller's script again, which may need that folder."""
    import types

    here, home = os.path.realpath(""), os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
    before, path, main = dict(os.environ), list(sys.path), sys.modules["__main__"]
    os.environ.update(SAFE_ENVIRONMENT)
    if SAFE_PATH:
        sys.path[:] = [each for each in path if os.path.realpath(each) != here or here == home]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"], sys.path[:] = main, path
        for name in SAFE_ENVIRONMENT.keys() - before.keys():
            del os.environ[name]


class LimitError(Exception):
    """The process was stopped at one of its limits."""


class CrashError(Exception):
    """The process ended without an answer; the message is the last line that it wrote."""


def run_limited(script: Path, request: dict[str, Any], *, seconds: int, memory: int) -> Any:
    """The script's answer to `request`. `seconds` limits CPU time, `memory` the bytes of address space beyond that of
    the script's imports; Windows has no such limits, and the process is stopped by a timeout there."""
    command = python_command(__file__, str(script), str(seconds), str(memory))
    timeout = seconds * TIMEOUT_FACTOR
    try:
        done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise LimitError from None
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise _failure(done.returncode, done.stderr) from None


def _failure(code: int, errors: str) -> Exception:
    """Why a process with this exit code gave no answer."""
    if -code in CRASHES:
        return CrashError(f"it crashes ({signal.Signals(-code).name})")
    if code < 0:  # another signal ended it
        return LimitError()
    return CrashError((errors.strip().splitlines() or [f"exit code {code}"])[-1])


class KeptProcess:
    """As `run_limited`, with one process for many requests: starting Python and its imports takes longer than most
    answers. The limits are per request; a process that reaches one is replaced. Thread-safe."""

    def __init__(self, script: Path, *, memory: int) -> None:
        self.script, self.memory = script, memory
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._owner = 0
        atexit.register(self.close)

    def run(self, request: dict[str, Any], *, seconds: int, more_memory: int = 0) -> Any:
        """`more_memory`: bytes that this request may need beyond those of any."""
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            try:
                process.stdin.write(
                    json.dumps({"limits": [seconds, self.memory + more_memory], "request": request}) + "\n"
                )
                process.stdin.flush()
                line = self._lines.get(timeout=seconds * TIMEOUT_FACTOR)
            except Empty:
                self._stop()
                raise LimitError from None
            except OSError:
                line = ""
            try:
                return json.loads(line)
            except ValueError:
                raise self._stop() from None

    def close(self) -> None:
        if self._process is not None and self._owner == os.getpid():
            self._stop()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None or self._owner != os.getpid():
            command = python_command(__file__, str(self.script), "kept")
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
            self._lines, self._owner = SimpleQueue(), os.getpid()
            threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
        return self._process

    def _stop(self) -> Exception:
        """Ends the process; returns why it gave no answer."""
        process, self._process = self._process, None
        assert process is not None and process.stdin is not None and process.stderr is not None
        with contextlib.suppress(OSError):
            process.stdin.close()  # it ends, unless it is at work
        try:
            process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
        with process.stderr:
            errors = process.stderr.read()
        return _failure(process.wait(), errors)


def _read(stream: Any, lines: SimpleQueue[str]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put("")


def limit(seconds: int, memory: int, *, used: int) -> None:
    """Limits memory of this process beyond the `used` bytes, and its CPU time from now on; forbids writing files."""
    try:
        import resource
    except ImportError:
        return
    times = resource.getrusage(resource.RUSAGE_SELF)
    soft = {
        resource.RLIMIT_AS: used + memory,
        resource.RLIMIT_CPU: math.ceil(times.ru_utime + times.ru_stime) + seconds,
        resource.RLIMIT_FSIZE: 0,
    }
    for kind, most in soft.items():
        resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


def address_space() -> int:
    """Bytes that this process has now; libraries reserve some for every core. 0 if the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def answer_lines(answer: Any) -> None:
    """One request per line of standard input, until it ends."""
    used = address_space()
    for line in sys.stdin:
        given = json.loads(line)
        limit(*given["limits"], used=used)
        print(json.dumps(answer(given["request"])), flush=True)


if __name__ == "__main__":
    path, *limits = sys.argv[1:]
    started = runpy.run_path(path)  # its imports are not limited
    if limits == ["kept"]:
        answer_lines(started["answer"])
    else:
        request = json.load(sys.stdin)
        limit(*map(int, limits), used=address_space())
        json.dump(started["answer"](request), sys.stdout)
