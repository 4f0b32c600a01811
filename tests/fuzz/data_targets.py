"""Targets that hold data of other kinds than text files: workbooks, archives of tables, boxes, sounds, word vectors."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from fuzz.campaign import Target
from fuzz.mutate import damaged, lied
from openpyxl import Workbook
from PIL import Image
from support.sounds import encoded, tone

from headway import tasks
from headway.checkpoints.word2vec import read_word2vec, save_word2vec
from headway.data.boxes import box_parts, problems, usable
from headway.data.check import check
from headway.data.dataset import open_files
from headway.preprocess.audio import Sound

FASTTEXT = [
    b"__label__good this was fine\n__label__bad this was not\n__label__good fine again\n__label__bad no\n",
    b"__label__a __label__b two at once\n__label__b one\n",
]
CONVERSATIONS = [
    b'{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}\n'
    b'{"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "a"},'
    b' {"role": "assistant", "content": "b"}], "tools": []}\n',
    b'{"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]}\n',
    b'{"instruction": "say it", "input": "x", "output": "it"}\n{"instruction": "again", "output": "it"}\n',
    b'{"prompt": "hi", "chosen": "hello", "rejected": "no"}\n{"prompt": "a", "chosen": "b", "rejected": "c"}\n',
    b'{"prompt": "hi", "completion": "hello", "label": true}\n',
]
VOC = (
    b"<annotation><filename>a.jpg</filename><size><width>40</width><height>30</height></size><object><name>cat</name>"
    b"<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>20</xmax><ymax>12</ymax></bndbox></object></annotation>"
)
COCO = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 40, "height": 30}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 2, "bbox": [1, 2, 10, 9], "iscrowd": 0}],
    "categories": [{"id": 2, "name": "cat"}],
}
YAML = b"path: .\ntrain: images\nval: images\nnames:\n  0: cat\n  1: dog\n"
YOLO = b"0 0.5 0.5 0.2 0.3\n1 0.1 0.1 0.2 0.2\n1 0.1 0.1 0.3 0.1 0.3 0.4\n"


def read_rows(name: str) -> Callable[[Path], object]:
    """A data file as a task reads it, with every row converted."""

    def read(path: Path) -> object:
        data = open_files(path, fields=tasks.find(name).fields, columns={})
        report = check(data.train(), held_out=data.valid())
        json.dumps(report.to_dict())
        return data.layout[:20], min(report.examples, 5), len(report.warnings)

    return read


def read_boxes(beside: dict[str, bytes], top: int) -> Callable[[Path], object]:
    """A file of boxes among the sound files of its layout, `top` folders above it."""

    def read(path: Path) -> object:
        folder = path.parents[top]
        for name, content in {**beside, "images/a.jpg": PICTURE}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        rows = [row for part in box_parts(folder).values() for row in part.rows]
        return len(rows), sorted({problem.split(" (")[0] for row in rows for problem in problems(row)}), [
            len(usable(row)) for row in rows
        ]  # fmt: skip

    return read


def read_sound(path: Path) -> object:
    samples = Sound(path, 16000).read(seconds=1.0)
    assert samples.dtype == np.float32 and np.isfinite(samples).all() and len(samples) <= 16000
    return len(samples) > 0


def read_vectors(path: Path) -> object:
    words, vectors = read_word2vec(path)
    assert len(words) == len(vectors)
    return min(len(words), 3), min(vectors.shape[1], 3)


def repacked(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Mostly a sound archive in which one file is damaged; the archive itself otherwise."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()[:30]}
    except Exception:  # an archive that is itself damaged, in any of the ways zipfile reports
        return damaged(data, others, random)
    if not files or random.random() < 0.25:
        return damaged(data, others, random)
    name = random.choice(list(files))
    return _zipped({**files, name: damaged(files[name], list(files.values()), random)})


def _zipped(files: dict[str, bytes]) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def _workbook(rows: Sequence[Sequence[Any]]) -> bytes:
    book, out = Workbook(), BytesIO()
    for row in rows:
        book.active.append(row)
    book.save(out)
    return out.getvalue()


def _vectors(*, binary: bool) -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "v"
        save_word2vec(path, ["a", "bé", "c"], np.arange(12, dtype=np.float32).reshape(3, 4), binary=binary)
        return path.read_bytes()


def _picture() -> bytes:
    out = BytesIO()
    Image.new("RGB", (40, 30), (9, 9, 9)).save(out, "JPEG")
    return out.getvalue()


PICTURE = _picture()


def targets() -> list[Target]:
    table = b"text,label\ngood,pos\nbad,neg\nfine,pos\nno,neg\n"
    workbooks = [
        _workbook([["text", "label"], ["good", "pos"], ["bad", 0], [None, None], ["x", 1.5]]),
        _workbook([["good", "pos"], ["bad", "neg"]]),
    ]
    archives = [_zipped({"a.csv": table}), _zipped({"train.csv": table, "test.csv": table, "readme.txt": b"hello"})]
    sound = tone(0.1)
    sounds = [encoded(sound), encoded(sound, 8000, format="FLAC"), encoded(np.stack([sound, sound], 1), format="OGG")]
    return [
        Target("workbook", "x.xlsx", workbooks, read_rows("classify"), repacked, 1),
        Target("zip of tables", "x.zip", archives, read_rows("classify"), repacked, 1),
        Target("fastText", "x.txt", FASTTEXT, read_rows("classify"), damaged, 2),
        Target("conversations", "x.jsonl", CONVERSATIONS, read_rows("chat"), damaged, 3),
        Target("VOC", "Annotations/a.xml", [VOC], read_boxes({"JPEGImages/a.jpg": PICTURE}, 1), damaged, 2),
        Target("COCO", "annotations.json", [json.dumps(COCO).encode()], read_boxes({}, 0), lied, 2),
        Target("YOLO labels", "labels/a.txt", [YOLO], read_boxes({"data.yaml": YAML}, 1), damaged, 2),
        Target("YOLO data.yaml", "data.yaml", [YAML], read_boxes({"labels/a.txt": YOLO}, 0), damaged, 1),
        Target("sound", "x.wav", sounds, read_sound, damaged, 2),
        Target("word vectors", "x.vec", [_vectors(binary=False), _vectors(binary=True)], read_vectors, damaged, 2),
    ]
