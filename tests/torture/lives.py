"""A toy run in a process of its own, forked from this one so that whatever is patched here is patched there. It can be
watched, signalled and killed."""

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
from train.toy_run import ToyModel, ToySource, toy_fit, toy_loss

from headway.data.batch import Batch, Loss
from headway.errors import HeadwayError
from headway.training import loop
from headway.training.state import states

REFUSED = 2  # what a run that ends with an error of ours exits with


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


class Teller:
    """Tells its parent how far the run is and, so that a signal can meet it, takes its time."""

    def __init__(self, told: Any, slow: float) -> None:
        self.told, self.slow = told, slow

    def on_start(self, status: Any) -> None:
        self.told.send(status.step)

    def on_step(self, status: Any) -> None:
        self.told.send(status.step)
        time.sleep(self.slow)


@cache
def warm_up() -> None:
    """The first step ever makes torch import a good deal; once here, every child has it."""
    with TemporaryDirectory() as folder, patch.object(loop, "draw_curves"):
        toy_fit(Path(folder), steps=1)


class Life:
    """`first` is called in the child before it trains; the run in `folder` is begun, or gone on with if it can be."""

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
        self.heard, told = context.Pipe(duplex=False)
        self.steps: list[int] = []
        self.error = ""

        def work() -> None:
            torch.set_num_threads(1)
            loop.draw_curves = lambda *_: None  # nobody looks at them
            if first is not None:
                first()
            try:
                resume = bool(states(folder / "training"))
                result = toy_fit(folder, model=model(), resume=resume, callbacks=[Teller(told, slow)], **options)
            except HeadwayError as error:
                told.send(str(error))
                sys.exit(REFUSED)
            sys.exit(result.exit_code)

        self.process = context.Process(target=work, daemon=True)
        self.process.start()
        told.close()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def step(self) -> int:
        """The last step it told of."""
        return self.steps[-1] if self.steps else 0

    def hear(self) -> bool:
        """Wait for the next word; False when there will be none."""
        try:
            word = self.heard.recv()
        except EOFError:
            return False
        if isinstance(word, str):
            self.error = word
        else:
            self.steps.append(word)
        return True

    def reach(self, step: int) -> bool:
        """Wait until a step is made; False if the run ended before."""
        while not self.steps or self.steps[-1] < step:
            if not self.hear():
                return False
        return True

    def end(self) -> int:
        """Wait for its end; the exit code, negative after a signal."""
        while self.hear():
            pass
        self.process.join(30)
        code = self.process.exitcode
        assert code is not None, "the process did not end"
        return code

    def kill(self) -> int:
        os.kill(self.pid, signal.SIGKILL)
        return self.end()
