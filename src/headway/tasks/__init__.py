"""The tasks: what a model is trained for. One file a task, one line in this registry.

Importing this module does not import torch; `find` does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from headway.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from headway.tasks.task import Task


class Entry(NamedTuple):
    path: str  # module.Class in this package
    summary: str


TASKS = {
    "generate": Entry("generate.Generate", "continue a text"),
    "chat": Entry("chat.Chat", "answer in a conversation"),
    "translate": Entry("translate.Translate", "turn a source text into a target text"),
    "summarize": Entry("summarize.Summarize", "shorten a text"),
    "classify": Entry("classify.Classify", "give a text a label"),
    "tag": Entry("tag.Tag", "give each word a tag"),
    "answer": Entry("answer.Answer", "find the answer to a question in a text"),
    "fill": Entry("fill.Fill", "predict masked words"),
    "embed": Entry("embed.Embed", "turn a text into a vector"),
    "vectors": Entry("vectors.Vectors", "learn a vector for every word"),
    "classify-image": Entry("classify_image.ClassifyImage", "give a picture a label"),
    "detect": Entry("detect.Detect", "find objects in a picture and their boxes"),
    "transcribe": Entry("transcribe.Transcribe", "turn speech into text"),
    "draw": Entry("draw.Draw", "draw a picture from a caption"),
}


def find(name: str) -> type[Task]:
    if name not in TASKS:
        hint = did_you_mean(name, TASKS, otherwise=f"tasks: {', '.join(TASKS)}")
        raise ConfigError(f"task {name!r} is not known; {hint}")
    module, _, kind = TASKS[name].path.partition(".")
    return getattr(import_module(f"headway.tasks.{module}"), kind)
