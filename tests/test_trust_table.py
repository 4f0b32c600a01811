"""The table of docs/trust.md names every item, and only tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ITEMS = 66
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
NAME = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[tuple[str, ...]]:
    text = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    return ROW.findall(text.split("## Every guarantee and its test")[1].split("\n## ")[0])


def test_every_item_is_there_once() -> None:
    numbers = [int(row[0]) for row in rows()]
    assert numbers == sorted({*numbers}) and {*range(1, ITEMS + 1)} <= {*numbers}


def test_every_named_test_exists() -> None:
    named = [found for row in rows() for found in NAME.findall(" ".join(row))]
    assert len(named) > ITEMS
    absent = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).is_file() or not re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
    ]
    assert not absent


def test_every_item_has_a_test() -> None:
    for number, _, test, _ in rows():
        assert NAME.search(test), number
