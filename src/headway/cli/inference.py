"""`evaluate`, `run` and `info`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headway.cli.app import app
from headway.cli.generation_options import generation_options
from headway.cli.options import AsJson, Data, Model, Weights, reads_data, say
from headway.errors import InputError

if TYPE_CHECKING:
    from headway.training.distributed import World

T = TypeVar("T")


def note_unfinished(model: str) -> None:
    from headway import jobs

    if jobs.unfinished(model):
        typer.echo(f"note: the run in {model} has not come to its end, so this is the model it began with; "
                   f"go on with it by --resume --out {model}", err=True)  # fmt: skip


@app.command()
@reads_data
@generation_options
def evaluate(
    model: Model,
    data: Data = None,
    weights: Weights = None,
    as_json: AsJson = False,
    *,
    reading: dict[str, Any],
    generation: dict[str, Any],
) -> None:
    """Score MODEL on DATA with the field's own metrics."""
    from headway import jobs
    from headway.bundle import load
    from headway.jobs.inference import together

    with together() as world:
        if world.is_main:
            note_unfinished(model)
        scores = jobs.evaluate(load(model, weights=weights), data, **reading, **generation)
    if not world.is_main:
        return
    if as_json:
        say(json.dumps(scores))
    else:
        for line in jobs.score_lines(scores):
            say(line)


@app.command()
@generation_options
def run(
    model: Model,
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="[INPUT…]", help="Texts; none: read standard input.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="One input a line (JSON objects where a task needs several fields).")
    ] = None,
    weights: Weights = None,
    as_json: AsJson = False,
    *,
    generation: dict[str, Any],
) -> None:
    """Use MODEL on inputs. What it writes is streamed; several inputs are answered in batches."""
    from headway.jobs.inference import together

    with together() as world:
        answer_all(model, world, inputs=inputs or [], file=file, weights=weights, as_json=as_json, options=generation)


def answer_all(
    model: str,
    world: World,
    *,
    inputs: list[str],
    file: Path | None,
    weights: str | None,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    """By every process of `world`; the first one reads the inputs and says the answers."""
    from headway import jobs
    from headway.bundle import load

    if world.is_main:
        note_unfinished(model)
    texts = world.broadcast(world.run_on_main(lambda: inputs_of(inputs, file)))
    bundle = load(model, weights=weights)
    generates = jobs.generates(bundle)
    told_how = [name.replace("_", "-") for name in options if name != "n"]
    if told_how and not generates:
        raise InputError(f"{model} answers without writing, so --{told_how[0]} means nothing to it; leave it out")
    if generates:
        options["details"] = True
    aloud = generates and len(texts) == 1 and not as_json and "n" not in options
    if aloud:
        options["on_text"] = lambda text: print(text, end="", flush=True)
    misfits = 0
    answers = jobs.run(bundle, texts, **options)
    for given, answer in with_progress(answers, len(texts)) if world.is_main else answers:
        misfits += jobs.misfits(answer)
        if not world.is_main:
            continue
        if as_json:
            say(json.dumps({"input": given, "answer": answer}, ensure_ascii=False, default=str))  # a picture is a Path
        else:
            say("" if aloud else jobs.shown(answer))
    if misfits and world.is_main:
        typer.echo(f"note: {misfits} of the answers do not fit the constraint: they ended before they were whole; "
                   "give them more room (--max-new-tokens)", err=True)  # fmt: skip
    if misfits:
        raise typer.Exit(1)


def inputs_of(given: list[str], file: Path | None) -> list[str]:
    """Those of the command line and the file; without any, standard input's lines."""
    from headway.jobs import input_lines

    if file is not None:
        return given + input_lines(file)
    if given:
        return given
    if sys.stdin.isatty():
        typer.echo("one input a line; Ctrl-D ends them", err=True)
    return [line.rstrip("\n") for line in sys.stdin]


def with_progress(items: Iterable[T], total: int) -> Iterator[T]:
    """Shown to a person who waits for many answers that go to a file."""
    if total <= 1 or not sys.stderr.isatty() or sys.stdout.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, total=total, description="answering", console=Console(stderr=True))


@app.command()
def info(model: Model, as_json: AsJson = False) -> None:
    """Shape, parameters by part, memory, context length, family and file checksums of MODEL."""
    from headway.jobs.info import about, lines

    facts = about(model)
    if as_json:
        say(json.dumps(facts, ensure_ascii=False, indent=2))
    else:
        for line in lines(facts):
            say(line)
