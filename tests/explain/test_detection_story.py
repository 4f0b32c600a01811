"""The story of a detector has the model's own numbers: the attention of each found object over the picture."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from parity.cases import VIT, YOLOS
from PIL import Image
from support.stories import bundle, check_numbers

import headway
from headway.bundle import Bundle
from headway.errors import InputError
from headway.explain.collect import collect
from headway.inspect import record


def picture(made: Bundle) -> np.ndarray:
    size = made.find_task().image_processor.shortest_edge
    return np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def detector() -> Bundle:
    torch.manual_seed(0)
    return bundle("detect", threshold=0.0)


def test_objects_attend_to_the_feature_map(detector: Bundle) -> None:
    pixels, task = picture(detector), detector.find_task()
    found = collect(detector, pixels)
    source, target = found.sequences["source"], found.sequences["target"]
    assert found.model.kind == "detector" and source.picture is not None
    assert len(source.tokens) == source.picture.rows * source.picture.columns == 12 * 12
    assert check_numbers(found) == len(found.attention) == 2 and all(each.kind == "cross" for each in found.attention)
    assert found.attention[0].bias is not None  # the box prior
    objects = task.predict(detector.model, [pixels], threshold=0.0)[0]["objects"]
    assert target.tokens[0].text == f"1:{objects[0]['label']}" and found.output.kind == "objects"
    scores = [np.exp(row.candidates[0].logit - row.logsumexp) for row in found.output.rows]
    chosen = [next(c for c in row.candidates if c.id == row.chosen) for row in found.output.rows]
    assert [one.text for one in chosen[:1]] == [objects[0]["label"]] and len(scores) == len(target.tokens)
    batch = task.batch([{"image": pixels}], detector.model)
    queries = [token.id for token in target.tokens]
    with torch.no_grad(), record(detector.model, "decoder.stack.blocks.1.cross.weights") as recorded:
        detector.model(**batch.inputs)
    whole = recorded["decoder.stack.blocks.1.cross.weights"][0][0]  # (head, query, key)
    np.testing.assert_allclose(found.attention[1].weights, whole[:, queries].numpy(), atol=1e-6)
    drawn = np.asarray(Image.open(io.BytesIO(base64.b64decode(source.picture.png))))
    assert drawn.shape == pixels.shape and (drawn != pixels).any()


def test_few_objects_are_shown_and_said_so(detector: Bundle) -> None:
    task = detector.find_task()
    task.threshold = 1.0
    try:
        found = collect(detector, picture(detector))
    finally:
        task.threshold = 0.0
    assert len(found.sequences["target"].tokens) == 3
    assert found.note[0] == "No object has a score of 1; the best 3 are shown."
    with pytest.raises(InputError, match="against does not apply to task detect"):
        collect(detector, picture(detector), against="circle")


def test_detection_tokens_of_a_yolos(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.YolosConfig(**(VIT | YOLOS))
    transformers.YolosForObjectDetection(config).save_pretrained(tmp_path)
    transformers.YolosImageProcessorPil(size={"shortest_edge": 16, "longest_edge": 40}).save_pretrained(tmp_path)
    made = headway.load(tmp_path)
    made.find_task().threshold = 0.0
    found = collect(made, np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8))
    source = found.sequences["source"]
    assert source.picture is not None and source.picture.first == 1
    assert len(source.tokens) == 1 + source.picture.rows * source.picture.columns + 7
    assert check_numbers(found) == 3 and len(found.sequences["target"].tokens) == 7
