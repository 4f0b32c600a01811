"""ViT and DeiT at sizes other than the one they were trained at: positions are interpolated as the reference does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from parity.cases import VIT
from support.parity import Case, make_pair
from support.stories import check_numbers
from support.task_run import SMALL

import headway
from headway.bundle import Bundle
from headway.data.row import Row
from headway.inspect.attribution import attribute
from headway.layers.embeddings import PatchConfig
from headway.layers.stem import ConvStemConfig
from headway.models.build import build
from headway.preprocess.processor import Processor
from headway.tasks.classify_image import ClassifyImage

pytest.importorskip("transformers", reason="the reference library is a test-only dependency")


@pytest.mark.parametrize(
    "case",
    [
        Case("ViTForImageClassification", VIT | dict(num_labels=5)),
        Case("DeiTForImageClassificationWithTeacher", VIT | dict(num_labels=5)),
    ],
    ids=str,
)
def test_positions_of_other_sizes(case: Case, tmp_path: Path) -> None:
    pair = make_pair(case, tmp_path)
    for size in ((24, 24), (8, 20), (4, 4), (13, 13)):  # the last has as many patches as the size it was trained at
        pixels = torch.randn(2, 3, *size)
        with torch.no_grad():
            want = pair.reference(pixels, interpolate_pos_encoding=True).logits
        torch.testing.assert_close(pair.ours.logits(pixel_values=pixels), want, rtol=0, atol=1e-5)
        if size != (13, 13):
            plain = torch.nn.functional.interpolate(pixels, (12, 12))
            assert (pair.ours.logits(pixel_values=plain) - want).abs().max() > 1e-3  # not another picture's logits


def front_end(**options: Any) -> torch.nn.Module:
    stem = ConvStemConfig((4, 6, 8), (1, 2, 2))
    module = PatchConfig(12, (28, 28), (4, 4), channels=1, stem=stem, **options).build()
    torch.nn.init.normal_(module.positions)
    return module.eval()


@pytest.mark.parametrize(("size", "count"), [((28, 28), 49), ((29, 32), 64), ((16, 40), 40)])
def test_a_stem_makes_as_many_tokens_as_it_has_positions(size: tuple[int, int], count: int) -> None:
    plain = front_end(class_token=False)
    embedded = plain(torch.randn(2, 1, *size))
    assert embedded.x.shape == (2, count, 12)
    assert front_end()(torch.randn(2, 1, *size)).x.shape == (2, count + 1, 12)


def test_a_picture_of_a_stem_does_not_depend_on_its_batch() -> None:
    module, images = front_end().train(), torch.randn(3, 1, 28, 28)
    torch.testing.assert_close(module(images[:1]).x, module(images).x[:1], rtol=0, atol=1e-5)


def test_a_token_of_a_stem_sees_its_surroundings_only() -> None:
    """Convolutions of stride 1, 2 and 2 see 9 × 9 pixels; only the norms see the whole picture."""
    module = front_end(class_token=False)
    for layer in module.stem.layers:
        layer.conv.norm = torch.nn.Identity()
    image = torch.randn(1, 1, 28, 28)
    changed = image.clone()
    changed[..., 20:, 20:] += 1
    differs = (module(image).x - module(changed).x).abs().amax(-1)[0].view(7, 7) > 0
    assert differs[5:, 5:].all() and not differs[:4].any() and not differs[:, :4].any()


def test_a_convolution_that_keeps_the_shape_has_a_residual_connection() -> None:
    stem = ConvStemConfig((4, 8, 8, 8, 8), (1, 2, 1, 1, 2)).build(3)
    assert [layer.residual for layer in stem.layers] == [False, False, True, True, False]
    x = torch.randn(2, 8, 6, 6).relu()
    torch.nn.init.zeros_(stem.layers[2].conv.norm.weight)
    torch.testing.assert_close(stem.layers[2](x), x, rtol=0, atol=0)


@pytest.mark.parametrize(("options", "first"), [({}, 1), ({"pool": "mean", "stem": [4, 8, 8]}, 0)])
def test_explain_knows_where_the_patches_begin(options: dict[str, Any], first: int) -> None:
    """Attention is drawn over the picture from this token on."""
    rows = [Row({"image": np.full((8, 8, 3), 99 * n, np.uint8), "label": str(n)}, "") for n in range(2)]
    task = ClassifyImage.from_data(
        ClassifyImage.scan(rows), tokenizer=None, options={"image": 8, "patch": 4, **options}
    )
    config = task.config(SMALL, "modern")
    bundle = Bundle(build(config), "headway", task.processor(Processor()), task=task)
    read = headway.explain(bundle, rows[1].fields["image"]).story.sequences["text"]
    assert read.picture is not None and read.picture.first == first and len(read.tokens) == first + 4


def test_explain_of_a_model_with_two_classifiers(tmp_path: Path) -> None:
    from transformers import DeiTImageProcessorPil as DeiTImageProcessor

    pair = make_pair(Case("DeiTForImageClassificationWithTeacher", VIT | dict(num_labels=3)), tmp_path)
    small = {"height": 12, "width": 12}
    DeiTImageProcessor(size=small, crop_size=small).save_pretrained(tmp_path)
    picture = np.random.default_rng(0).integers(0, 256, (20, 16, 3), dtype=np.uint8)
    bundle = headway.load(tmp_path)
    story = headway.explain(bundle, picture).story
    assert check_numbers(story) == 3
    found = attribute(bundle.model, {"inputs": torch.randn(1, 3, 12, 12)}, token=1)
    assert found.total == pytest.approx(found.logit, abs=1e-5)  # of both classifiers
    read = story.sequences["text"]
    assert read.picture is not None and read.picture.first == 2
    assert [token.text for token in read.tokens[:2]] == ["[class]", "[distillation]"]
    pixels = DeiTImageProcessor(size=small, crop_size=small)(picture, return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        want = pair.reference(pixels).logits.softmax(-1)[0]
    assert list(bundle(picture)["scores"].values()) == pytest.approx(want.sort(descending=True)[0].tolist(), abs=1e-5)
