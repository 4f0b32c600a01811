"""`calibrate`: temperature scaling (Guo et al. 2017). The logits are divided by the one number that gives the lowest
loss on data the model was not trained on; the division goes into the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import exp, log
from pathlib import Path
from typing import Any

from torch import nn

from headway.checkpoints import resolve
from headway.checkpoints.saved import save_folder
from headway.errors import ConfigError
from headway.jobs.columns import Columns
from headway.jobs.convert import new_folder, write_along
from headway.jobs.inference import evaluation_data, held_out
from headway.jobs.run_folder import Paths
from headway.kinds.predictions import NumberPrediction
from headway.loading import load
from headway.models.ensemble import members_of
from headway.models.outputs import Output
from headway.models.rehead import apply_temperature, logit_head

FIRST, FINEST = 0.25, 0.005  # steps of the logarithm of the temperature
WIDEST = log(50)  # temperatures from 1/50 to 50 are searched


@dataclass(frozen=True)
class Calibration:
    temperature: float
    before: float  # the loss on the data
    after: float

    def lines(self) -> list[str]:
        return [
            f"temperature  {self.temperature:.3f} (above 1: the model was overconfident; below 1: underconfident)",
            f"loss         {self.before:.4f} → {self.after:.4f}",
        ]


def calibrate(
    model: str | Path,
    out: str | Path,
    data: Paths | None = None,
    *,
    columns: Columns | None = None,
    encoding: str | None = None,
) -> Calibration:
    """Writes the model folder `out`, whose logits are those of `model` divided by one number, fitted on `data` or, for
    a run folder, on the held-out part of the run."""
    folder, target = resolve(model), new_folder(out)
    bundle = load(folder)
    head = bundle.model if members_of(bundle.model) else logit_head(bundle.model)  # the logits of an ensemble are a sum
    if bundle.weights == "int8":
        raise ConfigError(f"{model}: the weights are int8; calibrate the model before conversion, then convert")
    task = bundle.find_task()
    if isinstance(task.prediction_kind, NumberPrediction):
        raise ConfigError(f"{model}: it predicts numbers, not probabilities that a temperature could calibrate")
    if not data and held_out(folder) is None:
        raise ConfigError(f"{model}: give data that the model was not trained on, after OUT")
    rows, _ = evaluation_data(bundle, data, columns=columns, encoding=encoding)

    @cache
    def loss(power: float) -> float:
        with _divided(head, exp(power)):
            return task.quick_evaluate(bundle.model, rows())["loss"]

    power = minimum(loss)
    found = Calibration(exp(power), before=loss(0.0), after=loss(power))
    apply_temperature(bundle.model, found.temperature)
    task.apply_temperature(found.temperature)
    with save_folder(target) as work:
        write_along(bundle, folder, work)
    return found


def minimum(value: Callable[[float], float]) -> float:
    """The minimum of a unimodal function: downhill from 0 in steps, then by parabolic interpolation."""
    middle, step = 0.0, FIRST
    while step > FINEST and abs(middle) < WIDEST:
        left, right = middle - step, middle + step
        side = min(left, right, key=value)
        if value(side) < value(middle):
            middle = side
            continue
        bend = value(left) - 2 * value(middle) + value(right)
        if bend > 0:
            middle = min(middle, middle + step / 2 * (value(left) - value(right)) / bend, key=value)
        step /= 8
    return middle


def _divided(head: nn.Module, temperature: float) -> Any:
    """While inside, the head's logits are divided by the temperature."""

    def divide(_: nn.Module, __: Any, output: Output) -> None:
        assert output.logits is not None
        output.logits = output.logits / temperature

    return head.register_forward_hook(divide)
