"""One picture as an array: whatever the file is like, or an error that names it."""

import io

import numpy as np
import pytest
from PIL import Image

from headway.errors import DataError
from headway.preprocess import image
from headway.preprocess.image_processor import ImageProcessor

RED, GREEN = (255, 0, 0), (0, 255, 0)


def half_and_half(mode: str = "RGB", size: tuple[int, int] = (8, 8)) -> Image.Image:
    """Left red, right green."""
    picture = Image.new("RGB", size, RED)
    picture.paste(GREEN, (size[0] // 2, 0, *size))
    return picture.convert(mode)


def near(pixel: np.ndarray, colour: tuple[int, int, int], *, within: int = 40) -> bool:
    return bool((np.abs(pixel.astype(int) - colour) <= within).all())


def pixels(source, *, side: int, channels: int = 3, where: str = "image") -> np.ndarray:
    return ImageProcessor(size=(side, side), channels=channels).pixels(source, where=where)


def test_an_array_of_the_right_size_is_unchanged():
    values = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    assert pixels(values, side=4).tolist() == values.tolist()


def test_rows_columns_and_channels_keep_their_order(tmp_path):
    half_and_half().save(tmp_path / "a.png")
    found = pixels(tmp_path / "a.png", side=8)
    assert found.shape == (8, 8, 3) and found.dtype == np.uint8
    assert found[7, 0].tolist() == list(RED) and found[0, 7].tolist() == list(GREEN)


def test_a_picture_is_resized_without_keeping_its_proportions():
    found = pixels(half_and_half(size=(20, 6)), side=8)
    assert found.shape == (8, 8, 3) and near(found[3, 0], RED) and near(found[3, 7], GREEN)


def test_grey_is_one_channel_or_three():
    grey = np.full((4, 4), 9, dtype=np.uint8)
    assert pixels(grey, side=4).tolist() == np.full((4, 4, 3), 9).tolist()
    assert pixels(grey, side=4, channels=1).shape == (4, 4, 1)


@pytest.mark.parametrize(("mode", "suffix"), [("CMYK", "jpg"), ("P", "gif"), ("RGBA", "png"), ("RGB", "webp")])
def test_every_mode_is_converted_to_rgb(tmp_path, mode, suffix):
    path = tmp_path / f"a.{suffix}"
    half_and_half(mode, (32, 32)).save(path)
    found = pixels(path, side=32)
    assert near(found[16, 2], RED, within=60) and near(found[16, 29], GREEN, within=60)


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    values = np.array([[0, 256 * 100], [256 * 200, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    assert pixels(tmp_path / "deep.png", side=2)[..., 0].tolist() == [[0, 100], [200, 255]]


def test_a_photo_is_rotated_as_its_exif_tag_says(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # stored a quarter turn to the left
    half_and_half(size=(32, 32)).save(tmp_path / "turned.jpg", exif=exif, quality=95)
    found = pixels(tmp_path / "turned.jpg", side=32)
    assert near(found[2, 16], RED) and near(found[29, 16], GREEN)  # left of the file is now the top


def test_the_first_frame_of_an_animation_is_read(tmp_path):
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, GREEN)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert near(pixels(tmp_path / "a.gif", side=4)[0, 0], RED)


@pytest.mark.parametrize("content", [b"", b"no picture at all", "cut"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "bad.png"
    if content == "cut":
        half_and_half(size=(64, 64)).save(path)
        content = path.read_bytes()[:100]
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"bad\.png: not a picture, or a damaged one"):
        pixels(path, side=8)
    with pytest.raises(DataError, match=r"input 3: not a picture"):
        pixels(content, side=8, where="input 3")


def test_a_missing_file_and_a_string_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"gone\.png: no such file"):
        pixels(tmp_path / "gone.png", side=8)
    half_and_half().save(tmp_path / "there.png")
    with pytest.raises(DataError, match="found str"):
        pixels(str(tmp_path / "there.png"), side=8)


def test_too_many_pixels_are_refused_before_decoding(monkeypatch):
    monkeypatch.setattr(image, "MAX_PIXELS", 63)
    packed = io.BytesIO()
    half_and_half().save(packed, "png")
    with pytest.raises(DataError, match="8 × 8 is more than 63 pixels"):
        pixels(packed.getvalue(), side=8)


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((4, 4, 3)),
        np.zeros((4, 4, 2), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        np.full((4, 4), -1),
        np.full((4, 4), 1 << 20),
    ],
)
def test_invalid_arrays_are_refused(values):
    with pytest.raises(DataError, match="photo 1: "):
        pixels(values, side=8, where="photo 1")
