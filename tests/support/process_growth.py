"""Prints, for each case of a JSON list, what is estimated and what a process grows by in the first steps of a training
with its longest examples: from before the loop to its peak resident size."""

import ctypes
import gc
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.task_run import started

from headway.jobs.cost import Estimator, Workload
from headway.jobs.preparation import make_source
from headway.jobs.run_config import make_plan
from headway.training import loop

STEPS = 3


def resident(name: str) -> int:
    """VmRSS, or VmHWM: its peak since the last reset."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


class Longest:
    """The longest examples of a source in every batch."""

    fingerprint = ""

    def __init__(self, source: Any, batch: int) -> None:
        self.load = source.load
        self.indices = np.argsort(source.sampler.lengths, kind="stable")[-batch:]

    def epoch(self, number: int) -> list[np.ndarray]:
        return [self.indices] * STEPS


def measured(name: str, *, rows: int = 200, options: dict[str, Any] | None = None, **settings: Any) -> dict[str, float]:
    task, model, data = started(name, rows=rows, **(options or {}))
    plan = make_plan(name, steps=STEPS, settings={"eval_every": 0, "save_every": 0, "device": "cpu", **settings})
    given = plan.settings()
    with tempfile.TemporaryDirectory() as folder:
        source = make_source(task, data, Path(folder), settings=given, say=lambda _: None)
        estimator = Estimator(plan, task, model, Workload.of_source(source, given))
        cost = estimator.cost(held_out=0)
        del estimator
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        before = resident("VmRSS")
        loop.fit(model, Longest(source, given.batch), loss=task.loss, settings=given, folder=Path(folder) / "run")
        return {"grown": resident("VmHWM") - before, "estimated": cost.memory.growth, "seconds": cost.step.total}


if __name__ == "__main__":
    torch.set_num_threads(1)
    loop.draw_curves = lambda *_: None  # not needed
    measured("classify", batch=4, rows=50)  # imports
    print(json.dumps([measured(**case) for case in json.loads(sys.argv[1])]))
