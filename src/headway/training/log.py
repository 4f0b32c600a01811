"""The log of a run: metrics.jsonl, curves.png, and optional experiment trackers."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from headway.distributed import World
from headway.errors import ConfigError
from headway.files import append_file, atomic_write, disk_errors
from headway.printable import finite, printable
from headway.training.folder import Entry, parse_entry
from headway.training.protocols import Callback, Status
from headway.training.state import RESUMABLE
from headway.training.step import Gradients

CLOCK = ("started", "waited")  # not in a state: a resumed run measures anew


class MetricsLog:
    """metrics.jsonl: one JSON object per line. A resumed run truncates it to the length recorded in its state."""

    def __init__(self, path: Path | None, *, length: int = 0) -> None:
        """Without a path (every rank but 0) entries are kept in memory only."""
        self.path = path
        self.problems: list[str] = []
        self.history: list[Entry] = []
        if path is not None:
            with disk_errors(path, 0, advice=RESUMABLE):
                path.parent.mkdir(parents=True, exist_ok=True)
                self._truncate(path, length)

    def _truncate(self, path: Path, length: int) -> None:
        with append_file(path) as file:
            missing = max(0, length - file.seek(0, os.SEEK_END))
            if missing:
                self.problems.append(f"{path}: {missing} bytes at the end of the log are missing")
            file.truncate(length - missing)
            file.seek(0)
            for number, line in enumerate(file, start=1):
                entry = parse_entry(line)
                if entry is None:
                    self.problems.append(f"{path}:{number}: this line of the log is damaged")
                else:
                    self.history.append(entry)

    def write(self, entry: Entry) -> None:
        entry = finite(entry)
        self.history.append(entry)
        if self.path is not None:
            line = json.dumps(entry) + "\n"
            with disk_errors(self.path, len(line), advice=RESUMABLE), append_file(self.path) as file:
                file.write(line.encode())

    def length(self) -> int:
        """Bytes of the log, after flushing it to the disk."""
        if self.path is None:
            return 0
        with disk_errors(self.path, 0, advice=RESUMABLE), append_file(self.path) as file:
            os.fsync(file.fileno())
            return file.seek(0, os.SEEK_END)


class RunningMetrics:
    """Sums since the last log line, kept on the device until the line is written."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.norms: Tensor | None = None
        self.count = self.rows = self.steps = self.skipped = 0
        self.started, self.waited = monotonic(), 0.0

    def add(self, gradients: Gradients) -> None:
        for name, value in {"loss": gradients.total, **gradients.parts}.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
        if gradients.usable:
            self.norms = gradients.norm if self.norms is None else self.norms + gradients.norm
        self.count += gradients.count
        self.rows += gradients.rows
        self.steps += 1
        self.skipped += not gradients.usable
        self.waited += gradients.waited

    def read(self, world: World, *, unit: str) -> dict[str, float]:
        """Means since the last log line, over all ranks."""
        ranks = world.all_gather({name: float(value) for name, value in self.sums.items()})
        names = dict.fromkeys(name for sums in ranks for name in sums)
        metrics = {name: sum(sums.get(name, 0.0) for sums in ranks) / self.count for name in names}
        if self.norms is not None:
            metrics["norm"] = float(self.norms) / (self.steps - self.skipped)
        if self.skipped:
            metrics["skipped"] = self.skipped
        metrics["predictions"] = self.count
        elapsed = max(monotonic() - self.started, 1e-9)
        metrics["speed"] = (self.count if unit == "tokens" else self.rows) / elapsed
        metrics["waiting"] = min(1.0, self.waited / elapsed)  # share of the time, on rank 0
        return metrics

    def state(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in CLOCK}

    def load(self, state: dict[str, Any], device: torch.device) -> None:
        vars(self).update(state)
        self.sums = {name: value.to(device) for name, value in self.sums.items()}
        self.norms = None if self.norms is None else self.norms.to(device)


