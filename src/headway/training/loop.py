"""The one loop. Every model and task learns here; what differs comes in as model, source and loss.

A step is one effective batch. Between steps the run can be stopped, evaluated and saved, in that order, so that a
stopped run takes up exactly where it was left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from signal import SIGINT, SIGTERM
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import clip_grads_with_norm_

from headway.errors import TrainingError
from headway.memory import keep_freed_memory
from headway.tasks.distributed import use_ranks
from headway.training import rng
from headway.training.activation_checkpointing import recomputed
from headway.training.best import Best
from headway.training.distributed import World, join, pick_device, spread
from headway.training.ema import Average
from headway.training.intervals import Pace
from headway.training.log import Journal, Window, draw_curves, reporter
from headway.training.loss_spikes import Spikes
from headway.training.nonfinite import lines, needing_room, require_finite
from headway.training.optim import build_optimizers
from headway.training.protocols import LossFunction, Source, Status
from headway.training.result import FitResult
from headway.training.resume import latest, restore, snapshot
from headway.training.schedule import Schedule
from headway.training.settings import Settings
from headway.training.signals import Interrupt, listening
from headway.training.state import clean, locked, save_state, states
from headway.training.step import Stepper

Evaluate = Callable[[nn.Module], dict[str, float]]


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

    `evaluate` is called on every rank, `among` which it may spread its work; the first one's scores count. Everything
    the run writes is under `folder/training`. With `resume` the newest valid state is gone on with. A callback is any
    object with some of the methods of `Callback`.
    """
    training = Path(folder) / "training"
    device = pick_device(settings.device)
    if score is None and settings.patience:
        raise TrainingError("patience: early stopping needs a score to watch")
    if score is not None and evaluate is None:
        raise TrainingError(f"score: {score!r} is asked for, but there is nothing to evaluate with")
    world = join(device)
    keep_freed_memory()
    with ExitStack() as stack:
        world.first(lambda: stack.enter_context(locked(training)))
        run = Run(model, source, loss=loss, settings=settings, training=training, world=world, device=device)
        if settings.checkpoint_activations:
            stack.enter_context(recomputed(run.replica.learner))
        run.evaluate = evaluate
        run.best = Best(training / "best.safetensors", score, higher_is_better) if score is not None else None
        if world.main:
            run.callbacks = [*callbacks, *(reporter(name, training) for name in settings.report)]
        stack.callback(run.tell, "on_end")
        interrupt = stack.enter_context(listening())
        stack.enter_context(needing_room())
        run.begin(resume=resume)
        return run.end(run.train(interrupt))


