"""Checks a data set before training: labels, lengths, duplicates, leakage. One pass, bounded memory."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from statistics import fmean, pstdev
from typing import Any

from headway.data.boxes import problems, usable
from headway.data.report import Lengths, NumberRange, Overlong, Report
from headway.data.row import MISSING, Row, Skipped
from headway.data.similar_labels import similar_labels, spelled
from headway.data.split import input_hash
from headway.data.truncation import MOST, unit

MOST_LABELS = 10_000
BINS = 12  # of a histogram of lengths
Measure = Callable[[Row], Mapping[str, int]]


def check(
    rows: Iterable[Row], *, held_out: Iterable[Row] = (), labels: Sequence[str] | None = None,
    measure: Measure | None = None, limits: Mapping[str, int] | None = None, most_hashes: int = 1_000_000,
) -> Report:  # fmt: skip
    """Reads all rows and returns a report. `measure` returns a row's length in tokens by part."""
    checker = Checker(labels=labels, limits=limits, most_hashes=most_hashes)
    for row in rows:
        checker.add(row, measure(row) if measure is not None else {})
    checker.skipped = Skipped(getattr(rows, "skipped", {}))
    for row in held_out:
        checker.add_held_out(row)
    return checker.report()


class Checker:
    """Collects a report row by row: all training rows first, then the held-out ones.

    Held-out rows are compared with training rows to find overlap and unknown labels. `labels` are those of an existing
    model, if there is one. `limits` has the longest part that fits, in tokens. `labels_of` returns the labels of a row,
    any number of them if `several`; where the target is a number, `number_of` does, and `numbers` summarises them.
    """

    def __init__(
        self, *, labels: Sequence[str] | None = None, limits: Mapping[str, int] | None = None,
        most_hashes: int = 1_000_000, labels_of: Callable[[Row], Iterable[str]] | None = None, several: bool = False,
        numbers: NumberSummary | None = None, number_of: Callable[[Row], float] | None = None,
    ) -> None:  # fmt: skip
        self._labels_of = labels_of or _labels_of
        self._numbers, self._number_of = numbers, number_of
        self.lengths = LengthHistograms()
        self.skipped = Skipped()
        self._limits = limits or {}
        self._report, self._seen = Report(several=several), DuplicateCounter(most_hashes)
        self._labels: Counter[str] = Counter()
        self._unknown = _UnknownLabels(labels)

    def add(self, row: Row, lengths: Mapping[str, int]) -> None:
        """Adds a training row with its lengths in tokens by part."""
        report = self._report
        report.examples += 1
        report.characters = report.characters[0] + _running_characters(row), report.characters[1]
        for name, value in row.fields.items():
            if value is None or (isinstance(value, str) and not value.strip()) or (name == "words" and not value):
                count, where = report.empty.get(name, (0, row.where))
                report.empty[name] = (count + 1, where)
        if "boxes" in row.fields:
            report.has_boxes = True
            self._add_problems(row)
        if self._numbers is not None and self._number_of is not None:
            self._numbers.add(self._number_of(row))
        for label in self._labels_of(row):
            if label in self._labels or len(self._labels) < MOST_LABELS:
                self._labels[label] += 1
            self._unknown.add(label, row)
        self._seen.add(input_hash(row), answer=_answer(row))
        self.lengths.add(lengths, where=row.where)

    def _add_problems(self, row: Row) -> None:
        for problem in problems(row):
            count, where = self._report.box_problems.get(problem, (0, row.where))
            self._report.box_problems[problem] = (count + 1, where)

    def add_held_out(self, row: Row) -> None:
        if "boxes" in row.fields:
            self._add_problems(row)
        if self._unknown.known is None:
            self._unknown.known = set(self._labels)
        if self._number_of is not None:
            self._number_of(row)  # raises where it is not a number
        self._report.held_out += 1
        self._report.characters = self._report.characters[0], self._report.characters[1] + _running_characters(row)
        self._report.overlap += input_hash(row) in self._seen
        for label in self._labels_of(row):
            self._unknown.add(label, row)

    def report(self) -> Report:
        report, seen = self._report, self._seen
        report.skipped, report.skipped_places = dict(self.skipped), self.skipped.places
        report.labels = dict(self._labels.most_common())
        report.duplicates, report.contradictions, report.exact = seen.repeats(), seen.contradictions(), seen.exact
        report.overlap *= seen.step
        report.unknown_labels = self._unknown.found
        report.near_duplicate_labels = similar_labels(self._labels)
        report.lengths, report.overlong = self.lengths.lengths(), self.lengths.overlong(self._limits)
        report.histograms = self.lengths.histograms()
        report.numbers = None if self._numbers is None else self._numbers.numbers()
        report.warnings = _warnings(report)
        return report


