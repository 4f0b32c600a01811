"""Headway: train, run and look inside transformers of every shape, on your own data."""

from __future__ import annotations

import os
import sys

# `python -m headway` has the working folder, where data lies, on its path: only Headway itself is imported from there.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[0] != os.path.dirname(__path__[0]):
    del sys.path[0]

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway import inspect
    from headway.bundle import Bundle
    from headway.explain.explanation import explain
    from headway.jobs import check, evaluate, resume, train
    from headway.jobs.predict import predict
    from headway.loading import load

__version__ = "0.1.0"
__all__ = [
    "Bundle",
    "__version__",
    "check",
    "complete",
    "evaluate",
    "explain",
    "inspect",
    "load",
    "predict",
    "resume",
    "train",
]

_LAZY = {"Bundle": "headway.bundle", "load": "headway.loading"}
_LAZY |= {"complete": "headway.jobs.predict", "predict": "headway.jobs.predict"}
_LAZY |= dict.fromkeys(("check", "evaluate", "resume", "train"), "headway.jobs")


def __getattr__(name: str) -> Any:
    """Imports on first use, so that `import headway` does not import torch."""
    if name in ("explain", "inspect"):  # packages; the first is also callable
        return import_module(f"headway.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