class Run:
    """One run of `fit`: the parts that change from step to step."""

    def __init__(
        self,
        model: nn.Module,
        source: Source,
        *,
        loss: LossFunction,
        settings: Settings,
        training: Path,
        world: World,
        device: torch.device,
    ) -> None:
        self.model = model
        self.source = source
        self.settings = settings
        self.training = training
        self.world = world
        self.device = device
        self.evaluate: Evaluate | None = None
        self.best: Best | None = None
        self.callbacks: list[Any] = []
        self.status = Status(model)
        self.window = Window()
        self.journal = Journal(None)
        self.pace = Pace(settings)
        self.spikes = Spikes(settings.skip_spikes, clip=settings.clip)
        self.saved = -1  # the step of the last state
        self.started = self.drawn = monotonic()
        self.order: tuple[int, Sequence[np.ndarray]] = (-1, ())
        self.schedule = Schedule(settings.schedule, settings.warmup, settings.decay, settings.floor)
        self.replica = spread(model, world, shard=settings.shard, device=device)
        learner = self.replica.learner
        self.optimizers = build_optimizers(
            learner,
            kind=settings.optimizer,
            lr=settings.lr,
            matrix_lr=settings.matrix_lr,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
            muon=self.replica.muon,
        )
        self.average = Average(learner, settings.average) if settings.average else None
        self.stepper = Stepper(
            replica=self.replica,
            source=source,
            loss=loss,
            world=world,
            device=device,
            precision=settings.precision,
            accumulate=settings.accumulate,
            training=training,
            warn=self.warn,
        )

    # the course of a run

    def begin(self, *, resume: bool) -> None:
        """Start afresh, or from the newest valid state."""
        if not resume and self.world.share(bool(states(self.training))):
            raise TrainingError(f"{self.training}: holds an earlier run's states; resume it or choose another folder")
        length, warnings = 0, list[str]()
        if resume:
            loaded = latest(self)
            warnings, length = loaded.warnings + restore(self, loaded), loaded.state["journal"]
            self.saved = self.status.step
        else:
            rng.seed_all(self.settings.seed + self.world.rank)
        warnings += self.stepper.take_up_split()
        self.world.first(lambda: clean(self.training))
        if self.world.main:
            self.journal = Journal(self.training / "metrics.jsonl", length=length)
        self.status.steps = self.pace.planned(self.status, len(self.batches()))
        self.started = monotonic() - self.status.elapsed
        self.tell("on_start")
        for message in warnings + self.journal.losses:
            self.warn(message)

    def train(self, interrupt: Interrupt) -> str:
        """Step until the run ends; the reason why."""
        status, pace = self.status, self.pace
        self.model.train()
        while True:
            clock = monotonic() - self.started if self.world.main else 0.0
            caught = interrupt.signal
            terminated, interrupted, status.elapsed = self.world.sum(caught == SIGTERM, caught == SIGINT, clock)
            if terminated or interrupted:
                self.save()
                return "SIGTERM" if terminated else "SIGINT"
            ended = pace.ended(status)
            if status.evaluated != status.step and (ended or pace.due("eval_every", status)):
                self.assess()
                ended = ended or pace.ended(status)
            if ended and self.window.steps:
                self.log()
            if ended or pace.due("save_every", status):
                self.save()
            if ended:
                return ended
            self.step()

    def end(self, stopped_by: str) -> FitResult:
        """Leave the model with the weights to keep, and the run's curves on the disk."""
        status = self.status
        if self.best is not None and status.best is not None:
            if problem := self.best.restore(self.model, status=status, world=self.world):
                self.warn(problem)
        else:
            self.replica.keep(self.average)
        self.model.to(self.device).eval()
        self.draw()
        return FitResult(
            steps=status.step,
            epochs=status.epoch,
            best=status.best,
            history=self.journal.history,
            stopped_by=stopped_by,
            seconds=status.elapsed,
        )

    # what is done at and between steps

    def step(self) -> None:
        """One effective batch: gradients, clipping, update; or no update, if it is far out of line."""
        status, batches = self.status, self.batches()
        status.steps = self.pace.planned(status, len(batches))
        status.factor = self.schedule.factor(status.step, status.steps)
        self.optimizers.zero_grad()
        found = self.stepper.gradients(batches[status.position], epoch=status.epoch, step=status.step + 1)
        spike = self.spikes.judge(found.size) if found.ready else None
        found.ready = found.ready and spike is None
        if found.ready:
            if self.settings.clip:
                clip_grads_with_norm_(self.replica.learner.parameters(), self.settings.clip, found.norm, foreach=True)
            self.optimizers.scale_lr(status.factor)
            self.optimizers.step()
            if self.average is not None:
                self.average.update()
        self.window.add(found)
        status.step += 1
        status.position += 1
        if status.position == len(batches):
            status.epoch, status.position = status.epoch + 1, 0
        self.tell("on_step")
        if spike is not None:
            self.warn(f"step {status.step} was left out: {spike}; batch: {lines(found.where)}")
        if status.step % self.settings.log_every == 0:
            self.log()

    def log(self) -> None:
        status = self.status
        metrics = self.window.read(self.world, unit=self.settings.batch_unit)
        metrics["lr"] = self.settings.lr * status.factor
        self.window = Window()
        self.journal.write({"step": status.step, "epoch": status.epoch, **metrics, "seconds": round(status.elapsed, 3)})
        self.tell("on_log", metrics)

    def assess(self) -> None:
        """Evaluate the weights that would be kept, and remember them if they are the best so far."""
        status = self.status
        status.evaluated = status.step
        self.pace.done("eval_every", status)
        if self.evaluate is None:
            return
        streams = rng.capture()
        self.model.eval()
        with self.replica.kept(self.average), torch.no_grad(), self.stepper.autocast(), use_ranks(self.world):
            scores: dict[str, float] = self.world.share(self.evaluate(self.model))
            if self.best is not None:
                self.best.judge(scores, self.model, status=status, world=self.world)
        self.model.train()
        rng.restore(streams)
        self.journal.write({"step": status.step, "epoch": status.epoch, "scores": scores})
        self.tell("on_evaluate", scores)

    def save(self) -> None:
        step, began = self.status.step, monotonic()
        if self.saved == step:
            return
        self.replica.gather()
        require_finite(self.model, step=step)
        state = snapshot(self)
        path = self.world.first(lambda: save_state(self.training, step, state, keep=self.settings.keep))
        self.saved = step
        self.tell("on_save", path)
        if slow := self.pace.saved(self.status, self.world.share(monotonic() - began)):
            self.tell("on_warning", slow)  # not logged: a log holds nothing that depends on the clock alone
        if monotonic() - self.drawn > 60:
            self.draw()

    def draw(self) -> None:
        self.drawn = monotonic()
        if self.world.main:
            draw_curves(self.journal.history, self.training / "curves.png")

    def batches(self) -> Sequence[np.ndarray]:
        """The effective batches of the present epoch."""
        if self.order[0] != self.status.epoch:
            self.order = self.status.epoch, self.source.epoch(self.status.epoch)
            if not len(self.order[1]):
                raise TrainingError("the data makes not a single batch; give more examples or a smaller batch")
        return self.order[1]

    def tell(self, event: str, *details: Any) -> None:
        for callback in self.callbacks:
            listener = getattr(callback, event, None)
            if listener is not None:
                listener(self.status, *details)

    def warn(self, message: str) -> None:
        self.journal.write({"step": self.status.step, "warning": message})
        self.tell("on_warning", message)
