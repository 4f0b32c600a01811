"""The training of word2vec's tables: epochs over a corpus on several threads, logged, saved and resumed as a run is.

It is not the loop of `fit`: that one computes the gradient of a batch through a model and steps an optimiser on all
weights, where word2vec updates a dozen rows after each of the millions of windows, on threads that share the tables.
What surrounds a step is shared: settings, states, log, signals, callbacks.

The corpus is trained in chunks, each with its own random numbers and learning rate, so that one thread gives the same
tables again, stopped and resumed or not. Several threads write the same rows at times, so their result is as good but
not the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from signal import SIGTERM
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import nn

from headway.errors import TrainingError
from headway.lineage.word2vec import Corpus, Objective, chunk_seed, initial_tables
from headway.training.intervals import Intervals
from headway.training.log import MetricsLog, draw_curves
from headway.training.protocols import Status
from headway.training.result import FitResult
from headway.training.settings import Settings
from headway.training.signals import catch_signals
from headway.training.state import load_latest, lock_folder, remove_partial, save_state, states

CHUNK = 10_000  # words
ROUND = 32  # chunks between which the run can be stopped, logged and saved
LAST_RATE = 0.004  # the learning rate falls to this share of itself

Tables = tuple[np.ndarray, np.ndarray]
TrainChunk = Callable[..., tuple[float, int]]


def fit_word2vec(
    model: nn.Module,
    corpus: Corpus,
    objective: Objective,
    *,
    width: int,
    settings: Settings,
    folder: Path,
    fingerprint: str,
    train_chunk: TrainChunk,
    threads: int = 1,
    callbacks: Iterable[Any] = (),
    resume: bool = False,
) -> tuple[np.ndarray, FitResult]:
    """Trains tables of `width` on the corpus. Returns the input table (vocab, width) and the result of the run. Writes
    to `folder`/training; `fingerprint` is the corpus's, and `model` what callbacks are given."""
    training = folder / "training"
    with ExitStack() as stack:
        warning = stack.enter_context(lock_folder(training))
        run = Word2VecRun(model, corpus, objective, settings=settings, training=training, train_chunk=train_chunk)
        run.callbacks = list(callbacks)
        run.fingerprint = fingerprint
        stack.callback(run.notify, "on_end")
        interrupt = stack.enter_context(catch_signals())
        run.start(width, resume=resume, warnings=[warning] if warning else [])
        pool = stack.enter_context(ThreadPoolExecutor(threads))
        stopped_by = "epochs"
        while run.status.epoch < settings.epochs:
            if interrupt.signal is not None:
                stopped_by = "SIGTERM" if interrupt.signal == SIGTERM else "SIGINT"
                break
            run.train_round(pool)
            if run.intervals.due("save_every", run.status):
                run.save()
        run.save()
        draw_curves(run.log.history, training / "curves.png")
        return run.tables[0], run.result(stopped_by)


