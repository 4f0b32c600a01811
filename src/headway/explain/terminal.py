"""Room: explain. A story in a terminal: tokens, where the answering token looks in one layer, and what was chosen."""

from __future__ import annotations

import math

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.explain import story
from headway.explain.views import shown_layer, texts

SHADES = " ░▒▓█"
RAMP = ("grey23", "dark_blue", "blue", "deep_sky_blue3", "turquoise2", "bright_white")  # dark to light, as to the eye
MOST = 24  # tokens of the attention table
BEST = 8  # candidates
BAR = 24


def show(told: story.Story, console: Console | None = None) -> None:
    out = console or Console(highlight=False)
    out.print(Text(printable(f"{told.model.name}: {told.title}"), style="bold"))
    out.print(Text(", ".join(f"{label} {value}" for label, value in told.model.facts), style="dim"))
    for sequence in told.sequences.values():
        out.print(_tokens(sequence))
    if told.attention:
        out.print(_attention(told))
    if told.output is not None:
        _output(told.output, out)
    if told.generation is not None and told.generation.steps:
        out.print(Text("goes on  ") + _pieces([step.text for step in told.generation.steps]))
    for line in told.note:
        out.print(Text(line, style="dim"))


def printable(text: str) -> str:
    """Nothing in a token steers the terminal or turns the line around: what cannot be seen is spelt out."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _tokens(sequence: story.Sequence) -> Text:
    label = f"{sequence.label:<8} {len(sequence.tokens)} tokens  "
    return Text(label) + _pieces([token.text for token in sequence.tokens])


def _pieces(given: list[str]) -> Text:
    line = Text()
    for number, text in enumerate(given):
        line.append(printable(text) or "∅", style="black on cyan" if number % 2 else "black on white")
    return line


def _attention(told: story.Story) -> Table:
    """A row for each token that is looked at, a column for each head."""
    each = shown_layer(told)
    query = _answering(told, each)
    weights = story.numbers(each.weights)[:, query]  # (head, key)
    mean = weights.mean(0)
    order = np.sort(np.argsort(-mean, kind="stable")[:MOST])
    asking, names = texts(told, each.queries)[query], texts(told, each.keys)
    some = "" if len(order) == len(names) else f", the {MOST} most looked at of {len(names)}"
    table = Table(
        title=Text(f"{each.stack} layer {each.layer}: where “{printable(asking)}” looks{some}"),
        title_justify="left",
        box=None,
        padding=(0, 1),
    )
    table.add_column("token")
    table.add_column(f"heads 0–{each.heads - 1}")
    table.add_column("mean", justify="right")
    for key in order:
        cells = Text()
        for weight in weights[:, key]:
            cells.append(_shade(float(weight)) * 2, style=RAMP[round(math.sqrt(weight) * (len(RAMP) - 1))])
        table.add_row(Text(printable(names[key]) or "∅"), cells, f"{mean[key]:.3f}")
    return table


def _answering(told: story.Story, each: story.Attention) -> int:
    """The token at which the answer is chosen, where there is one, else the last."""
    at = told.output.rows[-1].at if told.output is not None and told.output.rows else None
    last = each.weights.shape[1] - 1
    return last if at is None else min(at, last)


def _shade(weight: float) -> str:
    return SHADES[min(len(SHADES) - 1, math.ceil(weight * (len(SHADES) - 1)))]


def _output(output: story.Output, out: Console) -> None:
    out.print(Text("answer   ") + Text(printable(output.answer), style="bold green"))
    if not output.rows:
        return
    row = output.rows[-1]
    table = Table(title=Text(f"the choice at “{printable(row.label)}”"), title_justify="left", box=None, padding=(0, 1))
    for name in ("candidate", "", "probability", "score"):
        table.add_column(name, justify="right" if name in ("probability", "score") else "left")
    for one in row.candidates[:BEST]:
        chance = math.exp(one.logit - row.logsumexp)
        bar = Text("━" * max(1, round(chance * BAR)), style="green" if one.id == row.chosen else "blue")
        table.add_row(Text(printable(one.text) or "∅"), bar, f"{chance:.1%}", f"{one.logit:.3f}")
    out.print(table)
