"""Small charts as SVG for pages without scripts. Colours are classes of the page's style, so that they follow light and
dark; every text is escaped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.printable import as_html

WIDE, HIGH = 480, 280
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 12, 44
SERIES = 8  # colours of lines: classes s0 to s7
MOST_POINTS = 400  # of a line; of more, means of neighbours are drawn

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axes:
    """The rectangle of a chart, from data to pixels."""

    x: tuple[float, float]
    y: tuple[float, float]

    def place(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return LEFT + across * (WIDE - LEFT - RIGHT), HIGH - BOTTOM - up * (HIGH - TOP - BOTTOM)

    def frame(self, *, x: str, y: str, ticks: bool = True) -> str:
        """Grid, numbers and names of the axes."""
        out = []
        for value in _ticks(*self.y):
            at = self.place(self.x[0], value)[1]
            out.append(f'<line class="grid" x1="{LEFT}" y1="{at:.1f}" x2="{WIDE - RIGHT}" y2="{at:.1f}"/>')
            out.append(_text(LEFT - 6, at + 4, _number(value), anchor="end"))
        for value in _ticks(*self.x) if ticks else ():
            out.append(_text(self.place(value, self.y[0])[0], HIGH - BOTTOM + 17, _number(value)))
        out.append(_text((LEFT + WIDE - RIGHT) / 2, HIGH - 8, x))
        middle = (TOP + HIGH - BOTTOM) / 2
        turned = f'transform="rotate(-90 14 {middle:.0f})"'
        return "".join(out) + _text(14, middle, y, more=turned)


def chart(content: str, *, about: str) -> str:
    """An SVG picture; `about` is read to those who cannot see it."""
    return (
        f'<svg role="img" aria-label="{as_html(about)}" viewBox="0 0 {WIDE} {HIGH}" '
        f'xmlns="http://www.w3.org/2000/svg">{content}</svg>'
    )


def lines(series: Mapping[str, Points], *, x: str, y: str) -> str:
    """A line for each series, in the colours of `legend`."""
    points = [point for each in series.values() for point in each]
    axes = Axes(_span([a for a, _ in points]), _span([b for _, b in points]))
    out = [axes.frame(x=x, y=y)]
    for number, each in enumerate(series.values()):
        places = [axes.place(*point) for point in _thinned(each)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        out.append(f'<polyline class="line s{number % SERIES}" points="{path}"/>')
        if len(places) <= 20:
            out += [f'<circle class="dot s{number % SERIES}" cx="{a:.1f}" cy="{b:.1f}" r="2.5"/>' for a, b in places]
    return chart("".join(out), about=f"{y} by {x}")


def legend(names: Sequence[str]) -> str:
    items = [f'<li><i class="key s{number % SERIES}"></i>{as_html(name)}</li>' for number, name in enumerate(names)]
    return f'<ul class="legend">{"".join(items)}</ul>'


def bars(values: Sequence[tuple[str, float]], *, x: str, y: str) -> str:
    """A bar for each name, from 0, with its value above it."""
    top = 1.12 * max((value for _, value in values), default=1.0) or 1.0
    axes = Axes((0.0, float(len(values))), (0.0, top))
    out = [axes.frame(x=x, y=y, ticks=False)]
    for number, (name, value) in enumerate(values):
        left, high = axes.place(number + 0.15, min(max(value, 0.0), top))
        right, low = axes.place(number + 0.85, 0.0)
        out.append(_rectangle("bar", left, high, right, low))
        out.append(_text((left + right) / 2, HIGH - BOTTOM + 17, name))
        out.append(_text((left + right) / 2, high - 4, _number(value)))
    return chart("".join(out), about=f"{y} by {x}: " + ", ".join(f"{name} {value:.4g}" for name, value in values))


def reliability(bins: Sequence[tuple[float, float, int]], *, width: float) -> str:
    """(mean confidence, share that is right, examples) of each bin of confidence: on the diagonal the model is right as
    often as its confidence says."""
    axes = Axes((0.0, 1.0), (0.0, 1.0))
    out = [axes.frame(x="confidence", y="share that is right")]
    for confidence, right, _ in bins:
        start = min(int(confidence / width) * width, 1 - width)
        left, high = axes.place(start + 0.1 * width, right)
        end, low = axes.place(start + 0.9 * width, 0.0)
        out.append(_rectangle("bar", left, high, end, low))
    (a, b), (c, d) = axes.place(0, 0), axes.place(1, 1)
    out.append(f'<line class="diagonal" x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}"/>')
    return chart("".join(out), about="share of right predictions by confidence")


def scatter(points: Points, *, x: str, y: str) -> str:
    """A dot for each point, and the diagonal on which both are equal."""
    low, high = _span([value for point in points for value in point])
    axes = Axes((low, high), (low, high))
    (a, b), (c, d) = axes.place(low, low), axes.place(high, high)
    dots = "".join(
        f'<circle class="dot s0" cx="{left:.1f}" cy="{top:.1f}" r="2.5"/>'
        for left, top in (axes.place(*point) for point in points)
    )
    line = f'<line class="diagonal" x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}"/>'
    return chart(axes.frame(x=x, y=y) + line + dots, about=f"{y} by {x}")


def _rectangle(kind: str, left: float, top: float, right: float, bottom: float) -> str:
    wide, high = max(right - left, 0.5), max(bottom - top, 0.5)
    return f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{as_html(text)}</text>'


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The range of an axis; never empty."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Round numbers from `low` to `high`."""
    rough = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next((unit * factor for factor in (1, 2, 2.5, 5) if unit * factor >= rough), unit * 10)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _thinned(points: Points) -> Points:
    """At most MOST_POINTS: means of neighbours."""
    size = -(-len(points) // MOST_POINTS)
    if size <= 1:
        return points
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    return [(sum(a for a, _ in group) / len(group), sum(b for _, b in group) / len(group)) for group in groups]
