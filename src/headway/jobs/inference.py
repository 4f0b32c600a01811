"""`evaluate` and `run`: a trained model on given data."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headway.bundle import Bundle, load
from headway.data.dataset import Dataset, RowReader, open_builtin, open_files
from headway.data.row import Row
from headway.distributed import World, init_distributed
from headway.errors import InputError
from headway.jobs.run_folder import PLAN, Paths, listed
from headway.tasks.distributed import chunks, distributed_map, use_ranks, world_size
from headway.tasks.task import Task

CHUNK = 64  # inputs of one call of the task
FEW = 6  # numbers of a vector that are shown


@contextmanager
def distributed() -> Iterator[World]:
    """While inside, `evaluate` and `run` divide their work among the processes that torchrun started, if any. Every
    process must enter, and every process gets all results."""
    world = init_distributed(torch.device("cpu"))
    with use_ranks(world):
        yield world


def evaluate(
    model: str | Path | Bundle,
    data: Paths | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    beams: int | None = None,
) -> dict[str, float]:
    """The scores of the model's task on files (of a folder: its test part), or on the held-out part of the run that
    trained it; a model that was not trained here is evaluated on the built-in test data. `beams` is the beam width of
    tasks that generate text for it."""
    found = evaluation(model, data, columns=columns, encoding=encoding, beams=beams)
    for line in found.truncated:
        warnings.warn(line, stacklevel=2)
    return found.scores


@dataclass(frozen=True)
class Evaluation:
    scores: dict[str, float]
    examples: int
    characters: int  # of running text, which has no examples; else 0
    data: str
    search: str  # empty: no text was generated
    truncated: list[str]  # a line for each part of the examples

    def to_dict(self) -> dict[str, Any]:
        count = {"characters": self.characters} if self.characters else {"examples": self.examples}
        facts = {**count, "data": self.data, "search": self.search, "truncated": self.truncated}
        return {**self.scores, **{name: value for name, value in facts.items() if value}}

    def lines(self) -> list[str]:
        count = f"{self.characters:,} characters" if self.characters else f"{self.examples:,} examples"
        return [*score_lines(self.scores), ", ".join(filter(None, [f"on {count} of {self.data}", self.search]))]


def evaluation(
    model: str | Path | Bundle,
    data: Paths | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    beams: int | None = None,
) -> Evaluation:
    """`evaluate`, with what was evaluated and how."""
    bundle = model if isinstance(model, Bundle) else load(model)
    task = bundle.find_task()
    options = {} if beams is None else {"beams": beams}
    search = task.search(bundle.model, **options)
    rows, name = evaluation_data(bundle, data, columns=columns, encoding=encoding)
    counts = {"examples": 0, "characters": 0}

    def counted() -> Iterator[Row]:
        for row in rows():
            counts["examples"] += 1
            counts["characters"] += len(row.fields["text"]) if row.fields.get("running") else 0
            yield row

    with task.count_truncation() as counter:
        scores = task.evaluate(bundle.model, counted(), **options)
    return Evaluation(scores, **counts, data=name, search=search, truncated=counter.summary())


def evaluation_data(
    bundle: Bundle, data: Paths | None, *, columns: Mapping[str, str] | None, encoding: str | None
) -> tuple[RowReader, str]:
    """The rows to evaluate a model on, and their name."""
    task = bundle.find_task()
    if data:
        given = open_for(task, data, columns=columns, encoding=encoding)
        return given.test, given.name
    run = held_out(bundle.folder)
    if run is not None:
        return run.valid, f"the held-out part of {run.name}"
    built_in = open_builtin(task.builtin)
    return built_in.test, built_in.name


def held_out(folder: Path | None) -> Dataset | None:
    """The data of the run in this folder; None if the folder holds no run. Imports the training settings when used."""
    if folder is None or not (folder / "training" / PLAN).exists():
        return None
    from headway.jobs.run_config import open_data, saved_plan

    return open_data(saved_plan(folder))


def open_for(task: Task, data: Paths, *, columns: Mapping[str, str] | None, encoding: str | None) -> Dataset:
    """Opens data files for a trained model's task."""
    return open_files(
        listed(data), fields=task.fields, columns=columns or {}, encoding=encoding, running=task.running_text
    )


def run(model: str | Path | Bundle, inputs: Sequence[Any], **options: Any) -> Iterator[tuple[Any, Any]]:
    """Yields (input, answer) pairs in order. Inputs are predicted in batches; input i uses seed + i."""
    bundle = model if isinstance(model, Bundle) else load(model)
    task = bundle.find_task()
    ready = [task.parse_input(given) if isinstance(given, str) else given for given in inputs]

    def work(start: int) -> list[Any]:
        seed = {"seed": options["seed"] + start} if options.get("seed") is not None else {}
        try:
            return task.predict(bundle.model, ready[start : start + CHUNK], **{**options, **seed})
        except InputError as error:
            if start == 0:
                raise
            raise InputError(f"among the inputs after the first {start}, counted from there: {error}") from error

    for starts in chunks(range(0, len(ready), CHUNK), world_size()):
        for start, answers in distributed_map(starts, work):
            yield from zip(ready[start : start + CHUNK], answers, strict=True)


def generates(bundle: Bundle) -> bool:
    """Whether the model's task generates text."""
    return bundle.find_task().generates


def format_answer(answer: Any) -> str:
    """An answer as text for the terminal."""
    if isinstance(answer, str):
        return answer
    if is_generated(answer):
        return str(answer["text"])
    if isinstance(answer, list) and answer and all(map(is_generated, answer)):
        return "\n".join(f"[{number}] {each['text']}" for number, each in enumerate(answer, 1))
    if isinstance(answer, list) and len(answer) > FEW and all(isinstance(item, float) for item in answer):
        return f"{len(answer)} numbers: {' '.join(f'{item:.4f}' for item in answer[:FEW])} … (all of them: --json)"
    return json.dumps(answer, ensure_ascii=False)


def is_generated(answer: Any) -> bool:
    """Whether it is one generated text with its details."""
    return isinstance(answer, dict) and "finished_by" in answer


def unmatched(answer: Any) -> int:
    """How many of the answers to one input do not match the constraint (regex or JSON schema)."""
    answers = answer if isinstance(answer, list) else [answer]
    return sum(each.get("fits") is False for each in answers if is_generated(each))


def score_lines(scores: Mapping[str, float]) -> list[str]:
    width = max((len(name) for name in scores), default=0)
    return [f"{name:<{width}}  {value:.4f}" for name, value in scores.items()]
