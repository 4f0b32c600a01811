"""`evaluate` and `run`: a trained model on given data."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headway.baselines import Baseline, baseline_lines
from headway.bundle import Bundle
from headway.data.dataset import Dataset, RowReader, open_builtin, open_files
from headway.data.images import WORDS
from headway.data.paths import as_folder, expand
from headway.data.report import skipped_lines
from headway.data.row import Row, Skipped
from headway.data.split import find_parts
from headway.data.tables import Tables, as_tables
from headway.distributed import World, init_distributed
from headway.errors import DataError, InputError
from headway.files import is_present
from headway.jobs.columns import Columns, columns_for
from headway.jobs.notebook import Scores
from headway.jobs.run_folder import PLAN, Paths, listed, run_file
from headway.kinds.predictions import LabelSetPrediction, PicturePrediction
from headway.loading import as_bundle, load
from headway.printable import printable
from headway.tasks.distributed import chunks, distributed_map, is_first_rank, use_ranks, world_size
from headway.tasks.evaluated import Evaluated
from headway.tasks.task import Task

PAGE = "report.html"  # in the folder of a report
CHUNK = 64  # inputs of one call of the task


@contextmanager
def distributed() -> Iterator[World]:
    """While inside, `evaluate` and `run` divide their work among the processes that torchrun started, if any. Every
    process must enter, and every process gets all results."""
    world = init_distributed(torch.device("cpu"))
    with use_ranks(world):
        yield world


def evaluate(
    model: str | Path | Bundle,
    data: Any = None,
    *,
    columns: Columns | None = None,
    encoding: str | None = None,
    beams: int | None = None,
    judge: str | Path | None = None,
    reference: str | Path | None = None,
    device: str | None = None,
) -> dict[str, float]:
    """The scores of the model's task on files (of a folder: its test part), or on the held-out part of the run that
    trained it; a model that was not trained here is evaluated on the built-in test data. `beams` is the beam width of
    tasks that generate text for it; `judge` a model of classify-image that judges drawn pictures; `reference` the model
    that rewards of preferences are relative to (chat). `data` may also be a table, as for `train`. `device` is where
    the model is loaded (default: cpu).

    >>> rows = [{"text": "what a fine day", "label": "good"}, {"text": "rain again today", "label": "bad"}]
    >>> headway.evaluate("weather", rows)["accuracy"]
    1.0
    """
    data = as_tables(data) or data
    found = evaluation(
        model, data, columns=columns, encoding=encoding, beams=beams, judge=judge, reference=reference, device=device
    )
    for line in found.truncated:
        warnings.warn(printable(line), stacklevel=2)
    return Scores(found.scores)


@dataclass(frozen=True)
class Evaluation:
    scores: dict[str, float]
    examples: int
    characters: int  # of running text, which has no examples; else 0
    data: str
    search: str  # empty: no text was generated
    truncated: list[str]  # a line for each part of the examples
    by_label: dict[str, dict[str, float]] | None = None  # with a report
    report: str = ""  # the folder of the report
    baselines: Sequence[Baseline] = ()  # cheap models on the same examples
    metric: str = ""  # of the task
    signature: str = ""  # identifies how the scores were computed; empty: the task has none
    note: str = ""  # that the model was trained on these examples
    skipped: Sequence[str] = ()  # what of the data was not read

    def to_dict(self) -> dict[str, Any]:
        count = {"characters": self.characters} if self.characters else {"examples": self.examples}
        facts = {**count, "data": self.data, "search": self.search, "truncated": self.truncated}
        facts |= {"signature": self.signature, "note": self.note, "skipped": list(self.skipped)}
        facts |= {"labels": self.by_label, "report": self.report}
        facts |= {"baselines": {each.name: dict(each.scores) for each in self.baselines}}
        return {**self.scores, **{name: value for name, value in facts.items() if value}}

    @property
    def count(self) -> str:
        return f"{self.characters:,} characters" if self.characters else f"{self.examples:,} examples"

    def lines(self) -> list[str]:
        beside = [f"baseline: {line}" for line in baseline_lines(self.baselines, self.scores, metric=self.metric)]
        about = ", ".join(filter(None, [f"on {self.count} of {self.data}", self.search]))
        signature = [f"signature: {self.signature}"] if self.signature else []
        note = [f"note: {self.note}"] if self.note else []
        left_out = [f"skipped: {line}" for line in self.skipped]
        lines = [*score_lines(self.scores), *signature, *beside, about, *left_out, *note]
        if self.by_label is not None:
            from headway.jobs.report import class_lines

            lines += ["", *class_lines(self.by_label)]
        if self.report:
            lines += ["", f"report in {Path(self.report) / PAGE}"]
        return lines


def evaluation(
    model: str | Path | Bundle,
    data: Any = None,
    *,
    columns: Columns | None = None,
    encoding: str | None = None,
    beams: int | None = None,
    judge: str | Path | None = None,
    report: str | Path | None = None,
    reference: str | Path | None = None,
    device: str | None = None,
    say: Callable[[str], None] | None = None,
) -> Evaluation:
    """`evaluate`, with what was evaluated and how; `report` is a folder to write a report to; `say` receives lines of
    progress where it takes minutes."""
    bundle = as_bundle(model, device=device)
    task = bundle.find_task()
    if reference is not None:
        task.set_reference(load(reference, device=bundle.device).model)
    options = {} if beams is None else {"beams": beams}
    search = task.search(bundle.model, **options)
    given = None if isinstance(data, list) and not data else as_tables(data) or data
    rows, name = evaluation_data(bundle, given, columns=columns, encoding=encoding)
    counts = {"examples": 0, "characters": 0}

    skipped: list[str] = []

    def counted() -> Iterator[Row]:
        read = rows()
        for row in read:
            counts["examples"] += 1
            counts["characters"] += len(row.fields["text"]) if row.fields.get("running") else 0
            yield row
        found = Skipped(getattr(read, "skipped", {}))
        skipped[:] = skipped_lines(found, found.places)

    evaluated = None
    with task.count_truncation() as counter:
        if report is not None:
            evaluated = task.predictions(bundle.model, counted(), **options)
            scores = evaluated.scores()
        else:
            scores = task.evaluate(bundle.model, counted(), **options)
        if isinstance(task.prediction_kind, PicturePrediction):
            from headway.jobs.judges import picture_scores

            scores |= picture_scores(bundle, list(rows()), run=held_out(bundle.folder), judge=judge, say=say)
        elif judge is not None:
            raise InputError(f"judge is for tasks that draw; task {task.name} does not")
    require_finite(scores)
    found = Evaluation(
        scores, **counts, data=name, search=search, truncated=counter.summary(), report=str(report or ""),
        by_label=(evaluated.by_class() or None) if evaluated is not None else None,
        baselines=_baselines(bundle, rows, own=data is None) if say is not None and is_first_rank() else (),
        metric=task.metric, signature=task.signature(), note=training_note(bundle.folder, given),
        skipped=skipped,
    )  # fmt: skip
    if evaluated is not None and is_first_rank():
        _write_report(evaluated, found, bundle)
    return found


def _baselines(bundle: Bundle, rows: RowReader, *, own: bool) -> Sequence[Baseline]:
    from headway.jobs.evaluated_baselines import beside

    return beside(bundle, rows, own=own)


def _write_report(evaluated: Evaluated, found: Evaluation, bundle: Bundle) -> None:
    from headway.jobs.report import EvaluationFacts, write_report

    task = bundle.find_task()
    facts = EvaluationFacts(
        model=bundle.folder.name if bundle.folder is not None else "a model", task=task.name, data=found.data,
        examples=found.count, search=found.search, signature=found.signature, baselines=found.baselines,
        notes=[*found.truncated, *([found.note] if found.note else [])],
    )  # fmt: skip
    write_report(evaluated, Path(found.report), facts)


def require_finite(scores: Mapping[str, float]) -> None:
    """Raises if a score is not a number: the model's outputs are not finite, or there was nothing to score."""
    wrong = [name for name, value in scores.items() if not math.isfinite(value)]
    if wrong:
        raise InputError(
            f"{wrong[0]} is {scores[wrong[0]]}, not a finite number: the outputs of the model are not finite, or "
            "the data has nothing to score"
        )


