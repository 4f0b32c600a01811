"""What is asked, one file a task."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING

from headway.errors import ConfigError

if TYPE_CHECKING:
    from headway.tasks.task import Task

TASKS = {  # the verb → (its file, its class)
    "generate": ("generate", "Generate"),
    "translate": ("translate", "Translate"),
    "classify": ("classify", "Classify"),
    "tag": ("tag", "Tag"),
    "classify-image": ("classify_image", "ClassifyImage"),
    "summarize": ("summarize", "Summarize"),
    "answer": ("answer", "Answer"),
    "fill": ("fill", "Fill"),
    "embed": ("embed", "Embed"),
}


def find(name: str) -> type[Task]:
    if name not in TASKS:
        close = difflib.get_close_matches(name, TASKS, 1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ConfigError(f"task {name!r} is not known{hint}; tasks: {', '.join(TASKS)}")
    module, kind = TASKS[name]
    return getattr(import_module(f"headway.tasks.{module}"), kind)
