"""What `classify-image` chooses for a data set: the form of the pictures, the model, the length, the augmentation."""

from pathlib import Path

import numpy as np
import pytest

from headway.data.builtin.shapes import DRAWN_SHAPES
from headway.data.facts import Facts
from headway.data.row import Row
from headway.jobs.run_config import complete, facts_of, make_plan, open_data
from headway.models.recipes import strides
from headway.tasks import image_settings
from headway.tasks.classify_image import ClassifyImage
from headway.tasks.image_settings import LADDER, PictureFacts, choose, cost, stem_for


def arrows(count: int, *, side: int = 12, labels: tuple[str, str]) -> list[Row]:
    """A bright half of the picture, left or right."""
    chance = np.random.default_rng(0)
    rows = []
    for number in range(count):
        picture = chance.integers(0, 60, (side, side)).astype(np.uint8)
        left = number % 2
        picture[:, : side // 2] += np.uint8(120 * left)
        picture[:, side // 2 :] += np.uint8(120 * (1 - left))
        rows.append(Row({"image": picture, "label": labels[left]}, f"x:{number}"))
    return rows


def chosen(rows: list[Row], **given):
    return ClassifyImage.choose_settings(ClassifyImage.scan(rows), recipe="modern", given=given)


def test_mirror_images_are_used_where_they_keep_the_label() -> None:
    sides = chosen(arrows(200, labels=("right", "left")))
    assert not sides.settings["task.flip"] and "no mirror images (recognised 0% as well)" in sides.why["augmented"]
    shapes = DRAWN_SHAPES.rows(split="train", size=600)
    assert chosen(shapes).settings["task.flip"] and "mirror images" in chosen(shapes).why["augmented"]


def test_the_form_follows_the_pictures() -> None:
    grey = chosen(arrows(100, side=28, labels=("a", "b"))).settings
    assert [grey[f"task.{name}"] for name in ("image", "patch", "channels", "pool")] == [28, 4, 1, "mean"]
    assert grey["task.colour"] == 0 and grey["task.shift"] > 0 and grey["task.zoom"] == 0
    large = [Row({"image": np.zeros((300, 400 + n, 3), np.uint8), "label": str(n % 2)}, "") for n in range(8)]
    colour = chosen(large).settings
    assert [colour[f"task.{name}"] for name in ("image", "patch", "channels")] == [64, 8, 3]
    assert colour["task.zoom"] > 0 and colour["task.shift"] == 0
    small = chosen(arrows(100, side=8, labels=("a", "b"))).settings
    assert (small["task.image"], small["task.patch"]) == (8, 1)


def test_a_stem_ends_at_the_width() -> None:
    assert stem_for(4, 64) == [16, 32, 32, 32, 64] and stem_for(8, 128) == [16, 32, 64, 64, 64, 128]
    assert stem_for(2, 64) == [32, 32, 32, 64] and stem_for(1, 48) == [48]
    assert strides(4, 5) == (1, 2, 1, 1, 2) and strides(8, 6) == (1, 2, 2, 1, 1, 2) and strides(2, 4) == (1, 1, 1, 2)
    assert strides(4, 3) == (1, 2, 2) and strides(4, 2) == (2, 2) and strides(1, 1) == (1,)


def test_the_time_decides_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = arrows(20, side=28, labels=("a", "b")) * 1000
    monkeypatch.setattr(image_settings, "seconds_per_picture", lambda *_, **__: 0.001)
    widths = [chosen(rows, **{"train.minutes": minutes}).settings["model.width"] for minutes in (1, 4, 20, 200)]
    assert widths == sorted(widths) and widths[0] == LADDER[0].width < widths[2] < widths[3]
    short, long = (chosen(rows, **{"train.minutes": minutes}).settings for minutes in (0.5, 200))
    assert short["task.erase"] == 0 < long["task.erase"] and "train.epochs" not in long


def test_a_step_is_timed() -> None:
    form = {"task.image": 8, "task.patch": 2, "task.channels": 1}
    seconds = image_settings.seconds_per_picture(LADDER[0], form, labels=3)
    assert 1e-6 < seconds < 0.1
    assert cost(LADDER[1], form) > cost(LADDER[0], form)


def test_what_the_user_gives_is_kept(tmp_path: Path, little_data: None) -> None:
    given = {"task.flip": False, "model.width": 32, "batch": 7, "task.image": 16}
    plan = make_plan("classify-image", steps=3, settings=given)
    full = complete(plan, facts_of(plan, open_data(plan)))
    assert full.options["flip"] is False and full.options["image"] == 16 and full.options["patch"] == 2
    assert full.model["width"] == 32 and full.options["stem"] == [16, 16, 16, 32]
    assert (full.train["batch"], full.train["steps"], full.train["epochs"]) == (7, 3, 0)
    assert full.why["augmented"] and "mirror" not in full.why["augmented"]
    plain = complete(make_plan("classify-image"), facts_of(plan, open_data(plan)))
    assert plain.train["epochs"] > 0 == plain.train["steps"] and plain.options["flip"] is True


def test_more_pictures_are_evaluated_on_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 of many held-out pictures would keep weights by chance: one standard error is 1% at 95%."""

    def rows_for(count: int) -> int:
        known = PictureFacts(count, labels=10, side=28, grey=True, sizes_differ=False, mirrored=1.0)
        monkeypatch.setattr(image_settings, "look", lambda rows: known)
        return int(choose(Facts(), recipe="modern", given={"train.steps": 5}).settings["train.eval_rows"])

    assert rows_for(1_000) == 500 and rows_for(54_000) == 3_600


def test_fine_tuning_keeps_the_form_of_the_model(little_data: None) -> None:
    rows = DRAWN_SHAPES.rows(split="train", size=60)
    found = ClassifyImage.choose_settings(ClassifyImage.scan(rows), recipe="finetune", given={}).settings
    assert not {"task.image", "task.patch", "task.stem", "model.width"} & set(found)
    assert found["train.epochs"] >= 1 and found["task.flip"]
