"""TRUST 15–20: every kind of bad record, for every text task, is an error with file, line, field and remedy, or is
counted and reported before training."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.bad_files import (
    EVERY,
    FORMATS,
    WRITERS,
    check_output,
    example,
    line_of,
    opened,
    refusal,
    sound,
    write,
)

# ---------------------------------------------------------------------------------------- 15: JSON

JSONL = [task for task, kinds in FORMATS.items() if "jsonl" in kinds]
AT = 5  # the example that goes wrong
WRONG: dict[str, tuple[Callable[[str, dict[str, Any]], str], str]] = {
    "cut": (lambda field, row: json.dumps(row)[:-4], "bad JSON"),
    "a missing comma": (lambda field, row: json.dumps(row).replace(": ", " ", 1), "bad JSON"),
    "no object": (lambda field, row: json.dumps(list(row.values())), "expected a JSON object"),
    "two on a line": (lambda field, row: json.dumps(row) * 2, "bad JSON"),
    "a missing field": (lambda field, row: json.dumps(without(row, field)), '{field}: the field "{field}" is missing'),
    "null": (lambda field, row: json.dumps(row | {field: None}), "{field}: expected .*, found null"),
    "an object": (lambda field, row: json.dumps(row | {field: {"x": 1}}), "{field}: expected .*, found an object"),
    "a key twice": (
        lambda field, row: json.dumps(row)[:-1] + f', "{field}": "again"}}',
        "bad JSON: the key '{field}' is given twice",
    ),
    "half a surrogate": (lambda field, row: json.dumps(row | {field: "\ud800"}), "{field}: .*"),
    "too deep": (lambda field, row: "[" * 5000, "JSON nested too deeply|bad JSON"),
    "a huge number": (lambda field, row: '{"x": ' + "9" * 5000 + "}", "bad JSON"),
}


def without(row: dict[str, Any], field: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != field}


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("task", JSONL)
def test_bad_json_is_named_by_file_line_and_field(task: str, fault: str, tmp_path: Path) -> None:
    damage, pattern = WRONG[fault]
    lines = sound(task, "jsonl").splitlines()
    for field in example(task, AT):
        if fault == "null" and field == "label":  # a row without a label is skipped and named
            continue
        lines[AT] = damage(field, example(task, AT))
        message = refusal(task, write(tmp_path, "x.jsonl", "\n".join(lines)), tmp_path)
        assert re.search(rf"x\.jsonl:{AT + 1}: " + pattern.replace("{field}", field), message), message


@pytest.mark.parametrize("number", ["Infinity", "-Infinity"])
def test_a_label_that_is_no_number_is_refused(number: str, tmp_path: Path) -> None:
    lines = sound("classify", "jsonl").splitlines()
    lines[AT] = f'{{"text": "x", "label": {number}}}'
    assert f"x.jsonl:{AT + 1}: label: " in refusal("classify", write(tmp_path, "x.jsonl", "\n".join(lines)), tmp_path)


# ---------------------------------------------------------------------------------------- 16: tables

TABLES = [(task, kind) for task, kind in EVERY if kind in ("csv", "tsv")]


@pytest.mark.parametrize(("task", "kind"), TABLES)
def test_faults_of_tables(task: str, kind: str, tmp_path: Path) -> None:
    mark = "," if kind == "csv" else "\t"
    lines = sound(task, kind).splitlines()
    wide = len(lines[0].split(mark))
    cases = {
        "extra column": (lines[AT] + mark + "more", rf"x\.{kind}:{AT + 1}: {wide + 1} columns where {wide}"),
        "column gone": ("lonely", rf"x\.{kind}:{AT + 1}: 1 columns where {wide}" if wide > 1 else None),
    }
    if kind == "csv":
        cases["unclosed quote"] = ('"' + lines[AT], rf"x\.csv:{AT + 1}: a quote opened here is never closed")
        cases["carriage return"] = (
            lines[AT].replace(" ", "\r", 1),
            rf"x\.csv:{AT + 1}: a carriage return inside a cell",
        )
    for fault, (line, pattern) in cases.items():
        if pattern is not None:
            message = refusal(
                task, write(tmp_path, f"x.{kind}", "\n".join([*lines[:AT], line, *lines[AT + 1 :]])), tmp_path
            )
            assert re.search(pattern, message), (fault, message)
    header = write(tmp_path, f"x.{kind}", lines[0] + "\n")
    assert re.search(rf"x\.{kind}: .*no examples", refusal(task, header, tmp_path))


@pytest.mark.parametrize("task", ["translate", "summarize", "embed"])
def test_a_missing_column_is_named_with_those_there_are(task: str, tmp_path: Path) -> None:
    one = next(iter(example(task, 0)))
    path = write(tmp_path, "x.csv", f"{one}\n" + "".join(f'"text {i}"\n' for i in range(20)))
    assert re.search(rf'x\.csv: no column for "\w+"; the columns are "{one}"', refusal(task, path, tmp_path))


def test_labels_that_may_be_one_or_none_are_listed(tmp_path: Path) -> None:
    lines = sound("classify", "csv").splitlines()
    lines[4:9] = ["some text one,calm ", "some text two,Calm", "text three,", "some text four,none", "text five, "]
    report = check_output("classify", write(tmp_path, "x.csv", "\n".join(lines)), tmp_path)
    assert "Labels that look alike: 'Calm' / 'calm' / 'calm '" in report
    assert "Labels that look like a missing value: 'none' (1)" in report
    assert re.search(r"skipped      2 rows without a label \(.*x\.csv:7, 9\)", report), report
    assert "''" not in report


@pytest.mark.parametrize("label", ["null", "NaN", '""', '" "'])
def test_a_row_without_a_label_is_skipped_and_named(label: str, tmp_path: Path) -> None:
    lines = sound("classify", "jsonl").splitlines()
    lines[AT] = f'{{"text": "x", "label": {label}}}'
    path = write(tmp_path, "x.jsonl", "\n".join(lines))
    report = check_output("classify", path, tmp_path)
    assert re.search(r"skipped      1 rows without a label \(.*x\.jsonl:6\)", report), report
    assert check_output("classify", path, tmp_path / "again", valid=path).count("without a label (") == 1
    lists = [json.dumps({"text": f"text {i}", "label": ["a"] * (i % 2) + ["b"]}) for i in range(9)]
    lists += ['{"text": "none of them", "label": []}', '{"text": "nor here", "label": null}']
    several = opened("classify", write(tmp_path, "y.jsonl", "\n".join(lists)))
    assert len(list(several.test())) == 11  # an empty list of labels, both


# ---------------------------------------------------------------------------------------- 17: labels


def test_one_class_only_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", sound("classify", "csv").replace("loud", "calm"))
    assert "1 label, 'calm'; at least two are needed" in refusal("classify", path, tmp_path)
    tags = re.sub("B-(PER|DRINK)", "O", sound("tag", "conll"))
    assert "at least two are needed" in refusal("tag", write(tmp_path, "x.conll", tags), tmp_path)


def test_rare_and_common_labels_are_named_with_the_baseline(tmp_path: Path) -> None:
    rows = [{"text": f"message number {i}", "label": "common"} for i in range(98)]
    rows += [{"text": "an odd one", "label": "rare"}, {"text": "an odder one", "label": "rarer"}]
    both = write(tmp_path, "valid.jsonl", WRITERS["jsonl"](rows[:1]))
    report = check_output("classify", write(tmp_path, "x.jsonl", WRITERS["jsonl"](rows)), tmp_path, valid=both)
    assert "2 labels have one example: 'rare', 'rarer'" in report
    assert "98.0% have the label 'common'; accuracy alone is misleading" in report
    assert "baseline     always 'common': accuracy 98.0%" in report


@pytest.mark.parametrize(("task", "kind"), [("classify", "csv"), ("tag", "jsonl")])
def test_a_label_that_was_never_learned_is_named(task: str, kind: str, tmp_path: Path) -> None:
    train = write(tmp_path, f"x.{kind}", sound(task, kind))
    valid = write(tmp_path, f"v.{kind}", sound(task, kind).replace("loud", "mute").replace("B-DRINK", "B-FOOD"))
    report = check_output(task, train, tmp_path, valid=valid)
    assert re.search(rf"Unknown label '(mute|B-FOOD)': \d+ times, first at .*v\.{kind}:\d+", report), report


# ---------------------------------------------------------------------------------------- 18: parallel files


@pytest.mark.parametrize("task", ["translate", "summarize", "embed"])
def test_parallel_files_of_different_length_are_refused_with_both_counts(task: str, tmp_path: Path) -> None:
    one, two = (write(tmp_path, f"x.{end}", "".join(f"{end} {i}\n" for i in range(40))) for end in ("en", "de"))
    assert check_output(task, [one, two], tmp_path)
    two.write_text(two.read_text() + "one more\n")
    message = refusal(task, [one, two], tmp_path)
    assert f"{one} has 40 lines but {two} has 41" in message
    two.write_bytes("".join(f"é {i}\n" for i in range(40)).encode("latin-1"))
    assert re.search(r"x\.de:1: byte 0xe9", refusal(task, [one, two], tmp_path))


def test_a_blank_side_is_counted(tmp_path: Path) -> None:
    one = write(tmp_path, "x.en", "".join(f"en {i}\n" for i in range(40)))
    two = write(tmp_path, "x.de", "".join(f"de {i}\n" if i % 10 else "\n" for i in range(40)))
    assert re.search(
        r"target is empty in \d examples, first at .*x\.en:\d+", check_output("translate", [one, two], tmp_path)
    )


# ---------------------------------------------------------------------------------------- tags and answers


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("Ada", r"x\.conll:{n}: tags: 1 columns where 3 were expected"),
        ("Ada X B-PER B-PER", r"x\.conll:{n}: tags: 4 columns where 3 were expected"),
    ],
)
def test_conll_with_a_wrong_number_of_columns(line: str, pattern: str, tmp_path: Path) -> None:
    lines = sound("tag", "conll").splitlines()
    lines[11] = line
    message = refusal("tag", write(tmp_path, "x.conll", "\n".join(lines)), tmp_path)
    assert re.search(pattern.replace("{n}", "12"), message), message


def test_conll_with_an_empty_cell_and_json_with_too_few_tags(tmp_path: Path) -> None:
    tabbed = write(tmp_path, "x.conll", "Ada\tB-PER\nmet\tO\n\nBo\tB-PER\n\tO\n")
    assert "x.conll:5: column 1 is empty" in refusal("tag", tabbed, tmp_path)
    lines = sound("tag", "jsonl").splitlines()
    lines[AT] = json.dumps({"words": ["a", "b"], "tags": ["O"]})
    assert f"x.jsonl:{AT + 1}: tags: 1 tags for 2 words" in refusal(
        "tag", write(tmp_path, "x.jsonl", "\n".join(lines)), tmp_path
    )


ANSWERS: dict[str, tuple[Any, str]] = {
    "moved": ([{"text": "tea", "answer_start": 0}], "answers: 'tea' is not at character 0"),
    "beyond the end": ([{"text": "tea", "answer_start": 10**9}], "answers: 'tea' is not at character"),
    "before the start": ([{"text": "tea", "answer_start": -3}], "answers: 'tea' is not at character -3"),
    "a text for a number": ([{"text": "tea", "answer_start": "1"}], "answers: give each a text and a whole number"),
    "no start": ([{"text": "tea"}], "answers: give each a text and a whole number"),
    "a number for a text": ([{"text": 5, "answer_start": 1}], "answers: expected text, found a number"),
    "null": (None, "answers: expected a list of answers .* found null"),
    "a bare text": ("tea", "answers: expected a list of answers .* found text"),
    "uneven": ({"text": ["tea"], "answer_start": [1, 2]}, "answers: 1 texts but 2 starts"),
}


@pytest.mark.parametrize("fault", ANSWERS)
@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_answers_at_wrong_offsets(fault: str, kind: str, tmp_path: Path) -> None:
    answers, pattern = ANSWERS[fault]
    rows = [example("answer", i) for i in range(40)]
    for i in range(12, 24):
        rows[i]["answers"] = answers
    message = refusal("answer", write(tmp_path, f"x.{kind}", WRITERS[kind](rows)), tmp_path)
    first, last = line_of(kind, 12), line_of(kind, 23)
    place = re.search(rf"x\.{kind}:(\d+): {pattern}", message)
    assert place and first <= int(place[1]) <= last, message


def test_a_squad_file_without_its_parts(tmp_path: Path) -> None:
    for broken, pattern in [
        ('{"data": [\n{"paragraphs": 3}\n]}', r"x\.json:2: paragraphs: expected a list, found a number"),
        ('{"data": [\n{"paragraphs": [{"qas": [{"question": "q"}]}]}\n]}', r"x\.json:2: context: expected text"),
        ('{"data": [\n{"paragraphs": [{"context": "c"}]}\n]}', r"x\.json:2: qas: expected a list, found null"),
        ('{"data": [\n{"paragraphs": []}\n]}', r"x\.json: the file has no examples"),
        ('{"data": []}', r"x\.json: the file has no examples"),
        ('{"version": 1}', r'x\.json: .*"data" array|no column for'),
    ]:  # fmt: skip
        message = refusal("answer", write(tmp_path, "x.json", broken), tmp_path)
        assert re.search(pattern, message), message


# ---------------------------------------------------------------------------------------- 19, 20: length and overlap

LONG = {
    "translate": "source",
    "summarize": "source",
    "classify": "text",
    "tag": "words",
    "answer": "question",
    "embed": "a",
}


@pytest.mark.parametrize("task", LONG)
def test_what_is_too_long_is_counted_before_training_or_refused(task: str, tmp_path: Path) -> None:
    rows = [example(task, i) for i in range(40)]
    for i in range(10, 30):
        text = f"guest {i} " + "wants tea and milk " * (200 + i)
        rows[i][LONG[task]] = text.split() if task == "tag" else text
        if task == "tag":
            rows[i]["tags"] = ["O"] * len(rows[i]["words"])
    path = write(tmp_path, "x.jsonl", WRITERS["jsonl"](rows))
    report = check_output(task, path, tmp_path, overflow="truncate")
    part = LONG[task]
    assert re.search(rf"{part}: \d+ examples \(\d+\.\d%\) are longer than [\d,]+ tokens and would be cut; the longest "
                     r"has [\d,]+ at .*x\.jsonl:(2\d|30)\.", report), report  # fmt: skip
    assert re.search(rf"{part}: \d+ of \d+ cut to \d+ tokens .*the longest had \d+ \(.*x\.jsonl:(2\d|30)\)", report), (
        report
    )
    message = refusal(task, path, tmp_path / "again", overflow="error")
    assert re.search(rf"x\.jsonl:\d+: {part} has \d+ tokens, the model takes \d+; shorten it", message), message


@pytest.mark.parametrize("task", [task for task in JSONL if task != "generate"])
def test_repeated_and_shared_examples_are_counted(task: str, tmp_path: Path) -> None:
    text = sound(task, "jsonl")
    path = write(tmp_path, "x.jsonl", text + text)
    valid = write(tmp_path, "v.jsonl", sound(task, "jsonl", count=8))
    report = check_output(task, path, tmp_path, valid=valid)
    assert "40 examples repeat an earlier input" in report
    assert "8 held-out examples (100.0%) are also in training" in report


def test_contradictions_are_counted(tmp_path: Path) -> None:
    text = sound("classify", "csv") + sound("classify", "csv").partition("\n")[2].replace("loud", "calm")
    valid = write(tmp_path, "v.csv", sound("classify", "csv", count=3))
    report = check_output("classify", write(tmp_path, "x.csv", text), tmp_path, valid=valid)
    assert "20 inputs occur with different labels" in report


def test_names_from_a_file_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = write(tmp_path, "x.jsonl", json.dumps({"\x1b[2J\x1b]0;owned\x07": "a", "b": "c", "d": "e"}) + "\n")
    message = refusal("translate", path, tmp_path)
    assert "\x1b" not in message and "\\x1b[2J" in message