def _running_characters(row: Row) -> int:
    """Characters of a row of running text; 0 for other rows."""
    return len(row.fields["text"]) if row.fields.get("running") else 0


class DuplicateCounter:
    """Counts equal inputs by hash. Beyond `most` hashes it keeps one in 2, 4, 8, … and scales the counts up."""

    def __init__(self, most: int) -> None:
        self.most, self.step = most, 1
        self._counts: dict[int, int] = {}
        self._answers: dict[int, int] = {}  # hash of the first answer, or -1 if two differ

    @property
    def exact(self) -> bool:
        return self.step == 1

    def add(self, key: int, *, answer: int) -> None:
        if key % self.step:
            return
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._answers.setdefault(key, answer) != answer:
            self._answers[key] = -1
        while len(self._counts) > self.most:
            self.step *= 2
            self._counts = {key: count for key, count in self._counts.items() if key % self.step == 0}
            self._answers = {key: answer for key, answer in self._answers.items() if key % self.step == 0}

    def __contains__(self, key: int) -> bool:
        return key in self._counts

    def repeats(self) -> int:
        """Rows whose input occurred in an earlier row."""
        return self.step * sum(count - 1 for count in self._counts.values())

    def contradictions(self) -> int:
        """Inputs that occur with different labels."""
        return self.step * sum(answer == -1 for answer in self._answers.values())


class _UnknownLabels:
    """Labels outside a known set, with their count and first location."""

    def __init__(self, known: Sequence[str] | None) -> None:
        self.known = None if known is None else set(known)
        self.found: dict[str, tuple[int, str]] = {}

    def add(self, label: str, row: Row) -> None:
        if self.known is not None and label not in self.known:
            count, where = self.found.get(label, (0, row.where))
            self.found[label] = (count + 1, where)


class NumberSummary:
    """Range, mean and deviations of numbers, eight bytes each."""

    def __init__(self) -> None:
        self._values = array("d")

    def add(self, value: float) -> None:
        self._values.append(value)

    def numbers(self) -> NumberRange | None:
        if not self._values:
            return None
        mean = fmean(self._values)
        std, mae = pstdev(self._values, mean), fmean(abs(value - mean) for value in self._values)
        return NumberRange(min(self._values), mean, std, max(self._values), mae)


