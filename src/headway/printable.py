"""Text of foreign origin made safe to print: names of files, labels, cells, tensor names, errors of templates and hubs.

Control characters act on a terminal, direction marks reorder what is read, a line break begins a line of its own. All
printing, and every error message, passes through `printable`; JSON output through `printable_json`; what is
written into a page, a card or a table through `as_html`, `as_markdown` and `as_cell`.
"""

from __future__ import annotations

import html
import json
import math
import re
from typing import Any

# Characters that belong to writing, though they are not printable by themselves: tab, line break, spaces, joiners of
# letters and emoji, and marks of direction. Overrides of direction are not among them.
SPACES = "\u00a0\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
PROSE = "\t\n\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff" + SPACES
SURROGATE = re.compile("[\ud800-\udfff]")


def printable(text: str, *, keep: str = "") -> str:
    """The text with every character escaped (\\x1b, \\u202e, \\n) that is not printable and not in `keep`. `keep=PROSE`
    is for text that is itself the output, such as a generated answer."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else ascii(letter)[1:-1] for letter in text)


def printable_json(text: str) -> str:
    """JSON with the same meaning in which every character that is not printable is a \\u escape."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1] for letter in text)


def finite(value: Any) -> Any:
    """The value with None in place of each number that JSON does not have: NaN and infinity."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_html(value: Any, *, keep: str = "") -> str:
    """Text of an element or an attribute in quotes."""
    return html.escape(printable(str(value), keep=keep), quote=True)


MARKUP = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")  # an underscore within a word is none
LINE_START = re.compile(r"\d+(?=[.)])|(?=[#+=-])")  # of a heading, a list, a rule
ADDRESS = re.compile(r"(?<=:)(?=//)|(?<=[Ww]{3})(?=\.)|(?<=\S)(?=@)")  # what some readers of Markdown make links of


def as_markdown(text: str) -> str:
    """Text within a line, a cell of a table or a list: never markup, HTML or a link. An address is parted by an empty
    comment."""
    text = html.escape(" ".join(printable(text, keep="\n\t").split()), quote=False)
    start = match.end() if (match := LINE_START.match(text)) else None
    escaped = MARKUP.sub(r"\\\g<0>", text)
    escaped = escaped if start is None else f"{text[:start]}\\{escaped[start:]}"
    return ADDRESS.sub("<!-- -->", escaped)


def as_code_block(lines: list[str]) -> list[str]:
    """Lines of Markdown that are shown as they are: the fence is longer than any run of backticks in them."""
    lines = [printable(line) for line in lines]
    fence = "`" * max(3, *(len(run) + 1 for line in lines for run in re.findall("`+", line)), 3)
    return [fence, *lines, fence]


NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
FORMULA = (*"=+-@＝＋－＠", "\t", "\r", "\n")  # what a spreadsheet runs; also in full width


def as_cell(value: Any) -> Any:
    """A cell of a table: a text that a spreadsheet would run as a formula gets an apostrophe in front. A number, though
    it begins with a sign, is none."""
    if not isinstance(value, str) or not value.startswith(FORMULA) or NUMBER.fullmatch(value):
        return value
    return f"'{value}"


def has_surrogate(text: str) -> bool:
    """Whether it contains half of a surrogate pair, which is not a character."""
    return SURROGATE.search(text) is not None
