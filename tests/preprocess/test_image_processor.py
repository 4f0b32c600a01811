"""Pictures are resized, cropped and normalised with the reference library's numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from headway.errors import ConfigError
from headway.preprocess.image_processor import ImageProcessor, pad_batch

SIZES = [(40, 30), (30, 41), (16, 16), (7, 90)]  # width, height
CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("ViT", {}),
    ("ViT", {"size": {"height": 24, "width": 32}, "resample": 3, "image_mean": [0.1, 0.2, 0.3]}),
    ("ViT", {"size": {"shortest_edge": 20}, "do_center_crop": True, "crop_size": {"height": 18, "width": 15}}),
    ("ViT", {"do_resize": False, "do_center_crop": True, "crop_size": {"height": 33, "width": 20}}),
    ("ViT", {"size": {"height": 9, "width": 9}, "resample": 0, "do_normalize": False}),
    ("ViT", {"size": {"height": 20, "width": 20}, "resample": 1, "do_rescale": False}),
    ("ViT", {"size": {"height": 20, "width": 20}, "rescale_factor": 1 / 127.5, "image_std": [0.3, 0.2, 0.1]}),
    ("DeiT", {}),
    ("CLIP", {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}),
    ("Detr", {"size": {"shortest_edge": 30, "longest_edge": 66}}),
    ("Detr", {"size": {"shortest_edge": 16, "longest_edge": 17}, "do_normalize": False}),
    ("Yolos", {"size": {"shortest_edge": 150, "longest_edge": 500}}),
]


def photo(size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    noise = np.random.default_rng(size[0]).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(noise).convert(mode)


def reference(kind: str, options: dict[str, Any]) -> Any:
    import transformers

    return getattr(transformers, f"{kind}ImageProcessorPil")(**options)


@pytest.mark.parametrize(("kind", "options"), CONFIGS)
def test_numbers_are_the_references(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    theirs = reference(kind, options)
    theirs.save_pretrained(tmp_path)
    ours = ImageProcessor.from_json(json.loads((tmp_path / "preprocessor_config.json").read_text()))
    for size in SIZES:
        want = theirs(photo(size), return_tensors="np")["pixel_values"][0]
        got = ours(photo(size))
        assert got.shape == want.shape and got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * max(1.0, np.abs(want).max()))


@pytest.mark.parametrize(("kind", "options"), CONFIGS)
def test_what_is_written_is_read_alike_here_and_there(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    from transformers import AutoImageProcessor

    ours = ImageProcessor.from_json({"image_processor_type": f"{kind}ImageProcessor", **options})
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(ours.to_json()))
    assert ImageProcessor.from_json(ours.to_json()) == ours
    theirs = AutoImageProcessor.from_pretrained(tmp_path)
    for mode in ("RGB", "L", "RGBA"):
        want = theirs(photo((40, 30), mode), return_tensors="np")["pixel_values"][0]
        np.testing.assert_allclose(ours(photo((40, 30), mode)), want, rtol=0, atol=1e-6 * max(1.0, np.abs(want).max()))


def test_old_files_have_one_number_for_a_size() -> None:
    old = {"feature_extractor_type": "ViTFeatureExtractor", "size": 20, "resample": 2}
    assert ImageProcessor.from_json(old).size == (20, 20)
    clip = ImageProcessor.from_json({"feature_extractor_type": "CLIPFeatureExtractor", "size": 20, "crop_size": 10})
    assert clip.shortest_edge == 20 and clip.crop_size == clip.output_size == (10, 10)


def test_grey_pictures_have_one_channel() -> None:
    ours = ImageProcessor.from_json({"size": 8, "image_mean": [0.5], "image_std": 0.25}, channels=1)
    assert ours(photo((8, 8))).shape == (1, 8, 8) and ours.mean == (0.5,) and ours.std == (0.25,)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"do_pad": True}, "do_pad is True"),
        ({"image_processor_type": "SamImageProcessor"}, "'SamImageProcessor' is not an image processor"),
        ({"image_processor_type": 3}, "3 is not an image processor"),
        ({"auto_map": {"AutoImageProcessor": "code.Mine"}}, "auto_map is"),
        ({"size": {"height": 8}}, "size"),
        ({"size": {"height": 0, "width": 8}}, "size"),
        ({"size": {"longest_edge": 8}}, "size"),
        ({"size": "8"}, "size"),
        ({"crop_size": {"shortest_edge": 8}, "do_center_crop": True}, "crop_size"),
        ({"do_center_crop": True}, "do_center_crop is true, but there is no crop_size"),
        ({"resample": 6}, "resample: expected a whole number from 0 to 5, got 6"),
        ({"resample": "bicubic"}, "resample"),
        ({"do_resize": 1}, "do_resize: expected bool, got 1"),
        ({"image_mean": [0.5]}, "image_mean: expected 3 numbers, one a channel, got 1"),
        ({"image_mean": "0.5"}, "image_mean"),
        ({"image_std": [0.5, 0, 0.5]}, "image_std"),
        ({"rescale_factor": float("nan")}, "rescale_factor: expected a finite number, got nan"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=f"file[:.] ?{named}"):
        ImageProcessor.from_json(change, name="file")


def test_keys_that_are_off_or_mean_nothing_here_are_ignored() -> None:
    plain = ImageProcessor.from_json({})
    extra = {"do_pad": False, "pad_size": None, "processor_class": "X", "do_convert_rgb": None, "return_tensors": None}
    assert ImageProcessor.from_json(extra) == plain


def test_one_line_says_what_is_done() -> None:
    ours = ImageProcessor.from_json({"size": {"shortest_edge": 20}, "do_center_crop": True, "crop_size": 16})
    assert (
        ours.describe()
        == "RGB, shorter side resized to 20, centre crop 16 × 16, mean 0.5 0.5 0.5, deviation 0.5 0.5 0.5"
    )


def test_padding_and_its_mask_are_the_references() -> None:
    theirs = reference("Detr", {"size": {"shortest_edge": 20, "longest_edge": 40}})
    ours = ImageProcessor.from_json({"image_processor_type": "DetrFeatureExtractor", "size": 20, "max_size": 40})
    want = theirs([photo(size) for size in SIZES], return_tensors="np")
    pixels, mask = pad_batch([ours(photo(size)) for size in SIZES])
    np.testing.assert_allclose(pixels, want["pixel_values"], rtol=0, atol=1e-6)
    assert mask is not None and np.array_equal(mask, want["pixel_mask"])
    assert pad_batch([ours(photo((40, 30)))] * 2)[1] is None


def test_an_old_file_of_detr() -> None:
    old = ImageProcessor.from_json({"feature_extractor_type": "DetrFeatureExtractor", "size": 800, "max_size": 1333})
    assert (old.shortest_edge, old.longest_edge) == (800, 1333)
    assert ImageProcessor.from_json({"image_processor_type": "DetrImageProcessor"}) == old
    assert "shorter side resized to 800, longer at most 1333" in old.describe()
