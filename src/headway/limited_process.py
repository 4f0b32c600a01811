"""Runs a script of Headway's own on untrusted data in a separate process with limits on CPU time and memory.

The process reads one JSON object on standard input and writes one on standard output; a `KeptProcess` reads and writes
one per line until its input ends. It runs in Python's isolated mode, so this file imports nothing but the standard
library.
"""

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
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

TIMEOUT_FACTOR = 20  # wall-clock limit in units of CPU seconds: other processes may use the CPU


CRASHES = (signal.SIGSEGV, signal.SIGILL, signal.SIGFPE)


class LimitError(Exception):
    """The process was stopped at one of its limits."""


class CrashError(Exception):
    """The process ended without an answer; the message is the last line that it wrote."""


def run_limited(script: Path, request: dict[str, Any], *, seconds: int, memory: int) -> Any:
    """The script's answer to `request`. `seconds` limits CPU time, `memory` the bytes of address space; Windows has no
    such limits, and the process is stopped by a timeout there."""
    command = [sys.executable, "-I", __file__, str(script), str(seconds), str(memory)]
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
    answers. The limit on CPU time is per request; a process that reaches a limit is replaced. Thread-safe."""

    def __init__(self, script: Path, *, memory: int) -> None:
        self.script, self.memory = script, memory
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._owner = 0
        atexit.register(self.close)

    def run(self, request: dict[str, Any], *, seconds: int) -> Any:
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps({"seconds": seconds, "request": request}) + "\n")
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

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None or self._owner != os.getpid():
            command = [sys.executable, "-I", __file__, str(self.script), "kept", str(self.memory)]
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


def _read(stream: Any, lines: "SimpleQueue[str]") -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put("")


def limit(seconds: int, memory: int) -> None:
    """Limits memory and CPU time of this process, and forbids writing files."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    limit_seconds(seconds)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def limit_seconds(seconds: int) -> None:
    """Limits the CPU time of this process from now on."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime) + seconds, hard))


def answer_lines(answer: Any, memory: int) -> None:
    """One request per line of standard input, until it ends."""
    limit(60, memory)
    for line in sys.stdin:
        given = json.loads(line)
        if "resource" in sys.modules:
            limit_seconds(given["seconds"])
        print(json.dumps(answer(given["request"])), flush=True)


if __name__ == "__main__":
    path, seconds, memory = sys.argv[1:]
    started = runpy.run_path(path)  # its imports are not limited
    if seconds == "kept":
        answer_lines(started["answer"], int(memory))
    else:
        request = json.load(sys.stdin)
        limit(int(seconds), int(memory))
        json.dump(started["answer"](request), sys.stdout)
