"""Explains one output of a model step by step, with the model's own numbers, as a page, figures or terminal output.

    headway.explain("runs/demo", "the 3rd of May 1998").save("page.html")

This module is callable, so that `headway.explain(…)` works although `headway.explain` is also the package."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

from headway.explain.explanation import Explanation, explain

__all__ = ["Explanation", "explain"]


class _CallableModule(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Explanation:
        return explain(*arguments, **options)


_own = inspect.signature(explain)
_CallableModule.__call__.__signature__ = _own.replace(  # type: ignore[attr-defined]
    parameters=[inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *_own.parameters.values()]
)
sys.modules[__name__].__class__ = _CallableModule
