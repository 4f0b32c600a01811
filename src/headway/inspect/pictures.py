"""Figures for papers and READMEs, from plain arrays and token strings; no model needed. The suffix of the path selects
PNG, SVG or PDF."""

from __future__ import annotations

import math
import os
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.files import atomic_write, disk_errors
from headway.printable import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEQUENTIAL = "viridis"  # perceptually uniform, safe for colour blindness
DIVERGING = "PuOr"  # for signed values
TITLE_CHARACTERS = 12  # per inch
LABEL_CHARACTERS = 24


def draw_alignment(
    weights: np.ndarray,  # (target, source)
    *,
    columns: Sequence[str],
    rows: Sequence[str],
    path: str | Path | None = None,
    title: str = "",
) -> Figure:
    """Cross-attention weights: each target token (row) over the source tokens (columns)."""
    figure = _figure(1.5 + 0.42 * len(columns), 1.2 + 0.36 * len(rows))
    axes = figure.subplots()
    image = axes.imshow(weights, cmap=SEQUENTIAL, vmin=0.0, vmax=1.0, aspect="auto")
    _ticks(axes, columns=columns, rows=rows)
    axes.set_xlabel("source")
    axes.set_ylabel("target")
    figure.colorbar(image, ax=axes, label="attention")
    return _finished(figure, title, path)


