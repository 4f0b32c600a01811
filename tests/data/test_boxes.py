"""Pictures with boxes: the layouts of annotation tools, their splits, and what is wrong with single boxes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from headway.data.boxes import Box, box_parts, box_row, problems, usable
from headway.data.check import check
from headway.data.dataset import Dataset, open_files
from headway.errors import DataError

CAT, DOG = Box("cat", 10, 5, 50, 35), Box("dog", 60, 20, 90, 60)


def picture(path: Path, shade: int = 0, size: tuple[int, int] = (100, 80), **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade, shade, shade)).save(path, **more)
    return path


def voc_xml(path: Path, boxes: Sequence[Box], *, size: str = "<width>100</width><height>80</height>") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    objects = "".join(
        f"<object><name>{box.label}</name><difficult>{int(box.crowd)}</difficult><bndbox><xmin>{box.left}</xmin>"
        f"<ymin>{box.top}</ymin><xmax>{box.right}</xmax><ymax>{box.bottom}</ymax></bndbox></object>"
        for box in boxes
    )
    path.write_text(f"<annotation><filename>{path.stem}.jpg</filename><size>{size}</size>{objects}</annotation>")
    return path


def voc(folder: Path, parts: dict[str, int]) -> Path:
    shade = 0
    for part, count in parts.items():
        names = [f"{part}{number}" for number in range(count)]
        for name in names:
            shade += 1
            picture(folder / "JPEGImages" / f"{name}.jpg", shade)
            voc_xml(folder / "Annotations" / f"{name}.xml", [CAT, DOG])
        (folder / "ImageSets" / "Main").mkdir(parents=True, exist_ok=True)
        (folder / "ImageSets" / "Main" / f"{part}.txt").write_text("\n".join(names) + "\n")
    return folder


def opened(path: Path) -> Dataset:
    return open_files(path, fields=("image", "boxes"), columns={})


def counts(data: Dataset) -> tuple[int, int, int]:
    return len(list(data.train())), len(list(data.valid())), len(list(data.test()))


def coco_json(path: Path, names: Sequence[str], **replaced: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "images": [{"id": 7 + i, "file_name": name, "width": 100, "height": 80} for i, name in enumerate(names)],
        "categories": [{"id": 3, "name": "cat"}, {"id": 18, "name": "dog"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 3, "bbox": [10, 5, 40, 30], "iscrowd": 0, "area": 1200},
            {"id": 2, "image_id": 7, "category_id": 18, "bbox": [60, 20, 30, 40]},
        ],
    }
    path.write_text(json.dumps(content | replaced))
    return path


def yolo(folder: Path, *, images: str = "images/train", labels: str = "labels/train", shade: int = 1) -> Path:
    picture(folder / images / "a.png", shade)
    (folder / labels).mkdir(parents=True, exist_ok=True)
    (folder / labels / "a.txt").write_text("0 0.3 0.25 0.4 0.375\n1 0.75 0.5 0.3 0.5\n")
    return folder


# ---------------------------------------------------------------------------------------- layouts


def test_voc_with_its_official_splits(tmp_path: Path) -> None:
    folder = voc(tmp_path, {"train": 3, "val": 2, "test": 1, "trainval": 0})
    data = opened(folder)
    assert counts(data) == (3, 2, 1)
    row = next(data.train())
    assert row.fields == {
        "image": folder / "JPEGImages" / "train0.jpg",
        "boxes": [CAT, DOG],
        "size": (100, 80),
    } and row.where.endswith("train0.xml")
    assert counts(opened(voc(tmp_path / "VOCdevkit" / "VOC2012", {"trainval": 4, "test": 1}).parent))[2] == 1


def test_voc_beside_the_pictures(tmp_path: Path) -> None:
    for part, count in (("train", 3), ("valid", 1)):
        for number in range(count):
            name = tmp_path / part / f"{part}{number}"
            picture(name.with_suffix(".jpeg"), number)
            voc_xml(name.with_suffix(".xml"), [DOG._replace(crowd=True)], size="")
    picture(tmp_path / "train" / "extra.png")
    data = opened(tmp_path)
    assert counts(data)[:2] == (3, 1)
    row = next(data.train())
    assert row.fields["size"] == (100, 80) and row.fields["boxes"] == [DOG._replace(crowd=True)]
    assert dict(data.train().skipped) == {"pictures without an annotation file": 1}
    assert counts(opened(tmp_path / "train"))[2] == 3


@pytest.mark.parametrize("layout", ["annotations/instances_train2017.json", "train/_annotations.coco.json", "b.json"])
def test_coco(tmp_path: Path, layout: str) -> None:
    place = {"annotations": "train2017", "train": "train"}.get(layout.split("/")[0], "images")
    file = coco_json(tmp_path / layout, ["a.jpg", "b.jpg", "gone.jpg"])
    for number, name in enumerate("ab"):
        picture(tmp_path / place / f"{name}.jpg", number)
    (rows,) = box_parts(tmp_path).values()
    assert [row.fields["boxes"] for row in rows.rows] == [[CAT, DOG], []]
    assert rows.skipped == {"pictures that the file names but that are not there": 1}
    assert rows.layout == "COCO boxes" and rows.rows[0].where == f"{file}:7"
    assert len(box_parts(file)["train"].rows) == 2


def test_coco_parts_by_name(tmp_path: Path) -> None:
    for part in ("train", "val"):
        picture(tmp_path / f"{part}2017" / "a.jpg", len(part))
        coco_json(tmp_path / "annotations" / f"instances_{part}2017.json", ["a.jpg"])
        coco_json(tmp_path / "annotations" / f"captions_{part}2017.json", ["nothing.jpg"])
    assert set(box_parts(tmp_path)) == {"train", "valid"}


@pytest.mark.parametrize("config", [None, "data.yaml", "classes.txt"])
@pytest.mark.parametrize("layout", [("images/{}", "labels/{}"), ("{}/images", "{}/labels"), ("{}", "{}")])
def test_yolo(tmp_path: Path, layout: tuple[str, str], config: str | None) -> None:
    for shade, part in enumerate(("train", "val")):
        yolo(tmp_path, images=layout[0].format(part), labels=layout[1].format(part), shade=shade)
        picture(tmp_path / layout[0].format(part) / "empty.png", 10 + shade)
    if config == "data.yaml":
        places = f"train: ../{layout[0]}\nval: {layout[0]}\n".format("train", "val")
        (tmp_path / config).write_text(f"# made by hand\nnc: 2\nnames: ['cat', 'dog']\n{places}")
    elif config is not None:
        (tmp_path / config).write_text("cat\ndog\n")
    parts = box_parts(tmp_path)
    assert set(parts) == {"train", "valid"}
    boxes, nothing = (row.fields["boxes"] for row in parts["train"].rows)
    names = ("0", "1") if config is None else ("cat", "dog")
    assert [box.label for box in boxes] == list(names) and nothing == []
    assert list(boxes[0][1:5]) == pytest.approx(CAT[1:5]) and list(boxes[1][1:5]) == pytest.approx(DOG[1:5])


def test_yolo_polygons_and_names_by_number(tmp_path: Path) -> None:
    yolo(tmp_path, images="images", labels="labels")
    (tmp_path / "labels" / "a.txt").write_text("1 0.6 0.25 0.9 0.5 0.7 0.75\n9 .5 .5 .1 .1\n")
    (tmp_path / "data.yaml").write_text("names:\n  0: cat\n  1: dog\n")
    (row,) = box_parts(tmp_path)["train"].rows
    assert row.fields["boxes"][0].label == "dog"
    assert list(row.fields["boxes"][0][1:5]) == pytest.approx(list(DOG[1:5]))
    assert list(problems(row)) == ["boxes have an unknown class, one without a name, and are left out"]
    assert [box.label for box in usable(row)] == ["dog"]


def test_a_picture_turned_by_its_exif_tag(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    yolo(tmp_path)
    (tmp_path / "images/train/a.png").unlink()
    picture(tmp_path / "images/train/a.jpg", size=(100, 80), exif=exif)
    assert box_parts(tmp_path)["train"].rows[0].fields["size"] == (80, 100)


# ---------------------------------------------------------------------------------------- boxes


def test_what_is_wrong_with_a_box() -> None:
    bad = {
        "boxes have no area and are left out": [Box("a", 5, 5, 5, 9), Box("a", 9, 9, 5, 5)],
        "boxes are outside the picture and are left out": [Box("a", 100, 0, 120, 9), Box("a", 0, -9, 5, 0)],
        "boxes reach past the picture's edge and are cut there": [Box("a", -3, 0, 50, 50)],
        "boxes are given twice and are used once": [CAT],
        "boxes have an unknown class, one without a name, and are left out": [Box("", 1, 1, 5, 5)],
    }
    row = box_row(Path("x"), [CAT, *(box for each in bad.values() for box in each)], (100, 80), where="x")
    assert list(problems(row)) == [problem for problem, each in bad.items() for _ in each]
    assert usable(row) == [CAT, Box("a", 0, 0, 50, 50)]
    assert list(problems(box_row(Path("x"), [], (9, 9), where="x"))) == [
        "pictures have no boxes (they teach what is background)"
    ]
    assert not list(problems(box_row(Path("x"), [Box("a", -0.5, 0, 100.5, 80)], (100, 80), where="x")))


def test_the_report(tmp_path: Path) -> None:
    folder = voc(tmp_path, {"train": 3, "val": 1})
    voc_xml(folder / "Annotations" / "train1.xml", [CAT, Box("cat", 3, 3, 3, 3)])
    voc_xml(folder / "Annotations" / "val0.xml", [Box("Dog", 3, 3, 9, 9)])
    (folder / "JPEGImages" / "train2.jpg").write_bytes((folder / "JPEGImages" / "train0.jpg").read_bytes())
    data = opened(folder)
    report = check(data.train(), held_out=data.valid())
    assert report.labels == {"cat": 3, "dog": 2} and report.majority is None and report.duplicates == 1
    assert report.box_problems == {
        "boxes have no area and are left out": (1, str(folder / "Annotations" / "train1.xml"))
    }
    text = "\n".join(report.summary())
    assert f"1 boxes have no area and are left out, first at {folder}" in text and "Unknown label 'Dog'" in text
    assert "baseline" not in text


# ---------------------------------------------------------------------------------------- files from outside


def test_xml_that_expands_without_end_is_refused(tmp_path: Path) -> None:
    picture(tmp_path / "a.jpg")
    levels = "".join(f'<!ENTITY l{i + 1} "{f"&l{i};" * 10}">' for i in range(9))
    bomb = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "lol">{levels}]><annotation>&l9;</annotation>'
    for content, message in (
        (bomb, "document type .* is refused"),
        ('<!DOCTYPE x SYSTEM "http://localhost/x"><annotation/>', "document type .* is refused"),
        ("<annotation><object>", r"a\.xml:1: not XML \(no element found\)"),
        ("<a>" * 50 + "</a>" * 50, "nested more than 20 deep"),
        ('<?xml version="1.0" encoding="nonsense"?><annotation/>', "not XML"),
        ("", "not XML"),
    ):
        (tmp_path / "a.xml").write_text(content)
        with pytest.raises(DataError, match=message):
            box_parts(tmp_path)


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        ([Box("cat", float("nan"), 0, 1, 1)], r"a\.xml: object 1: xmin: expected a number, found 'nan'"),
        ([CAT, Box("", 1, 1, 2, 2)], "object 2: name: the box has no class"),
        ([Box("cat", "x", 0, 1, 1)], "expected a number"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_voc_object_is_named(tmp_path: Path, boxes: list[Box], message: str) -> None:
    picture(tmp_path / "a.jpg")
    voc_xml(tmp_path / "a.xml", boxes)
    with pytest.raises(DataError, match=message):
        box_parts(tmp_path)


def test_an_annotation_without_its_picture(tmp_path: Path) -> None:
    voc_xml(tmp_path / "a.xml", [CAT])
    with pytest.raises(DataError, match=r"a\.xml: its picture is not there: no a\.jpg"):
        box_parts(tmp_path)
    (tmp_path / "b").mkdir()
    folder = voc(tmp_path / "b", {"train": 1})
    (folder / "ImageSets" / "Main" / "train.txt").write_text("train0\n../secret\n")
    with pytest.raises(DataError, match=r"train\.txt:2: .*no such file"):
        box_parts(folder)


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"annotations": [{"image_id": 7, "category_id": 3, "bbox": [1, 2, 3]}]}, r"annotations\[0\]: bbox: expected"),
        ({"annotations": [{"image_id": 99, "category_id": 3, "bbox": [1, 2, 3, 4]}]}, "there is no picture 99"),
        ({"annotations": [{"image_id": "7", "category_id": 3, "bbox": [1, 2, 3, 4]}]}, "expected numbers for"),
        ({"annotations": [{"image_id": 7, "category_id": 3, "bbox": [10**400, 2, 3, 4]}]}, "expected a number"),
        ({"annotations": None}, "annotations: expected a list"),
        ({"categories": [{"name": "cat"}]}, r"categories\[0\]: expected id and name"),
        ({"images": [{"id": 7, "file_name": "a.jpg", "width": 0, "height": 1}]}, r"images.0.\.width: expected"),
        ({"images": [{"id": 7, "file_name": "\0", "width": 1, "height": 1}]}, "none of its pictures is there"),
        ({"images": [{"id": 7, "file_name": "a.jpg", "width": 1, "height": 1}] * 2}, "the id 7 is given twice"),
    ],
)
def test_a_bad_coco_file_is_named(tmp_path: Path, replaced: dict[str, Any], message: str) -> None:
    picture(tmp_path / "a.jpg")
    with pytest.raises(DataError, match=message):
        box_parts(coco_json(tmp_path / "boxes.json", ["a.jpg"], **replaced))


def test_unknown_coco_categories_are_counted(tmp_path: Path) -> None:
    picture(tmp_path / "a.jpg")
    wrong = [{"image_id": 7, "category_id": 4, "bbox": [1, 2, 3, 4]}]
    (row,) = box_parts(coco_json(tmp_path / "boxes.json", ["a.jpg"], annotations=wrong))["train"].rows
    assert "unknown class" in next(problems(row))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 .5 .5 .1\n", r"a\.txt:1: expected a class and four numbers"),
        ("0 .5 .5 .1 .1\ncat .5 .5 .1 .1\n", r"a\.txt:2: class: expected a whole number, found 'cat'"),
        ("0 .5 .5 inf .1\n", "expected a number, found 'inf'"),
    ],
)
def test_a_bad_yolo_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    yolo(tmp_path)
    (tmp_path / "labels/train/a.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        box_parts(tmp_path)


def test_yolo_boxes_in_pixels_are_named_as_such(tmp_path: Path) -> None:
    yolo(tmp_path)
    (tmp_path / "labels/train/a.txt").write_text("0 30 20 40 30\n1 75 40 30 40\n")
    says = r"a\.txt: the boxes are in pixels \(2 of 2 .* 40 × 30\)\."
    with pytest.raises(DataError, match=says + r".*width \(here 100\), y and height by its height \(80\)"):
        box_parts(tmp_path)
    (tmp_path / "labels/train/a.txt").write_text("0 30 20 40 30\n1 0.75 0.5 0.3 0.5\n")
    assert len(box_parts(tmp_path)["train"].rows) == 1  # one mistake among shares is counted by the check


def test_a_damaged_picture_with_boxes_is_left_out(tmp_path: Path) -> None:
    yolo(tmp_path)
    for name in ("b", "c"):
        picture(tmp_path / "images" / "train" / f"{name}.png", 9)
    (tmp_path / "images/train/b.png").write_bytes(b"no picture")
    (tmp_path / "labels/train/b.txt").write_text("0 0.3 0.25 0.4 0.375\n")
    rows = opened(tmp_path).test()
    assert len(list(rows)) == 2 and list(rows.skipped) == ["damaged pictures"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("names: [a, b]\ntrain: nowhere\n", "nowhere: no such folder of pictures"),
        ("names: [a, b]\ntrain: " + 300 * "x" + "\n", "no such folder of pictures"),
        ("names: {1: a}\n", "names: expected a list of names"),
        ("names: {0: a, b: c}\n", "names: expected a list of names"),
        ("a: &x [1]\nb: [*x, *x]\n", "not readable as YAML .references are refused"),
        ("!!python/object/apply:os.system [true]\n", "not readable as YAML"),
        ("- 1\n", "expected names and folders"),
        ("a: [", "not readable as YAML"),
    ],
)
def test_a_bad_yaml_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    yolo(tmp_path)
    (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(DataError, match=message):
        box_parts(tmp_path)


def test_no_boxes_at_all(tmp_path: Path) -> None:
    picture(tmp_path / "a.jpg")
    with pytest.raises(DataError, match="no pictures with boxes; expected Pascal VOC"):
        box_parts(tmp_path)
    with pytest.raises(DataError, match="not COCO"):
        (tmp_path / "x.json").write_text("[]")
        box_parts(tmp_path / "x.json")
