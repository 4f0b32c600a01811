"""How results look in a notebook: small tables, and the curves of a run; and the curves as a figure. All text is
escaped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headway.printable import as_html, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 240, 80  # pixels of a curve


class Scores(dict[str, float]):
    """Scores by name; in a notebook, a table."""

    def _repr_html_(self) -> str:
        return score_table(self)


def score_table(scores: Mapping[str, float], *, title: str = "") -> str:
    rows = "".join(f"<tr><td>{as_html(name)}</td><td>{value:.4g}</td></tr>" for name, value in scores.items())
    caption = f"<caption>{as_html(title)}</caption>" if title else ""
    return f"<table>{caption}<thead><tr><th>score</th><th>value</th></tr></thead><tbody>{rows}</tbody></table>"


def run_html(folder: Path, scores: Mapping[str, float], *, title: str, warnings: list[str]) -> str:
    """Scores, warnings and curves of a run."""
    from headway.jobs.runs import curves

    noted = "".join(f"<li>{as_html(each)}</li>" for each in warnings)
    drawn = "".join(_curve(name, points) for name, points in _shown(curves(folder)).items())
    return score_table(scores, title=title) + (f"<ul>{noted}</ul>" if noted else "") + f"<div>{drawn}</div>"


def plot_curves(folder: Path) -> Figure:
    """The training loss and each score of the evaluations, by step, from the run's metrics.jsonl."""
    from matplotlib.figure import Figure

    from headway.jobs.runs import curves

    found = _shown(curves(folder))
    figure = Figure(figsize=(4.5 * max(1, len(found)), 3.2), layout="constrained")
    for number, (name, points) in enumerate(found.items(), 1):
        axes = figure.add_subplot(1, len(found), number)
        axes.plot(*zip(*points, strict=True), marker="o" if len(points) < 20 else None, markersize=3)
        axes.set_xlabel("step")
        axes.set_title(printable(name), parse_math=False)
        axes.grid(alpha=0.3)
    return figure


def _shown(found: dict[str, list[tuple[int, float]]]) -> dict[str, list[tuple[int, float]]]:
    """The training loss first; without scores of a constant prediction."""
    from headway.jobs.runs import LOSS

    names = [LOSS, *(name for name in found if name != LOSS and not name.endswith((" majority", " mean_mae")))]
    return {name: found[name] for name in names if found.get(name)}


def _curve(name: str, points: list[tuple[int, float]]) -> str:
    steps, values = [step for step, _ in points], [value for _, value in points]
    wide, high = max(steps) - min(steps) or 1, max(values) - min(values) or 1.0
    across, up = (WIDTH - 8) / wide, (HEIGHT - 8) / high
    places = " ".join(
        f"{4 + (step - min(steps)) * across:.1f},{HEIGHT - 4 - (value - min(values)) * up:.1f}"
        for step, value in points
    )
    return (
        '<figure style="display:inline-block;margin:0.5em">'
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{as_html(name)} by step">'
        f'<polyline fill="none" stroke="#3f6fc4" stroke-width="1.5" points="{places}"/></svg>'
        f"<figcaption>{as_html(name)}: {values[0]:.4g} → {values[-1]:.4g}, {steps[-1]:,} steps</figcaption></figure>"
    )
