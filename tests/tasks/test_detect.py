"""`detect`: from pictures with boxes to batches, a model that learns, answers in pixels, and COCO's scores."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support.task_run import losses, started, trained

from headway.data.boxes import Box, box_row
from headway.data.row import Row
from headway.errors import ConfigError, DataError, InputError
from headway.models.build import build
from headway.models.recipes import Size
from headway.preprocess.augment_boxes import BoxedPicture, mosaic, place, window
from headway.tasks.batches import ExampleSource, prepare
from headway.tasks.detect import Detect
from headway.tasks.detection_scores import average_precision
from headway.tasks.detection_settings import Statistics, choose, resolution, statistics

TINY = Size(width=32, layers=1, heads=2, dropout=0.0)
PIXELS = np.arange(40 * 60 * 3, dtype=np.uint32).astype(np.uint8).reshape(40, 60, 3)
PICTURE = BoxedPicture(PIXELS, np.array([[0.1, 0.2, 0.5, 0.6], [0.6, 0.1, 0.9, 0.3]], np.float32), np.array([0, 1]))


def test_it_learns(tmp_path: Path) -> None:
    task, model, data = started("detect", rows=8, augment=False)
    curve = losses(trained(task, model, data, folder=tmp_path, steps=40, batch=4, lr=0.002))
    assert sum(curve[-5:]) < 0.7 * sum(curve[:5])
    scores = task.evaluate(model.eval(), list(data.test())[:3])
    assert {"ap", "ap50", "ap75", "loss"} <= scores.keys()


def test_answers_are_in_pixels_of_the_picture() -> None:
    task, model, data = started("detect", rows=20)
    image = next(data.test()).fields["image"]
    (found,) = task.predict(model, [image], threshold=0.0)
    assert found["objects"] and json.dumps(found)
    for one in found["objects"]:
        left, top, right, bottom = one["box"]
        assert 0 <= left < right <= 96 and 0 <= top < bottom <= 96 and one["label"] in task.labels
    assert task.predict(model, [image], threshold=0.0, top=2)[0]["objects"] == found["objects"][:2]
    assert task.predict(model, [image], threshold=1.0) == [{"objects": []}]
    wide = np.repeat(image, 2, axis=1)
    both = task.predict(model, [image, wide], threshold=0.0)
    assert both[0] == found and both[1] == task.predict(model, [wide], threshold=0.0)[0]  # a batch has no padding
    with pytest.raises(InputError, match="threshold is 2: it must be from 0 to 1"):
        task.predict(model, [image], threshold=2)


def test_batches_depend_on_the_key_alone(tmp_path: Path) -> None:
    task, _, data = started("detect", rows=12, mosaic=0.7)
    store = prepare(task, data.train(), tmp_path / "store", key="x")
    source = ExampleSource(store, task, batch=4, unit="examples", seed=3, fingerprint="")
    whole, again = source.load(np.arange(4), 1), source.load(np.arange(4), 1)
    for name, value in {**whole.inputs, **whole.targets}.items():
        assert torch.equal(value, {**again.inputs, **again.targets}[name]), name
    single = source.load(np.array([2]), 1)
    assert torch.equal(single.inputs["inputs"][0], whole.inputs["inputs"][2])
    real = single.inputs["denoising_groups"][0] > 0
    assert torch.equal(single.inputs["denoising_boxes"][0, real], whole.inputs["denoising_boxes"][2, : real.sum()])
    assert not torch.equal(source.load(np.arange(4), 2).inputs["inputs"], whole.inputs["inputs"])
    assert whole.count == sum(source.load(np.array([i]), 1).count for i in range(4))


def test_boxes_follow_their_picture() -> None:
    same = place(PICTURE, (0.0, 0.0, 1.0, 1.0), (40, 60))
    assert np.array_equal(same.pixels, PIXELS) and np.allclose(same.boxes, PICTURE.boxes)
    half = place(PICTURE, (0.5, 0.0, 1.0, 1.0), (40, 30))
    assert np.array_equal(half.pixels, PIXELS[:, 30:]) and half.labels.tolist() == [1]
    assert half.boxes[0].tolist() == pytest.approx([0.2, 0.1, 0.8, 0.3])
    larger = place(PICTURE, (-0.5, 0.0, 1.5, 1.0), (40, 120))
    assert (larger.pixels[:, :30] == 114).all() and np.array_equal(larger.pixels[:, 30:90], PIXELS)
    assert larger.boxes[0].tolist() == pytest.approx([0.3, 0.2, 0.5, 0.6])


def test_marked_pixels_stay_inside_their_boxes() -> None:
    """A white square on black: wherever it goes, its box goes along."""
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[10:26, 20:44] = 255
    picture = BoxedPicture(pixels, np.array([[20 / 64, 10 / 48, 44 / 64, 26 / 48]], np.float32), np.array([0]))
    seen = 0
    for number in range(30):
        draw = np.random.default_rng(number)
        turns = {"mirror": True, "upside_down": True}
        made = (
            mosaic([picture] * 4, (48, 64), draw, **turns) if number % 2 else window(picture, (48, 64), draw, **turns)
        )
        assert ((made.boxes >= 0) & (made.boxes <= 1)).all()
        for left, top, right, bottom in made.boxes * [64, 48, 64, 48]:
            inside = made.pixels[int(top) + 2 : int(bottom) - 2, int(left) + 2 : int(right) - 2]
            if inside.size:
                seen += 1
                assert (inside > 200).mean() > 0.95
    assert seen > 20


def test_more_boxes_than_queries_are_counted() -> None:
    task, _, _ = started("detect", rows=8, queries=2)
    boxes = [Box("circle", 1 + 9 * i, 1, 8 + 9 * i, 9) for i in range(4)]
    image = np.zeros((30, 60, 3), np.uint8)
    with task.count_truncation() as counter:
        (example,) = task.examples(box_row(image, boxes, (60, 30), where="x"))  # type: ignore[arg-type]
    assert len(example["labels"]) == 2
    assert counter.summary() == ["boxes: 1 of 1 cut to 2 boxes (100.0%); the longest had 4 (x)"]


def test_bad_rows_are_named() -> None:
    task, _, _ = started("detect", rows=8)
    image = np.zeros((30, 60, 3), np.uint8)
    with pytest.raises(DataError, match=r"x: the boxes are for a picture of 30 × 60 pixels, but it has 60 × 30"):
        task.examples(box_row(image, [], (30, 60), where="x"))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="x: label 'star' is not one of the model's labels"):
        task.examples(box_row(image, [Box("star", 1, 1, 9, 9)], (60, 30), where="x"))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no boxes to learn from"):
        Detect.from_data(Detect.scan([box_row(image, [], (60, 30), where="x")]), tokenizer=None, options={})  # type: ignore[arg-type]


def test_scores() -> None:
    boxes, sizes, labels = [[Box("a", 0, 0, 10, 10), Box("b", 20, 20, 40, 40)], []], [(50, 50)] * 2, ["a", "b", "c"]
    right = [[(0, 0.9, (0.0, 0.0, 10.0, 10.0)), (1, 0.8, (20.0, 20.0, 40.0, 40.0))], []]
    perfect = average_precision(boxes, right, sizes=sizes, labels=labels)
    assert perfect == {"ap": 1.0, "ap50": 1.0, "ap75": 1.0, "ap50 a": 1.0, "ap50 b": 1.0}
    loose = [[(0, 0.9, (0.0, 0.0, 10.0, 6.0))], [(1, 0.99, (0.0, 0.0, 9.0, 9.0))]]  # overlap 0.6; nothing; a false one
    scores = average_precision(boxes, loose, sizes=sizes, labels=labels)
    assert (scores["ap50 a"], scores["ap50 b"], scores["ap75"]) == (1.0, 0.0, 0.0)
    assert average_precision(boxes, [[], []], sizes=sizes, labels=labels)["ap50"] == 0.0
    crowd = [[Box("a", 0, 0, 10, 10), Box("a", 20, 20, 40, 40, crowd=True)], []]
    ignored = [[(0, 0.9, (20.0, 20.0, 40.0, 40.0)), (0, 0.8, (0.0, 0.0, 10.0, 10.0))], []]
    assert average_precision(crowd, ignored, sizes=sizes, labels=labels)["ap50"] == 1.0


def test_settings_follow_from_the_data() -> None:
    found = Statistics(pictures=205, size=(640, 480), crowded=25, smallest=39.0, usual=0.18)
    choice = choose(found, recipe="modern", given={})
    assert (choice.settings["task.width"], choice.settings["task.height"], choice.settings["task.queries"]) == (
        336,
        240,
        80,
    )
    tiny = Statistics(pictures=9, size=(4000, 3000), crowded=1, smallest=8.0, usual=0.01)
    assert resolution(tiny) == (384, 512) and choose(tiny, recipe="modern", given={}).settings["task.queries"] == 20


def test_pictures_without_an_upper_side_are_turned() -> None:
    draw = np.random.default_rng(0)

    def rows(high: float) -> list[Row]:
        """Boxes anywhere, or in the lower part of their picture."""
        tops = draw.uniform(40 * high, 40, (80, 3))
        return [
            box_row(Path("x"), [Box("a", 5, top, 15, top + 10) for top in each], (50, 50), where="x") for each in tops
        ]

    for high, upright in ((0.0, False), (0.5, True)):
        made = rows(high)
        found = statistics(Detect.scan(made))
        assert found.upright == upright
        assert choose(found, recipe="modern", given={}).settings["task.upside_down"] == (not upright)
    assert statistics(Detect.scan(rows(0.0)[:20])).upright  # too few to say


def test_another_models_classes_are_replaced() -> None:
    task, model, _ = started("detect", rows=8)
    other = Detect(tokenizer=None, labels=["x", "y"])  # type: ignore[arg-type]
    adapted = other.adapt(model)
    image = torch.randn(1, 3, 64, 64)
    assert adapted(image).logits.shape == (1, other.queries, 2) and other.queries == task.queries
    torch.testing.assert_close(adapted.encoder.embed(image).x, model.encoder.embed(image).x)
    with pytest.raises(ConfigError, match="starts from a detector"):
        other.adapt(started("classify-image", rows=20)[1])  # type: ignore[arg-type]


def test_the_classic_recipe_is_detr() -> None:
    task, _, data = started("detect", rows=8)
    config = task.config(TINY, "classic")
    assert config.decoder.anchors is None and config.decoder.head.no_object and task.denoising == 0  # type: ignore[union-attr]
    model = build(config)
    batch = task.collate(task.examples(next(data.train())), seeds=[(0, 0, 0)], where=["x"])
    task.loss(model, batch).total.backward()
