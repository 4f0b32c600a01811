"""What one pass over the training rows finds: settings, tokenizers and labels follow from it, so that the rows are not
read again for each of them.

Rows are kept up to KEPT characters; of more text, randomly drawn ones. Labels are counted in all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headway.baselines import thinned
from headway.data.row import Row

KEPT = 30_000_000  # characters: a tokenizer of 8,000 tokens does not change with more
FILE = 100  # characters that a field counts for that is no text: the path of a picture, boxes

Label = str | tuple[str, ...]  # a tuple was a list in the data


@dataclass(frozen=True)
class Facts:
    count: int = 0  # of all rows
    rows: Sequence[Row] = ()  # those that are kept, in their order
    labels: Mapping[Label, tuple[int, str]] = field(default_factory=dict)  # label → its count and first location
    columns: Mapping[str, str] = field(default_factory=dict)  # field → column of the data

    def total(self, size: Callable[[Row], int]) -> int:
        """The sum over all rows, estimated where not all of them are kept."""
        kept = sum(map(size, self.rows))
        return kept if len(self.rows) == self.count else round(kept * self.count / max(1, len(self.rows)))

    def some(self, most: int, *, size: Callable[[Row], int] = lambda row: 1) -> Sequence[Row]:
        """Randomly drawn rows of at most `most` in total size, the same each time."""
        return thinned(self.rows, size, most=most)[0]


def scan(rows: Iterable[Row], *, labels: Callable[[Row], Iterable[Label]] = lambda row: (), kept: int = KEPT) -> Facts:
    """`labels` are those of a row."""
    count, found = 0, dict[Label, tuple[int, str]]()

    def counted() -> Iterator[Row]:
        nonlocal count
        for row in rows:
            count += 1
            for label in labels(row):
                before, where = found.get(label, (0, row.where))
                found[label] = (before + 1, where)
            yield row

    some, _ = thinned(counted(), characters, most=kept)
    return Facts(count, some, found)


def characters(row: Row) -> int:
    """About as many as the row has in memory."""
    total = 0
    for value in row.fields.values():
        several = value if isinstance(value, list | tuple) else [value]
        total += sum(len(each) if isinstance(each, str) else FILE for each in several)
    return total
