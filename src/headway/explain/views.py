"""The figures of a story: which arrays each of them draws."""

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


def draw(explained: story.Story, view: View | None = None, *, path: str | Path | None = None) -> Figure:
    """By default the alignment of an encoder-decoder, else all heads of a layer, or the positions without heads.
    Of the layers with queries, keys and values, the last is drawn."""
    cross = any(each.kind != "self" for each in explained.attention)
    wanted = view or ("alignment" if cross else "attention" if explained.attention else "positions")
    match wanted:
        case "attention":
            return _attention(explained, path)
        case "alignment":
            if not cross:
                raise InputError("view alignment: this model has no cross-attention; try view attention")
            return _alignment(explained, path)
        case "positions":
            return _positions(explained, path)
        case "heads":
            return _heads(explained, path)
    raise InputError(f"view {wanted!r} is not one of {', '.join(VIEWS)}")


def shown_layer(explained: story.Story, *, cross: bool) -> story.Attention:
    """The last layer with queries, keys and values, else the last: of cross-attention if `cross` and there is any, else
    of self-attention."""
    others = [each for each in explained.attention if each.kind != "self"] if cross else []
    own = [each for each in explained.attention if each.kind == "self" and each.queries != "source"]
    layers = others or own or explained.attention
    return ([each for each in layers if each.q is not None] or layers)[-1]


def texts(explained: story.Story, sequence: str) -> list[str]:
    return [token.text for token in explained.sequences[sequence].tokens]


def chosen(row: story.RowView) -> story.Candidate:
    return next(one for one in row.candidates if one.id == row.chosen)


def _targets(explained: story.Story, each: story.Attention) -> list[str]:
    """Labels of the rows of a cross-attention: the token predicted at each, not the input token; without an output, the
    query tokens."""
    return (
        texts(explained, each.queries)
        if explained.output is None
        else [chosen(row).text for row in explained.output.rows]
    )


def alignment(explained: story.Story) -> tuple[np.ndarray, list[str], list[str]]:
    """(weights of target × source, target tokens, source tokens): the mean over the heads of the last cross-attention
    layer. Raises if the model has no cross-attention."""
    each = shown_layer(explained, cross=True)
    if each.kind == "self":
        raise InputError("view alignment: this model has no cross-attention; try view attention")
    return story.dequantize(each.weights).mean(0), _targets(explained, each), texts(explained, each.keys)


def _attention(explained: story.Story, path: str | Path | None) -> Figure:
    if not explained.attention:
        raise InputError("view attention: this explanation has no attention")
    each = shown_layer(explained, cross=False)
    return draw_attention(
        story.dequantize(each.weights),
        queries=texts(explained, each.queries),
        keys=texts(explained, each.keys),
        path=path,
        title=f"{explained.model.name}: {explained.title}  ({each.stack} layer {each.layer})",
    )


def _alignment(explained: story.Story, path: str | Path | None) -> Figure:
    each = shown_layer(explained, cross=True)
    weights, rows, columns = alignment(explained)
    heads = f", mean of {each.heads} heads" if each.heads > 1 else ""
    answer = "" if explained.output is None else f" → {explained.output.answer}"
    return draw_alignment(
        weights,
        columns=columns,
        rows=rows,
        path=path,
        title=f"{explained.model.name}: {explained.title}{answer}  (layer {each.layer}{heads})",
    )


def _positions(explained: story.Story, path: str | Path | None) -> Figure:
    for each in explained.embedding:
        position = each.position
        if position.values is not None or position.angles is not None:
            rotary = position.values is None
            values = position.angles if rotary else position.values if position.pattern is None else position.pattern
            assert values is not None
            return draw_positions(
                values, angles=rotary, path=path, title=f"{explained.model.name}: {position.kind} positions"
            )
    raise InputError("view positions: this model has no position vectors or angles")


def _heads(explained: story.Story, path: str | Path | None) -> Figure:
    if not explained.heads:
        raise InputError("view heads: this output has no logit to measure heads by")
    names = sorted(
        {row.name for row in explained.heads}, key=lambda name: ("encoder." not in name, _order(explained, name))
    )
    change = np.full((len(names), 1 + max(row.head for row in explained.heads)), np.nan)
    for row in explained.heads:
        change[names.index(row.name), row.head] = row.change
    target = "" if explained.attribution is None else f"  (score: {explained.attribution.target})"
    rows = [name.replace("stack.blocks.", "layer ").removesuffix(".attention").replace(".", " ") for name in names]
    return draw_heads(change, rows=rows, path=path, title=f"{explained.model.name}: {explained.title}{target}")


def _order(explained: story.Story, name: str) -> tuple[int, str]:
    assert explained.heads is not None
    return next(row.layer for row in explained.heads if row.name == name), name
