"""Train: the one loop. Every model and task learns here; what differs comes in as model, source and loss.

A step is one effective batch. Between steps the run can be stopped, evaluated and saved, in that order, so that a
stopped run takes up exactly where it was left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT, SIGTERM
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import clip_grads_with_norm_

from headway.errors import TrainingError
from headway.train import rng
from headway.train.average import Average
from headway.train.log import Entry, Journal, Window, draw_curves, reporter
from headway.train.optim import build_optimizers
from headway.train.recompute import recomputed
from headway.train.resume import restore, snapshot
from headway.train.schedule import Schedule
from headway.train.settings import Every, Settings, interval
from headway.train.signals import Interrupt, listening
from headway.train.source import LossFunction, Source, Status
from headway.train.state import (
    Loaded,
    clean,
    load_latest,
    load_state,
    load_tensors,
    locked,
    save_state,
    save_tensors,
    sha256,
    states,
)
from headway.train.step import Stepper
from headway.train.world import World, joined, parallel, pick_device

Evaluate = Callable[[nn.Module], dict[str, float]]

BEST = "best.safetensors"


@dataclass(frozen=True)
class FitResult:
    steps: int
    epochs: int
    best: float | None
    history: list[Entry]
    stopped_by: str  # steps, epochs, minutes, patience, SIGTERM or SIGINT
    seconds: float

    @property
    def exit_code(self) -> int:
        """What a process that was asked to stop ends with by custom; 0 for a run that ended by itself."""
        return {"SIGTERM": 128 + SIGTERM, "SIGINT": 128 + SIGINT}.get(self.stopped_by, 0)


def fit(
    model: nn.Module,
    source: Source,
    *,
    loss: LossFunction,
    settings: Settings,
    folder: Path | str,
    evaluate: Evaluate | None = None,
    score: str | None = None,
    higher_is_better: bool = True,
    callbacks: Iterable[Any] = (),
    resume: bool = False,
) -> FitResult:
    """Train `model` in place; it ends with the best weights if there is a score, else with the last (or averaged) ones.

    `evaluate` is called with the model in evaluation mode on the first rank, and leaves the random streams as they
    were. Everything the run writes is under `folder/training`. With `resume` the newest valid state is gone on with.
    """
    folder = Path(folder)
    device = pick_device(settings.device)
    if score is not None and evaluate is None:
        raise TrainingError(f"score: {score!r} is asked for, but there is nothing to evaluate with")
    with ExitStack() as stack:
        world = stack.enter_context(joined(device))
        world.first(lambda: stack.enter_context(locked(folder)))
        if settings.checkpoint_activations:
            stack.enter_context(recomputed(model))
        run = Run(model.to(device), source, loss=loss, settings=settings, folder=folder, world=world, device=device)
        run.evaluate, run.score, run.higher_is_better = evaluate, score, higher_is_better
        if world.main:
            run.callbacks = [*callbacks, *(reporter(name, folder) for name in settings.report)]
        interrupt = stack.enter_context(listening())
        run.begin(resume=resume)
        return run.end(run.train(interrupt))


class Run:
    """One run of `fit`: the parts that change from step to step."""

    evaluate: Evaluate | None = None
    score: str | None = None
    higher_is_better = True

    def __init__(
        self,
        model: nn.Module,
        source: Source,
        *,
        loss: LossFunction,
        settings: Settings,
        folder: Path,
        world: World,
        device: torch.device,
    ) -> None:
        self.model = model
        self.source = source
        self.settings = settings
        self.folder = folder
        self.world = world
        self.device = device
        self.callbacks: list[Any] = []
        self.status = Status(model)
        self.window = Window()
        self.saved = -1
        self.marks = {"eval": 0.0, "save": 0.0}  # the clock when each was last done
        self.order: tuple[int, Sequence[np.ndarray]] = (-1, ())
        self.schedule = Schedule(settings.schedule, settings.warmup, settings.decay, settings.floor)
        self.optimizers = build_optimizers(
            model,
            kind=settings.optimizer,
            lr=settings.lr,
            matrix_lr=settings.matrix_lr,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
        )
        self.average = Average(model, settings.average) if settings.average else None
        self.stepper = Stepper(
            model=model,
            parallel=parallel(model, world),
            source=source,
            loss=loss,
            world=world,
            device=device,
            precision=settings.precision,
            accumulate=settings.accumulate,
            warn=self.warn,
        )

    # the course of a run

    def begin(self, *, resume: bool) -> None:
        """Start afresh, or from the newest valid state."""
        if not resume and self.world.share(bool(states(self.folder))):
            raise TrainingError(f"{self.folder}: holds an earlier run's states; resume it or choose another folder")
        length, warnings = 0, []
        if resume:
            loaded = self.load()
            length, warnings = loaded.state["journal"], loaded.warnings + restore(self, loaded.state)
            self.saved = self.status.step
        else:
            rng.seed_all(self.settings.seed + self.world.rank)
        self.world.first(lambda: clean(self.folder))
        self.journal = Journal(self.training / "metrics.jsonl" if self.world.main else None, length=length)
        self.status.steps = self.planned()
        self.started = monotonic() - self.status.elapsed
        self.tell("on_start")
        if self.journal.missing:
            self.warn(f"{self.journal.path}: {self.journal.missing} bytes of the log are lost")
        for message in warnings:
            self.warn(message)

    def train(self, interrupt: Interrupt) -> str:
        """Step until the run ends; the reason why."""
        self.model.train()
        while True:
            clock = monotonic() - self.started if self.world.main else 0.0
            terminated, interrupted, self.status.elapsed = self.world.sum(
                interrupt.signal == SIGTERM, interrupt.signal == SIGINT, clock
            )
            if terminated or interrupted:
                self.save()
                return "SIGTERM" if terminated else "SIGINT"
            ended = self.ended()
            if self.status.evaluated != self.status.step and (ended or self.due("eval", self.settings.eval_every)):
                self.assess()
                ended = ended or self.ended()
            if ended and self.window.steps:
                self.log()
            if ended or self.due("save", self.settings.save_every):
                self.save()
            if ended:
                return ended
            self.step()

    def end(self, stopped_by: str) -> FitResult:
        """Leave the model with the weights to keep, and the run's curves on the disk."""
        status = self.status
        if status.best is not None:
            self.restore_best()
        elif self.average is not None:
            with self.average.applied():
                averaged = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
            self.model.load_state_dict(averaged)
        self.model.eval()
        self.tell("on_end")
        if self.world.main:
            draw_curves(self.journal.history, self.training / "curves.png")
        return FitResult(
            steps=status.step,
            epochs=status.epoch,
            best=status.best,
            history=self.journal.history,
            stopped_by=stopped_by,
            seconds=status.elapsed,
        )

    # what is done between and at steps

    def step(self) -> None:
        """One effective batch: gradients, clipping, update."""
        status = self.status
        status.steps = self.planned()
        factor = self.schedule.factor(status.step, status.steps)
        self.optimizers.zero_grad()
        found = self.stepper.gradients(self.batches()[status.position], epoch=status.epoch, step=status.step + 1)
        if found.ready:
            if self.settings.clip:
                clip_grads_with_norm_(self.model.parameters(), self.settings.clip, found.norm, foreach=True)
            self.optimizers.scale_lr(factor)
            self.optimizers.step()
            if self.average is not None:
                self.average.update()
        self.window.add(found)
        status.step += 1
        status.position += 1
        if status.position == len(self.batches()):
            status.epoch, status.position = status.epoch + 1, 0
        self.tell("on_step")
        if status.step % self.settings.log_every == 0:
            self.log(factor)

    def log(self, factor: float | None = None) -> None:
        status = self.status
        if factor is None:
            factor = self.schedule.factor(max(status.step - 1, 0), status.steps)
        metrics = self.window.read(self.world, unit=self.settings.batch_unit)
        metrics["lr"] = self.settings.lr * factor
        self.window = Window()
        self.journal.write({"step": status.step, "epoch": status.epoch, **metrics, "seconds": round(status.elapsed, 3)})
        self.tell("on_log", metrics)

    def assess(self) -> None:
        """Evaluate the weights that would be kept, and remember them if they are the best so far."""
        status = self.status
        status.evaluated = status.step
        self.marks["eval"] = status.elapsed
        if self.evaluate is None:
            return
        streams = rng.capture()
        self.model.eval()
        with self.averaged(), torch.no_grad(), self.stepper.autocast():
            scores: dict[str, float] = self.world.share(self.evaluate(self.model) if self.world.main else None)
            if self.score is not None:
                self.compare(scores, self.score)
        self.model.train()
        rng.restore(streams)
        self.journal.write({"step": status.step, "epoch": status.epoch, "scores": scores})
        self.tell("on_evaluate", scores)

    def compare(self, scores: dict[str, float], score: str) -> None:
        """Keep the present weights if their score is the best so far."""
        status = self.status
        if score not in scores:
            raise TrainingError(f"score: {score!r} was not among those evaluated ({', '.join(scores)})")
        value = scores[score]
        worse = status.best is not None and (value <= status.best if self.higher_is_better else value >= status.best)
        if worse or math.isnan(value):
            status.unimproved += 1
            return
        digest = self.world.first(lambda: save_tensors(self.training / BEST, self.model.state_dict()))
        status.best, status.best_step, status.unimproved, status.best_sha256 = value, status.step, 0, digest or ""

    def restore_best(self) -> None:
        """Put the best weights into the model, if the file still holds them."""
        path, status = self.training / BEST, self.status
        reason = self.world.first(lambda: None if path.exists() and sha256(path) == status.best_sha256 else "damaged")
        if self.world.share(reason) is None:
            self.model.load_state_dict(load_tensors(path))
        else:
            self.warn(f"{path}: no longer holds the best weights (of step {status.best_step}); the last ones are kept")

    def save(self) -> None:
        status = self.status
        if self.saved == status.step:
            return
        state = snapshot(self)
        path = self.world.first(lambda: save_state(self.folder, status.step, state, keep=self.settings.keep))
        self.saved = status.step
        self.marks["save"] = status.elapsed
        self.tell("on_save", str(path))

    def load(self) -> Loaded:
        """The newest valid state; the first rank finds it, all read it."""
        found = self.world.first(lambda: load_latest(self.folder))
        path = self.world.share(found and found.path)
        return found or Loaded(state=load_state(path), path=path, warnings=[])

    def tell(self, event: str, *details: Any) -> None:
        for callback in self.callbacks:
            heard = getattr(callback, event, None)
            if heard is not None:
                heard(self.status, *details)

    def warn(self, message: str) -> None:
        self.journal.write({"step": self.status.step, "warning": message})
        self.tell("on_warning", message)

    def averaged(self) -> AbstractContextManager[None]:
        """While inside, the model has the weights that would be kept."""
        return self.average.applied() if self.average is not None else nullcontext()

    # questions

    @property
    def training(self) -> Path:
        return self.folder / "training"

    def batches(self) -> Sequence[np.ndarray]:
        """The effective batches of the present epoch."""
        if self.order[0] != self.status.epoch:
            self.order = self.status.epoch, self.source.epoch(self.status.epoch)
            if not len(self.order[1]):
                raise TrainingError("the data makes not a single batch; give more examples or a smaller batch")
        return self.order[1]

    def planned(self) -> int:
        """How many steps the run will have had at its end, as far as can be told."""
        settings, status = self.settings, self.status
        if settings.steps:
            return settings.steps
        if settings.epochs:
            if status.epoch >= settings.epochs:
                return status.step
            epochs_left = settings.epochs - status.epoch
            return status.step + epochs_left * len(self.batches()) - status.position
        progress = max(status.elapsed / (settings.minutes * 60), 1e-6)
        return max(status.step + 1, math.ceil(max(status.step, 1) / progress))

    def ended(self) -> str | None:
        settings, status = self.settings, self.status
        if settings.patience and status.unimproved >= settings.patience:
            return "patience"
        if settings.steps and status.step >= settings.steps:
            return "steps"
        if settings.epochs and status.epoch >= settings.epochs:
            return "epochs"
        if settings.minutes and status.elapsed >= settings.minutes * 60:
            return "minutes"
        return None

    def due(self, what: str, every: Every) -> bool:
        unit, size = interval(what, every)
        if unit == "seconds":
            return self.status.elapsed - self.marks[what] >= size
        if unit == "epoch":
            return self.status.position == 0 and self.status.step > 0
        return size > 0 and self.status.step > 0 and self.status.step % size == 0