class LengthHistograms:
    """Histograms of lengths in tokens, by part, with the location of the longest."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[int]] = defaultdict(Counter)
        self._longest: dict[str, tuple[int, str]] = {}

    def add(self, lengths: Mapping[str, int], *, where: str) -> None:
        for part, length in lengths.items():
            self._counts[part][length] += 1
            if length > self._longest.get(part, (-1, ""))[0]:
                self._longest[part] = (length, where)

    def lengths(self) -> dict[str, Lengths]:
        return {part: _lengths(counts, self._longest[part][1]) for part, counts in self._counts.items()}

    def histograms(self) -> dict[str, list[tuple[int, int, int]]]:
        """(from, to, examples) of at most BINS ranges of equal size, up to the length that 99% do not exceed; the last
        one has the rest."""
        return {part: _histogram(counts) for part, counts in self._counts.items()}

    def overlong(self, limits: Mapping[str, int]) -> dict[str, Overlong]:
        result = {}
        for part, limit in limits.items():
            counts = self._counts.get(part, Counter())
            if over := sum(count for length, count in counts.items() if length > limit):
                result[part] = Overlong(limit, over, over / counts.total(), *self._longest[part])
        return result

    def state_dict(self) -> dict[str, Any]:
        """All counts, for `load_state_dict`."""
        return {
            part: {"counts": sorted(counts.items()), "where": self._longest[part][1]}
            for part, counts in self._counts.items()
        }

    def load_state_dict(self, state: Any) -> bool:
        """Restores the counts of `state_dict`. Returns False and changes nothing if `state` is malformed."""
        try:
            parts = {part: (dict(map(tuple, entry["counts"])), entry["where"]) for part, entry in state.items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            return False
        for counts, where in parts.values():
            numbers = [*counts.keys(), *counts.values()]
            if not counts or not isinstance(where, str) or not all(type(n) is int and 0 <= n < MOST for n in numbers):
                return False
        self._counts = defaultdict(Counter, {part: Counter(counts) for part, (counts, _) in parts.items()})
        self._longest = {part: (max(counts), where) for part, (counts, where) in parts.items()}
        return True


def _histogram(counts: Counter[int]) -> list[tuple[int, int, int]]:
    low, high, end = min(counts), max(counts), _lengths(counts, "").p99
    width = -(-(end - low + 1) // BINS)
    bins = [0] * -(-(end - low + 1) // width)
    for length, count in counts.items():
        bins[min((length - low) // width, len(bins) - 1)] += count
    starts = range(low, end + 1, width)
    return [
        (start, high if start == starts[-1] else start + width - 1, count)
        for start, count in zip(starts, bins, strict=True)
    ]


def _lengths(counts: Counter[int], where: str) -> Lengths:
    ordered, total = sorted(counts.items()), counts.total()

    def quantile(share: float) -> int:
        """The smallest length that at least this share of the examples does not exceed."""
        passed = 0
        for length, count in ordered:
            passed += count
            if passed >= share * total:
                return length
        return ordered[-1][0]

    return Lengths(ordered[0][0], quantile(0.5), quantile(0.95), quantile(0.99), ordered[-1][0], where)


def _labels_of(row: Row) -> Iterable[str]:
    if "boxes" in row.fields:
        return [box.label for box in usable(row) if not box.crowd]
    label = row.fields.get("label", [])
    return chain([label] if isinstance(label, str) else label, row.fields.get("tags", ()))


def _answer(row: Row) -> int:
    answer: Any = row.fields.get("label", row.fields.get("tags") or row.fields.get("boxes") or ())
    return hash(tuple(answer) if isinstance(answer, list) else answer) & 0x7FFFFFFF


def _warnings(report: Report) -> list[str]:
    about = "about " if not report.exact else ""
    found = []
    if not report.examples:
        found.append("There are no examples.")
    for group in report.near_duplicate_labels:
        found.append("Labels that look alike: " + " / ".join(map(spelled, group)) + ".")
    if absent := [label for label in report.labels if label.strip().casefold() in MISSING]:
        counts = ", ".join(f"{label!r} ({report.labels[label]:,})" for label in absent)
        found.append(f"Labels that look like a missing value: {counts}.")
    if single := [label for label, count in report.labels.items() if count == 1]:
        found.append(f"{len(single)} labels have one example: {_some(single)}.")
    if len(report.labels) == 1 and report.examples > 1 and not report.has_boxes:
        found.append(f"There is only one label, {next(iter(report.labels))!r}: a classifier needs at least two.")
    if len(report.labels) >= MOST_LABELS:
        found.append(f"There are {MOST_LABELS:,} labels or more; is the right column the label?")
    elif report.majority and len(report.labels) > 1 and report.majority[1] >= 0.9:
        found.append(f"{report.majority[1]:.1%} have the label {report.majority[0]!r}; accuracy alone is misleading.")
    for label, (count, where) in list(report.unknown_labels.items())[:10]:
        found.append(f"Unknown label {label!r}: {count:,} times, first at {where}.")
    for name, (count, where) in report.empty.items():
        found.append(f"{name} is empty in {count:,} examples, first at {where}.")
    for problem, (count, where) in report.box_problems.items():
        found.append(f"{count:,} {problem}, first at {where}.")
    for part, over in report.overlong.items():
        found.append(
            f"{part}: {over.count:,} examples ({over.share:.1%}) are longer than {over.limit:,} {unit(part)} and would "
            f"be cut; the longest has {over.longest:,} at {over.where}."
        )
    if report.duplicates:
        found.append(f"{about}{report.duplicates:,} examples repeat an earlier input.".capitalize())
    if report.contradictions:
        found.append(f"{about}{report.contradictions:,} inputs occur with different labels.".capitalize())
    if report.overlap:
        share = report.overlap / max(1, report.held_out)
        found.append(f"{about}{report.overlap:,} held-out examples ({share:.1%}) are also in training.".capitalize())
    return found


def _some(items: Sequence[str]) -> str:
    return ", ".join(map(repr, items[:10])) + (" …" if len(items) > 10 else "")
