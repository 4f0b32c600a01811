"""The result of a check: as lines of text, and as a dict for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from headway.printable import as_html, printable

SHOWN = 30
NAMED = 5  # skipped rows or files


@dataclass(frozen=True, slots=True)
class Lengths:
    """Distribution of a part's lengths in tokens; `where` is the location of the longest."""

    min: int
    median: int
    p95: int
    p99: int
    max: int
    where: str


@dataclass(frozen=True, slots=True)
class Overlong:
    """Examples that are longer than a limit."""

    limit: int
    count: int
    share: float
    longest: int
    where: str


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Distribution of the numbers to predict."""

    min: float
    mean: float
    std: float
    max: float
    mae: float  # mean absolute error of always predicting the mean


@dataclass
class Report:
    """Findings of a check. `extra` holds lines added by the caller, such as memory and time estimates."""

    examples: int = 0
    characters: tuple[int, int] = (0, 0)  # of running text: training part, held-out part
    skipped: dict[str, int] = field(default_factory=dict)
    skipped_places: dict[str, list[str]] = field(default_factory=dict)  # of those that are named
    empty: dict[str, tuple[int, str]] = field(default_factory=dict)  # field -> count, first location
    labels: dict[str, int] = field(default_factory=dict)  # most frequent first
    near_duplicate_labels: list[list[str]] = field(default_factory=list)
    unknown_labels: dict[str, tuple[int, str]] = field(default_factory=dict)  # label -> count, first location
    several: bool = False  # an example has any number of labels
    numbers: NumberRange | None = None  # where the target is a number
    has_boxes: bool = False  # labels are those of boxes, several a picture
    box_problems: dict[str, tuple[int, str]] = field(default_factory=dict)  # problem -> count, first location
    lengths: dict[str, Lengths] = field(default_factory=dict)
    histograms: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)  # from, to, examples: of lengths
    overlong: dict[str, Overlong] = field(default_factory=dict)
    duplicates: int = 0
    contradictions: int = 0
    held_out: int = 0
    overlap: int = 0
    exact: bool = True  # False: duplicates, contradictions and overlap are estimates
    warnings: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    estimates: dict[str, float] = field(default_factory=dict)  # memory in bytes, time in seconds, by name

    @property
    def majority(self) -> tuple[str, float] | None:
        """The most frequent label and its share: the accuracy of the trivial classifier. None for lists of labels."""
        if not self.labels or self.has_boxes or self.several:
            return None
        label, count = next(iter(self.labels.items()))
        return label, count / sum(self.labels.values())

    def to_dict(self) -> dict[str, Any]:
        majority = self.majority
        return asdict(self) | {"majority": {"label": majority[0], "share": majority[1]} if majority else None}

    def summary(self, *, most: int = NAMED) -> list[str]:
        """`most` is the number of skipped rows and files that are named, of each kind."""
        name, count, held = "examples", f"{self.examples:,}", self.held_out
        if self.characters[0]:
            name, count, held = "text", f"{self.characters[0]:,} characters", self.characters[1]
        lines = [f"{name:<12} {count}" + (f", held out {held:,}" if held else "")]
        lines += [f"skipped      {line}" for line in skipped_lines(self.skipped, self.skipped_places, most=most)]
        lines += self._label_lines() + self._length_lines()
        lines += [f"{name:<12} {value}" for name, value in self.extra.items()]
        return lines + [f"warning      {warning}" for warning in self.warnings]

    def _repr_html_(self) -> str:
        """In a notebook: the counts, the labels and the warnings."""
        counts = {"examples": self.examples, "held out": self.held_out, "repeated inputs": self.duplicates}
        rows = [(name, f"{count:,}") for name, count in counts.items()]
        rows += [(f"label {label!r}", f"{count:,}") for label, count in list(self.labels.items())[:SHOWN]]
        rows += [(part, f"{each.median:,} tokens, at most {each.max:,}") for part, each in self.lengths.items()]
        rows += [(name, str(value)) for name, value in self.extra.items()]
        rows += [("warning", warning) for warning in self.warnings]
        cells = "".join(f"<tr><td>{as_html(a)}</td><td>{as_html(b)}</td></tr>" for a, b in rows)
        return f"<table><tbody>{cells}</tbody></table>"

    def _label_lines(self) -> list[str]:
        if self.numbers is not None:
            low, mean, std, high, mae = (f"{value:.4g}" for value in asdict(self.numbers).values())
            return [
                f"numbers      {low} to {high}, mean {mean}, standard deviation {std}",
                f"baseline     always the mean {mean}: mean absolute error {mae}",
            ]
        total = self.examples if self.several else sum(self.labels.values())
        width = max((len(repr(label)) for label in list(self.labels)[:SHOWN]), default=0)
        lines = [
            f"{'labels' if not position else '':<12} {label!r:<{width}}  {count:>8,}  {count / total:6.1%}"
            for position, (label, count) in enumerate(list(self.labels.items())[:SHOWN])
        ]
        if len(self.labels) > SHOWN:
            lines.append(f"{'':<12} … and {len(self.labels) - SHOWN:,} more")
        if self.several and self.labels:
            count, score = best_constant(list(self.labels.values()), examples=self.examples)
            lines.append(f"baseline     always {', '.join(map(repr, list(self.labels)[:count]))}: micro F1 {score:.1%}")
        if self.majority:
            lines.append(f"baseline     always {self.majority[0]!r}: accuracy {self.majority[1]:.1%}")
        return lines

    def _length_lines(self) -> list[str]:
        if not self.lengths:
            return []
        lines = [f"{'lengths':<12} {'':<12}{'min':>8}{'median':>8}{'p95':>8}{'p99':>8}{'max':>8}  longest"]
        for part, found in self.lengths.items():
            numbers = (found.min, found.median, found.p95, found.p99, found.max)
            lines.append(f"{'':<12} {part:<12}" + "".join(f"{number:>8,}" for number in numbers) + f"  {found.where}")
        return lines


def skipped_lines(skipped: Mapping[str, int], places: Mapping[str, Sequence[str]], *, most: int = NAMED) -> list[str]:
    """What was not read, counted, with the first places: "3 rows without a label (x.csv:4, 7, 19)"."""
    out = []
    for kind, count in skipped.items():
        named = places.get(kind, [])
        rest = f" and {len(named) - most:,} more" if len(named) > most else ""
        out.append(f"{count:,} {kind}" + (f" ({_places(named[:most])}{rest})" if named else ""))
    return out


def _places(named: Sequence[str]) -> str:
    """Places in one file with its name once."""
    out, before = list[str](), ""
    for place in named:
        file, _, line = place.rpartition(":")
        out.append(line if file and file == before and line.isdigit() else printable(place))
        before = file
    return ", ".join(out)


def best_constant(counts: Sequence[int], *, examples: int, others: int = 0) -> tuple[int, float]:
    """How many of the most frequent labels to predict for every example, and the micro F1 of that. `counts` are the
    examples of each label, most frequent first; `others` labels can never be predicted."""
    total = sum(counts) + others
    scores = [2 * sum(counts[:k]) / (k * examples + total) for k in range(1, len(counts) + 1)]
    return max(enumerate(scores, 1), key=lambda pair: pair[1], default=(0, 0.0))
