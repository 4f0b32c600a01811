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
from headway.cli.options import AsJson, Model, Weights, reads_data, say, say_lines
from headway.errors import InputError

if TYPE_CHECKING:
    from headway.bundle import Bundle
    from headway.data.truncation import TruncationCounter
    from headway.distributed import World

T = TypeVar("T")


def note_unfinished(model: str) -> None:
    from headway import jobs

    if jobs.unfinished(model):
        typer.echo(f"note: the run in {model} has not finished, so these are its initial weights; "
                   f"continue it with --resume --out {model}", err=True)  # fmt: skip


def note_truncation(lines: list[str]) -> None:
    for line in lines:
        typer.echo(f"note: {line}", err=True)


@app.command()
@reads_data
@generation_options
def evaluate(
    model: Model,
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DATA]",
            help="A file or folder; two parallel files for translate (default: the run's held-out part).",
        ),
    ] = None,
    weights: Weights = None,
    as_json: AsJson = False,
    *,
    reading: dict[str, Any],
    generation: dict[str, Any],
) -> None:
    """Score MODEL on DATA (default: the held-out part of its own run) with the metrics of its task."""
    from headway.bundle import load
    from headway.jobs.inference import distributed, evaluation

    with distributed() as world:
        if world.is_main:
            note_unfinished(model)
        found = evaluation(load(model, weights=weights), data, **reading, **generation)
    if not world.is_main:
        return
    note_truncation(found.truncated)
    if as_json:
        say(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        say_lines(found.lines())


@app.command()
@reads_data
@generation_options
def run(
    model: Model,
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="[INPUT…]", help="Inputs (default: the lines of standard input).")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            help="File of inputs: a table in any format of training (CSV, TSV, JSON lines, …), or one input a line."
        ),
    ] = None,
    weights: Weights = None,
    as_json: AsJson = False,
    *,
    reading: dict[str, Any],
    generation: dict[str, Any],
) -> None:
    """Run MODEL on inputs. One generated text is streamed; several inputs are run in batches."""
    from headway.jobs.inference import distributed

    with distributed() as world:
        predict_all(
            model,
            world,
            inputs=inputs or [],
            file=file,
            reading=reading,
            weights=weights,
            as_json=as_json,
            options=generation,
        )


def predict_all(
    model: str,
    world: World,
    *,
    inputs: list[str],
    file: Path | None,
    reading: dict[str, Any],
    weights: str | None,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    """Runs in every process of `world`; the main one reads the inputs and prints the answers."""
    from headway import jobs
    from headway.bundle import load

    if world.is_main:
        note_unfinished(model)
    bundle = load(model, weights=weights)
    texts = world.broadcast(world.run_on_main(lambda: collect_inputs(bundle, inputs, file, reading=reading)))
    generates = jobs.generates(bundle)
    not_applicable = [name.replace("_", "-") for name in options if name != "n"]
    if not_applicable and not generates:
        task = bundle.find_task().name
        raise InputError(f"task {task} does not generate text, so --{not_applicable[0]} does not apply")
    if generates:
        options["details"] = True
    streamed = generates and len(texts) == 1 and not as_json and "n" not in options
    if streamed:
        options["on_text"] = lambda text: print(text, end="", flush=True)
    unmatched = 0
    with bundle.find_task().count_truncation() as truncated:
        answers = jobs.run(bundle, texts, **options)
        for given, answer in with_progress(answers, len(texts)) if world.is_main else answers:
            unmatched += jobs.unmatched(answer)
            if not world.is_main:
                continue
            if as_json:
                say(json.dumps({"input": given, "answer": answer}, ensure_ascii=False, default=str))  # a Path is text
            else:
                say("" if streamed else jobs.format_answer(answer))
    lines = merged(truncated, world).summary()
    if world.is_main:
        note_truncation(lines)
    if unmatched and world.is_main:
        typer.echo(f"note: {unmatched} answers do not match the constraint because they were cut off; "
                   "raise --max-new-tokens", err=True)  # fmt: skip
    if unmatched:
        raise typer.Exit(1)


def merged(truncated: TruncationCounter, world: World) -> TruncationCounter:
    """The counts of all processes, each of which runs on its own inputs."""
    states = world.all_gather(truncated.state_dict())
    for rank, state in enumerate(states):
        if rank != world.rank:
            truncated.merge(state)
    return truncated


def collect_inputs(bundle: Bundle, given: list[str], file: Path | None, *, reading: dict[str, Any]) -> list[Any]:
    """Those of the command line and the file; without any, the lines of standard input."""
    from headway.jobs import read_inputs

    if file is not None:
        return given + read_inputs(file, bundle, **reading)
    if given:
        return given
    if sys.stdin.isatty():
        typer.echo("one input a line; Ctrl-D to finish", err=True)
    return [line.rstrip("\n") for line in sys.stdin]


def with_progress(items: Iterable[T], total: int) -> Iterator[T]:
    """A progress bar at a terminal whose standard output goes elsewhere."""
    if total <= 1 or not sys.stderr.isatty() or sys.stdout.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, total=total, description="running", console=Console(stderr=True))


@app.command()
def info(model: Model, as_json: AsJson = False) -> None:
    """Show the shape, parameters by part, memory, context length, family and file checksums of MODEL."""
    from headway.jobs.info import info_lines, model_info

    facts = model_info(model)
    if as_json:
        say(json.dumps(facts, ensure_ascii=False, indent=2))
    else:
        say_lines(info_lines(facts))
