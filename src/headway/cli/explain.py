"""`explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.app import app
from headway.cli.inference import note_unfinished
from headway.cli.options import Device, Threads, say, set_threads
from headway.errors import InputError


@app.command()
def explain(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="A model folder, or a hub id.")] = None,
    given: Annotated[str | None, typer.Argument(metavar="INPUT", help="A text, or another input of the task.")] = None,
    against: Annotated[
        str | None, typer.Option(help="Explain this output instead: a target text, a continuation, a label.")
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The page (default explain.html).")] = None,
    layers: Annotated[
        str | None, typer.Option(help="Layers to include with queries, keys and values, such as 0,5.")
    ] = None,
    first: Annotated[int | None, typer.Option(help="Use only the first N tokens of the text.")] = None,
    last: Annotated[int | None, typer.Option(help="Use only the last N tokens of the text.")] = None,
    png: Annotated[Path | None, typer.Option(help="Draw a figure to this PNG file.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw a figure to this SVG file.")] = None,
    view: Annotated[str | None, typer.Option(help="The figure: attention, alignment, positions or heads.")] = None,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="Print to the terminal instead of writing a page.")
    ] = False,
    example: Annotated[
        str | None, typer.Option(help="Explain a worked example instead of a model; `list` names them.")
    ] = None,
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Explain the output of MODEL for INPUT step by step, as one HTML page that works offline."""
    if example == "list":
        from headway.explain.examples import EXAMPLES

        for name in EXAMPLES:
            say(name)
        return
    from headway.explain.explanation import Explanation
    from headway.explain.explanation import explain as explain_model

    set_threads(threads)
    figures = _figures(png, svg, view=view)
    if example is not None:
        from headway.explain.examples import example as worked_example

        if model is not None:
            raise InputError("--example replaces MODEL and INPUT: leave them out")
        found = Explanation(worked_example(example))
    elif model is None or given is None:
        raise InputError("explain takes MODEL and INPUT, or --example NAME (--example list names them)")
    else:
        note_unfinished(model)
        found = explain_model(
            model, given, against=against, layers=_numbers(layers), first=first, last=last, device=device
        )
    for path in figures:
        found.draw(view, path=path)  # type: ignore[arg-type]
        say(str(path))
    if terminal:
        from headway.explain.terminal import show

        show(found.story)
    if out is not None or not (terminal or figures):
        page = found.save(out or Path("explain.html"))
        say(f"{page}  {page.stat().st_size / 1e6:.1f} MB; open it in a browser, no network is needed")
        for line in found.story.note:
            say(f"note: {line}")


def _figures(png: Path | None, svg: Path | None, *, view: str | None) -> list[Path]:
    """The files to draw, checked before the model is loaded."""
    from headway.explain.views import VIEWS

    wanted = [(path, ending) for path, ending in ((png, ".png"), (svg, ".svg")) if path is not None]
    for path, ending in wanted:
        if path.suffix.lower() != ending:
            raise InputError(f"{path}: the file of --{ending[1:]} must end in {ending}")
    if view is not None and view not in VIEWS:
        raise InputError(f"--view {view!r} is not one of {', '.join(VIEWS)}")
    if view is not None and not wanted:
        raise InputError("--view selects what --png or --svg draws: give one of them")
    return [path for path, _ in wanted]


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = text.replace(",", " ").split()
    if not parts or not all(part.isdigit() for part in parts):
        raise InputError(f"--layers {text!r}: give layer numbers, such as 0,5")
    return [int(part) for part in parts]
