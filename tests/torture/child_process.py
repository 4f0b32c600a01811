"""A toy run in a child process, forked so that monkeypatches apply there. It can be watched, signalled and killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from training.toy_run import ToyModel, ToySource, toy_fit, toy_loss

from headway.data.batch import Batch, Loss
from headway.errors import HeadwayError
from headway.training import loop
from headway.training.state import states

REFUSED = 2  # exit code of a run that ends with a HeadwayError


class FaultySource(ToySource):
    """The loss of chosen examples, each in one epoch, is multiplied by a factor."""

    def __init__(self, factors: dict[tuple[int, int], float]) -> None:
        super().__init__()
        self.factors = factors

    def load(self, indices: np.ndarray, epoch: int) -> Batch:
        batch = super().load(indices, epoch)
        factor = max([1.0, *(self.factors.get((epoch, int(index)), 1.0) for index in indices)])
        targets = {**batch.targets, "factor": torch.tensor(factor)}
        return Batch(inputs=batch.inputs, targets=targets, count=batch.count, where=batch.where)


def faulty_loss(model: nn.Module, batch: Batch) -> Loss:
    return Loss(total=toy_loss(model, batch).total * batch.targets["factor"])


class StepReporter:
    """Sends the step to the parent process, and sleeps so that a signal can arrive during a step."""

    def __init__(self, sender: Any, slow: float) -> None:
        self.sender, self.slow = sender, slow

    def on_start(self, status: Any) -> None:
        self.sender.send(status.step)

    def on_step(self, status: Any) -> None:
        self.sender.send(status.step)
        time.sleep(self.slow)


@cache
def warm_up() -> None:
    """Run one step, so that torch's lazy imports are done once, before the fork."""
    with TemporaryDirectory() as folder, patch.object(loop, "draw_curves"):
        toy_fit(Path(folder), steps=1)


class TrainingProcess:
    """Starts the run in `folder`, or resumes it if it has states. `first` is called in the child before training."""

    def __init__(
        self,
        folder: Path,
        *,
        model: Callable[[], nn.Module] = ToyModel,
        first: Callable[[], object] | None = None,
        slow: float = 0.0,
        **options: Any,
    ) -> None:
        warm_up()
        context = multiprocessing.get_context("fork")
        self.receiver, sender = context.Pipe(duplex=False)
        self.steps: list[int] = []
        self.error = ""

        def work() -> None:
            torch.set_num_threads(1)
            loop.draw_curves = lambda *_: None  # not needed
            if first is not None:
                first()
            try:
                resume = bool(states(folder / "training"))
                result = toy_fit(
                    folder, model=model(), resume=resume, callbacks=[StepReporter(sender, slow)], **options
                )
            except HeadwayError as error:
                sender.send(str(error))
                sys.exit(REFUSED)
            sys.exit(result.exit_code)

        self.process = context.Process(target=work, daemon=True)
        self.process.start()
        sender.close()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def step(self) -> int:
        """The last step received from the child."""
        return self.steps[-1] if self.steps else 0

    def receive(self) -> bool:
        """Wait for the next message; False if the child has closed the pipe."""
        try:
            message = self.receiver.recv()
        except EOFError:
            return False
        if isinstance(message, str):
            self.error = message
        else:
            self.steps.append(message)
        return True

    def reach(self, step: int) -> bool:
        """Wait until the run reaches a step; False if it ended before."""
        while not self.steps or self.steps[-1] < step:
            if not self.receive():
                return False
        return True

    def wait(self) -> int:
        """Wait for the child to end. Returns the exit code, negative after a signal."""
        while self.receive():
            pass
        self.process.join(30)
        code = self.process.exitcode
        assert code is not None, "the process did not end"
        return code

    def kill(self) -> int:
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()
