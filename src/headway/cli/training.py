"""`train` and `check`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.app import app
from headway.cli.help import LENGTH, MODEL, RUN
from headway.cli.options import AsJson, Data, Set, TaskName, note, reads_data, say, say_json, say_lines, say_saved

Decimal = Annotated[
    str | None, typer.Option(help='Numbers as labels: the mark of decimals, "," or "." (default: found in the data).')
]


@app.command()
@reads_data
def train(
    task: TaskName,
    data: Data = None,
    start: Annotated[
        str | None, typer.Option(rich_help_panel=MODEL, help="A trained model to start from (folder or hub id).")
    ] = None,
    size: Annotated[str | None, typer.Option(rich_help_panel=MODEL, help="From scratch: tiny, small or base.")] = None,
    recipe: Annotated[
        str | None, typer.Option(rich_help_panel=MODEL, help="From scratch: modern (default), published or classic.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=MODEL,
            help="From scratch: transformer (default); rnn, gru or lstm, for translate also with -bahdanau or -luong; "
            "for generate also xlnet; for vectors cbow, skip-gram or elmo.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(rich_help_panel=RUN, help="Run folder (default runs/TASK).")] = None,
    valid: Annotated[list[Path] | None, typer.Option(help="Held-out file(s); otherwise a tenth is held out.")] = None,
    steps: Annotated[int | None, typer.Option(rich_help_panel=LENGTH, help="Number of training steps.")] = None,
    epochs: Annotated[
        int | None, typer.Option(rich_help_panel=LENGTH, help="Passes over the data, instead of steps.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(rich_help_panel=LENGTH, help="Minutes of training, instead of steps.")
    ] = None,
    seed: Annotated[int | None, typer.Option(rich_help_panel=LENGTH, help="Random seed.")] = None,
    lr: Annotated[float | None, typer.Option(rich_help_panel=LENGTH, help="Learning rate.")] = None,
    batch: Annotated[
        int | None, typer.Option(rich_help_panel=LENGTH, help="Batch size, in examples or tokens (train.batch_unit).")
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(rich_help_panel=LENGTH, help="Stop after this many evaluations without a better score."),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(rich_help_panel=LENGTH, help="The score by which the best weights are kept (such as macro_f1)."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(rich_help_panel=RUN, help="The device: auto (default), cpu, cuda, cuda:1 or mps.")
    ] = None,
    set_: Set = None,
    config: Annotated[Path | None, typer.Option(help="JSON or TOML file of settings; --set overrides it.")] = None,
    overflow: Annotated[
        str | None,
        typer.Option(help="Examples over the length limit: truncate (counted), error, or window (tag, answer)."),
    ] = None,
    decimal: Decimal = None,
    lora: Annotated[
        int | None,
        typer.Option(rich_help_panel=MODEL, help="LoRA: train low-rank adapters of this rank instead of all weights."),
    ] = None,
    freeze: Annotated[
        list[str] | None, typer.Option(rich_help_panel=MODEL, help="Freeze the parameters of these modules (patterns).")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            rich_help_panel=RUN,
            help="Continue the run in --out exactly where it stopped; with --steps, --epochs or --minutes, extend it.",
        ),
    ] = False,
    search: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=LENGTH, help="Minutes in which learning rates and dropout are searched before the run."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", rich_help_panel=RUN, help="Check the data, show the settings, do not train.")
    ] = False,
    keep_states: Annotated[
        bool,
        typer.Option(
            "--keep-states", rich_help_panel=RUN, help="Keep what is needed to extend the run once it has finished."
        ),
    ] = False,
    adapter_only: Annotated[
        bool,
        typer.Option(
            "--adapter-only",
            rich_help_panel=RUN,
            help="With --lora: keep the adapter alone. The run then needs the model that it started from.",
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", rich_help_panel=RUN, help="Print warnings and errors only.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", rich_help_panel=RUN, help="Print the result as JSON, and all other lines to standard error."
        ),
    ] = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Train a model for TASK on DATA."""
    from headway import jobs
    from headway.jobs.overrides import from_file, parse

    folder = out or Path("runs") / task
    settings = {**(from_file(config) if config else {}), **parse(set_ or [])}
    flags = {
        "task.overflow": overflow,
        "task.decimal": decimal,
        "task.architecture": model,
        "train.lr": lr,
        "train.batch": batch,
        "train.patience": patience,
        "train.score": score,
        "train.device": device,
    }
    settings |= {name: value for name, value in flags.items() if value is not None}
    settings |= {"train.keep_states": True} if keep_states and not resume else {}
    settings |= {"train.adapter_only": True} if adapter_only else {}
    tell = unsaid if quiet else note if as_json else say
    given = {
        "data": data,
        "start": start,
        "size": size,
        "recipe": recipe,
        "valid": valid,
        **reading,
        "steps": steps,
        "epochs": epochs,
        "minutes": minutes,
        "seed": seed,
        "settings": settings,
        "lora": lora,
        "freeze": freeze,
    }
    given = {name: value for name, value in given.items() if value not in (None, [], {})}
    lengths = {"steps": steps, "epochs": epochs, "minutes": minutes}
    if resume:
        plan = jobs.with_length(jobs.saved_plan(folder), **lengths)
        other = given.keys() - lengths.keys()
        wanted = jobs.make_plan(task, **given) if other else replace(plan, task=task)
        jobs.refuse_other(wanted, plan, run=folder)
        plan = replace(plan, train=plan.train | {"keep_states": True}) if keep_states else plan
    else:
        plan = jobs.make_plan(task, **given)
    if search is not None and not resume:
        from headway.jobs.search import search as search_settings
        from headway.jobs.search import show_search

        if dry_run:
            show_search(plan, minutes=search, say=say)
        else:
            plan = search_settings(plan, folder, minutes=search, say=tell)
    if dry_run:
        jobs.show_plan(plan, say=say)
        return
    shown = [] if quiet else [jobs.progress(plan, stderr=as_json)]
    trained = jobs.run_plan(plan, folder, callbacks=shown, say=tell, resume=resume)
    if quiet:
        for warning in trained.warnings:
            note(f"warning: {warning}")
    if as_json and (trained.scores or trained.result.exit_code):
        say_json(trained.to_dict())
    if trained.result.exit_code:
        tell(f"stopped by {trained.result.stopped_by} at step {trained.result.steps}; continue with:")
        tell(f"  headway train {plan.task} --resume --out {folder}")
        raise typer.Exit(trained.result.exit_code)
    if not trained.scores or quiet or as_json:
        return  # without scores, rank 0 reports
    say_lines(jobs.score_lines(trained.scores))
    say_saved(folder)


