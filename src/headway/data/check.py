"""Checks a data set before training: labels, lengths, duplicates, leakage. One pass, bounded memory."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from headway.data.report import Lengths, Overlong, Report
from headway.data.row import Row
from headway.data.split import input_hash

MOST_LABELS = 10_000
MISSING = {"", "nan", "null", "none", "n/a", "na", "?"}  # how tools write a missing value
Measure = Callable[[Row], Mapping[str, int]]


def check(
    rows: Iterable[Row], *, held_out: Iterable[Row] = (), labels: Sequence[str] | None = None,
    measure: Measure | None = None, limits: Mapping[str, int] | None = None, most_hashes: int = 1_000_000,
) -> Report:  # fmt: skip
    """Reads all rows and returns a report.

    `held_out` rows are compared with `rows` to find overlap and unknown labels. `labels` are those of an existing
    model, if there is one. `measure` returns a row's length in tokens by part, `limits` the longest that fits.
    """
    report, seen = Report(), DuplicateCounter(most_hashes)
    sizes = _LengthHistograms(measure, limits or {})
    found: Counter[str] = Counter()
    unknown = _UnknownLabels(labels)
    characters = [0, 0]
    for row in rows:
        report.examples += 1
        characters[0] += _running_characters(row)
        for name, value in row.fields.items():
            if value is None or (isinstance(value, str) and not value.strip()) or (name == "words" and not value):
                count, where = report.empty.get(name, (0, row.where))
                report.empty[name] = (count + 1, where)
        for label in _labels_of(row):
            if label in found or len(found) < MOST_LABELS:
                found[label] += 1
            unknown.add(label, row)
        seen.add(input_hash(row), answer=_answer(row))
        sizes.add(row)
    report.skipped = dict(getattr(rows, "skipped", {}))
    report.labels = dict(found.most_common())
    report.duplicates, report.contradictions, report.exact = seen.repeats(), seen.contradictions(), seen.exact
    unknown.known = unknown.known if labels is not None else set(found)
    for row in held_out:
        report.held_out += 1
        characters[1] += _running_characters(row)
        report.overlap += input_hash(row) in seen
        for label in _labels_of(row):
            unknown.add(label, row)
    if not seen.exact:
        report.overlap *= seen.step
    report.unknown_labels = unknown.found
    report.near_duplicate_labels = near_duplicates(found)
    report.lengths, report.overlong = sizes.lengths(), sizes.overlong()
    report.characters = characters[0], characters[1]
    report.warnings = _warnings(report)
    return report


def _running_characters(row: Row) -> int:
    """Characters of a row of running text; 0 for other rows."""
    return len(row.fields["text"]) if row.fields.get("running") else 0


def near_duplicates(labels: Iterable[str]) -> list[list[str]]:
    """Labels that differ only in case, space, hyphen or underscore."""
    groups: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        groups[re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", label.casefold().strip())].append(label)
    return [sorted(group) for group in groups.values() if len(group) > 1]


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


class _LengthHistograms:
    """Histograms of lengths by part."""

    def __init__(self, measure: Measure | None, limits: Mapping[str, int]) -> None:
        self.measure, self.limits = measure, limits
        self.histograms: dict[str, Counter[int]] = defaultdict(Counter)
        self.longest: dict[str, tuple[int, str]] = {}

    def add(self, row: Row) -> None:
        if self.measure is None:
            return
        for part, length in self.measure(row).items():
            self.histograms[part][length] += 1
            if length > self.longest.get(part, (-1, ""))[0]:
                self.longest[part] = (length, row.where)

    def lengths(self) -> dict[str, Lengths]:
        return {part: _lengths(counts, self.longest[part][1]) for part, counts in self.histograms.items()}

    def overlong(self) -> dict[str, Overlong]:
        result = {}
        for part, limit in self.limits.items():
            counts = self.histograms.get(part, Counter())
            if over := sum(count for length, count in counts.items() if length > limit):
                result[part] = Overlong(limit, over, over / counts.total(), *self.longest[part])
        return result


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
    return chain([row.fields["label"]] if "label" in row.fields else [], row.fields.get("tags", ()))


def _answer(row: Row) -> int:
    answer: Any = row.fields.get("label", tuple(row.fields.get("tags", ())))
    return hash(answer) & 0x7FFFFFFF


def _warnings(report: Report) -> list[str]:
    about = "about " if not report.exact else ""
    found = []
    if not report.examples:
        found.append("There are no examples.")
    for group in report.near_duplicate_labels:
        found.append("Labels that differ only in spelling: " + " / ".join(map(repr, group)) + ".")
    if absent := [label for label in report.labels if label.strip().casefold() in MISSING]:
        counts = ", ".join(f"{label!r} ({report.labels[label]:,})" for label in absent)
        found.append(f"Labels that look like a missing value: {counts}.")
    if single := [label for label, count in report.labels.items() if count == 1]:
        found.append(f"{len(single)} labels have one example: {_some(single)}.")
    if len(report.labels) == 1 and report.examples > 1:
        found.append(f"There is only one label, {next(iter(report.labels))!r}: a classifier needs at least two.")
    if len(report.labels) >= MOST_LABELS:
        found.append(f"There are {MOST_LABELS:,} labels or more; is the right column the label?")
    elif report.majority and len(report.labels) > 1 and report.majority[1] >= 0.9:
        found.append(f"{report.majority[1]:.1%} have the label {report.majority[0]!r}; accuracy alone is misleading.")
    for label, (count, where) in list(report.unknown_labels.items())[:10]:
        found.append(f"Unknown label {label!r}: {count:,} times, first at {where}.")
    for name, (count, where) in report.empty.items():
        found.append(f"{name} is empty in {count:,} examples, first at {where}.")
    for part, over in report.overlong.items():
        found.append(
            f"{part}: {over.count:,} examples ({over.share:.1%}) are longer than {over.limit:,} tokens and would be "
            f"cut; the longest has {over.longest:,} at {over.where}."
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
