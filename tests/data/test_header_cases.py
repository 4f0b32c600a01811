"""Headers of sixty small files: found better than csv.Sniffer finds them, also in the half that was not looked at."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from support.header_cases import TUNED, UNSEEN

from headway.data.dataset import open_files
from headway.data.header import has_header
from headway.data.read import detect_layout

Case = tuple[tuple[str, ...], bool, str]


def written(case: Case, folder: Path) -> Path:
    path = folder / ("x.tsv" if "\t" in case[2] else "x.csv")
    path.write_text(case[2].replace("¶", "\n") + "\n", encoding="utf-8")
    return path


def sniffed(case: Case) -> bool | None:
    try:
        return csv.Sniffer().has_header(case[2].replace("¶", "\n"))
    except csv.Error:  # no separator found
        return None


@pytest.mark.parametrize(("cases", "least"), [(TUNED, 29), (UNSEEN, 29)])
def test_headers_of_files_as_people_keep_them(cases: list[Case], least: int, tmp_path: Path) -> None:
    def right(detect: Callable[[Case], bool | None]) -> int:
        return sum(detect(case) == case[1] for case in cases)

    ours = right(lambda case: detect_layout(written(case, tmp_path), case[0]).header)
    assert ours >= least
    assert ours >= right(sniffed) + 5  # 22 and 19 of 30


@pytest.mark.parametrize("case", [case for case in (*TUNED, *UNSEEN) if case[1]])
def test_without_its_header_none_is_found(case: Case) -> None:
    lines = case[2].split("¶")
    mark = max(",;\t|", key=lambda mark: min(line.count(mark) for line in lines))
    rows = list(csv.reader(lines[1:], delimiter=mark)) if mark in lines[0] else [[line] for line in lines[1:]]
    assert not has_header(rows, case[0], chosen={})


@pytest.mark.parametrize("case", [*TUNED, *UNSEEN])
def test_every_row_but_the_header_is_read(case: Case, tmp_path: Path) -> None:
    """Also by the data set that `check` and `train` open."""
    data = open_files(written(case, tmp_path), fields=case[0], columns={})
    assert len(list(data.test())) == case[2].count("¶") + 1 - case[1]
