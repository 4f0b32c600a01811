"""`Plan`: the full configuration of a run, saved as training/plan.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway import tasks
from headway.data.dataset import Dataset, open_builtin, open_files
from headway.data.facts import Facts
from headway.data.tables import Tables
from headway.distributed import pick_device
from headway.engine.training import install
from headway.engine.training.precision import autocast, bf16_speedup
from headway.errors import ConfigError
from headway.jobs.columns import Columns, columns_for_training, with_named
from headway.jobs.overrides import by_section, flatten
from headway.jobs.run_folder import PLAN, Paths, listed, read_run_json, run_file
from headway.models.recipes import Size, size_named
from headway.tasks.task import Choice
from headway.training.recipes import RECIPES
from headway.training.settings import LENGTHS, Settings
from headway.validation import from_dict

WORTH_ROUNDING = 1.5  # times as fast
ON_DISK = ("train.keep", "train.keep_states", "train.adapter_only")  # settings of what is kept, which change no number
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
    given: list[str] | None = None  # settings the user gave ("train.lr", …); None: a plan that does not record it
    why: dict[str, str] = field(default_factory=dict)  # what was chosen for the data, in words
    found: list[str] = field(default_factory=list)  # settings that a search found
    choose: bool = True  # whether settings that were not given are chosen for the data and the time

    @property
    def fixed(self) -> set[str]:
        """The settings that nothing is chosen over."""
        return {*(self.given or []), *self.found}

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
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    columns: Columns | None = None,
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
        wanted = "finetune (as `start` is given)" if start else "modern, published or classic (finetune needs `start`)"
        raise ConfigError(f"recipe {recipe!r}: choose {wanted}")
    known: dict[str, type] = {"train": Settings, "task": kind, "model": Size}
    named = {key.rpartition(".")[2]: value for key, value in flatten(settings or {}, known).items()}
    given = by_section(settings or {}, {**known, "task": kind.variant(named)})
    scale = dataclasses.replace(size_named(size or kind.default_size, stacks=kind.stacks), **given["model"])
    train = {**RECIPES[recipe], **kind.train_defaults(recipe), "seed": seed or 0, **given["train"]}
    lengths = dict(zip(LENGTHS, (steps, epochs, minutes), strict=True))
    lengths_given = {name: value for name, value in lengths.items() if value is not None}
    lengths_given |= {name: given["train"][name] for name in LENGTHS if name in given["train"]}
    if lengths_given:
        train = {key: value for key, value in train.items() if key not in LENGTHS} | lengths_given
    if train.get("adapter_only") and (not lora or train.get("keep_states")):
        raise ConfigError(
            "adapter_only keeps the adapter of a run with --lora N and nothing to extend it by: give --lora, and leave "
            "--keep-states out"
        )
    plan = Plan(
        task=task,
        data=None if not data else [str(path) for path in listed(data)],
        valid=None if not valid else [str(path) for path in listed(valid)],
        columns=columns_for_training(with_named(columns, text=text, label=label), kind),
        encoding=encoding,
        start=None if start is None else str(start),
        recipe=recipe,
        model=dataclasses.asdict(scale),
        options=given["task"],
        train=train,
        lora=lora,
        freeze=list(freeze),
        given=sorted(
            {f"{section}.{name}" for section, values in given.items() for name in values}
            | {f"train.{name}" for name in (*lengths_given, *(["seed"] if seed is not None else []))}
            | {f"model.{name.name}" for name in dataclasses.fields(Size) if size is not None}
        ),
    )
    return dataclasses.replace(plan, train=plan.settings().as_dict())


def facts_of(plan: Plan, data: Dataset) -> Facts:
    facts = tasks.find(plan.task).variant(plan.options).scan(data.train())
    return dataclasses.replace(facts, columns=data.columns)


def complete(plan: Plan, facts: Facts) -> Plan:
    """The plan with the settings that the task chooses for the data, but for those the user gave: a given length is
    kept."""
    if not plan.choose:
        return plan
    plan = with_choices(plan, _precision(plan))
    values, lengths = _by_name(plan), {f"train.{name}" for name in LENGTHS}
    given = {name: values.get(name) for name in plan.fixed}
    settings, kind = plan.settings(), tasks.find(plan.task)
    install()
    with autocast(settings.precision, pick_device(settings.device)):  # some choices time a model
        choice = kind.choose_settings(facts, recipe=plan.recipe, given=given)
    if lengths & set(given):
        choice = dataclasses.replace(
            choice, settings={name: value for name, value in choice.settings.items() if name not in lengths}
        )
    return with_choices(plan, choice)


def _precision(plan: Plan) -> Choice:
    """With a time limit products of linear layers may be rounded to bf16 where the CPU is clearly faster then."""
    settings = plan.settings()
    if not settings.minutes or "train.precision" in plan.fixed or tasks.find(plan.task).variant(plan.options).own_job:
        return Choice()
    if pick_device(settings.device).type != "cpu":
        return Choice()
    times = bf16_speedup()
    if times < WORTH_ROUNDING:
        return Choice()
    why = f"bf16 is allowed in products of linear layers, {times:.1f} times as fast on this CPU; all else is float32"
    return Choice({"train.precision": "bf16"}, {"precision": why})


def with_choices(plan: Plan, choice: Choice) -> Plan:
    """The plan with these settings, but for those the user gave. A chosen length replaces the one that there is."""
    lengths = {f"train.{name}" for name in LENGTHS}
    chosen = {name: value for name, value in choice.settings.items() if name not in plan.fixed}
    sections = {"model": dict(plan.model), "task": dict(plan.options), "train": dict(plan.train)}
    if lengths & set(chosen):
        sections["train"] = {name: value for name, value in plan.train.items() if name not in LENGTHS}
    for name, value in chosen.items():
        section, _, key = name.partition(".")
        sections[section][key] = value
    plan = dataclasses.replace(
        plan,
        model=sections["model"],
        options=sections["task"],
        train=sections["train"],
        why={**plan.why, **choice.why},
    )
    plan.size()
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
    path, content = run_file(folder, PLAN), read_run_json(folder, PLAN)
    if content is None:
        raise ConfigError(f"{folder}: no training/{PLAN}, so there is no run to resume")
    plan: Plan = from_dict(Plan, content, path=str(path))
    try:
        plan.settings()
        plan.size()
    except TypeError as error:
        raise ConfigError(f"{path}: damaged: {error}") from error
    return plan


def with_length(plan: Plan, **lengths: float | None) -> Plan:
    """The plan with another length, if one of `steps`, `epochs` and `minutes` is given."""
    given = {name: value for name, value in lengths.items() if value is not None}
    changed = dataclasses.replace(plan, train=plan.train | dict.fromkeys(LENGTHS, 0) | given) if given else plan
    changed.settings()  # raises a ConfigError for a length that is none
    return changed


def refuse_other(given: Plan, saved: Plan, *, run: str | Path) -> None:
    """Raises a ConfigError that names the settings in which two plans differ: a resumed run keeps its own."""
    here, there = _by_name(given), _by_name(saved)
    chosen = set()  # for the data, in the saved plan
    if given.given is not None and saved.given is not None:
        chosen = {name for name in {**there, **here} if "." in name} - {*given.given, *saved.given}
    differing = [
        f"{name}: {there.get(name)!r} there, {here.get(name)!r} given"
        for name in {**there, **here}
        if name not in {*chosen, *ON_DISK} and here.get(name) != there.get(name)
    ]
    if differing:
        differing[SHOWN:] = [f"and {len(differing) - SHOWN} more"] if len(differing) > SHOWN else []
        raise ConfigError(
            f"{run} was started with other settings, and a resumed run keeps its own ({'; '.join(differing)}). To "
            "resume it, leave the other options out (--steps, --epochs or --minutes may be given, to extend it); or "
            "start another run in another folder"
        )


def _by_name(plan: Plan) -> dict[str, Any]:
    """Settings by their name on the command line, without those that are not set."""
    sections = {"model": plan.model, "task": plan.options, "train": plan.train}
    hidden = ("model", "options", "train", "given", "why", "found", "choose")
    out = {name: value for name, value in vars(plan).items() if name not in hidden}
    out |= {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}
    return {name: value for name, value in out.items() if value is not None}


def open_data(plan: Plan, tables: Tables | None = None) -> Dataset:
    """The data of a plan; `tables` in memory take their place."""
    kind = tasks.find(plan.task).variant(plan.options)
    if (data := tables or plan.data) is None:
        return open_builtin(kind.builtin)
    return open_files(
        data,
        fields=kind.fields,
        optional=kind.optional_fields,
        columns=plan.columns,
        encoding=plan.encoding,
        valid=plan.valid,
        running=kind.running_text,
        lists=None if "kind" not in plan.options else plan.options["kind"] == "multilabel",
    )
