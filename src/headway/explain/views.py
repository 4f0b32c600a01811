"""A story's pictures: which of its arrays each of them draws."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from headway.errors import InputError
from headway.explain import story
from headway.inspect.pictures import draw_alignment, draw_attention, draw_heads, draw_positions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

View = Literal["attention", "alignment", "positions", "heads"]
VIEWS = ("attention", "alignment", "positions", "heads")


def draw(told: story.Story, view: View | None = None, *, path: str | Path | None = None) -> Figure:
    """Unless told which: the alignment of a model that reads one text and writes another, else all heads of a layer, or
    the positions where there are no heads. Of the layers that are kept in full, the last is drawn."""
    crossing = any(each.kind != "self" for each in told.attention)
    wanted = view or ("alignment" if crossing else "attention" if told.attention else "positions")
    match wanted:
        case "attention":
            return _attention(told, path)
        case "alignment":
            if not crossing:
                raise InputError("--view alignment: this model reads and writes the same text; try --view attention")
            return _alignment(told, path)
        case "positions":
            return _positions(told, path)
        case "heads":
            return _heads(told, path)
    raise InputError(f"--view {wanted!r} is not one of {', '.join(VIEWS)}")


def shown_layer(told: story.Story, *, crossing: bool) -> story.Attention:
    """The last that is kept in full, else the last: of those that look across to another text, where there are such and
    they are wanted, else of those over the text itself."""
    across = [each for each in told.attention if each.kind != "self"] if crossing else []
    own = [each for each in told.attention if each.kind == "self" and each.queries != "source"]
    given = across or own or told.attention
    return ([each for each in given if each.q is not None] or given)[-1]


def texts(told: story.Story, sequence: str) -> list[str]:
    return [token.text for token in told.sequences[sequence].tokens]


def chosen(row: story.Row) -> story.Candidate:
    return next(one for one in row.candidates if one.id == row.chosen)


def _written(told: story.Story, each: story.Attention) -> list[str]:
    """The rows of a cross-attention by what was chosen there, which is the next token and not the one read; where
    nothing is chosen, by the tokens that look."""
    return texts(told, each.queries) if told.output is None else [chosen(row).text for row in told.output.rows]


def _attention(told: story.Story, path: str | Path | None) -> Figure:
    if not told.attention:
        raise InputError("--view attention: there is none in this story")
    each = shown_layer(told, crossing=False)
    return draw_attention(
        story.numbers(each.weights),
        queries=texts(told, each.queries),
        keys=texts(told, each.keys),
        path=path,
        title=f"{told.model.name}: {told.title}  ({each.stack} layer {each.layer})",
    )


def _alignment(told: story.Story, path: str | Path | None) -> Figure:
    each = shown_layer(told, crossing=True)
    heads = f", mean of {each.heads} heads" if each.heads > 1 else ""
    answer = "" if told.output is None else f" → {told.output.answer}"
    return draw_alignment(
        story.numbers(each.weights).mean(0),
        columns=texts(told, each.keys),
        rows=_written(told, each),
        path=path,
        title=f"{told.model.name}: {told.title}{answer}  (layer {each.layer}{heads})",
    )


def _positions(told: story.Story, path: str | Path | None) -> Figure:
    for each in told.embedding:
        position = each.position
        if position.values is not None or position.angles is not None:
            turned = position.values is None
            values = position.angles if turned else position.values if position.pattern is None else position.pattern
            assert values is not None
            return draw_positions(
                values, angles=turned, path=path, title=f"{told.model.name}: {position.kind} positions"
            )
    raise InputError("--view positions: this model has no vectors or angles that mark positions")


def _heads(told: story.Story, path: str | Path | None) -> Figure:
    if not told.heads:
        raise InputError("--view heads: there is no score here that heads could change")
    names = sorted({row.name for row in told.heads}, key=lambda name: ("encoder." not in name, _order(told, name)))
    change = np.full((len(names), 1 + max(row.head for row in told.heads)), np.nan)
    for row in told.heads:
        change[names.index(row.name), row.head] = row.change
    about = "" if told.attribution is None else f"  (score: {told.attribution.target})"
    rows = [name.replace("stack.blocks.", "layer ").removesuffix(".attention").replace(".", " ") for name in names]
    return draw_heads(change, rows=rows, path=path, title=f"{told.model.name}: {told.title}{about}")


def _order(told: story.Story, name: str) -> tuple[int, str]:
    assert told.heads is not None
    return next(row.layer for row in told.heads if row.name == name), name