class Word2VecRun:
    """The state of one call of `fit_word2vec`."""

    def __init__(
        self,
        model: nn.Module,
        corpus: Corpus,
        objective: Objective,
        *,
        settings: Settings,
        training: Path,
        train_chunk: TrainChunk,
    ) -> None:
        self.corpus, self.objective, self.settings, self.training = corpus, objective, settings, training
        self.train_chunk = train_chunk
        self.chunks = corpus.chunks(CHUNK)
        self.status, self.intervals, self.log = Status(model), Intervals(settings), MetricsLog(None)
        self.callbacks: list[Any] = []
        self.fingerprint = ""
        self.saved_step = -1
        self.started = monotonic()
        self.tables: Tables

    def start(self, width: int, *, resume: bool, warnings: list[str]) -> None:
        """Initial tables, or those of the newest state."""
        if not resume and states(self.training):
            raise TrainingError(f"{self.training}: has states of an earlier run; resume it or choose another folder")
        length = 0
        if resume and states(self.training):
            loaded = load_latest(self.training)
            if loaded.state["fingerprint"] != self.fingerprint:
                raise TrainingError(f"{self.training}: the text has changed since the run began; start another run")
            self.tables = loaded.state["tables"]["inputs"].numpy(), loaded.state["tables"]["outputs"].numpy()
            vars(self.status).update(loaded.state["status"])
            length, self.saved_step = loaded.state["journal"], self.status.step
            warnings = warnings + loaded.warnings
        else:
            self.tables = initial_tables(len(self.objective.keep), width, seed=self.settings.seed)
        remove_partial(self.training)
        self.log = MetricsLog(self.training / "metrics.jsonl", length=length)
        self.status.steps = self.settings.epochs * self.rounds
        self.started = monotonic() - self.status.elapsed
        self.intervals.reset(self.status)
        self.notify("on_start")
        for message in warnings + self.log.problems:
            self.log.write({"step": self.status.step, "warning": message})
            self.notify("on_warning", message)

    @property
    def rounds(self) -> int:
        """Rounds of an epoch."""
        return -(-len(self.chunks) // ROUND)

    def train_round(self, pool: ThreadPoolExecutor) -> None:
        """Trains the next chunks, each on a thread."""
        status, began = self.status, monotonic()
        numbers = range(status.position * ROUND, min((status.position + 1) * ROUND, len(self.chunks)))
        found = list(pool.map(self._train, numbers))
        loss, measured = sum(loss for loss, _ in found), sum(count for _, count in found)
        words = int(self._word(numbers[-1] + 1) - self._word(numbers[0]))
        rate = self.rate(numbers[-1])
        status.step, status.position = status.step + 1, status.position + 1
        if status.position == self.rounds:
            status.epoch, status.position = status.epoch + 1, 0
        status.elapsed, status.factor = monotonic() - self.started, rate / self.settings.lr
        metrics = {"loss": loss / max(measured, 1), "speed": words / max(monotonic() - began, 1e-9), "lr": rate}
        status.first_loss = metrics["loss"] if status.first_loss is None else status.first_loss
        entry = {"step": status.step, "epoch": status.epoch, **metrics, "seconds": round(status.elapsed, 3)}
        self.log.write(entry)
        self.notify("on_step")
        self.notify("on_log", metrics)

    def _train(self, number: int) -> tuple[float, int]:
        seed = chunk_seed(self.settings.seed, self.status.epoch, number)
        return self.train_chunk(
            self.corpus, self.chunks[number], self.tables, self.objective, lr=self.rate(number), seed=seed
        )

    def rate(self, chunk: int) -> float:
        """The learning rate of a chunk of this epoch: it falls in a line over all epochs."""
        done = (self.status.epoch + self._word(chunk) / len(self.corpus)) / self.settings.epochs
        return self.settings.lr * max(1 - done, LAST_RATE)

    def _word(self, chunk: int) -> float:
        """The number of words before a chunk."""
        return float(self.corpus.starts[self.chunks[chunk][0]]) if chunk < len(self.chunks) else len(self.corpus)

    def save(self) -> None:
        status = self.status
        if self.saved_step == status.step:
            return
        if not all(np.isfinite(table).all() for table in self.tables):
            raise TrainingError(
                f"the vectors are not finite after round {status.step}: train with a lower learning rate, such as "
                f"--set lr={self.settings.lr / 10:.3g}"
            )
        inputs, outputs = (torch.from_numpy(table) for table in self.tables)
        state = {
            "tables": {"inputs": inputs, "outputs": outputs},
            "status": status.as_dict(),
            "journal": self.log.length(),
            "fingerprint": self.fingerprint,
        }
        path = save_state(self.training, status.step, state, keep=self.settings.keep)
        self.saved_step = status.step
        self.intervals.mark_done("save_every", status)
        self.notify("on_save", path)

    def result(self, stopped_by: str) -> FitResult:
        status = self.status
        return FitResult(
            steps=status.step,
            epochs=status.epoch,
            best=None,
            best_step=None,
            history=self.log.history,
            stopped_by=stopped_by,
            seconds=status.elapsed,
            first_loss=status.first_loss,
        )

    def notify(self, event: str, *details: Any) -> None:
        for callback in self.callbacks:
            method = getattr(callback, event, None)
            if method is not None:
                method(self.status, *details)
