"""`runs` and `compare-runs`: what was trained, from the run folders alone."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.app import app
from headway.cli.options import AsJson, note, say, say_json, say_lines
from headway.errors import InputError
from headway.printable import printable

if TYPE_CHECKING:
    from headway.jobs.runs import RunSummary

COLOURS = {
    "running": "cyan",
    "finished": "green",
    "stopped": "yellow",
    "failed": "red",
    "dead": "red",
    "unreadable": "red",
}
GAP = 2  # cells between columns
LEAST = ("data", "model", "baseline", "changed", "steps")  # columns that are left out first
HEAD = ("run", "state", "task", "data", "model", "score", "baseline", "steps", "changed")


@app.command()
def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="A folder with runs in it, or below it, or a run.")
    ] = Path("runs"),
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove what only resuming needs from finished runs, and partial files.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --prune: remove without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the runs in DIR (default: runs), those that changed last first: task, data, model, score, state."""
    from headway.jobs.runs import list_runs

    if prune:
        return prune_runs(folder, yes=yes, as_json=as_json)
    found = list_runs(folder)
    if as_json:
        return say_json([run.to_dict() for run in found], indent=2)
    if not found:
        return say(f"{folder}: no runs; `headway train TASK DATA` makes one")
    show_table(found, below=folder)
    for run in found:
        if run.problem:
            note(f"note: {run.folder}: {run.problem}")


def prune_runs(folder: Path, *, yes: bool, as_json: bool) -> None:
    """A line for each file or folder that can be removed, and the question whether to."""
    from headway.jobs.prune import prunable
    from headway.jobs.prune import prune as remove_all

    found = prunable(folder)
    total = sum(each.bytes for each in found)
    if as_json and not yes:
        raise InputError("--prune --json asks nothing: add --yes to remove the files")
    if not found:
        return say_json({"removed": [], "bytes": 0}) if as_json else say(f"{folder}: nothing to remove")
    tell = note if as_json else say
    for each in found:
        tell(f"{each.bytes:>16,} bytes  {each.path}")
    tell(f"{total:>16,} bytes in all")
    if not yes:
        typer.confirm("Remove them? Finished runs cannot be extended then, but are used as before.", abort=True)
    removed = remove_all(found)
    if as_json:
        return say_json({"removed": [str(each.path) for each in found], "bytes": removed})
    say(f"removed {removed:,} bytes")


def show_table(found: list[RunSummary], *, below: Path) -> None:
    """At a terminal within its width, with fewer columns if need be; elsewhere each run is one line of any length."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = 100_000
    rows = [dict(zip(HEAD, cells(run, below=below), strict=True)) for run in found]
    columns = fitting(rows, console.width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name != "run")
    for run, row in zip(found, rows, strict=True):
        shown: dict[str, str | Text] = {**row, "state": Text(row["state"], COLOURS[run.state])}
        table.add_row(*(shown[name] for name in columns))
    console.print(table)


def fitting(rows: list[dict[str, str]], width: int) -> list[str]:
    """The columns that fit into the width: without those that are empty, and those that matter least."""
    columns = [name for name in HEAD if any(row[name] for row in rows)]
    sizes = {name: GAP + max(len(name), *(len(row[name]) for row in rows)) for name in columns}
    for name in LEAST:
        if sum(sizes[each] for each in columns) <= width:
            break
        columns = [each for each in columns if each != name]
    return columns


def cells(run: RunSummary, *, below: Path) -> list[str]:
    """As HEAD has them."""
    name = (
        str(run.folder.relative_to(below)) if run.folder.is_relative_to(below) and run.folder != below else run.folder
    )
    changed = datetime.fromtimestamp(run.updated).strftime("%Y-%m-%d %H:%M") if run.updated else ""
    baseline = list(run.baseline.values())[-1:]
    row = [
        str(name),
        run.state,
        run.task,
        ", ".join(run.data) or ("" if run.problem else "built-in"),
        model_of(run),
        "" if run.score is None else f"{run.score[0]} {run.score[1]:.4g}",
        f"{baseline[0]:.4g}" if baseline else "",
        steps_of(run),
        changed,
    ]
    return [printable(cell) for cell in row]


def model_of(run: RunSummary) -> str:
    """Its size, and what it was fine-tuned from."""
    size = "" if run.parameters is None else in_short(run.parameters)
    return f"{size} from {Path(run.start).name}" if run.start else size


def in_short(count: int) -> str:
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= unit:
            return f"{count / unit:.3g}{name}"
    return str(count)


def steps_of(run: RunSummary) -> str:
    planned = run.length.get("steps")
    if run.state == "finished" or not planned:
        return f"{run.step:,}"
    return f"{run.step:,}/{planned:,.0f}"


@app.command("compare-runs")
def compare_runs(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN RUN…", help="Two or more run folders.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Also write a page with the curves (.html), or a picture of them (.png)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs: the settings that differ, their scores, and their curves in one picture."""
    from headway.jobs.compare_runs import compare, comparison_lines, write_curves, write_page

    if len(folders) < 2:
        raise InputError("compare-runs takes two or more run folders")
    found = compare(folders)
    if out is not None:
        writers: dict[str, Any] = {".html": write_page, ".png": write_curves}
        if out.suffix.lower() not in writers:
            raise InputError(f"--out {out}: give a file with the suffix .html or .png")
        writers[out.suffix.lower()](found, out)
    if as_json:
        return say_json(found.to_dict(), indent=2)
    say_lines(comparison_lines(found))
    if out is not None:
        say(f"\ncurves in {out}" if out.suffix.lower() == ".png" else f"{out}; open it in a browser")
