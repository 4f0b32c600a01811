"""Data room: a small data set for each task, made here or found in Python itself, so that every command works offline.

`builtin(task)` gives the same rows in every process; test rows are never among the training rows, whatever the seed.
"""

from typing import get_args

from headway.data.builtin import manual
from headway.data.builtin.dates import translate
from headway.data.builtin.dialogues import chat
from headway.data.builtin.entities import tag
from headway.data.builtin.messages import classify
from headway.data.builtin.pairs import embed
from headway.data.builtin.passages import answer
from headway.data.builtin.pool import Recipe, Split, draw
from headway.data.builtin.reports import summarize
from headway.data.builtin.shapes import classify_image
from headway.data.row import Row
from headway.errors import ConfigError

RECIPES = {
    "translate": Recipe(translate, train=12_000, test=1_000),
    "summarize": Recipe(summarize, train=8_000, test=500),
    "classify": Recipe(classify, train=4_000, test=500),
    "tag": Recipe(tag, train=4_000, test=500),
    "answer": Recipe(answer, train=8_000, test=500),
    "embed": Recipe(embed, train=8_000, test=500),
    "classify-image": Recipe(classify_image, train=4_000, test=500),
    "chat": Recipe(chat, train=6_000, test=500),
}
MANUALS = {"generate": manual.generate, "fill": manual.fill}
TASKS = (*RECIPES, *MANUALS)


def builtin(task: str, *, split: Split = "train", size: int | None = None, seed: int = 0) -> list[Row]:
    """The built-in rows for a task; `size=None` gives its usual number of them."""
    if task not in TASKS:
        raise ConfigError(f"there is no built-in data for {task!r}; it exists for {', '.join(TASKS)}")
    if split not in get_args(Split):
        raise ConfigError(f"split {split!r}: choose one of {', '.join(get_args(Split))}")
    if size is not None and size < 1:
        raise ConfigError(f"size={size}: ask for at least one example")
    if task in MANUALS:
        made = MANUALS[task](split, size=size, seed=seed)
    else:
        made = draw(RECIPES[task], name=task, split=split, size=size, seed=seed)
    return [Row(fields, f"builtin/{task}/{split}:{line}") for line, fields in enumerate(made, start=1)]
