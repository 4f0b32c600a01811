"""How an answer came about, step by step, with the model's own numbers: one story, many views.

    headway.explain("runs/demo", "the 3rd of May 1998").save("page.html")

The room is called by its own name, so `headway.explain(…)` and `headway.explain.story` are both what they say."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from headway.explain.explanation import Explanation, explain

__all__ = ["Explanation", "explain"]


class _Room(ModuleType):
    def __call__(self, *given: Any, **options: Any) -> Explanation:
        return explain(*given, **options)


sys.modules[__name__].__class__ = _Room
