"""A story in a terminal: tokens, where the answering token looks in one layer, and what was chosen."""

from __future__ import annotations

import math

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.explain import story
from headway.explain.views import chosen, shown_layer, texts

SHADES = " ░▒▓█"
RAMP = ("grey50", "steel_blue", "dodger_blue2", "deep_sky_blue3", "orange3", "dark_orange")  # on black and on white
MOST = 24  # tokens of the attention table
BEST = 8  # candidates
BAR = 24
ASKED = {  # by the kind of the output: what was to be chosen
    "next": "what comes after “{}”",
    "classes": "which class",
    "tags": "the tag of “{}”",
    "span": "where the answer has its {}",
    "fill": "what stands at “{}”",
}


def show(told: story.Story, console: Console | None = None) -> None:
    out = console or Console(highlight=False)
    out.print(Text(printable(f"{told.model.name}: {told.title}"), style="bold"))
    out.print(Text(", ".join(f"{label} {value}" for label, value in told.model.facts), style="dim"))
    for sequence in told.sequences.values():
        out.print(_tokens(sequence))
    if told.attention:
        _attention(told, out)
    if told.output is not None:
        _output(told.output, _row(told), out)
    if told.generation is not None and told.generation.steps:
        label = "written  " if "target" in told.sequences else "goes on  "
        out.print(Text(label) + _pieces([step.text for step in told.generation.steps]))
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


def _attention(told: story.Story, out: Console) -> None:
    """A row for each token that is looked at, a column for each head."""
    each = shown_layer(told, crossing=True)
    row = _row(told)
    query = each.weights.shape[1] - 1 if row is None or row.at is None else row.at
    weights = story.numbers(each.weights)[:, query]  # (head, key)
    mean = weights.mean(0)
    order = np.sort(np.argsort(-mean, kind="stable")[:MOST])
    asking, names = texts(told, each.queries)[query], texts(told, each.keys)
    some = "" if len(order) == len(names) else f", the {MOST} most looked at of {len(names)}"
    across = "" if each.queries == each.keys else ", cross-attention"
    out.print(Text(f"{each.stack} layer {each.layer}{across}: where “{printable(asking)}” looks{some}"))
    table = Table(box=None, padding=(0, 1))
    table.add_column("token")
    table.add_column(f"heads 0–{each.heads - 1}")
    table.add_column("mean", justify="right")
    for key in order:
        cells = Text()
        for weight in weights[:, key]:
            strength = math.sqrt(weight)  # so that small weights can be told apart
            cells.append(2 * SHADES[round(strength * 4)], style=RAMP[round(strength * 5)])
        table.add_row(_cell(names[key]), cells, f"{mean[key]:.3f}")
    out.print(table)


def _row(told: story.Story) -> story.Row | None:
    """The choice that is looked at: what comes after a text, the first word with a tag, else the first there is."""
    if told.output is None or not told.output.rows:
        return None
    rows = told.output.rows
    if told.output.kind == "tags":
        return next((row for row in rows if chosen(row).text != "O"), rows[0])
    return rows[-1 if told.output.kind == "next" and "target" not in told.sequences else 0]


def _cell(text: str) -> Text:
    return Text(printable(text).replace(" ", "␣") or "∅")


def _output(output: story.Output, row: story.Row | None, out: Console) -> None:
    out.print(Text("answer   ") + Text(printable(output.answer), style="bold green"))
    if row is None:
        return
    out.print(Text(ASKED[output.kind].format(printable(row.label))))
    table = Table(box=None, padding=(0, 1))
    for name in ("candidate", "", "probability", "score"):
        table.add_column(name, justify="right" if name in ("probability", "score") else "left")
    for one in row.candidates[:BEST]:
        chance = math.exp(one.logit - row.logsumexp)
        bar = Text("━" * round(chance * BAR), style="green" if one.id == row.chosen else "blue")
        table.add_row(_cell(one.text), bar, f"{chance:.1%}", f"{one.logit:.3f}")
    out.print(table)
