"""The settings of a training run. Every field is validated before anything is built."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from headway.errors import ConfigError
from headway.training.schedule import Kind, Schedule

Optimizer = Literal["muon", "adamw", "adam"]
Every = int | str  # 500 = steps; "90s", "10m" = time; "epoch" = at each epoch's end; 0 = only at the end

SHARDS = ("none", "full")
PRECISIONS = ("fp32", "bf16", "fp16")
BATCH_UNITS = ("examples", "tokens")
REPORTS = ("tensorboard", "mlflow", "wandb", "trackio")

LENGTHS = ("steps", "epochs", "minutes")

_TIME = re.compile(r"(\d+(?:\.\d+)?)([sm])")


@dataclass(frozen=True)
class Settings:
    """Exactly one of `steps`, `epochs` and `minutes` sets the length.

    A run with a length in steps or epochs resumes bit for bit. With a length in minutes it resumes at the elapsed time,
    but the schedule depends on the clock and cannot be reproduced exactly.
    """

    steps: int = 0
    epochs: int = 0
    minutes: float = 0.0

    batch: int = 32  # the effective batch, over all ranks and micro-batches
    batch_unit: str = "examples"
    accumulate: int = 1  # micro-batches per effective batch; changes memory use, not the result
    seed: int = 0

    optimizer: Optimizer = "muon"
    lr: float = 3e-4
    matrix_lr: float = 0.02
    betas: tuple[float, float] | None = None  # None: the optimiser's defaults
    eps: float | None = None
    weight_decay: float = 0.0

    schedule: Kind = "wsd"
    warmup: float = 0.02  # a share of the run, or from 1 on a number of steps
    decay: float = 0.2
    floor: float = 0.0

    clip: float = 1.0  # largest global gradient norm; 0 = never clipped
    skip_spikes: float = 20.0  # skip a batch whose gradient norm is this multiple of the recent median; 0 = never
    average: float = 0.0  # decay of the EMA of the weights; 0 = no EMA

    eval_every: Every = "epoch"
    save_every: Every = "5m"
    keep: int = 2  # resumable states on disk
    keep_states: bool = False  # also once the run has finished, so that it can be extended (--keep-states)
    adapter_only: bool = False  # a run with --lora keeps its adapter alone and needs the model that it started from
    eval_rows: int = 500  # held-out examples of an evaluation during training, at most; the last one sees them all
    score: str = ""  # that the best weights are kept by; empty: the task's own
    patience: int = 0  # evaluations without a better score before stopping; 0 = never
    log_every: int = 10
    report: tuple[str, ...] = ()  # in addition to metrics.jsonl: tensorboard, mlflow, wandb, trackio

    precision: str = "fp32"
    checkpoint_activations: bool = False  # recompute blocks in the backward pass: less memory, a third more time
    shard: str = "none"  # full: shard weights, gradients and optimiser state over the ranks
    device: str = "auto"

    def __post_init__(self) -> None:
        given = [name for name in LENGTHS if getattr(self, name)]
        if len(given) != 1:
            raise ConfigError(f"set exactly one of steps, epochs and minutes (got {', '.join(given) or 'none'})")
        for name in (*given, "batch", "accumulate", "keep", "log_every", "eval_rows", "lr", "matrix_lr"):
            self._require(name, lambda value: value > 0, "a number above 0")
        for name in ("seed", "weight_decay", "clip", "patience"):
            self._require(name, lambda value: value >= 0, "0 or more")
        self._require("skip_spikes", lambda value: value == 0 or value > 1, "0 or a number above 1")
        self._require("average", lambda value: 0 <= value < 1, "a number from 0 up to 1")
        for name in ("steps", "epochs", "batch", "accumulate", "seed", "keep", "patience", "log_every", "eval_rows"):
            self._require(name, lambda value: isinstance(value, int), "a whole number")
        if self.eps is not None:
            self._require("eps", lambda value: value > 0, "a number above 0")
        if self.betas is not None and not (len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)):
            raise ConfigError(f"betas: {self.betas!r}; two numbers from 0 up to 1 are needed")
        Schedule(self.schedule, self.warmup, self.decay, self.floor)
        self._require_choice("optimizer", get_args(Optimizer))
        self._require_choice("precision", PRECISIONS)
        self._require_choice("shard", SHARDS)
        self._require_choice("batch_unit", BATCH_UNITS)
        for name in self.report:
            if name not in REPORTS:
                raise ConfigError(f"report: {name!r} is not one of {', '.join(REPORTS)}")
        for name in ("eval_every", "save_every"):
            interval(name, getattr(self, name))

    def _require(self, name: str, good: Any, wanted: str) -> None:
        value = getattr(self, name)
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or not good(value):
            raise ConfigError(f"{name}: {value!r}; {wanted} is needed")

    def _require_choice(self, name: str, choices: tuple[str, ...]) -> None:
        if getattr(self, name) not in choices:
            raise ConfigError(f"{name}: {getattr(self, name)!r} is not one of {', '.join(choices)}")

    @property
    def length(self) -> str:
        """The length of the run in words, such as `2,000 steps`."""
        return length_in_words(vars(self))

    def optimizer_options(self) -> dict[str, Any]:
        """The arguments of `build_optimizers`."""
        names = ("lr", "matrix_lr", "betas", "eps", "weight_decay")
        return {"kind": self.optimizer, **{name: getattr(self, name) for name in names}}

    def as_dict(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def length_in_words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{settings[name]:,} {name}" for name in LENGTHS if settings[name])


def interval(name: str, every: Every) -> tuple[str, float]:
    """Parse an interval into its unit (steps, seconds, epoch) and size."""
    if isinstance(every, int) and not isinstance(every, bool) and every >= 0:
        return "steps", every
    if every == "epoch":
        return "epoch", 1
    time = _TIME.fullmatch(str(every))
    if time is None:
        raise ConfigError(f"{name}: {every!r}; give a number of steps, a time such as 90s or 10m, or epoch")
    return "seconds", float(time[1]) * (60 if time[2] == "m" else 1)
