"""The result of `headway.explain`: a story to save as a page, draw as figures, or show in a notebook."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.checkpoints import save_text
from headway.explain.story import Story

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from torch import nn

    from headway.bundle import Bundle
    from headway.explain.views import View

NOTEBOOK_HEIGHT = 900  # pixels


@dataclass(frozen=True)
class Explanation:
    story: Story

    def html(self) -> str:
        """The page as one HTML file that makes no network request."""
        from headway.explain.page import render

        return render(self.story)

    def save(self, path: str | Path) -> Path:
        """Write the page. A link is followed: the user has named it."""
        save_text(os.path.realpath(path), self.html())
        return Path(path)

    def draw(self, view: View | None = None, *, path: str | Path | None = None) -> Figure:
        """A figure: attention, alignment, positions or heads."""
        from headway.explain.views import draw

        return draw(self.story, view, path=path)

    def _repr_html_(self) -> str:
        page = html.escape(self.html(), quote=True)
        style = f"width:100%;height:{NOTEBOOK_HEIGHT}px;border:0"
        return f'<iframe srcdoc="{page}" style="{style}" title="explanation"></iframe>'


def explain(
    model: str | Path | Bundle | nn.Module,
    given: Any,
    *,
    against: str | None = None,
    layers: Sequence[int] | None = None,
    first: int | None = None,
    last: int | None = None,
    steps: int | None = None,
    device: str | None = None,
) -> Explanation:
    """Explains the output of `model` for one input; a model without a tokenizer takes token ids. `against` is an output
    to score instead; `layers` are included with queries, keys and values; `first` or `last` use only so many tokens of
    the text; `steps` is the number of generated tokens; `device` is where a model is loaded."""
    from headway.bundle import Bundle
    from headway.explain.collect import STEPS, collect
    from headway.loading import as_bundle

    if isinstance(model, str | Path | Bundle):
        bundle = as_bundle(model, device=device)
    else:
        bundle = Bundle(model, type(model).__name__)  # type: ignore[arg-type]
    count = STEPS if steps is None else steps
    story = collect(bundle, given, against=against, layers=layers, first=first, last=last, steps=count)
    return Explanation(story)
