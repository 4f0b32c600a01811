"""The check of a data set: counts and locations."""

import json

import pytest

from headway.data.check import DuplicateCounter, check
from headway.data.read import read
from headway.data.row import Row
from headway.data.similar_labels import similar_labels, spelled


def rows(*pairs):
    return [Row({"text": text, "label": label}, f"f:{line}") for line, (text, label) in enumerate(pairs, 1)]


def words(row):
    return {"text": len(row.fields["text"].split())}


def test_labels_near_duplicates_and_baseline():
    report = check(rows(("a", "pos"), ("b", "pos "), ("c", "Pos"), ("d", "neg"), ("e", "neg"), ("f", "neg")))
    assert report.labels == {"neg": 3, "pos": 1, "pos ": 1, "Pos": 1}
    assert report.near_duplicate_labels == [["Pos", "pos", "pos "]]
    assert report.majority == ("neg", 0.5)
    assert "3 labels have one example: 'pos', 'pos ', 'Pos'." in report.warnings
    assert any("'Pos' / 'pos' / 'pos '" in warning for warning in report.warnings)


def test_different_labels_are_not_near_duplicates():
    assert similar_labels(["+", "-", "C", "C++", "1", "-1", "a b"]) == []
    assert similar_labels(["not-spam", "not_spam"]) == [["not-spam", "not_spam"]]
    assert similar_labels(["naïve", "native", "σ", "o", "да", "на", "ё", "е", "ß", "b", "日本", "本日"]) == []


@pytest.mark.parametrize(
    "other",
    ["p\u043es", "\u0440os", "po\u200bs", "\u202epos", "pos\u200f", "POS", " pos", "pos\u00a0", "\uff50os", "p\u03bfs"],
)  # fmt: skip
def test_labels_that_look_alike_are_listed_with_their_code_points(other):
    report = check(rows(("a", "pos"), ("b", other), ("c", "neg")))
    assert report.near_duplicate_labels == [sorted(["pos", other])]
    [line] = [line for line in report.warnings if line.startswith("Labels that look alike")]
    assert all(f"U+{ord(letter):04X}" in line for letter in other if not letter.isascii())
    assert line.isprintable()


def test_accents_of_one_or_two_characters_look_alike():
    assert similar_labels(["caf\u00e9", "cafe\u0301"]) == [["cafe\u0301", "caf\u00e9"]]
    assert spelled("cafe\u0301") == "'cafe\u0301' (U+0301)" and spelled("x") == "'x'"


def test_imbalance_and_a_single_class_are_warnings():
    report = check(rows(*((f"t{i}", "a" if i else "b") for i in range(100))))
    assert any("99.0% have the label 'a'" in warning for warning in report.warnings)
    assert any("only one label" in warning for warning in check(rows(("x", "a"), ("y", "a"))).warnings)
    assert check(rows(("x", "a"), ("y", "b"), ("z", "a"), ("w", "b"))).warnings == []


def test_unknown_labels_at_evaluation():
    report = check(rows(("x", "a"), ("y", "new"), ("z", "new")), labels=["a", "b"])
    assert report.unknown_labels == {"new": (2, "f:2")}
    report = check(rows(("x", "a")), held_out=rows(("y", "a"), ("z", "odd")))
    assert report.unknown_labels == {"odd": (1, "f:2")}


def test_lengths_and_truncation():
    report = check(
        rows(*((f"{i} " + "w " * (i % 100), "ab"[i % 2]) for i in range(1000))), measure=words, limits={"text": 95}
    )
    found = report.lengths["text"]
    assert (found.min, found.median, found.p95, found.p99, found.max, found.where) == (1, 50, 95, 99, 100, "f:100")
    over = report.overlong["text"]
    assert (over.limit, over.count, over.share, over.longest, over.where) == (95, 50, 0.05, 100, "f:100")
    assert check(rows(("x", "a")), measure=words, limits={"text": 1}).overlong == {}


def test_duplicates_contradictions_and_overlap():
    train = rows(("same", "a"), (" same", "b"), ("same", "a"), ("other", "b"), ("last", "b"))
    report = check(train, held_out=rows(("other", "a"), ("fresh", "b")))
    assert (report.duplicates, report.contradictions, report.overlap, report.held_out) == (2, 1, 1, 2)
    assert "1 held-out examples (50.0%) are also in training." in report.warnings
    clean = check(rows(("x", "a"), ("y", "b")), held_out=rows(("z", "a")))
    assert (clean.duplicates, clean.contradictions, clean.overlap) == (0, 0, 0)


def test_many_hashes_are_sampled_within_a_bound():
    report = check(rows(*((f"text {i % 20_000}", "a") for i in range(30_000))), most_hashes=2000,
                   held_out=rows(*((f"text {i}", "a") for i in range(19_000, 23_000))))  # fmt: skip
    assert not report.exact
    assert report.duplicates == pytest.approx(10_000, rel=0.15)
    assert report.overlap == pytest.approx(1000, rel=0.4)
    assert any(warning.startswith("About ") for warning in report.warnings)


def test_the_duplicate_counter_is_bounded():
    seen = DuplicateCounter(100)
    for number in range(5000):
        seen.add(number * 0x9E3779B97F4A7C15 % 2**64, answer=0)
        assert len(seen._counts) <= 100


def test_empty_fields_are_counted_with_the_first_location():
    assert check(rows(("x", "a"), (" ", "b"), ("", "a"))).empty == {"text": (2, "f:2")}


def test_tags_are_labels():
    report = check([Row({"words": ["a", "b"], "tags": ["O", "B"]}, "f:1"), Row({"words": ["c"], "tags": ["O"]}, "f:4")])
    assert report.labels == {"O": 2, "B": 1}


def test_report_as_text_and_json(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("good\tpos\n\nbad\tneg\nworse\tneg\n")
    report = check(read(path, fields=("text", "label")), measure=words)
    report.extra["memory"] = "1 GB"
    lines = report.summary()
    assert lines[0] == "examples     3" and lines[1] == "skipped      1 blank lines"
    assert "baseline     always 'neg': accuracy 66.7%" in lines and "memory       1 GB" in lines
    found = json.loads(json.dumps(report.to_dict()))
    assert found["labels"] == {"neg": 2, "pos": 1} and found["majority"] == {
        "label": "neg",
        "share": pytest.approx(2 / 3),
    }
    assert found["lengths"]["text"]["max"] == 1 and found["skipped"] == {"blank lines": 1}


def test_no_examples():
    assert check([]).warnings == ["There are no examples."]
