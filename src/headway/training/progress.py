"""Progress display: a live line on a terminal, otherwise a plain line at intervals."""

from __future__ import annotations

from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from headway.printable import printable
from headway.training.protocols import Callback, Status


class ProgressLine(Callback):
    """A callback of `fit` that shows step, loss, score, speed, learning rate and the remaining time."""

    def __init__(self, *, unit: str = "examples", score: str | None = None, every: float = 10.0) -> None:
        self.console = Console(highlight=False, markup=False)  # "[x]" in a warning is not markup
        self.unit = unit
        self.score = score
        self.every = every
        self.printed_at = -every
        self.metrics: dict[str, float] = {}
        self.scores: dict[str, float] = {}
        self.bar: Progress | None = None
        self.task = TaskID(0)

    def on_start(self, status: Status) -> None:
        if self.console.is_terminal:
            columns = BarColumn(bar_width=24), TextColumn("{task.description}")
            self.bar = Progress(*columns, console=self.console)
            self.task = self.bar.add_task(self.line(status), total=status.steps, completed=status.step)
            self.bar.start()

    def on_step(self, status: Status) -> None:
        if self.bar is not None:
            self.bar.update(self.task, total=status.steps, completed=status.step, description=self.line(status))

    def on_log(self, status: Status, metrics: dict[str, float]) -> None:
        self.metrics = metrics
        if self.bar is None and monotonic() - self.printed_at >= self.every:
            self.printed_at = monotonic()
            self.console.print(self.line(status), soft_wrap=True)

    def on_evaluate(self, status: Status, scores: dict[str, float]) -> None:
        self.scores = scores
        text = "  ".join(f"{name} {value:.4g}" for name, value in scores.items())
        self.console.print(printable(f"step {status.step}: {text}"), soft_wrap=True)

    def on_warning(self, status: Status, message: str) -> None:
        self.console.print(printable(f"warning: {message}"), soft_wrap=True)

    def on_end(self, status: Status) -> None:
        if self.bar is not None:
            self.bar.stop()

    def line(self, status: Status) -> str:
        parts = [f"step {status.step}/{status.steps}"]
        if "loss" in self.metrics:
            parts.append(f"loss {self.metrics['loss']:.4f}")
        score = self.score or next(iter(self.scores), None)  # the first is the one that weights are kept by
        if score in self.scores:
            parts.append(f"{score} {self.scores[score]:.4g}")
        if "speed" in self.metrics:
            parts.append(f"{self.metrics['speed']:,.0f} {self.unit}/s")
        if "lr" in self.metrics:
            parts.append(f"lr {self.metrics['lr']:.2e}")
        if status.step:
            parts.append(f"{format_seconds(status.elapsed / status.step * max(status.steps - status.step, 0))} left")
        return "  ".join(parts)


def format_seconds(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
