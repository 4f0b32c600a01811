"""The tasks: what a model is trained for. One file a task, one line in this registry.

Importing this module does not import torch; `find` does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from headway.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from headway.tasks.task import Task


class TaskEntry(NamedTuple):
    path: str  # module.Class in this package
    summary: str


TASKS = {
    "generate": TaskEntry("generate.Generate", "continue a text"),
    "chat": TaskEntry("chat.Chat", "answer in a conversation"),
    "translate": TaskEntry("translate.Translate", "turn a source text into a target text"),
    "summarize": TaskEntry("summarize.Summarize", "shorten a text"),
    "classify": TaskEntry("classify.Classify", "give a text a label"),
    "tag": TaskEntry("tag.Tag", "give each word a tag"),
    "answer": TaskEntry("answer.Answer", "find the answer to a question in a text"),
    "fill": TaskEntry("fill.Fill", "predict masked words"),
    "embed": TaskEntry("embed.Embed", "turn a text into a vector"),
    "vectors": TaskEntry("vectors.Vectors", "learn a vector for every word"),
    "classify-image": TaskEntry("classify_image.ClassifyImage", "give a picture a label"),
    "detect": TaskEntry("detect.Detect", "find objects in a picture and their boxes"),
    "transcribe": TaskEntry("transcribe.Transcribe", "turn speech into text"),
    "draw": TaskEntry("draw.Draw", "draw a picture from a caption"),
}


def find(name: str) -> type[Task]:
    if name not in TASKS:
        hint = did_you_mean(name, TASKS, otherwise=f"tasks: {', '.join(TASKS)}")
        raise ConfigError(f"task {name!r} is not known; {hint}")
    module, _, kind = TASKS[name].path.partition(".")
    return getattr(import_module(f"headway.tasks.{module}"), kind)
