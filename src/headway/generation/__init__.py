"""Next-token scores → sequences: a session of requests, filters, stop criteria, and `generate`.

Names are imported on first use: the command line reads the settings without importing torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.generation.filters import Filter, History
    from headway.generation.outputs import Event, FinishedBy, Hypothesis, OnToken, Token
    from headway.generation.search import generate
    from headway.generation.session import Session
    from headway.generation.settings import GenerationSettings, tokens_left
    from headway.generation.text_stream import TextStream

__all__ = [
    "Event",
    "Filter",
    "FinishedBy",
    "GenerationSettings",
    "History",
    "Hypothesis",
    "OnToken",
    "Session",
    "TextStream",
    "Token",
    "generate",
    "tokens_left",
]

_MODULES = {
    "Filter": "filters",
    "GenerationSettings": "settings",
    "History": "filters",
    "Session": "session",
    "TextStream": "text_stream",
    "generate": "search",
    "tokens_left": "settings",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"headway.generation.{_MODULES.get(name, 'outputs')}"), name)
