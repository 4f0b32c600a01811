"""The training loop. It serves every model and task; what differs is passed in as model, source and loss.

A step is one effective batch. Between steps the run can be stopped, evaluated and saved, in that order, so that a
resumed run continues exactly where it stopped.
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

from headway.distributed import World, init_distributed, pick_device
from headway.engine.training import install
from headway.errors import TrainingError
from headway.memory import keep_freed_memory
from headway.tasks.distributed import use_ranks
from headway.training import rng
from headway.training.activation_checkpointing import checkpoint_blocks
from headway.training.best import BestCheckpoint
from headway.training.ema import EMA
from headway.training.folder import METRICS
from headway.training.intervals import Intervals
from headway.training.log import MetricsLog, RunningMetrics, draw_curves, make_tracker
from headway.training.loss_spikes import SpikeFilter
from headway.training.nonfinite import explain_out_of_memory, format_locations, require_finite
from headway.training.optim import build_optimizers
from headway.training.protocols import LossFunction, Source, Status
from headway.training.replica import distribute
from headway.training.result import FitResult
from headway.training.resume import extend, latest, restore, snapshot
from headway.training.schedule import Schedule
from headway.training.settings import Settings
from headway.training.signals import Interrupt, catch_signals
from headway.training.state import lock_folder, remove_partial, save_state, states
from headway.training.step import Gradients, Stepper, clip_gradients, gradients_of

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
    """Train `model` in place. It ends with the best weights if there is a score, otherwise with the last weights or
    their EMA.

    `evaluate` is called on every rank and may divide its work (`use_ranks`); the scores of rank 0 are used.
    Everything the run writes is under `folder/training`. With `resume`, training continues from the newest valid state.
    A callback is any object with some of the methods of `Callback`.
    """
    training = Path(folder) / "training"
    device = pick_device(settings.device)
    if score is None and settings.patience:
        raise TrainingError("patience: early stopping needs a score")
    if score is not None and evaluate is None:
        raise TrainingError(f"score: {score!r} is set, but no evaluate function is given")
    world = init_distributed(device)
    keep_freed_memory()
    install()
    with ExitStack() as stack:
        unlocked = world.run_on_main(lambda: stack.enter_context(lock_folder(training)))
        run = TrainingRun(model, source, loss=loss, settings=settings, training=training, world=world, device=device)
        if settings.checkpoint_activations:
            stack.enter_context(checkpoint_blocks(run.replica.trained))
        run.evaluate = evaluate
        run.best = BestCheckpoint(training / "best.safetensors", score, higher_is_better) if score is not None else None
        if world.is_main:
            run.callbacks = [
                *callbacks,
                *(make_tracker(name, training, settings.as_dict()) for name in settings.report),
            ]
        stack.callback(run.notify, "on_end")
        stack.callback(run.stepper.reader.close)
        interrupt = stack.enter_context(catch_signals())
        stack.enter_context(explain_out_of_memory())
        run.start(resume=resume, warnings=[unlocked] if unlocked else [])
        return run.finish(run.train(interrupt))


class TrainingRun:
    """The state of one call of `fit`."""

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
        self.best: BestCheckpoint | None = None
        self.callbacks: list[Any] = []
        self.status = Status(model)
        self.running = RunningMetrics()
        self.metrics_log = MetricsLog(None)
        self.intervals = Intervals(settings)
        self.spike_filter = SpikeFilter(settings.skip_spikes, clip=settings.clip)
        self.saved_step = -1  # of the last state
        self.started = self.curves_drawn = monotonic()
        self.epoch_batches: tuple[int, Sequence[np.ndarray]] = (-1, ())  # epoch number, its effective batches
        self.schedule = Schedule(settings.schedule, settings.warmup, settings.decay, settings.floor)
        self.replica = distribute(model, world, shard=settings.shard, device=device)
        trained = self.replica.trained
        self.optimizers = build_optimizers(trained, muon=self.replica.muon, **settings.optimizer_options())
        self.ema = EMA(trained, settings.average) if settings.average else None
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

    def start(self, *, resume: bool, warnings: list[str]) -> None:
        """Initialise a new run, or restore the newest valid state. `warnings` are written to the log."""
        if not resume and self.world.broadcast(bool(states(self.training))):
            raise TrainingError(f"{self.training}: has states of an earlier run; resume it or choose another folder")
        length, note = 0, None
        if resume:
            loaded = latest(self)
            warnings = warnings + loaded.warnings + restore(self, loaded)
            length = loaded.state["journal"]
            self.saved_step = self.status.step
            note = extend(self, loaded.state["settings"])
        else:
            rng.seed_all(self.settings.seed + self.world.rank)
        warnings = warnings + self.stepper.load_saved_split()
        self.world.run_on_main(lambda: remove_partial(self.training))
        if self.world.is_main:
            self.metrics_log = MetricsLog(self.training / METRICS, length=length)
        self.status.steps = self.intervals.planned_steps(self.status, len(self.batches()))
        self.started = monotonic() - self.status.elapsed
        self.notify("on_start")
        if note is not None:
            self.notify("on_note", note)
        for message in warnings + self.metrics_log.problems:
            self.warn(message)

    def train(self, interrupt: Interrupt) -> str:
        """Train until the run ends. Returns what ended it."""
        status, intervals = self.status, self.intervals
        self.model.train()
        while True:
            clock = monotonic() - self.started if self.world.is_main else 0.0
            signal = interrupt.signal
            terminated, interrupted, status.elapsed = self.world.all_reduce(signal == SIGTERM, signal == SIGINT, clock)
            if terminated or interrupted:
                self.save()
                return "SIGTERM" if terminated else "SIGINT"
            stop = intervals.stop_reason(status)
            if status.evaluated != status.step and (stop or intervals.due("eval_every", status)):
                self.run_evaluation()
                stop = stop or intervals.stop_reason(status)
            if stop and self.running.steps:
                self.log()
            if stop or intervals.due("save_every", status):
                self.save()
            if stop:
                return stop
            self.step()

    def finish(self, stopped_by: str) -> FitResult:
        """Load the final weights into the model and draw the curves."""
        status = self.status
        if self.best is not None and status.best is not None:
            if problem := self.best.restore(self.model, status=status, world=self.world):
                self.warn(problem)
        else:
            self.replica.finish(self.ema)
        self.model.to(self.device).eval()
        self.draw()
        return FitResult(
            steps=status.step,
            epochs=status.epoch,
            best=status.best,
            best_step=status.best_step if status.best is not None else None,
            history=self.metrics_log.history,
            first_loss=status.first_loss,
            stopped_by=stopped_by,
            seconds=status.elapsed,
        )

    def step(self) -> None:
        """One effective batch: gradients, clipping, optimiser update. The update is skipped for a gradient spike."""
        status, batches = self.status, self.batches()
        status.steps = self.intervals.planned_steps(status, len(batches))
        status.factor = self.schedule.factor(status.step, status.steps, status.extension)
        self.optimizers.zero_grad()
        indices, upcoming = batches[status.position], batches[status.position + 1 : status.position + 2]
        gradients = self.stepper.gradients(
            indices, epoch=status.epoch, step=status.step + 1, upcoming=upcoming[0] if len(upcoming) else None
        )
        if status.step == 0:
            status.first_loss = gradients.mean_loss
        spike = self.spike_filter.check(gradients.norm_value) if gradients.usable else None
        gradients.usable = gradients.usable and spike is None
        if gradients.usable:
            self.update(gradients)
        self.running.add(gradients)
        status.step += 1
        status.position += 1
        if status.position == len(batches):
            status.epoch, status.position = status.epoch + 1, 0
        self.notify("on_step")
        if spike is not None:
            self.warn(f"step {status.step} was skipped: {spike}; batch: {format_locations(gradients.where)}")
        if status.step % self.settings.log_every == 0:
            self.log()

    def update(self, gradients: Gradients) -> None:
        """Clip the gradients, step the optimisers, update the EMA. Reads nothing back from the device."""
        if self.settings.clip:
            clip_gradients(gradients_of(self.replica.trained), gradients.norm, self.settings.clip)
        self.optimizers.scale_lr(self.status.factor)
        self.optimizers.step()
        if self.ema is not None:
            self.ema.update()

    def log(self) -> None:
        status = self.status
        metrics = self.running.read(self.world, unit=self.settings.batch_unit)
        metrics["lr"] = self.settings.lr * status.factor
        self.running = RunningMetrics()
        self.metrics_log.write(
            {"step": status.step, "epoch": status.epoch, **metrics, "seconds": round(status.elapsed, 3)}
        )
        self.notify("on_log", metrics)

    def run_evaluation(self) -> None:
        """Evaluate the weights that would be saved, and store them if they are the best so far."""
        status = self.status
        status.evaluated = status.step
        self.intervals.mark_done("eval_every", status)
        if self.evaluate is None:
            return
        random_state = rng.capture()
        self.model.eval()
        with self.replica.full_model(self.ema), torch.no_grad(), self.stepper.autocast(), use_ranks(self.world):
            scores: dict[str, float] = self.world.broadcast(self.evaluate(self.model))
            if self.best is not None:
                self.best.update(scores, self.model, status=status, world=self.world)
        self.model.train()
        rng.restore(random_state)
        self.metrics_log.write({"step": status.step, "epoch": status.epoch, "scores": scores})
        self.notify("on_evaluate", scores)

    def save(self) -> None:
        step, start = self.status.step, monotonic()
        if self.saved_step == step:
            return
        self.replica.gather_weights()
        require_finite(self.model, step=step)
        state = snapshot(self)
        path = self.world.run_on_main(lambda: save_state(self.training, step, state, keep=self.settings.keep))
        self.saved_step = step
        self.notify("on_save", path)
        if slow := self.intervals.record_save(self.status, self.world.broadcast(monotonic() - start)):
            self.notify("on_warning", slow)  # not logged: log entries do not depend on the clock
        if monotonic() - self.curves_drawn > 60:
            self.draw()

    def draw(self) -> None:
        self.curves_drawn = monotonic()
        if self.world.is_main:
            draw_curves(self.metrics_log.history, self.training / "curves.png")

    def batches(self) -> Sequence[np.ndarray]:
        """The effective batches of the current epoch."""
        if self.epoch_batches[0] != self.status.epoch:
            self.epoch_batches = self.status.epoch, self.source.epoch(self.status.epoch)
            if not len(self.epoch_batches[1]):
                raise TrainingError("the data does not fill a single batch; give more examples or a smaller batch")
        return self.epoch_batches[1]

    def notify(self, event: str, *details: Any) -> None:
        for callback in self.callbacks:
            method = getattr(callback, event, None)
            if method is not None:
                method(self.status, *details)

    def warn(self, message: str) -> None:
        self.metrics_log.write({"step": self.status.step, "warning": message})
        self.notify("on_warning", message)
