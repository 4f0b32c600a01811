"""`convert`, `calibrate` and `bench`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.app import app
from headway.cli.inference import note_unfinished
from headway.cli.options import AsJson, Model, Weights, reads_data, say

TYPES = "int8, bf16, fp16 or fp32"


@app.command()
def convert(
    model: Model,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")],
    to: Annotated[str, typer.Option(help=f"The weights' new type: {TYPES}.")],
    group: Annotated[
        int | None, typer.Option(help="int8: about so many inputs share a scale (default: 64; 0: all).")
    ] = None,
    text: Annotated[
        Path | None, typer.Option(help="A text to measure the change on (default: a built-in one).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write MODEL with weights of another type, and report what that changed."""
    from headway.jobs.convert import REPORT, convert

    report = convert(model, out, to=to, group=group, text=text)
    if as_json:
        say(json.dumps(report.to_dict(), ensure_ascii=False, indent=2))
        return
    for line in report.lines():
        say(line)
    say(f"saved in {out}, with this in {REPORT}; use it with:  headway run {out} INPUT")


@app.command()
@reads_data
def calibrate(
    model: Model,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")],
    data: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[DATA]", help="Not trained on. None: what the run in MODEL held out."),
    ] = None,
    as_json: AsJson = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Write MODEL made as sure as it is right: its logits divided by the one number that fits DATA best."""
    from headway.jobs.calibrate import calibrate

    note_unfinished(model)
    found = calibrate(model, out, data, **reading)
    if as_json:
        say(json.dumps(asdict(found), indent=2))
        return
    for line in found.lines():
        say(line)
    say(f"saved in {out}; use it with:  headway run {out} INPUT")


@app.command()
def bench(
    model: Model,
    prompt_tokens: Annotated[
        int | None, typer.Option(help="Length of the prompt, or of each text (default: 512, if the model has room).")
    ] = None,
    new_tokens: Annotated[int | None, typer.Option(help="Tokens to write (default: 128, if there is room).")] = None,
    weights: Weights = None,
    threads: Annotated[
        int | None, typer.Option(help="Processor threads (default: as many as there are cores).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How fast MODEL reads and writes here, and what share of the machine's limits that is."""
    import torch

    from headway.bundle import load
    from headway.engine.measure import bench, lines

    if threads is not None:
        torch.set_num_threads(threads)
    facts = bench(load(model, weights=weights).model, prompt_tokens=prompt_tokens, new_tokens=new_tokens)
    if as_json:
        say(json.dumps(facts, indent=2))
        return
    for line in lines(facts):
        say(line)
