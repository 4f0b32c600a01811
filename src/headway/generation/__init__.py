"""Next-token scores → sequences: filters, stop criteria, and the search.

Names are imported on first use: the command line reads the settings without importing torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.generation.outputs import FinishedBy, Hypothesis, OnToken, Token
    from headway.generation.search import generate
    from headway.generation.settings import GenerationSettings, tokens_left
    from headway.generation.stop import TextStream

__all__ = [
    "FinishedBy",
    "GenerationSettings",
    "Hypothesis",
    "OnToken",
    "TextStream",
    "Token",
    "generate",
    "tokens_left",
]

_MODULES = {"generate": "search", "GenerationSettings": "settings", "tokens_left": "settings", "TextStream": "stop"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"headway.generation.{_MODULES.get(name, 'outputs')}"), name)
