"""Files that word vectors are evaluated on: analogies, as in questions-words.txt (Mikolov et al. 2013), and pairs of
words with a similarity, as in WordSim-353 and SimLex-999."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from headway.data.row import Row
from headway.data.text_reader import read_lines
from headway.errors import DataError

HEADER = ("word", "word1", "word 1")  # first cells of a line that names columns


def read_questions(paths: Sequence[Path], *, encoding: str | None = None) -> Iterator[Row]:
    """Rows with the fields a, b, c and d (a is to b as c is to d) and `section`, or with a, b and `score`. A line
    `: name` begins a section; a line that begins with `#`, and a header, are left out."""
    for path in paths:
        section = ""
        for number, line in read_lines(path, encoding=encoding):
            where = f"{path.name}:{number}"
            if line.startswith(": "):
                section = line[2:].strip()
            elif line.strip() and not line.startswith("#"):
                fields = _fields(line, where=where, first=number == 1)
                if fields is not None:
                    yield Row(fields | ({"section": section} if "d" in fields else {}), where)


def _fields(line: str, *, where: str, first: bool) -> dict[str, str | float] | None:
    """The fields of a line; None for a header."""
    cells = [cell.strip() for cell in line.split("\t" if "\t" in line else "," if "," in line else None)]
    if len(cells) == 4 and not _is_number(cells[2]):
        return dict(zip("abcd", cells, strict=True))
    if len(cells) >= 3 and _is_number(cells[2]):
        return {"a": cells[0], "b": cells[1], "score": float(cells[2])}
    if first and cells[0].lower() in HEADER:
        return None
    raise DataError(f"{where}: expected four words (an analogy), or two words and a number; found {line[:80]!r}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
