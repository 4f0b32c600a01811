"""A small model that learns a task from a little of its built-in data, through the one loop, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from headway import tasks
from headway.data.dataset import Dataset, open_builtin
from headway.models.build import build
from headway.models.init import initialise
from headway.models.recipes import Size
from headway.tasks.batches import ExampleSource, prepare
from headway.tasks.task import Task
from headway.training.loop import FitResult, fit
from headway.training.settings import Settings

SMALL = Size(width=64, layers=2, heads=2, dropout=0.0)


def started(name: str, *, rows: int, **options: Any) -> tuple[Task, nn.Module, Dataset]:
    """The task, an untrained model for it, and its data."""
    data = open_builtin(tasks.find(name).builtin, size=rows)
    task = tasks.find(name).from_data(tasks.find(name).scan(data.train()), tokenizer=None, options=options)
    model = build(task.config(SMALL, "modern"))
    initialise(model, "modern", seed=0)
    return task, model.eval(), data


def trained(task: Task, model: nn.Module, data: Dataset, *, folder: Path, **settings: Any) -> FitResult:
    store = prepare(task, data.train(), folder / "store", key="test")
    given = {"batch": 32, "lr": 0.003, "log_every": 1, "eval_every": 0, "save_every": 0, "device": "cpu", **settings}
    source = ExampleSource(
        store, task, batch=given["batch"], unit="examples", seed=given.get("seed", 0), fingerprint=data.fingerprint
    )
    return fit(model, source, loss=task.loss, settings=Settings(**given), folder=folder)


def losses(result: FitResult) -> list[float]:
    return [entry["loss"] for entry in result.history if "loss" in entry]
