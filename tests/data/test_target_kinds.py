"""Which labels are labels, numbers, or lists; the detection is conservative."""

from typing import Any

import pytest

from headway.data.target_kinds import are_lists, best_delimiter, detect, parse_number, split_labels
from headway.errors import DataError


def found(labels: list[Any]) -> dict[Any, tuple[int, str]]:
    out: dict[Any, tuple[int, str]] = {}
    for number, label in enumerate(labels, 1):
        count, where = out.get(label, (0, f"x.csv:{number}"))
        out[label] = (count + 1, where)
    return out


LISTS = ["a", "b", "a{0}b", "c", "b{0}c", "a{0}c", "a{0}b{0}c"]


@pytest.mark.parametrize(
    ("labels", "kind", "delimiter"),
    [
        (["0", "1"] * 50, "labels", ""),
        (["1", "2", "3", "4", "5"] * 20, "labels", ""),
        (["1.0", "2.0", "3.0"] * 20, "labels", ""),
        (["0.5", "1.5"] * 20, "labels", ""),
        ([str(i) for i in range(150)] * 4, "labels", ""),  # numbers of classes
        ([str(i * 10) for i in range(27)] * 30, "labels", ""),  # codes of classes
        ([f"{i:05}" for i in range(200)], "labels", ""),  # codes with zeros in front
        ([f"v{i}" for i in range(200)], "labels", ""),
        (["pos", "neg", "3.5", "4.5", "5.5"] * 9, "labels", ""),
        ([f"{i / 7:.3f}" for i in range(100)], "regression", ""),
        (["0.5", "1", "1.5", "2"] * 30, "regression", ""),
        (["-1.5e3", "2", "+3.25", ".5"], "regression", ""),
        ([str(i * i) for i in range(60)] * 5, "regression", ""),
        ([str(1000 + 7 * i) for i in range(12)], "regression", ""),  # few, but hardly one twice
        ([each.format(";") for each in LISTS] * 3, "multilabel", ";"),
        ([each.format("|") for each in LISTS] * 3, "multilabel", "|"),
        ([each.format(", ") for each in LISTS] * 3, "multilabel", ","),
        (["", *[each.format(";") for each in LISTS]], "multilabel", ";"),
        (["2,5,9", "27", "2", "5", "9,27", "2,27"] * 3, "multilabel", ","),
        (["Home, Garden", "Sports", "Books, Films & TV", "Toys"] * 9, "labels", ""),
        (["Books|Novels", "Books|History", "Toys|Games"] * 9, "labels", ""),
        (["yes; certainly", "no; never"] * 9, "labels", ""),
        ([("a", "b"), ("a",), ()], "multilabel", ""),
        (['["a", "b"]', '["c"]', "[]"], "multilabel", ""),
    ],
)  # fmt: skip
def test_detection(labels: list[Any], kind: str, delimiter: str) -> None:
    one = detect(found(labels))
    assert (one.kind, one.delimiter) == (kind, delimiter)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([*(f"{i}.5" for i in range(50)), "nan"], "x.csv:51: label: it is missing, while 50 of 51 labels are numbers"),
        ([*(f"{i}.5" for i in range(50)), ""], "x.csv:51: label: it is missing"),
        ([*(f"{i}.5" for i in range(50)), "many"], "x.csv:51: label: it is 'many', which is not a number"),
        ([*(f"{i}.5" for i in range(50)), "1e999"], "x.csv:51: label: it is '1e999', which is not a number"),
        (
            ["3,5", "4.25", "2,75", "3"],
            r"x.csv:2 \('4.25'\): label: decimals with a point, and x.csv:1 \('3,5'\), x.csv:3",
        ),
        (["1,200", "640", "2,450"], r"x.csv:1 \('1,200'\), x.csv:3 .*: a comma before three digits"),
        (["1,200", "640", "2.5"], r"x.csv:3 \('2.5'\): label: decimals with a point, and x.csv:1"),
        ([("0.5", "1.5")], "x.csv:1: label: a list of numbers"),
    ],
)
def test_what_is_neither_is_refused_with_its_place(labels: list[Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        detect(found(labels))


@pytest.mark.parametrize(
    ("labels", "mark", "values"),
    [
        (["3,5", "4,25", "2,75", "3"], ",", [3.5, 4.25, 2.75, 3.0]),
        (["1.234,50", "0,5", "12", "1.234.567,0"], ",", [1234.5, 0.5, 12.0, 1234567.0]),
        (["1,234", "0,5", "2,25"], ",", [1.234, 0.5, 2.25]),  # the others have decimals
        (["1,234.50", "0.5", "12", "1,234"], ".", [1234.5, 0.5, 12.0, 1234.0]),
        (["0.5", "1.5", "2.25"], "", [0.5, 1.5, 2.25]),
    ],
)
def test_the_mark_of_decimals_is_found(labels: list[str], mark: str, values: list[float]) -> None:
    one = detect(found(labels))
    assert (one.kind, one.decimal) == ("regression", mark)
    assert [parse_number(label, mark) for label in labels] == values


def test_a_mark_that_is_given_decides() -> None:
    unclear = found(["1,200", "640", "2,450"])
    assert [detect(unclear, decimal=mark).kind for mark in ",."] == ["regression", "labels"]  # 2.45 and 2450: few
    assert parse_number("1,200", ",") == 1.2 and parse_number("1,200", ".") == 1200
    assert [parse_number(text, ",") for text in ("12.5", "1.23", "", ",", "1,2,3")] == [None] * 5


def test_numbers_and_lists_are_parsed() -> None:
    assert [parse_number(text) for text in (" 3.5 ", "-2", "1e3", "")] == [3.5, -2.0, 1000.0, None]
    assert all(parse_number(text) is None for text in ("nan", "inf", "1_000", "1,5", "0x10", "3.5 stars", "٣٫٥"))
    for text in ("a; b ;;a", "['a', 'b']", '["a", "b"]', "[a, b]"):
        assert split_labels(text, ";") == ["a", "b"]
    assert split_labels("a;b", "") == ["a;b"] and split_labels("", ";") == [] and split_labels(["x", ""], "") == ["x"]
    assert split_labels("[3, 10]", "") == ["3", "10"]
    assert best_delimiter(found(["a|b", "c|d", "x;y"])) == "|" and best_delimiter(found(["a"])) == ""


def test_lists_of_labels_are_told_from_decimal_commas() -> None:
    assert are_lists([each.format(",") for each in LISTS]) and are_lists(['["a"]', "[]"])
    assert not are_lists(["3,5", "4,5", "3,4", "4", "3", "5,3"]) and not are_lists(["a", "b"])
