"""TRUST 21: pictures of every broken or unusual kind are an error that names the file, or are read as they are seen."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image
from support.commands import headway

from headway.data.dataset import Dataset, open_files
from headway.errors import DataError
from headway.preprocess.image_processor import ImageProcessor

RED = (255, 0, 0)


def encoded(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and has no pixels."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


def rational_offset() -> bytes:
    """A TIFF that says where its pixels are by a fraction. Found by the fuzzer: Pillow raises a TypeError."""
    data = encoded(Image.new("L", (8, 8)), "TIFF")
    entry = data.index(struct.pack("<H", 273))  # StripOffsets: tag, type, count, value
    return data[: entry + 2] + struct.pack("<HII", 5, 1, 0) + data[entry + 12 :]


def turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = Image.new("RGB", (8, 4), RED)
    picture.paste((0, 0, 255), (0, 0, 4, 4))  # left half blue: shown a quarter turn clockwise, the upper half is blue
    return encoded(picture, "PNG", exif=exif)


def clear() -> bytes:
    picture = Image.new("P", (8, 8), 1)
    picture.putpalette([0, 255, 0, *RED])
    return encoded(picture, "PNG", transparency=0)


FRAMES = [Image.new("RGB", (8, 8), colour) for colour in (RED, (0, 0, 255))]
BROKEN = {
    "truncated.png": encoded(Image.effect_noise((64, 64), 50))[:-900],
    "truncated.jpg": encoded(Image.effect_noise((64, 64), 50), "JPEG")[:400],
    "empty.png": b"",
    "text.png": b"this is no picture\n",
    "wrong_ending.jpg": b"%PDF-1.7\n",
    "zeros.gif": bytes(500),
    "rational_offset.tif": rational_offset(),
    "bomb.png": png_header(60_000, 60_000),
    "large_bomb.png": png_header(2**31 - 1, 2**31 - 1),
    "no_pixels.png": png_header(8, 8),
    "nothing_wide.png": png_header(0, 8),
    "float.tif": encoded(Image.new("F", (8, 8), 0.5), "TIFF"),
}
READ = {  # what is seen, as the mean colour
    "cmyk.jpg": (encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG"), RED),
    "sixteen_bits.png": (encoded(Image.fromarray(np.full((8, 8), 40_000, np.uint16))), (156, 156, 156)),
    "animated.gif": (encoded(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:]), RED),
    "palette.png": (clear(), RED),
    "one_pixel.png": (encoded(Image.new("RGB", (1, 1), RED)), RED),
    "long.png": (encoded(Image.new("RGB", (3000, 1), RED)), RED),
    "two_colours.png": (encoded(Image.new("1", (8, 8), 1)), (255, 255, 255)),
    "png_named.jpg": (encoded(Image.new("RGB", (8, 8), RED)), RED),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_picture_is_an_error_that_names_it(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(BROKEN[name])
    with pytest.raises(DataError, match=name):
        ImageProcessor(size=(8, 8))(tmp_path / name)


@pytest.mark.parametrize("name", READ)
def test_an_unusual_picture_is_read_as_it_is_seen(name: str, tmp_path: Path) -> None:
    data, colour = READ[name]
    (tmp_path / name).write_bytes(data)
    pixels = ImageProcessor(size=(8, 8)).pixels(tmp_path / name)
    assert np.abs(pixels.reshape(-1, 3).mean(0) - colour).max() < 4


def test_a_picture_turned_by_exif(tmp_path: Path) -> None:
    (tmp_path / "turned.png").write_bytes(turned())
    pixels = ImageProcessor(size=(8, 4)).pixels(tmp_path / "turned.png")
    assert pixels[:4].reshape(-1, 3).mean(0).round().tolist() == [0, 0, 255]
    assert pixels[4:].reshape(-1, 3).mean(0).round().tolist() == list(RED)


def test_a_long_picture_whose_shorter_side_is_enlarged_is_refused(tmp_path: Path) -> None:
    (tmp_path / "long.png").write_bytes(encoded(Image.new("L", (20_000, 1))))
    with pytest.raises(DataError, match=r"long\.png: 20000 × 1 would be resized to 4480000 × 224"):
        ImageProcessor(shortest_edge=224, channels=1)(tmp_path / "long.png")


def test_check_and_train_name_a_broken_picture(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for label, colour in (("dark", 10), ("light", 240)):
        (data / label).mkdir(parents=True)
        for number in range(6):
            (data / label / f"{number}.png").write_bytes(encoded(Image.new("L", (8, 8), colour + number)))
    small = ["--set", "model.width=16", "--set", "model.layers=1", "--set", "model.heads=2"]
    for name in ("truncated.png", "bomb.png", "empty.png"):
        (data / "dark" / name).write_bytes(BROKEN[name])
        for command in (["check"], ["train"]):
            more = ["--steps", "1", "--out", tmp_path / name] if command == ["train"] else []
            done = headway(*command, "classify-image", data, *small, *more, cwd=tmp_path)
            said = done.stdout + done.stderr
            assert f"dark/{name}" in said, said
            assert done.returncode == 0 and "skipped      1 damaged pictures" in said, said
        (data / "dark" / name).unlink()


def test_up_to_one_in_twenty_damaged_pictures_is_left_out(tmp_path: Path) -> None:
    for label in ("dark", "light"):
        (tmp_path / "data" / label).mkdir(parents=True)
        for number in range(40):
            (tmp_path / "data" / label / f"{number}.png").write_bytes(encoded(Image.new("L", (4, 4), number)))
    bad = [tmp_path / "data" / "dark" / f"{number}.png" for number in range(8)]
    for path in bad[:3]:
        path.write_bytes(b"no picture")

    def opened() -> Dataset:
        return open_files(tmp_path / "data", fields=("image", "label"), columns={})

    rows = opened().test()
    assert len(list(rows)) == 77 and rows.skipped.places == {"damaged pictures": list(map(str, bad[:3]))}
    assert not {row.where for row in opened().train()} & set(map(str, bad[:3]))
    for path in bad[3:]:
        path.write_bytes(BROKEN["truncated.png"])
    with pytest.raises(DataError) as refused:
        list(opened().test())
    message = str(refused.value)
    assert all(f"dark/{number}.png: not a picture" in message for number in range(5)) and "and 3 more" in message
    assert "8 of 80 files are damaged, and at most 5% of them are left out" in message


def test_an_archive_with_one_damaged_picture(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for label in ("dark", "light"):
            for number in range(5):
                archive.writestr(f"{label}/{number}.png", encoded(Image.new("L", (4, 4), number)))
        archive.writestr("light/bad.png", b"no picture")
    rows = open_files(tmp_path / "x.zip", fields=("image", "label"), columns={}).test()
    assert len(list(rows)) == 10 and "light/bad.png" in rows.skipped.places["damaged pictures"][0]


def test_a_damaged_recording_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("audio,text\n" + "".join(f"{number}.wav,text {number}\n" for number in range(6)))
    for number in range(6):
        soundfile.write(tmp_path / f"{number}.wav", np.full(800, number / 10), 8000)
    (tmp_path / "3.wav").write_bytes(b"RIFF and no sound")
    rows = open_files(tmp_path / "list.csv", fields=("audio", "text"), columns={}).test()
    assert len(list(rows)) == 5 and rows.skipped.places == {"damaged recordings": [str(tmp_path / "3.wav")]}
