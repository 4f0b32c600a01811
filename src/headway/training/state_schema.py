"""The schema of a saved training state. Checksums detect damage; the schema rejects a state that another program or
version has written, and names the field."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, TypedDict

from torch import Tensor

from headway.errors import ConfigError, TrainingError
from headway.validation import Check, between, from_dict

Count = Annotated[int, between(0)]
Step = Annotated[int, between(-1)]
MicroBatches = Annotated[int, between(1, 2**20)]
Number = Annotated[float, Check("a number", lambda value: not math.isnan(value))]
Positive = Annotated[float, Check("a number above 0", lambda value: value > 0)]
Scalar = Annotated[Tensor, Check("a tensor of one number", lambda value: value.numel() == 1)]


def _is_param_group(value: dict[str, Any]) -> bool:
    """An optimiser's parameter group; its other entries come from the settings of the run."""
    names, lr = value.get("param_names"), value.get("lr")
    named = isinstance(names, list) and all(isinstance(name, str) for name in [*names, value.get("name")])
    return named and isinstance(lr, int | float) and not isinstance(lr, bool) and not math.isnan(lr)


ParamGroup = Annotated[dict[str, Any], Check("an object with name, param_names and lr", _is_param_group)]


class RandomState(TypedDict):
    torch: Tensor
    cuda: list[Tensor]
    python: Annotated[Any, Check("a tuple", lambda value: isinstance(value, tuple))]
    numpy: dict[str, Any]


class LossWindow(TypedDict):
    sums: dict[str, Scalar]
    norms: Scalar | None
    count: Count
    rows: Count
    steps: Count
    skipped: Count


class _RankFields(TypedDict):
    rng: RandomState
    window: LossWindow


class Rank(_RankFields, total=False):
    carried: Tensor  # state of a recurrent model between windows of a text


class OptimizerState(TypedDict):
    state: dict[int, dict[str, Tensor]]
    param_groups: list[ParamGroup]


class _AddedStatus(TypedDict, total=False):
    """Fields that states of earlier versions do not have."""

    best_loss: Number | None
    first_loss: Number | None
    extended_at: Count
    extended_factor: Number


class StatusState(_AddedStatus):
    step: Count
    epoch: Count
    position: Count
    steps: Count
    unimproved: Count
    elapsed: Number
    factor: Number
    evaluated: Step
    best_step: Step
    best: Number | None
    best_sha256: str


class ScaleState(TypedDict):
    value: Positive
    finite: Count
    patience: MicroBatches


class StepperState(TypedDict):
    accumulate: MicroBatches
    scale: ScaleState


class SpikeState(TypedDict):
    norms: list[Number]
    left_out: bool


class AverageState(TypedDict):
    updates: Count
    mean: dict[str, Tensor]


class TrainingState(TypedDict):
    """A state; `average` is the EMA, checked by `AverageState` if the run has one."""

    model: dict[str, Tensor]
    optimizer: dict[str, OptimizerState]
    average: Any
    ranks: list[Rank]
    status: StatusState
    stepper: StepperState
    spikes: SpikeState
    journal: Count
    settings: dict[str, Any]
    fingerprint: str
    ties: list[list[str]]


class _BatchFields(TypedDict):
    inputs: dict[str, Tensor]
    targets: dict[str, Tensor]
    count: Count
    where: list[str]


class BatchState(_BatchFields, total=False):
    sequence_lengths: list[Count]  # of a packed batch


class StepFacts(TypedDict):
    step: Count
    precision: str
    factor: Positive
    culprit: str


class StepDumpState(TypedDict):
    model: dict[str, Tensor]
    batch: BatchState
    streams: RandomState
    facts: StepFacts


def check_schema(value: Any, schema: Any, *, folder: Path, path: str = "") -> None:
    """Raise unless the state in `folder` has the schema; the error names the first field that does not fit."""
    try:
        from_dict(schema, value, path=path)
    except ConfigError as error:
        raise schema_error(folder, str(error)) from error


def schema_error(folder: Path, problem: str) -> TrainingError:
    return TrainingError(
        f"{folder / 'state.json'}: {problem}. Its checksums match, so another version wrote it or it was edited. "
        f"Remove {folder.name} to resume from the state before it, or start a new run"
    )
