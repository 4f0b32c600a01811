"""Room: cli. argv → calls. Nothing imports it, and torch is imported only by the commands that need it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from headway import __version__
from headway.errors import HeadwayError

app = typer.Typer(
    name="headway",
    help="Train, run, look inside and serve transformers of every shape, on your own data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

TASKS = "generate, translate, summarize, classify, tag, answer, fill, embed, classify-image"
TaskName = Annotated[str, typer.Argument(metavar="TASK", help=f"One of: {TASKS}.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model folder, or a hub id such as owner/name.")]
Data = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[DATA]", help="A file or folder; two parallel files for translate. None: the built-in data."
    ),
]
Text = Annotated[str | None, typer.Option("--text", help="Column that holds the text.")]
Label = Annotated[str | None, typer.Option("--label", help="Column that holds the label.")]
Source = Annotated[str | None, typer.Option("--source", help="Column that holds the source text.")]
Target = Annotated[str | None, typer.Option("--target", help="Column that holds the target text.")]
Encoding = Annotated[str | None, typer.Option(help="The files' encoding, when it is not Unicode (latin-1, cp1252, …).")]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def say(text: str = "") -> None:
    typer.echo(text)


def columns(text: str | None, label: str | None, source: str | None, target: str | None) -> dict[str, str]:
    given = {"text": text, "label": label, "source": source, "target": target}
    return {name: value for name, value in given.items() if value}


def note_unfinished(model: str) -> None:
    from headway import jobs

    if jobs.unfinished(model):
        typer.echo(f"note: the run in {model} has not come to its end, so this is the model it began with; "
                   f"go on with it by --resume --out {model}", err=True)  # fmt: skip


@app.command()
def train(
    task: TaskName,
    data: Data = None,
    start: Annotated[str | None, typer.Option(help="A trained model to start from (folder or hub id).")] = None,
    size: Annotated[str | None, typer.Option(help="From scratch: tiny, small or base.")] = None,
    recipe: Annotated[str | None, typer.Option(help="From scratch: modern (default) or classic (2017).")] = None,
    model: Annotated[str | None, typer.Option(help="From scratch: transformer (default) or bahdanau-gru.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where the run goes (default runs/TASK).")] = None,
    valid: Annotated[list[Path] | None, typer.Option(help="Held-out file(s); otherwise a tenth is held out.")] = None,
    steps: Annotated[int | None, typer.Option(help="Train this many steps …")] = None,
    epochs: Annotated[int | None, typer.Option(help="… or passes over the data …")] = None,
    minutes: Annotated[float | None, typer.Option(help="… or minutes.")] = None,
    seed: Annotated[int | None, typer.Option(help="Every random choice follows from it.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting; repeatable.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Settings from a JSON or TOML file; --set wins.")] = None,
    overflow: Annotated[str | None, typer.Option(help="Texts over the limit: truncate (counted) or error.")] = None,
    lora: Annotated[
        int | None, typer.Option(help="Train low-rank adapters of this rank instead of all weights.")
    ] = None,
    freeze: Annotated[list[str] | None, typer.Option(help="Module names (patterns) to keep as they are.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on with the run in --out exactly where it stopped.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Check the data, show the plan, train nothing.")] = False,
    text: Text = None,
    label: Label = None,
    source: Source = None,
    target: Target = None,
    encoding: Encoding = None,
) -> None:
    """Train a model for TASK on DATA."""
    from headway import jobs
    from headway.jobs.overrides import from_file, parse

    folder = out or Path("runs") / task
    if resume:
        plan = jobs.saved_plan(folder)
        trained = jobs.run_plan(plan, folder, callbacks=[jobs.progress(plan)], say=say, resume=True)
    else:
        settings = {**(from_file(config) if config else {}), **parse(set_ or [])}
        plan = jobs.make_plan(
            task,
            data,
            start=start,
            size=size,
            recipe=recipe,
            valid=valid,
            columns=columns(text, label, source, target),
            encoding=encoding,
            steps=steps,
            epochs=epochs,
            minutes=minutes,
            seed=seed,
            settings={
                **settings,
                **({"task.overflow": overflow} if overflow else {}),
                **({"task.architecture": model} if model else {}),
            },
            lora=lora or 0,
            freeze=freeze or [],
        )
        if dry_run:
            jobs.show_plan(plan, say=say)
            return
        trained = jobs.run_plan(plan, folder, callbacks=[jobs.progress(plan)], say=say)
    if trained.result.exit_code:
        say(f"stopped by {trained.result.stopped_by} at step {trained.result.steps}; go on with:")
        say(f"  headway train {plan.task} --resume --out {folder}")
        raise typer.Exit(trained.result.exit_code)
    if not trained.scores:
        return  # another process speaks for the run
    for line in jobs.score_lines(trained.scores):
        say(line)
    say(f"saved in {folder}; use it with:  headway run {folder} INPUT")


@app.command()
def check(
    task: TaskName,
    data: Data = None,
    start: Annotated[str | None, typer.Option(help="The model training would start from.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    valid: Annotated[list[Path] | None, typer.Option(help="Held-out file(s).")] = None,
    text: Text = None,
    label: Label = None,
    source: Source = None,
    target: Target = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Look at DATA before training: labels, lengths, leakage, truncation, memory and time."""
    from headway import jobs
    from headway.jobs.overrides import parse

    plan = jobs.make_plan(
        task,
        data,
        start=start,
        valid=valid,
        columns=columns(text, label, source, target),
        encoding=encoding,
        settings=parse(set_ or []),
    )
    report = jobs.check(plan)
    if as_json:
        say(json.dumps(report.to_dict(), ensure_ascii=False, indent=2))
    else:
        for line in report.lines():
            say(line)


