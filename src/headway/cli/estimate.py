"""`plan`: memory, time and network traffic of a training run, before it starts."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

import typer

from headway.cli.app import app
from headway.cli.options import AsJson, say, say_json

GB = 1e9


@app.command()
def plan(
    params: Annotated[str, typer.Option(help="Number of parameters: 125M, 7B.")] = "",
    tokens: Annotated[str, typer.Option(help="Training tokens: 300B, 1T.")] = "20B",
    gpus: Annotated[int, typer.Option(min=1, help="Number of GPUs.")] = 8,
    memory: Annotated[str, typer.Option(help="Memory of one GPU.")] = "80GB",
    context: Annotated[int, typer.Option(min=1, help="Tokens per sequence.")] = 2048,
    layers: Annotated[int, typer.Option(min=0, help="Number of layers, if known.")] = 0,
    width: Annotated[int, typer.Option(min=0, help="Width of the model, if known.")] = 0,
    vocab: Annotated[int, typer.Option(min=1, help="Vocabulary size.")] = 32_000,
    batch: Annotated[int, typer.Option(min=0, help="Sequences per step; 0: about four million tokens.")] = 0,
    precision: Annotated[Literal["bf16", "fp32"], typer.Option(help="Precision: bf16 or fp32.")] = "bf16",
    optimizer: Annotated[Literal["muon", "adamw"], typer.Option(help="Optimiser: muon or adamw.")] = "muon",
    flops: Annotated[str, typer.Option(help="FLOP/s of one GPU at that precision.")] = "312T",
    efficiency: Annotated[float, typer.Option(help="Share of the FLOP/s that training reaches.")] = 0.4,
    bandwidth: Annotated[str, typer.Option(help="Bytes per second from one GPU to the others.")] = "25GB",
    as_json: AsJson = False,
) -> None:
    """Estimate memory, time and network traffic of a training run for each layout, and which layouts fit."""
    from headway.jobs.estimate import Machine, Work, estimate, number, plan_shape

    shape = plan_shape(params, layers=layers, width=width, vocab=vocab)
    machine = Machine(
        gpus, number("memory", memory), number("flops", flops), efficiency, number("bandwidth", bandwidth)
    )
    batch = batch or max(gpus, round(2**22 / context))
    work = Work(number("tokens", tokens), context, batch, precision, optimizer)
    found = estimate(shape, work, machine)
    if as_json:
        say_json([dataclasses.asdict(one) | {"days": one.days} for one in found], indent=2)
        return
    say(f"model  {shape.parameters / 1e9:.3g} B parameters: {shape.layers} layers of width {shape.width:,}")
    say(f"work   {work.steps:,} steps of {work.batch:,} × {context:,} tokens; {optimizer}, {precision}")
    say(f"peak GB per GPU; {gpus} GPUs of {machine.memory / GB:.0f} GB")
    say()
    columns = ["weights", "gradients", "optimizer", "gathered", "activations", "total"]
    say(f"{'':27}" + "".join(f"{column:>12}" for column in columns) + f"{'rows × passes':>16}   fits")
    for one in found:
        sizes = "".join(f"{getattr(one.memory, column) / GB:12.1f}" for column in columns)
        passes, fits = f"{one.rows:,} × {one.passes:,}", "yes" if one.fits else "no"
        say(f"{one.layout.name:27}{sizes}{passes:>16}{fits:>7}")
    say()
    say(f"{'':27}{'compute':>12}{'network':>12}{'days':>12}")
    for one in found:
        days = f"{one.days:12.1f}" if one.fits else f"{'–':>12}"
        say(f"{one.layout.name:27}{one.compute:10.2f} s{one.network:10.2f} s{days}")
    say()
    rates = f"{efficiency:.0%} of {machine.flops / 1e12:.0f} TFLOP/s, {machine.bandwidth / GB:.0f} GB/s"
    say(f"Time at {rates}; a step takes the longer of the two.")
    if not any(one.fits for one in found):
        say("Nothing fits: use more GPUs, more memory per GPU, or a shorter context.")
