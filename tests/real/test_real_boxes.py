"""The blood-cell pictures (BCCD): the official split, and the boxes that are wrong."""

from pathlib import Path

from headway.data.check import check
from headway.data.dataset import open_files


def test_the_official_split_and_the_boxes_of_no_area(real_data: Path) -> None:
    data = open_files(real_data / "data" / "bccd", fields=("image", "boxes"), columns={})
    assert [len(list(part())) for part in (data.train, data.valid, data.test)] == [205, 87, 72]
    report = check(data.train(), held_out=data.valid())
    assert set(report.labels) == {"RBC", "WBC", "Platelets"} and not report.unknown_labels
    assert report.duplicates == report.overlap == 0
    no_area = "boxes have no area and are left out"
    assert {problem: count for problem, (count, _) in report.box_problems.items()} == {no_area: 2}, report.box_problems
