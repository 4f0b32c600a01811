"""`explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.app import app
from headway.cli.inference import note_unfinished
from headway.cli.options import say
from headway.errors import InputError


@app.command()
def explain(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="A model folder, or a hub id.")] = None,
    given: Annotated[str | None, typer.Argument(metavar="INPUT", help="A text, or what the task takes.")] = None,
    against: Annotated[
        str | None, typer.Option(help="Another answer to look at: a target text, a continuation, a label.")
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The page (default explain.html).")] = None,
    layers: Annotated[str | None, typer.Option(help="Layers to keep in full, such as 0,5.")] = None,
    first: Annotated[int | None, typer.Option(help="Read only the first N tokens of the text.")] = None,
    last: Annotated[int | None, typer.Option(help="Read only the last N tokens of the text.")] = None,
    png: Annotated[Path | None, typer.Option(help="Draw a picture.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw a picture.")] = None,
    view: Annotated[str | None, typer.Option(help="What to draw: attention, alignment, positions or heads.")] = None,
    terminal: Annotated[bool, typer.Option("--terminal", help="Show it here, without a page.")] = False,
    example: Annotated[
        str | None, typer.Option(help="A worked example in place of a model; `list` names them.")
    ] = None,
) -> None:
    """How MODEL comes to its answer to INPUT: every number, as one page that needs no network."""
    if example == "list":
        from headway.explain.examples import EXAMPLES

        for name in EXAMPLES:
            say(name)
        return
    from headway.explain.explanation import Explanation
    from headway.explain.explanation import explain as explained

    pictures = _pictures(png, svg, view=view)
    if example is not None:
        from headway.explain.examples import example as worked

        if model is not None:
            raise InputError("--example stands in place of MODEL and INPUT: leave them out")
        found = Explanation(worked(example))
    elif model is None or given is None:
        raise InputError("explain takes MODEL and INPUT, or --example NAME (--example list names them)")
    else:
        note_unfinished(model)
        found = explained(model, given, against=against, layers=_numbers(layers), first=first, last=last)
    for path in pictures:
        found.draw(view, path=path)  # type: ignore[arg-type]
        say(str(path))
    if terminal:
        from headway.explain.terminal import show

        show(found.story)
    if out is not None or not (terminal or pictures):
        page = found.save(out or Path("explain.html"))
        say(f"{page}  {page.stat().st_size / 1e6:.1f} MB; open it in a browser, no network is needed")
        for line in found.story.note:
            say(f"note: {line}")


def _pictures(png: Path | None, svg: Path | None, *, view: str | None) -> list[Path]:
    """The files to draw, refused before anything is worked out."""
    from headway.explain.views import VIEWS

    wanted = [(path, ending) for path, ending in ((png, ".png"), (svg, ".svg")) if path is not None]
    for path, ending in wanted:
        if path.suffix.lower() != ending:
            raise InputError(f"{path}: a picture asked for with --{ending[1:]} ends in {ending}")
    if view is not None and view not in VIEWS:
        raise InputError(f"--view {view!r} is not one of {', '.join(VIEWS)}")
    if view is not None and not wanted:
        raise InputError("--view says what --png or --svg draws: give one of them")
    return [path for path, _ in wanted]


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = text.replace(",", " ").split()
    if not parts or not all(part.isdigit() for part in parts):
        raise InputError(f"--layers {text!r}: give numbers of layers, such as 0,5")
    return [int(part) for part in parts]