def unsaid(line: str) -> None:
    """In place of `say`, with --quiet."""


@app.command()
@reads_data
def check(
    task: TaskName,
    data: Data = None,
    start: Annotated[str | None, typer.Option(help="The model that training would start from.")] = None,
    set_: Set = None,
    valid: Annotated[list[Path] | None, typer.Option(help="Held-out file(s).")] = None,
    decimal: Decimal = None,
    suspect: Annotated[
        bool,
        typer.Option("--suspect", help="List labels that are probably wrong: a model trained on the rest disagrees."),
    ] = False,
    top: Annotated[int, typer.Option(help="With --suspect: labels to show.", min=1)] = 20,
    html: Annotated[Path | None, typer.Option(help="Write the report to this file, as a page to read offline.")] = None,
    as_json: AsJson = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Check DATA before training: labels, lengths, leakage, truncation, memory and time."""
    from headway import jobs
    from headway.jobs.overrides import parse

    plan = jobs.make_plan(
        task,
        data,
        start=start,
        valid=valid,
        **reading,
        settings=parse(set_ or []) | ({"task.decimal": decimal} if decimal else {}),
    )
    report, suspects = jobs.check_plan(plan), None
    if suspect:
        from headway.jobs.suspects import find_suspects

        suspects = find_suspects(plan)
    if as_json:
        say_json({**report.to_dict(), **(suspects.to_dict() if suspects else {})}, indent=2)
    else:
        say_lines(report.summary(most=max(report.skipped.values(), default=0)))
        say_lines(suspects.lines(top) if suspects else [])
    if html is not None:
        from headway.jobs.check_page import write_check_page

        names = ", ".join(str(path) for path in data or []) or "the built-in data"
        write_check_page(report, html, title=f"{task}: check of {names}", suspects=suspects)
        note(f"report in {html}")
