"""What `headway.explain` gives: a story to be saved as a page, drawn, or looked at in a notebook."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.explain.story import Story

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

    from headway.bundle import Bundle
    from headway.explain.views import View

TALL = 900  # pixels of a page in a notebook


@dataclass(frozen=True)
class Explanation:
    story: Story

    def html(self) -> str:
        """The page: one file, which asks the network for nothing."""
        from headway.explain.page import render

        return render(self.story)

    def save(self, path: str | Path) -> Path:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.html(), encoding="utf-8")
        return target

    def draw(self, view: View | None = None, *, path: str | Path | None = None) -> Figure:
        """A picture: attention, alignment, positions or heads."""
        from headway.explain.views import draw

        return draw(self.story, view, path=path)

    def _repr_html_(self) -> str:
        page = html.escape(self.html(), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:{TALL}px;border:0" title="explanation"></iframe>'


def explain(model: str | Path | Bundle | nn.Module, given: Any, **options: Any) -> Explanation:
    """How `model` came to its answer. The options are `collect`'s: against, layers, first, last, steps. A bare model of
    ours, which has no tokenizer, takes the ids of its tokens."""
    from headway.bundle import Bundle, load
    from headway.explain.collect import collect

    if isinstance(model, str | Path):
        bundle = load(model)
    elif isinstance(model, Bundle):
        bundle = model
    else:
        bundle = Bundle(model, type(model).__name__, model.config)  # type: ignore[arg-type]
    return Explanation(collect(bundle, given, **options))
