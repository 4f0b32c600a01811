"""Room: inspect. Pictures from plain arrays and token strings; no model needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np


def draw_alignment(
    weights: np.ndarray, *, columns: Sequence[str], rows: Sequence[str], path: str | Path, title: str = ""
) -> None:
    """`weights` (row, column): how strongly each written token (row) looked at each read one (column)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(1.5 + 0.42 * len(columns), 1.2 + 0.36 * len(rows)), layout="constrained")
    image = axes.imshow(weights, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_xticks(range(len(columns)), [_visible(token) for token in columns], rotation=60, ha="right")
    axes.set_yticks(range(len(rows)), [_visible(token) for token in rows])
    axes.set_xlabel("read")
    axes.set_ylabel("written")
    if title:
        axes.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axes, label="attention")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _visible(token: str) -> str:
    return token.replace(" ", "␣").replace("\n", "⏎").replace("$", r"\$") or "∅"