def evaluation_data(
    bundle: Bundle, data: Paths | Tables | None, *, columns: Columns | None, encoding: str | None
) -> tuple[RowReader, str]:
    """The rows to evaluate a model on, and their name."""
    task = bundle.find_task()
    if task.own_job:
        from headway.lineage.vectors import questions

        if isinstance(data, Tables):
            raise InputError(f"task {task.name} is evaluated on a file of word questions; give its name")
        return questions(bundle, data, encoding=encoding)
    if data:
        given = open_for(task, data, columns=columns, encoding=encoding)
        return given.test, given.name
    run = held_out(bundle.folder)
    if run is not None:
        valid = run.valid
        return lambda: (
            row for row in valid() if task.judges(row)
        ), f"the held-out part of {run.name}{task.judging_note}"
    built_in = open_builtin(task.builtin)
    return built_in.test, built_in.name


def held_out(folder: Path | None) -> Dataset | None:
    """The data of the run in this folder; None if the folder holds no run. Imports the training settings when used."""
    if folder is None or not is_present(run_file(folder, PLAN)):
        return None
    from headway.jobs.run_config import open_data, saved_plan

    return open_data(saved_plan(folder))


def training_note(folder: Path | None, data: Paths | Tables | None) -> str:
    """A line where the run in this folder was trained on some of the given data; empty otherwise."""
    if folder is None or not data or isinstance(data, Tables) or not is_present(run_file(folder, PLAN)):
        return ""
    from headway.jobs.run_config import saved_plan

    try:
        trained = {os.path.realpath(path) for path in find_parts(saved_plan(folder).data or []).train}
        found = [path for path in map(as_folder, expand(data)) if os.path.realpath(path) in trained]
    except DataError:  # the training data has been moved
        return ""
    names = ", ".join(path.name for path in found if not has_parts(path))
    return f"the model was trained on {names}; without DATA only the held-out part is scored" if names else ""