def draw_curves(history: list[Entry], path: Path) -> None:
    """Plot loss and scores over the steps."""
    from matplotlib.figure import Figure

    losses = [(entry["step"], entry["loss"]) for entry in history if entry.get("loss") is not None]
    scores: dict[str, list[tuple[int, float]]] = {}
    for entry in history:
        for name, value in entry.get("scores", {}).items():
            if value is not None:
                scores.setdefault(name, []).append((entry["step"], value))
    panels = ({"training loss": losses} if losses else {}) | scores
    if not panels:
        return
    figure = Figure(figsize=(8, 3 * len(panels)), layout="constrained")
    column = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (label, points) in zip(column, panels.items(), strict=True):
        axes.plot(*zip(*points, strict=True), marker="o" if len(points) < 50 else None, markersize=3)
        axes.set_ylabel(printable(label).replace("$", r"\$"))
        axes.grid(alpha=0.3)
    axes.set_xlabel("step")
    with disk_errors(path, 100_000, advice=RESUMABLE), atomic_write(path) as partial:
        figure.savefig(partial, dpi=120, format="png")


class TensorBoard(Callback):
    """Event files in the run's `training/tensorboard`."""

    def __init__(self, training: Path) -> None:
        _import_optional("tensorboard", "tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(training / "tensorboard"))

    def on_log(self, status: Status, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(f"train/{name}", value, status.step)

    def on_evaluate(self, status: Status, scores: dict[str, float]) -> None:
        for name, value in scores.items():
            self.writer.add_scalar(f"evaluation/{name}", value, status.step)

    def on_end(self, status: Status) -> None:
        self.writer.close()


class ExperimentTracker(Callback):
    """Weights & Biases or Trackio, which have the same interface. The files of the first are in the run's folder."""

    def __init__(self, module: str, training: Path, config: Mapping[str, Any]) -> None:
        self.tracker = _import_optional(module, module)
        place = {"dir": str(training)} if module == "wandb" else {}
        self.tracker.init(project="headway", name=training.parent.name, config=dict(config), **place)

    def on_log(self, status: Status, metrics: dict[str, float]) -> None:
        self.tracker.log({f"train/{name}": value for name, value in metrics.items()}, step=status.step)

    def on_evaluate(self, status: Status, scores: dict[str, float]) -> None:
        self.tracker.log({f"evaluation/{name}": value for name, value in scores.items()}, step=status.step)

    def on_end(self, status: Status) -> None:
        self.tracker.finish()


class MLflow(Callback):
    """A run of the experiment "headway", wherever MLflow stores its runs (MLFLOW_TRACKING_URI)."""

    def __init__(self, training: Path, config: Mapping[str, Any]) -> None:
        self.tracker = _import_optional("mlflow", "mlflow")
        self.tracker.set_experiment("headway")
        self.tracker.start_run(run_name=training.parent.name)
        self.tracker.log_params(dict(config))

    def on_log(self, status: Status, metrics: dict[str, float]) -> None:
        self.tracker.log_metrics({f"train/{name}": value for name, value in metrics.items()}, step=status.step)

    def on_evaluate(self, status: Status, scores: dict[str, float]) -> None:
        self.tracker.log_metrics({f"evaluation/{name}": value for name, value in scores.items()}, step=status.step)

    def on_end(self, status: Status) -> None:
        self.tracker.end_run()


def make_tracker(name: str, training: Path, config: Mapping[str, Any]) -> Callback:
    """The tracker that an entry of `Settings.report` names; `config` are the settings of the run."""
    if name == "tensorboard":
        return TensorBoard(training)
    return MLflow(training, config) if name == "mlflow" else ExperimentTracker(name, training, config)


def require_trackers(names: Iterable[str]) -> None:
    """Before any work."""
    for name in names:
        if find_spec(name) is None:
            raise ConfigError(f"report: {name} is not installed; run `pip install {name}` or leave it out")


def _import_optional(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"report: {module} is not installed; run `pip install {package}` or leave it out") from error