@app.command()
def evaluate(
    model: Model,
    data: Data = None,
    beams: Annotated[int | None, typer.Option(help="Beam width, for tasks that search.")] = None,
    text: Text = None,
    label: Label = None,
    source: Source = None,
    target: Target = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Score MODEL on DATA with the field's own metrics."""
    from headway import jobs

    note_unfinished(model)
    scores = jobs.evaluate(
        model,
        data,
        columns=columns(text, label, source, target),
        encoding=encoding,
        **({"beams": beams} if beams else {}),
    )
    if as_json:
        say(json.dumps(scores))
    else:
        for line in jobs.score_lines(scores):
            say(line)


@app.command()
def run(
    model: Model,
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="[INPUT…]", help="Texts; none: read standard input.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="One input a line (JSON objects where a task needs several fields).")
    ] = None,
    beams: Annotated[int | None, typer.Option(help="Beam width.")] = None,
    n: Annotated[int | None, typer.Option(help="Answers for each input.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Longest answer, in tokens.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    top_k: Annotated[int | None, typer.Option()] = None,
    top_p: Annotated[float | None, typer.Option()] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Texts that end an answer; repeatable.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same answer.")] = None,
    as_json: AsJson = False,
) -> None:
    """Use MODEL on inputs."""
    from headway import jobs
    from headway.bundle import load

    note_unfinished(model)
    options: dict[str, Any] = {
        "beams": beams,
        "n": n,
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "stop": tuple(stop) if stop else None,
        "seed": seed,
    }
    texts = list(inputs or [])
    if file is not None:
        texts += jobs.input_lines(file)
    elif not texts:
        texts = [line.rstrip("\n") for line in sys.stdin]
    chosen = {key: value for key, value in options.items() if value is not None}
    bundle = load(model)
    if len(texts) == 1 and not as_json and not n and not beams and jobs.speaks(bundle):
        list(jobs.run(bundle, texts, on_text=lambda text: print(text, end="", flush=True), **chosen))
        say()
        return
    for given, answer in jobs.run(bundle, texts, **chosen):
        say(json.dumps({"input": given, "answer": answer}, ensure_ascii=False) if as_json else jobs.shown(answer))


@app.command()
def info(model: Model, as_json: AsJson = False) -> None:
    """Shape, parameters by part, memory, context length, family and file checksums of MODEL."""
    from headway.jobs.about import about, lines

    facts = about(model)
    if as_json:
        say(json.dumps(facts, ensure_ascii=False, indent=2))
    else:
        for line in lines(facts):
            say(line)


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Where the demo's model and picture go.")] = Path("runs/demo")) -> None:
    """Train a small translator of dates, test it, use it, and draw what it looks at."""
    from headway.jobs.demo import run_demo

    run_demo(out, say=say)


@app.callback(invoke_without_command=True)
def top(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        say(f"headway {__version__}")
        raise typer.Exit


def main() -> None:
    try:
        app()
    except HeadwayError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(2) from None
    except BrokenPipeError:
        raise SystemExit(141) from None


if __name__ == "__main__":
    main()
