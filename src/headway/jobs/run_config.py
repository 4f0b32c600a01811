"""`Plan`: the full configuration of a run, saved as training/plan.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway import tasks
from headway.checkpoints import read_json
from headway.data.dataset import Dataset, open_builtin, open_files
from headway.errors import ConfigError
from headway.jobs.overrides import by_section
from headway.jobs.run_folder import PLAN, Paths, listed
from headway.models.recipes import Size, size_named
from headway.training.recipes import RECIPES
from headway.training.settings import Settings
from headway.validation import from_dict

SHOWN = 5  # settings that differ, by name, in one message


@dataclass(frozen=True)
class Plan:
    task: str
    data: list[str] | None = None  # None: the built-in data
    valid: list[str] | None = None
    columns: dict[str, str] = field(default_factory=dict)
    encoding: str | None = None
    start: str | None = None
    recipe: str = "modern"
    model: dict[str, Any] = field(default_factory=dict)  # the size of a model from scratch
    options: dict[str, Any] = field(default_factory=dict)  # the task's
    train: dict[str, Any] = field(default_factory=dict)
    lora: int = 0
    freeze: list[str] = field(default_factory=list)

    def settings(self) -> Settings:
        values = dict(self.train)
        for name in ("betas", "report"):
            if isinstance(values.get(name), list):
                values[name] = tuple(values[name])
        return Settings(**values)

    def size(self) -> Size:
        return Size(**self.model)


def make_plan(
    task: str,
    data: Paths | None = None,
    *,
    start: str | Path | None = None,
    size: str | None = None,
    recipe: str | None = None,
    valid: Paths | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    lora: int = 0,
    freeze: Sequence[str] = (),
) -> Plan:
    """`settings` are overrides by name (`lr`, `train.lr`, `task.limit`, `model.width`, or nested objects)."""
    kind = tasks.find(task)
    recipe = recipe or ("finetune" if start else "modern")
    if recipe not in RECIPES or (recipe == "finetune") != bool(start):
        wanted = "finetune (as `start` is given)" if start else "modern or classic (finetune needs `start`)"
        raise ConfigError(f"recipe {recipe!r}: choose {wanted}")
    given = by_section(settings or {}, {"train": Settings, "task": kind, "model": Size})
    scale = dataclasses.replace(size_named(size or kind.default_size, stacks=kind.stacks), **given["model"])
    train = {**RECIPES[recipe], **kind.train_defaults(recipe), "seed": seed or 0, **given["train"]}
    lengths = {"steps": steps, "epochs": epochs, "minutes": minutes}
    asked = {name: value for name, value in lengths.items() if value is not None}
    asked |= {name: given["train"][name] for name in lengths if name in given["train"]}
    if asked:
        train = {key: value for key, value in train.items() if key not in lengths} | asked
    plan = Plan(
        task=task,
        data=None if not data else [str(path) for path in listed(data)],
        valid=None if not valid else [str(path) for path in listed(valid)],
        columns=dict(columns or {}),
        encoding=encoding,
        start=None if start is None else str(start),
        recipe=recipe,
        model=dataclasses.asdict(scale),
        options=given["task"],
        train=train,
        lora=lora,
        freeze=list(freeze),
    )
    return dataclasses.replace(plan, train=plan.settings().as_dict())


def unusual_settings(settings: Settings) -> list[str]:
    """A warning for each setting that hardly ever trains."""
    rates = {name: getattr(settings, name) for name in ("lr", "matrix_lr")}
    return [
        f"{name} is {rate:g}: above 1 the loss diverges; usual values are 0.00001 to 0.05"
        for name, rate in rates.items()
        if rate > 1
    ]


def saved_plan(folder: str | Path) -> Plan:
    path = Path(folder) / "training" / PLAN
    if not path.exists():
        raise ConfigError(f"{folder}: no training/{PLAN}, so there is no run to resume")
    plan: Plan = from_dict(Plan, read_json(path), path=str(path))
    try:
        plan.settings()
        plan.size()
    except TypeError as error:
        raise ConfigError(f"{path}: damaged: {error}") from error
    return plan


def refuse_other(given: Plan, saved: Plan, *, run: str | Path) -> None:
    """Raises a ConfigError that names the settings in which two plans differ: a resumed run keeps its own."""
    here, there = _by_name(given), _by_name(saved)
    differing = [
        f"{name}: {there.get(name)!r} there, {here.get(name)!r} given"
        for name in {**there, **here}
        if here.get(name) != there.get(name)
    ]
    if differing:
        differing[SHOWN:] = [f"and {len(differing) - SHOWN} more"] if len(differing) > SHOWN else []
        raise ConfigError(
            f"{run} was started with other settings, and a resumed run keeps its own ({'; '.join(differing)}). To "
            "resume it, leave the other options out; or start another run in another folder"
        )


def _by_name(plan: Plan) -> dict[str, Any]:
    """Settings by their name on the command line, without those that are not set."""
    sections = {"model": plan.model, "task": plan.options, "train": plan.train}
    out = {name: value for name, value in vars(plan).items() if name not in ("model", "options", "train")}
    out |= {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}
    return {name: value for name, value in out.items() if value is not None}


def open_data(plan: Plan) -> Dataset:
    kind = tasks.find(plan.task)
    if plan.data is None:
        return open_builtin(kind.builtin)
    return open_files(
        plan.data,
        fields=kind.fields,
        columns=plan.columns,
        encoding=plan.encoding,
        valid=plan.valid,
        running=kind.running_text,
    )
