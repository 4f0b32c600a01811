"""Figures for papers and READMEs, from plain arrays and token strings; no model needed. The suffix of the path selects
PNG, SVG or PDF."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEQUENTIAL = "viridis"  # perceptually uniform, safe for colour blindness
DIVERGING = "PuOr"  # for signed values
TITLE_CHARACTERS = 12  # per inch


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


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(min(width, 40.0), min(height, 40.0)), layout="constrained")


def _ticks(axes: Any, *, columns: Sequence[str], rows: Sequence[str], size: int = 9) -> None:
    shown = {"rotation": 60, "ha": "right", "rotation_mode": "anchor", "fontsize": size}
    axes.set_xticks(range(len(columns)), [_visible(token) for token in columns], **shown)
    axes.set_yticks(range(len(rows)), [_visible(token) for token in rows], fontsize=size)


def _visible(token: str) -> str:
    """Makes white space visible and escapes matplotlib's math mode."""
    return token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥").replace("$", r"\$") or "∅"


def _finished(figure: Figure, title: str, path: str | Path | None) -> Figure:
    if title:
        lines = textwrap.wrap(title, max(20, int(TITLE_CHARACTERS * figure.get_figwidth())))
        figure.suptitle("\n".join(lines).replace("$", r"\$"), fontsize=10)
    if path is not None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # a character that the font lacks is drawn as a box
            figure.savefig(path, dpi=150)
    return figure
