"""Prints the order in which a training, or an HTTP request, enters the functions of Headway, for docs/architecture.md.

PYTHONPATH=tests python -m support.call_order train|request [--functions]

A line is the first call into a module (with --functions: of a function), indented by the depth of the call; a thread
other than the main one is named.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import headway

SOURCE = str(Path(headway.__file__).parent) + "/"
LOOP = "training/loop.py fit"  # a step is timed before it: from here on, functions are listed anew
TINY = [part for name in ("width=32", "layers=1", "heads=2") for part in ("--set", f"model.{name}")]
REQUEST = {"model": "writer", "prompt": "The import", "max_tokens": 4, "temperature": 0}


class CallOrder:
    """The first call of each function while recording: (thread, depth, "package/module.py function"), in order. Threads
    are followed that start after it was made."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, str]] = []
        self._entered: set[CodeType] = set()
        self._recording = False
        threading.setprofile(self._on_event)

    def modules(self) -> list[tuple[str, int, str]]:
        """The first call into each module alone."""
        first = {name.split()[0]: (thread, depth, name) for thread, depth, name in reversed(self.calls)}
        return [call for call in self.calls if first[call[2].split()[0]] == call]

    @contextmanager
    def recording(self) -> Iterator[None]:
        sys.setprofile(self._on_event)
        self._recording = True
        try:
            yield
        finally:
            self._recording = False
            sys.setprofile(None)
            threading.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if not self._recording or event != "call" or code in self._entered:
            return
        if code.co_filename.startswith(SOURCE) and not _is_import(frame):
            name = f"{code.co_filename.removeprefix(SOURCE)} {code.co_qualname}"
            if name == LOOP:
                self._entered.clear()
            self._entered.add(code)
            self.calls.append((threading.current_thread().name, _depth(frame), name))


def _is_import(frame: FrameType | None) -> bool:
    """Whether it runs because a module is imported, class bodies included."""
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(SOURCE)


def _depth(frame: FrameType | None) -> int:
    """How many functions of Headway are on the stack."""
    depth = 0
    while frame is not None:
        depth += frame.f_code.co_filename.startswith(SOURCE)
        frame = frame.f_back
    return depth


def of_training(folder: Path) -> CallOrder:
    """`headway train classify`, on built-in data with a tiny model."""
    from support.commands import headway as command

    order = CallOrder()
    with order.recording():
        done = command("train", "classify", "--steps", "2", *TINY, cwd=folder)
    assert done.returncode == 0, done.stderr
    return order


def of_request(folder: Path) -> CallOrder:
    """The second POST /v1/completions to a server of a small language model: the first one loads it."""
    from support.server import running
    from support.untrained import language_model

    order = CallOrder()
    with running(language_model(folder / "writer")) as server:
        assert server.post("/v1/completions", REQUEST).status == 200
        with order.recording():
            reply = server.post("/v1/completions", REQUEST)
    assert reply.status == 200, reply.body
    return order


def main() -> None:
    work = {"train": of_training, "request": of_request}[sys.argv[1]]
    with tempfile.TemporaryDirectory() as folder:
        order = work(Path(folder))
        for thread, depth, name in order.calls if "--functions" in sys.argv else order.modules():
            print("  " * (depth - 1) + name + ("" if thread == "MainThread" else f"  [{thread}]"))


if __name__ == "__main__":
    main()
