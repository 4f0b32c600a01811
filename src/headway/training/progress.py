"""Progress display: a live view on a terminal, otherwise a plain line at intervals.

The live view has three lines at the bottom of the terminal: the bar with the remaining time, the loss with a sparkline
of its course and the score, and the speed. Evaluations and warnings scroll above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.text import Text

from headway.printable import printable
from headway.training.protocols import Callback, Status

if TYPE_CHECKING:
    from rich.live import Live

BLOCKS = "▁▂▃▄▅▆▇█"
FRAMES = 4  # of the live view in a second
BAR = (8, 40)  # cells of the bar, at least and at most
SPARKS = 30  # cells of the sparkline, at most
KEPT = 4096  # losses; of more, every other one is dropped


class ProgressLine(Callback):
    """A callback of `fit` that shows step, loss, score, speed, learning rate and the remaining time."""

    def __init__(
        self, *, unit: str = "examples", score: str | None = None, every: float = 10.0, stderr: bool = False
    ) -> None:
        self.console = Console(highlight=False, markup=False, stderr=stderr)  # "[x]" in a warning is not markup
        self.unit = unit
        self.score = score
        self.every = every
        self.printed_at = -every
        self.metrics: dict[str, float] = {}
        self.scores: dict[str, float] = {}
        self.losses: list[float] = []
        self.status: Status | None = None
        self.live: Live | None = None

    def on_start(self, status: Status) -> None:
        self.status = status
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            from rich.live import Live

            self.live = Live(get_renderable=self.view, console=self.console, refresh_per_second=FRAMES)
            self.live.start()

    def on_step(self, status: Status) -> None:
        self.status = status  # the view is drawn by the clock, whatever a step takes

    def on_log(self, status: Status, metrics: dict[str, float]) -> None:
        self.metrics = metrics
        if metrics.get("loss") is not None:
            self.losses = [*self.losses[:: 2 if len(self.losses) >= KEPT else 1], metrics["loss"]]
        if self.live is None and monotonic() - self.printed_at >= self.every:
            self.printed_at = monotonic()
            self.console.print(self.line(status), soft_wrap=True)

    def on_evaluate(self, status: Status, scores: dict[str, float]) -> None:
        self.scores = scores
        text = "  ".join(f"{name} {value:.4g}" for name, value in scores.items())
        self.console.print(printable(f"step {status.step}: {text}"), soft_wrap=True)

    def on_warning(self, status: Status, message: str) -> None:
        self.console.print(printable(f"warning: {message}"), soft_wrap=True)

    def on_end(self, status: Status) -> None:
        self.status = status
        if self.live is not None:
            self.live.stop()  # draws it a last time and restores the cursor
            self.live = None

    def line(self, status: Status) -> str:
        parts = [f"step {status.step}/{status.steps}", *self._learning(), *self._speed()]
        return "  ".join([*parts, *([f"{left} left"] if (left := self.left(status)) else [])])

    def left(self, status: Status) -> str:
        """The remaining time; empty before the first step."""
        if not status.step:
            return ""
        return format_seconds(status.elapsed / status.step * max(status.steps - status.step, 0))

    def _learning(self) -> list[str]:
        """Loss and score."""
        parts = [f"loss {self.metrics['loss']:.4f}"] if self.metrics.get("loss") is not None else []
        score = self.score or next(iter(self.scores), None)  # the first is the one that weights are kept by
        return [*parts, f"{score} {self.scores[score]:.4g}"] if score in self.scores else parts

    def _speed(self) -> list[str]:
        parts = [f"{self.metrics['speed']:,.0f} {self.unit}/s"] if "speed" in self.metrics else []
        return [*parts, f"lr {self.metrics['lr']:.2e}"] if "lr" in self.metrics else parts

    # --- on a terminal

    def view(self) -> Group:
        """Three lines, each cut to the width of the terminal."""
        status, plain = self.status, self.console.options.ascii_only
        assert status is not None
        left = self.left(status)
        share = min(status.step / status.steps, 1.0) if status.steps else 0.0
        ends = f"  {share:4.0%}  step {status.step:,}/{status.steps:,}" + (f"  {left} left" if left else "")
        size = max(BAR[0], min(BAR[1], self.console.width - len(ends) - 1))
        done = round(size * share)
        full, empty = ("#", ".") if plain else ("━", "─")
        bar = Text.assemble((full * done, "cyan"), (empty * (size - done), "bright_black"), ends)
        sparks = "" if plain else sparkline(self.losses, SPARKS)
        learning = Text.assemble((f"{sparks} " if sparks else "", "cyan"), "  ".join(self._learning()))
        if status.best is not None and status.best_step >= 0:
            best = f"best {status.best:.4g} at step {status.best_step:,}"
            learning.append(f" ({best})" if self.scores else f"  {best}", "green")  # the score is the last of _learning
        epoch = max(1, status.epoch + (status.position > 0))  # the one being trained, or the last
        speed = "  ".join([*self._speed(), f"epoch {epoch:,}", f"{format_seconds(status.elapsed)} elapsed"])
        lines = [bar, learning, Text(speed, "bright_black")]
        for text in lines:
            text.no_wrap, text.overflow = True, "crop" if plain else "ellipsis"
        return Group(*lines)


def sparkline(values: Sequence[float], size: int) -> str:
    """The course of some values in at most `size` characters, each the mean of its share of them; heights are relative
    to the smallest and the largest. The first values of a loss are often far above the rest, so the scale ends at
    three times the median."""
    finite = [value for value in values if value == value and abs(value) != float("inf")]
    if len(finite) < 2:
        return ""
    count = min(size, len(finite))
    edges = [len(finite) * at // count for at in range(count + 1)]
    means = [sum(finite[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, middle = min(means), sorted(means)[len(means) // 2]
    high = min(max(means), 3 * middle) if middle > 0 else max(means)
    if high <= low:
        return BLOCKS[0] * count
    heights = [min(int((value - low) / (high - low) * len(BLOCKS)), len(BLOCKS) - 1) for value in means]
    return "".join(BLOCKS[height] for height in heights)


def format_seconds(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
