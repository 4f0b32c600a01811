"""Published DETR and YOLOS folders, which Headway never trained, find what the reference library finds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from parity.cases import VIT, YOLOS, detr
from PIL import Image
from support.commands import headway as command

import headway
from headway.tasks.detect import Detect

transformers = pytest.importorskip("transformers", reason="the reference library is a test-only dependency")

LABELS = {0: "cat", 1: "dog", 2: "remote"}
NAMES = {"id2label": LABELS, "label2id": {name: at for at, name in LABELS.items()}}
SIZES = {"size": {"shortest_edge": 32, "longest_edge": 60}}


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("photos") / "photo.png"
    noise = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    return path


def published(kind: str, folder: Path) -> tuple[Any, Any]:
    torch.manual_seed(0)
    config = detr() if kind == "Detr" else VIT | YOLOS
    del config["num_labels"]
    model = getattr(transformers, f"{kind}ForObjectDetection")
    reference = model(getattr(transformers, f"{kind}Config")(**config, **NAMES)).eval()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    processor = getattr(transformers, f"{kind}ImageProcessorPil")(**SIZES)
    reference.save_pretrained(folder)
    processor.save_pretrained(folder)
    return reference, processor


@pytest.mark.parametrize("kind", ["Detr", "Yolos"])
def test_the_objects_of_a_picture(kind: str, photo: Path, tmp_path: Path) -> None:
    reference, processor = published(kind, tmp_path / "model")
    picture = Image.open(photo)
    inputs = processor(images=picture, return_tensors="pt")
    inputs.pop("pixel_mask", None)
    with torch.no_grad():
        output = reference(**inputs)
    (theirs,) = processor.post_process_object_detection(output, threshold=0.0, target_sizes=[picture.size[::-1]])
    done = command("run", "model", photo, "--threshold", "0", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ours = json.loads(done.stdout)["answer"]["objects"]
    order = theirs["scores"].argsort(descending=True, stable=True)
    assert len(ours) == len(order) == 7
    for one, at in zip(ours, order, strict=True):
        assert one["label"] == LABELS[int(theirs["labels"][at])]
        assert one["score"] == pytest.approx(float(theirs["scores"][at]), abs=1e-4)
        limits = torch.tensor([70.0, 50.0, 70.0, 50.0])
        expected = theirs["boxes"][at].clamp(min=0).minimum(limits)  # ours are cut at the picture's edges
        assert one["box"] == pytest.approx(expected.tolist(), abs=0.1)


def test_a_yolos_is_fine_tuned_on_other_classes(photo: Path, tmp_path: Path) -> None:
    """Also on pictures of several sizes, which are padded."""
    published("Yolos", tmp_path)
    model = headway.load(tmp_path).model
    task = Detect(
        tokenizer=None, labels=["x", "y"], loaded_processor=headway.load(tmp_path).find_task().image_processor
    )  # type: ignore[arg-type]
    adapted = task.adapt(model)
    boxes, labels = np.array([[0.1, 0.2, 0.5, 0.6]], np.float32), np.array([1])
    pictures = [np.asarray(Image.open(photo)), np.asarray(Image.open(photo).resize((120, 50)))]
    examples = [{"image": pixels, "boxes": boxes, "labels": labels} for pixels in pictures]
    batch = task.collate(examples, seeds=[(0, 0, 0)] * 2, where=[])
    assert batch.inputs["padding_mask"].shape[1:] == batch.inputs["inputs"].shape[2:]
    task.loss(adapted, batch).total.backward()
    assert adapted.embedding.detection.grad is not None and adapted(batch.inputs["inputs"]).logits.shape == (2, 7, 3)


def test_positions_follow_the_size_of_the_picture(tmp_path: Path) -> None:
    reference, _ = published("Yolos", tmp_path)
    image = torch.randn(2, 3, 24, 28)
    with torch.no_grad():
        expected = reference(pixel_values=image)
    ours = headway.load(tmp_path)
    torch.testing.assert_close(ours.logits(pixel_values=image), expected.logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.boxes(pixel_values=image), expected.pred_boxes, atol=1e-4, rtol=1e-4)
