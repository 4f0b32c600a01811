"""`compare`: the models that led to the Transformer, on one's own data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.app import app
from headway.cli.options import AsJson, Data, Set, TaskName, note, reads_data, say, say_json, say_lines

TIME = re.compile(r"(\d+(?:\.\d+)?)([smh]?)")
UNITS = {"s": 1 / 60, "m": 1.0, "": 1.0, "h": 60.0}


@app.command()
@reads_data
def compare(
    task: TaskName,
    data: Data = None,
    models: Annotated[
        str | None,
        typer.Option(help="Names with commas: rnn, gru, lstm, lstm-bahdanau, lstm-luong, …, classic, modern."),
    ] = None,
    budget: Annotated[str, typer.Option(help="Training time of all runs together: 90s, 5m, 2h.")] = "5m",
    each: Annotated[str | None, typer.Option(help="Training time of every run, instead of --budget.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each model, with different seeds.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs and the report (runs/compare-TASK).")] = None,
    size: Annotated[str | None, typer.Option(help="Size of the transformer: tiny, small or base.")] = None,
    valid: Annotated[list[Path] | None, typer.Option(help="Held-out file(s); otherwise a tenth is held out.")] = None,
    set_: Set = None,
    as_json: AsJson = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Train RNN, GRU, LSTM, attention and Transformer for the same time on the same data, and report what won and why.
    Interrupted, the same command goes on."""
    from headway.jobs.overrides import parse
    from headway.lineage.compare import run_all
    from headway.lineage.compare_report import PAGE, default_folder, lines, write_report

    folder = out or default_folder(task)
    tell = note if as_json else say
    runs = run_all(
        task,
        data,
        models=[name.strip() for name in models.split(",")] if models else None,
        minutes=minutes("--budget", budget),
        each=None if each is None else minutes("--each", each),
        seeds=seeds,
        out=folder,
        size=size,
        valid=valid,
        settings=parse(set_ or []),
        say=tell,
        **reading,
    )
    report = write_report(runs, folder, say=tell)
    if as_json:
        say_json(report)
        return
    say()
    say_lines(lines(report))
    say(f"{folder / PAGE}; open it in a browser, no network is needed")


def minutes(option: str, text: str) -> float:
    found = TIME.fullmatch(text)
    if found is None or not float(found[1]):
        raise typer.BadParameter(f"{text!r}: give a time such as 90s, 5m or 2h", param_hint=option)
    return float(found[1]) * UNITS[found[2]]
