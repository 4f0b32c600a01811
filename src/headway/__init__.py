"""Headway: train, run, look inside and serve transformers of every shape, on your own data."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway import inspect
    from headway.bundle import Bundle, load
    from headway.explain.explanation import explain
    from headway.jobs import check, evaluate, resume, train

__version__ = "0.1.0"
__all__ = ["Bundle", "__version__", "check", "evaluate", "explain", "inspect", "load", "resume", "train"]

_LAZY = {"Bundle": "headway.bundle", "load": "headway.bundle"}
_LAZY |= dict.fromkeys(("check", "evaluate", "resume"), "headway.jobs")


def __getattr__(name: str) -> Any:
    """torch is imported when a model is first asked for, not by `import headway`."""
    if name in ("explain", "inspect"):  # rooms; the first is also called
        return import_module(f"headway.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


class _Package(ModuleType):
    """`headway.train` is the function, though a room has the same name and is put there whenever it is imported."""

    @property
    def train(self) -> Any:
        return import_module("headway.jobs").train

    @train.setter
    def train(self, room: ModuleType) -> None:
        assert room is sys.modules["headway.train"]


sys.modules[__name__].__class__ = _Package