def draw_attention(
    weights: np.ndarray,  # (head, query, key)
    *,
    queries: Sequence[str],
    keys: Sequence[str],
    path: str | Path | None = None,
    title: str = "",
) -> Figure:
    """The weights of all heads of a layer side by side, on one colour scale: queries are rows, keys columns."""
    count = len(weights)
    wide = next((n for n in (4, 3, 5) if count % n == 0), min(4, count))
    high = -(-count // wide)
    side = (max(1.6, 0.17 * len(keys)), max(1.6, 0.17 * len(queries)))
    figure = _figure(1.4 + wide * (side[0] + 0.15), 1.0 + high * (side[1] + 0.3))
    grid = figure.subplots(high, wide, squeeze=False)
    for head, axes in enumerate(grid.flat):
        if head >= count:
            axes.set_axis_off()
            continue
        image = axes.imshow(weights[head], cmap=SEQUENTIAL, vmin=0.0, vmax=1.0, aspect="auto")
        axes.set_title(f"head {head}", fontsize=8)
        _ticks(
            axes,
            columns=keys if head + wide >= count else [],
            rows=queries if head % wide == 0 else [],
            size=6,
        )
    figure.colorbar(image, ax=grid, label="attention", shrink=0.6)
    return _finished(figure, title, path)


def draw_positions(
    values: np.ndarray,  # (position, dimension): what is added to the embedding; or rotary angles in radians
    *,
    angles: bool = False,
    path: str | Path | None = None,
    title: str = "",
) -> Figure:
    """Position vectors, one row per position. Rotary angles are shown by their cosine."""
    figure = _figure(7.0, 1.6 + min(6.0, 0.12 * len(values)))
    axes = figure.subplots()
    shown = np.cos(values) if angles else values
    limit = 1.0 if angles else float(np.abs(shown).max()) or 1.0
    image = axes.imshow(shown, cmap=DIVERGING, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    axes.set_xlabel("pair of dimensions" if angles else "dimension")
    axes.set_ylabel("position")
    figure.colorbar(image, ax=axes, label="cosine of the angle" if angles else "value")
    return _finished(figure, title, path)


def draw_heads(
    change: np.ndarray,  # (layer, head): score minus score without the head; nan: not measured
    *,
    rows: Sequence[str] | None = None,
    path: str | Path | None = None,
    title: str = "",
) -> Figure:
    """Head importance by ablation: each cell is one head."""
    layers, heads = change.shape
    figure = _figure(2.4 + 0.5 * heads, 1.4 + 0.42 * layers)
    axes = figure.subplots()
    limit = float(np.nanmax(np.abs(change))) if np.isfinite(change).any() else 1.0
    digits = max(0, 2 - math.floor(math.log10(limit or 1.0)))  # three significant digits of the largest
    image = axes.imshow(change, cmap=DIVERGING, vmin=-limit, vmax=limit, aspect="auto")
    axes.set_xticks(range(heads))
    axes.set_yticks(range(layers), rows or [f"layer {i}" for i in range(layers)])
    axes.set_xlabel("head")
    for layer, head in zip(*np.nonzero(np.isfinite(change)), strict=True):
        strong = abs(change[layer, head]) > 0.6 * limit
        axes.text(
            head, layer, f"{change[layer, head]:.{digits}f}", ha="center", va="center", fontsize=6,
            color="white" if strong else "black",
        )  # fmt: skip
    figure.colorbar(image, ax=axes, label="score lost without the head")
    return _finished(figure, title, path)


def draw_confusion(
    counts: np.ndarray,  # (label, predicted label)
    *,
    labels: Sequence[str],
    path: str | Path | None = None,
    title: str = "",
) -> Figure:
    """How often each label (row) is predicted as each label (column); colours are shares of the row."""
    side = 0.5 * len(labels)
    figure = _figure(2.6 + side, 2.0 + side)
    axes = figure.subplots()
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    image = axes.imshow(shares, cmap=SEQUENTIAL, vmin=0.0, vmax=1.0)
    names = [_short(label) for label in labels]
    _ticks(axes, columns=names, rows=names, show_spaces=False)
    axes.set_xlabel("predicted")
    axes.set_ylabel("label")
    for row, column in zip(*np.nonzero(counts), strict=True):
        colour = "black" if shares[row, column] > 0.6 else "white"
        axes.text(column, row, f"{counts[row, column]}", ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(image, ax=axes, label="share of the label's examples", shrink=0.7)
    return _finished(figure, title, path)


def draw_mistakes(
    images: Sequence[np.ndarray],  # each (height, width, 3)
    captions: Sequence[str],
    *,
    path: str | Path | None = None,
    across: int = 6,
) -> Figure:
    """A sheet of pictures, each with its caption above it."""
    across = max(1, min(across, len(images)))
    high = -(-len(images) // across)
    figure = _figure(1.7 * across, 0.4 + 1.95 * high)
    grid = figure.subplots(high, across, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, image, caption in zip(grid.flat, images, captions, strict=False):
        axes.imshow(image, interpolation="nearest")
        axes.set_title(plain("\n".join(textwrap.wrap(caption, 22)[:3])), fontsize=7)
    return _finished(figure, "", path)


def draw_points(
    points: np.ndarray,  # (point, 2)
    *,
    labels: Sequence[str],
    groups: Sequence[int] | None = None,  # points of a group have one colour
    path: str | Path | None = None,
    title: str = "",
) -> Figure:
    """Labelled points of a plane."""
    figure = _figure(9.0, 7.0)
    axes = figure.subplots()
    axes.scatter(points[:, 0], points[:, 1], c=[0] * len(points) if groups is None else groups, cmap="tab10", s=14)
    for (x, y), label in zip(points, labels, strict=True):
        axes.annotate(plain(label), (x, y), xytext=(3, 3), textcoords="offset points", fontsize=8)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.12, 0.05)  # so that the labels fit
    return _finished(figure, title, path)


def _short(label: str) -> str:
    return label if len(label) <= LABEL_CHARACTERS else label[: LABEL_CHARACTERS - 1] + "…"


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(min(width, 40.0), min(height, 40.0)), layout="constrained")


def _ticks(axes: Any, *, columns: Sequence[str], rows: Sequence[str], size: int = 9, show_spaces: bool = True) -> None:
    shown = {"rotation": 60, "ha": "right", "rotation_mode": "anchor", "fontsize": size}
    axes.set_xticks(range(len(columns)), [_visible(text, spaces=show_spaces) for text in columns], **shown)
    axes.set_yticks(range(len(rows)), [_visible(text, spaces=show_spaces) for text in rows], fontsize=size)


def _visible(text: str, *, spaces: bool) -> str:
    """Makes white space visible, escapes control characters and matplotlib's math mode."""
    text = text.replace(" ", "␣") if spaces else text
    return plain(text.replace("\n", "⏎").replace("\t", "⇥")) or "∅"


def plain(text: str) -> str:
    """Text for a figure: without characters that act on how it is drawn, and without matplotlib's math mode."""
    return printable(text, keep="\n").replace("$", r"\$")


def _finished(figure: Figure, title: str, path: str | Path | None) -> Figure:
    if title:
        lines = textwrap.wrap(title, max(20, int(TITLE_CHARACTERS * figure.get_figwidth())))
        figure.suptitle(plain("\n".join(lines)), fontsize=10)
    if path is not None:
        path = Path(os.path.realpath(path))
        with disk_errors(path, 100_000), atomic_write(path) as partial, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # a character that the font lacks is drawn as a box
            figure.savefig(partial, dpi=150, format=path.suffix.lstrip(".").lower() or "png")
    return figure
