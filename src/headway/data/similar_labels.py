"""Labels that a reader takes for one: they differ in case, space, hyphens, invisible characters, the form in which
accents are encoded, or letters of another script that look alike (the idea of Unicode's UTS 39, for common letters)."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable

# Small and capital letters of Cyrillic and Greek, and the Latin ones that look like them.
LOOKALIKES = str.maketrans(
    "аеорсухіјѕһԁԛԝӏքոսց" + "αεικνορτυχωϲϳ" + "АВЕКМНОРСТУХІЈЅԌ" + "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijshdqwlpnuq" + "aeiknoptuxwcj" + "abekmhopctyxijsg" + "abezhikmnoptyx",
)


def similar_labels(labels: Iterable[str]) -> list[list[str]]:
    """Groups of labels with one skeleton."""
    groups: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        groups[skeleton(label)].append(label)
    return [sorted(group) for group in groups.values() if len(group) > 1]


def skeleton(label: str) -> str:
    """What a reader sees of a label."""
    text = unicodedata.normalize("NFKC", label).translate(LOOKALIKES)
    visible = "".join(letter for letter in text if unicodedata.category(letter) not in ("Cf", "Cc") or letter.isspace())
    return re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", visible.casefold().strip())


def spelled(label: str) -> str:
    """A label in quotation marks, with the code points of characters that are not ASCII or not visible."""
    unusual = [letter for letter in label if not (letter.isascii() and letter.isprintable())]
    points = " ".join(dict.fromkeys(f"U+{ord(letter):04X}" for letter in unusual))
    return f"{label!r} ({points})" if points else repr(label)
