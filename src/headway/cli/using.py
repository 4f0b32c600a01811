"""Room: cli. `evaluate`, `run` and `info`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.app import app
from headway.cli.options import AsJson, Data, Model, reads_data, say


def note_unfinished(model: str) -> None:
    from headway import jobs

    if jobs.unfinished(model):
        typer.echo(f"note: the run in {model} has not come to its end, so this is the model it began with; "
                   f"go on with it by --resume --out {model}", err=True)  # fmt: skip


@app.command()
@reads_data
def evaluate(
    model: Model,
    data: Data = None,
    beams: Annotated[int | None, typer.Option(help="Beam width, for tasks that search.")] = None,
    as_json: AsJson = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Score MODEL on DATA with the field's own metrics."""
    from headway import jobs

    note_unfinished(model)
    options: dict[str, Any] = {"beams": beams} if beams else {}
    scores = jobs.evaluate(model, data, **reading, **options)
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
