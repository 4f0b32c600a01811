"""Text of foreign origin made safe to print: names of files, labels, cells, tensor names, errors of templates and hubs.

Control characters act on a terminal, direction marks reorder what is read, a line break begins a line of its own. All
printing, and every error message, passes through `printable`; JSON output through `printable_json`.
"""

from __future__ import annotations

import json
import re

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


def has_surrogate(text: str) -> bool:
    """Whether it contains half of a surrogate pair, which is not a character."""
    return SURROGATE.search(text) is not None
