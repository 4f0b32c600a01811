"""Room: jobs. `evaluate` and `run`: a trained model on a person's inputs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.bundle import Bundle, load
from headway.data.dataset import open_builtin, open_files
from headway.data.lines import lines
from headway.errors import InputError
from headway.jobs.plan import Paths, listed
from headway.jobs.training import task_of

CHUNK = 64  # inputs answered together


def evaluate(
    model: str | Path | Bundle,
    data: Paths | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    **options: Any,
) -> dict[str, float]:
    """The task's own scores on a file (a folder's test part), or on the built-in test data."""
    bundle = model if isinstance(model, Bundle) else load(model)
    task = task_of(bundle)
    if not data:
        found = open_builtin(task.name)
    else:
        found = open_files(
            listed(data), fields=task.fields, columns=columns or {}, encoding=encoding, running=task.running
        )
    return task.evaluate(bundle.model, found.test(), **options)


def run(model: str | Path | Bundle, inputs: Sequence[Any], **options: Any) -> Iterator[tuple[Any, Any]]:
    """(input, answer) pairs, in order; inputs are answered in batches."""
    bundle = model if isinstance(model, Bundle) else load(model)
    task = task_of(bundle)
    ready = [task.parse(given) if isinstance(given, str) else given for given in inputs]
    for start in range(0, len(ready), CHUNK):
        part = ready[start : start + CHUNK]
        yield from zip(part, task.answer(bundle.model, part, **options), strict=True)


def speaks(bundle: Bundle) -> bool:
    """Whether an answer can be heard while it is written."""
    return task_of(bundle).speaks


def input_lines(path: Path) -> list[str]:
    if not path.exists():
        raise InputError(f"{path}: no such file")
    return [text for _, text in lines(path)]


def shown(answer: Any) -> str:
    """An answer as a person reads it."""
    if isinstance(answer, str):
        return answer
    if isinstance(answer, list) and all(isinstance(item, str) for item in answer):
        return "\n".join(answer)
    return json.dumps(answer, ensure_ascii=False)


def score_lines(scores: Mapping[str, float]) -> list[str]:
    width = max((len(name) for name in scores), default=0)
    return [f"{name:<{width}}  {value:.4f}" for name, value in scores.items()]
