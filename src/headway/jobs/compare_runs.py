"""Runs side by side, from their folders alone: the settings that differ, scores, and curves in one picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.checkpoints import save_text
from headway.errors import InputError
from headway.files import atomic_write, disk_errors
from headway.jobs.html_page import page, section, table
from headway.jobs.run_folder import PLAN, read_run_json
from headway.jobs.runs import LOSS, RunSummary, curves, run_summary
from headway.jobs.svg_charts import legend, lines
from headway.printable import printable

HIDDEN = ("given", "why")  # of a plan: not settings
SECTIONS = ("model", "options", "train")  # of a plan: groups of settings

Curves = dict[str, list[tuple[int, float]]]


@dataclass(frozen=True)
class Comparison:
    runs: list[RunSummary]
    settings: dict[str, list[Any]]  # name -> the value in each run; only settings that differ
    curves: list[Curves]  # of each run

    @property
    def names(self) -> list[str]:
        """The folders, without the part of their paths that they share."""
        paths = [run.folder.absolute().parts for run in self.runs]
        shared = next((n for n, parts in enumerate(zip(*paths, strict=False)) if len(set(parts)) > 1), 0)
        return [str(Path(*parts[shared:])) if parts[shared:] else str(Path(parts[-1])) for parts in paths]

    @property
    def score_names(self) -> list[str]:
        return list(dict.fromkeys(name for run in self.runs for name in run.scores))

    def to_dict(self) -> dict[str, Any]:
        return {"runs": [run.to_dict() for run in self.runs], "settings": self.settings}


def compare(folders: Sequence[str | Path]) -> Comparison:
    """Raises an InputError for a folder that holds no run, or one that cannot be read."""
    runs = [run_summary(folder) for folder in folders]
    for run in runs:
        if run.state == "unreadable":
            raise InputError(run.problem)
    plans = [flat_plan(read_run_json(folder, PLAN) or {}) for folder in folders]
    names = dict.fromkeys(name for plan in plans for name in plan)
    settings = {name: [plan.get(name) for plan in plans] for name in names}
    differing = {name: values for name, values in settings.items() if any(value != values[0] for value in values)}
    return Comparison(runs, differing, [curves(folder) for folder in folders])


def flat_plan(plan: dict[str, Any]) -> dict[str, Any]:
    """Settings by name, those of a section as `section.name`; without those that are not set."""
    out: dict[str, Any] = {}
    for name, value in plan.items():
        if name in SECTIONS and isinstance(value, dict):
            section = "task" if name == "options" else name
            out |= {f"{section}.{key}": each for key, each in value.items()}
        elif name not in HIDDEN:
            out[name] = value
    return {name: value for name, value in out.items() if value not in (None, [], {}, "")}


def shown(value: Any) -> str:
    """A setting in a cell."""
    if value is None:
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return printable(text if len(text) <= 60 else f"{text[:59]}…")


def setting_rows(found: Comparison) -> list[list[str]]:
    return [[printable(name), *map(shown, values)] for name, values in found.settings.items()]


def score_rows(found: Comparison) -> list[list[str]]:
    """State, size, steps and time of each run, then its scores."""
    rows = [
        ["state", *(run.state for run in found.runs)],
        ["parameters", *("–" if run.parameters is None else f"{run.parameters:,}" for run in found.runs)],
        ["steps", *(f"{run.step:,}" for run in found.runs)],
        ["minutes", *(f"{run.seconds / 60:.1f}" for run in found.runs)],
    ]
    for name in found.score_names:
        values = [run.scores.get(name) for run in found.runs]
        rows.append([printable(name), *("–" if value is None else f"{value:.4f}" for value in values)])
    return rows


def comparison_lines(found: Comparison) -> list[str]:
    """Tables for the terminal."""
    head = ["", *map(printable, found.names)]
    scores, settings = score_rows(found), setting_rows(found)
    lines = [*_aligned([head, *scores]), "", *notes(found)]
    if not settings:
        return [*lines, "the settings are the same"]
    return [*lines, "settings that differ", *_aligned([head, *settings])]


def notes(found: Comparison) -> list[str]:
    """What a reader should know before comparing the scores."""
    out = []
    if len({(run.task, run.data) for run in found.runs}) > 1:
        out.append("note: the runs have different tasks or data, so their scores are not comparable")
    unfinished = [name for name, run in zip(found.names, found.runs, strict=True) if not run.is_final]
    if unfinished:
        out.append(f"note: the scores of {', '.join(map(printable, unfinished))} are those of its last evaluation")
    return out


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(f"{cell:<{size}}" for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows]


def panels(found: Comparison) -> dict[str, list[tuple[str, list[tuple[int, float]]]]]:
    """name of a curve -> (run, points), the training loss first."""
    names = dict.fromkeys([LOSS, *(name for each in found.curves for name in each)])
    out = {
        name: [(run, each[name]) for run, each in zip(found.names, found.curves, strict=True) if each.get(name)]
        for name in names
    }
    return {name: series for name, series in out.items() if series}


def write_page(found: Comparison, out: Path) -> None:
    """One HTML file, readable offline. A run has the same colour in all curves."""
    head, key = ["", *found.names], legend(found.names)
    settings = table(head, setting_rows(found)) if found.settings else "<p>The settings are the same.</p>"
    curves = [
        section(name, key + lines({run: dict(series).get(run, []) for run in found.names}, x="step", y=name))
        for name, series in panels(found).items()
    ]
    scores = section("Scores", table(head, score_rows(found)), why=" ".join(notes(found)))
    title = f"Runs: {', '.join(found.names)}"
    save_text(out, page(title, [scores, section("Settings that differ", settings), *curves]))


def write_curves(found: Comparison, out: Path) -> None:
    """One panel for each curve, one line for each run."""
    from matplotlib.figure import Figure

    from headway.inspect.pictures import plain

    drawn = panels(found)
    if not drawn:
        raise InputError("none of the runs has logged anything yet, so there are no curves")
    figure = Figure(figsize=(8, 2.6 * len(drawn)), layout="constrained")
    column = figure.subplots(len(drawn), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, series) in zip(column, drawn.items(), strict=True):
        for run, points in series:
            colour = f"C{found.names.index(run) % 10}"
            axes.plot(*zip(*points, strict=True), label=plain(run), color=colour)
        axes.set_ylabel(plain(name))
        axes.grid(alpha=0.3)
    column[0].legend()
    column[-1].set_xlabel("step")
    with disk_errors(out, 100_000), atomic_write(out) as partial:
        figure.savefig(partial, dpi=120, format="png")
