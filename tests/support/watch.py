"""Python's own audit events, to prove what did not happen: no code from a file was run, no socket was opened.

A canary leaves a folder behind when it is run: see `Canary`. The events tell of everything else.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind", "socket.sendto")
CODE = ("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "marshal.loads",
        "marshal.load", "ctypes.dlopen", "os.startfile", "pty.spawn", "shutil.unpack_archive")  # fmt: skip
_listeners: list[Callable[[str, tuple[Any, ...]], None]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for listener in _listeners:
        listener(event, arguments)


sys.addaudithook(_hook)  # cannot be taken back; without listeners it does nothing


@contextmanager
def watched(folder: Path) -> Iterator[list[str]]:
    """Collects every attempt to run code or use the network, and all code that comes from `folder`."""
    seen: list[str] = []

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith("marshal.") and sys._getframe(2).f_code.co_filename.startswith("<frozen import"):
            return  # Python's own cache of its own modules
        if event == "ctypes.dlopen" and arguments == (None,):
            return  # this very program, for its memory settings
        if event in NETWORK or event in CODE:
            seen.append(f"{event} {arguments!r:.80}")
        elif event == "exec" and str(folder) in getattr(arguments[0], "co_filename", ""):
            seen.append(f"exec {arguments[0].co_filename}")

    _listeners.append(listen)
    try:
        yield seen
    finally:
        _listeners.remove(listen)


class Canary:
    """Unpickled, it leaves a folder behind."""

    def __init__(self, sign: Path) -> None:
        self.sign = sign

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.sign),)


def torch_pickle(canary: Canary, *, zipped: bool) -> bytes:
    buffer = io.BytesIO()
    torch.save({"a": canary}, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


PICKLES: dict[str, Callable[[Canary], bytes]] = {
    "pickle 0": lambda canary: pickle.dumps(canary, protocol=0),
    "pickle 2": lambda canary: pickle.dumps(canary, protocol=2),
    "pickle 5": lambda canary: pickle.dumps(canary, protocol=5),
    "torch zip": lambda canary: torch_pickle(canary, zipped=True),
    "torch legacy": lambda canary: torch_pickle(canary, zipped=False),
}
