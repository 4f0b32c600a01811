"""A story in a terminal: tokens, the attention weights of the answering token in one layer, and the candidates."""

from __future__ import annotations

import math

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.explain import story
from headway.explain.views import chosen, shown_layer, texts
from headway.printable import printable

SHADES = " ░▒▓█"
RAMP = ("grey50", "steel_blue", "dodger_blue2", "deep_sky_blue3", "orange3", "dark_orange")  # on black and on white
MAX_KEYS = 24  # rows of the attention table
MAX_CANDIDATES = 8
BAR_WIDTH = 24
CAPTIONS = {  # by the kind of the output
    "next": "next token after “{}”",
    "classes": "class",
    "labels": "label “{}”",
    "tags": "tag of “{}”",
    "span": "{} of the answer",
    "fill": "token at “{}”",
}


def show(explained: story.Story, console: Console | None = None) -> None:
    out = console or Console(highlight=False)
    out.print(Text(printable(f"{explained.model.name}: {explained.title}"), style="bold"))
    out.print(Text(", ".join(f"{label} {value}" for label, value in explained.model.facts), style="dim"))
    for sequence in explained.sequences.values():
        out.print(_tokens(sequence))
    if explained.attention:
        _attention(explained, out)
    if explained.output is not None:
        _output(explained.output, _row(explained), out)
    if explained.generation is not None and explained.generation.steps:
        label = "output   " if "target" in explained.sequences else "continued "
        out.print(Text(label) + _coloured([step.text for step in explained.generation.steps]))
    for line in explained.note:
        out.print(Text(printable(line), style="dim"))


def _tokens(sequence: story.Sequence) -> Text:
    label = f"{sequence.label:<8} {len(sequence.tokens)} tokens  "
    return Text(label) + _coloured([token.text for token in sequence.tokens])


def _coloured(given: list[str]) -> Text:
    line = Text()
    for number, text in enumerate(given):
        line.append(printable(text) or "∅", style="black on cyan" if number % 2 else "black on white")
    return line


def _attention(explained: story.Story, out: Console) -> None:
    """A row for each key, a column for each head."""
    each = shown_layer(explained, cross=True)
    row = _row(explained)
    query = each.weights.shape[1] - 1 if row is None or row.at is None else row.at
    weights = story.dequantize(each.weights)[:, query]  # (head, key)
    mean = weights.mean(0)
    order = np.sort(np.argsort(-mean, kind="stable")[:MAX_KEYS])
    query_text, names = texts(explained, each.queries)[query], texts(explained, each.keys)
    some = "" if len(order) == len(names) else f", the {MAX_KEYS} largest of {len(names)}"
    cross = "" if each.queries == each.keys else " cross-attention"
    title = f"{each.stack} layer {each.layer}{cross}: attention weights of “{printable(query_text)}”{some}"
    out.print(Text(title))
    table = Table(box=None, padding=(0, 1))
    table.add_column("token")
    table.add_column(f"heads 0–{each.heads - 1}")
    table.add_column("mean", justify="right")
    for key in order:
        cells = Text()
        for weight in weights[:, key]:
            strength = math.sqrt(weight)  # so that small weights stay distinguishable
            cells.append(2 * SHADES[round(strength * 4)], style=RAMP[round(strength * 5)])
        table.add_row(_cell(names[key]), cells, f"{mean[key]:.3f}")
    out.print(table)


def _row(explained: story.Story) -> story.RowView | None:
    """The row that is shown: the next token after a text, the first word with a tag, else the first row."""
    if explained.output is None or not explained.output.rows:
        return None
    rows = explained.output.rows
    if explained.output.kind == "tags":
        return next((row for row in rows if chosen(row).text != "O"), rows[0])
    return rows[-1 if explained.output.kind == "next" and "target" not in explained.sequences else 0]


def _cell(text: str) -> Text:
    return Text(printable(text).replace(" ", "␣") or "∅")


def _output(output: story.OutputView, row: story.RowView | None, out: Console) -> None:
    out.print(Text("answer   ") + Text(printable(output.answer), style="bold green"))
    if row is None or output.kind == "number":
        return
    out.print(Text(CAPTIONS[output.kind].format(printable(row.label))))
    table = Table(box=None, padding=(0, 1))
    for name in ("candidate", "", "probability", "score"):
        table.add_column(name, justify="right" if name in ("probability", "score") else "left")
    for one in row.candidates[:MAX_CANDIDATES]:
        probability = math.exp(one.logit - row.logsumexp)
        bar = Text("━" * round(probability * BAR_WIDTH), style="green" if one.id == row.chosen else "blue")
        table.add_row(_cell(one.text), bar, f"{probability:.1%}", f"{one.logit:.3f}")
    out.print(table)