def has_parts(path: Path) -> bool:
    """Whether something below a folder is named like a part of a data set, so that its test part may be evaluated."""
    return path.is_dir() and any(each.name.lower().startswith(tuple(WORDS)) for each in path.rglob("*"))


def open_for(task: Task, data: Paths | Tables, *, columns: Columns | None, encoding: str | None) -> Dataset:
    """Opens data files for a trained model's task."""
    return open_files(
        data if isinstance(data, Tables) else listed(data),
        fields=task.row_fields,
        optional=task.optional_row_fields,
        columns=columns_for(columns, task),
        encoding=encoding,
        running=task.running_text,
        lists=isinstance(task.prediction_kind, LabelSetPrediction),
    )


def run(model: str | Path | Bundle, inputs: Sequence[Any], **options: Any) -> Iterator[tuple[Any, Any]]:
    """Yields (input, answer) pairs in order. Inputs are predicted in batches; input i uses seed + i."""
    bundle = as_bundle(model)
    task = bundle.find_task()
    parse_all = task.input_kind.parse_all
    ready = [each for given in inputs for each in (parse_all(given) if isinstance(given, str) else [given])]

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
            for number, answer in enumerate(answers, start + 1):
                if not _is_finite(answer):
                    raise InputError(f"input {number}: the outputs of the model are not finite numbers, so no answer")
            yield from zip(ready[start : start + CHUNK], answers, strict=True)


def _is_finite(answer: Any) -> bool:
    """Whether every number of an answer is finite."""
    if isinstance(answer, dict):
        return all(map(_is_finite, answer.values()))
    if isinstance(answer, list | tuple):
        return all(map(_is_finite, answer))
    return not isinstance(answer, float) or math.isfinite(answer)


def score_lines(scores: Mapping[str, float]) -> list[str]:
    width = max((len(name) for name in scores), default=0)
    return [f"{name:<{width}}  {value:.4f}" for name, value in scores.items()]
