"""`headway run RUN PICTURE --out`: boxes on pictures, in a file or a folder."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.commands import headway
from support.task_run import started

from headway.bundle import Bundle
from headway.preprocess.draw_boxes import COLOURS, draw_boxes
from headway.preprocess.processor import Processor


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained detector, and two pictures of the same name."""
    out = tmp_path_factory.mktemp("marked")
    task, model, data = started("detect", rows=20)
    processor = task.processor(Processor())
    Bundle(model, "headway", processor, task=task).save(out / "model")  # type: ignore[arg-type]
    rows = data.test()
    for name in ("a/one.png", "b/one.png"):
        (out / name).parent.mkdir()
        Image.fromarray(next(rows).fields["image"]).save(out / name)
    return out


def test_one_picture(folder: Path) -> None:
    done = headway("run", "model", "a/one.png", "--out", "found.png", "--threshold", "0", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("found.png: ") and "circle" in done.stdout
    before, after = (np.asarray(Image.open(folder / name)) for name in ("a/one.png", "found.png"))
    assert before.shape == after.shape and (before != after).any()
    nothing = headway("run", "model", "a/one.png", "--out", "same.png", "--threshold", "1", cwd=folder)
    assert nothing.stdout == "same.png: nothing found\n"
    assert (np.asarray(Image.open(folder / "same.png")) == before).all()


def test_several_pictures_go_into_a_folder(folder: Path) -> None:
    done = headway("run", "model", "a/one.png", "b", "--out", "found", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert sorted(file.name for file in (folder / "found").iterdir()) == ["one-2.png", "one.png"]
    assert '"file": "found/one-2.png"' in done.stdout.replace("\\\\", "/")


def test_what_cannot_be_written(folder: Path) -> None:
    wrong = headway("run", "model", "a/one.png", "b/one.png", "--out", "found.png", cwd=folder)
    assert wrong.returncode and "there are 2 pictures, so it must be a folder" in wrong.stderr
    unnamed = headway("run", "model", "a/one.png", "--out", "found.txt", cwd=folder)
    assert unnamed.returncode and "the name says what kind of picture" in unnamed.stderr
    high = headway("run", "model", "a/one.png", "--threshold", "2", cwd=folder)
    assert high.returncode and "it must be from 0 to 1" in high.stderr


def test_a_box_has_the_colour_of_its_label() -> None:
    objects = [{"label": "b", "score": 0.9, "box": [20.0, 30.0, 60.0, 70.0]}]
    drawn = draw_boxes(Image.new("L", (100, 80)), objects, labels=["a", "b"])
    colour = tuple(int(COLOURS[1][at : at + 2], 16) for at in (1, 3, 5))
    assert [drawn.getpixel(place) for place in ((20, 50), (59, 50), (40, 69))] == [colour] * 3
    assert drawn.getpixel((40, 50)) == (0, 0, 0)  # inside
