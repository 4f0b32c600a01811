"""`convert`, `calibrate` and `bench`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.app import app
from headway.cli.inference import note_unfinished
from headway.cli.options import AsJson, Model, Weights, reads_data, say_json, say_lines, say_saved

TYPES = "int8, bf16, fp16 or fp32"


@app.command()
def convert(
    model: Model,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write; for word2vec, the file.")],
    to: Annotated[
        str | None,
        typer.Option(
            help=f"New type of the weights: {TYPES}; of word vectors also word2vec (.bin: binary, else text). "
            "Default for ELMo's published files: fp32."
        ),
    ] = None,
    group: Annotated[
        int | None, typer.Option(help="Of int8: inputs per scale, about (default: 64; 0: one scale a row).")
    ] = None,
    text: Annotated[
        Path | None, typer.Option(help="Text file to measure the change on (default: a built-in text).")
    ] = None,
    allow_pickle: Annotated[
        bool,
        typer.Option(
            help="MODEL has its weights in pickles (pytorch_model.bin, or a .pt file of OpenAI's Whisper) whose source "
            "you trust: read their tensors, in a process of their own."
        ),
    ] = False,
    vocabulary: Annotated[
        Path | None,
        typer.Option(help="For a .pt file: gpt2.tiktoken or multilingual.tiktoken (default: of openai-whisper)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write MODEL with weights of another type, and measure what that changes."""
    if to == "word2vec":
        from headway.lineage.word2vec_files import export_word2vec

        found = export_word2vec(model, out)
        say_json(asdict(found)) if as_json else say_lines(found.lines())
        return
    from headway.jobs.convert import REPORT, convert

    report = convert(model, out, to=to, group=group, text=text, allow_pickle=allow_pickle, vocabulary=vocabulary)
    if as_json:
        say_json(report.to_dict(), indent=2)
        return
    say_lines([*report.lines(), f"this report is in {out / REPORT}"])
    say_saved(out)


@app.command()
@reads_data
def calibrate(
    model: Model,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")],
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DATA]", help="Data the model was not trained on (default: the held-out part of the run in MODEL)."
        ),
    ] = None,
    as_json: AsJson = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Write MODEL with calibrated probabilities: its logits divided by a temperature fitted on DATA."""
    from headway.jobs.calibrate import calibrate

    note_unfinished(model)
    found = calibrate(model, out, data, **reading)
    if as_json:
        say_json(asdict(found), indent=2)
        return
    say_lines(found.lines())
    say_saved(out)


@app.command()
def bench(
    model: Model,
    prompt_tokens: Annotated[
        int | None, typer.Option(help="Length of the prompt, or of each text (default: 512, or the model's limit).")
    ] = None,
    new_tokens: Annotated[
        int | None, typer.Option(help="Tokens to generate (default: 128, or as many as fit).")
    ] = None,
    weights: Weights = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads (default: the number of cores).")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how fast MODEL reads and generates on this machine, and what share of the machine's limits that is."""
    import torch

    from headway.engine.measure import bench, lines
    from headway.loading import load

    if threads is not None:
        torch.set_num_threads(threads)
    facts = bench(load(model, weights=weights).model, prompt_tokens=prompt_tokens, new_tokens=new_tokens)
    if as_json:
        say_json(facts, indent=2)
        return
    say_lines(lines(facts))
