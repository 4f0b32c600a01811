"""What is fired at: every reader of a file that may come from anywhere, through the door that users use."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from fuzz import data_targets, format_targets, models, more_targets, seeds
from fuzz.campaign import Target
from fuzz.mutate import damaged, lied, lied_header
from PIL import Image
from safetensors.torch import save

import headway
from headway import tasks
from headway.bundle import Bundle
from headway.checkpoints import TensorFiles, read_header, read_json, save_tensors
from headway.checkpoints.json_tensors import read_json_tensors
from headway.checkpoints.sentence import sentence_settings
from headway.data import store_writer
from headway.data.check import check
from headway.data.dataset import open_files
from headway.data.images import image_parts
from headway.data.row import Row
from headway.data.store import Store
from headway.data.truncation import TruncationCounter
from headway.families import find
from headway.families.family import Keys
from headway.generation.defaults import read_defaults
from headway.models.build import build
from headway.preprocess.image_processor import ImageProcessor
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer
from headway.tasks.batches import prepare

torch.set_num_threads(1)
TEXT_TASKS = ("generate", "translate", "summarize", "classify", "tag", "answer", "fill", "embed")
FIELDS = {name: (tasks.find(name).fields, tasks.find(name).running_text) for name in TEXT_TASKS}


def read_config(path: Path) -> object:
    return type(models.read(read_json(path))).__name__


def read_header_and_tensors(path: Path) -> object:
    header = read_header(path)
    files = TensorFiles(path)
    return sorted((info.dtype, len(info.shape), files[name].numel() == 0) for name, info in header.items())


def read_index(path: Path) -> object:
    save_tensors(path.parent / "a", {"x": torch.ones(2)})
    (path.parent / "a" / "model.safetensors").replace(path.parent / "one.safetensors")
    return len(TensorFiles(path))


def read_modules(path: Path) -> object:
    pooling = path.parent / "1_Pooling" / "config.json"
    pooling.parent.mkdir(exist_ok=True)
    pooling.write_text('{"pooling_mode_mean_tokens": true}')
    return sentence_settings(path.parent)


def reads(*names: str) -> Callable[[Path], object]:
    """A data file as each of some tasks reads it; which one, the file's own size decides."""

    def read(path: Path) -> object:
        name = names[path.stat().st_size % len(names)]
        fields, running = FIELDS[name]
        data = open_files(path, fields=fields, columns={}, running=running)
        for row in data.test():
            assert set(fields) <= set(row.fields), "a field is missing"
            assert row.where.rpartition(":")[2].isdigit(), "a place without a line"
        report = check(data.train(), held_out=data.valid())
        report.summary()
        json.dumps(report.to_dict())
        return name, data.layout[:20], min(report.examples, 5), len(report.warnings)

    return read


def read_tokenizer(path: Path) -> object:
    tokenizer = Tokenizer.load(path.parent)
    ids = tokenizer.encode("Ada <s> met\n[MASK] 🙂 in Leeds")
    tokenizer.decode(ids)
    tokenizer.tokens(ids)
    tokenizer.encode_words(["Ada", "", "met"])
    tokenizer.encode_pair("a", "b")
    return len(ids), tokenizer.roles.keys()


def read_task(path: Path) -> object:
    """A whole model folder whose headway.json lies, loaded and asked."""
    for file, content in _model_folder().items():
        (path.parent / file).write_bytes(content)
    bundle = headway.load(path.parent)
    return bundle.task and bundle.task.name


def read_model_config(path: Path) -> object:
    """The same with a config.json that lies beside sound weights."""
    for file, content in _model_folder().items():
        if file != "config.json":
            (path.parent / file).write_bytes(content)
    bundle = headway.load(path.parent)
    bundle.labels  # noqa: B018 – what is asked for first
    return bundle.family


def read_store(path: Path) -> object:
    """A run's prepared examples with a forged index. Either they are used and are the expected ones: only what no other
    file determines may be forged (names of data files, types of the same size, what was cut). Or they are written
    again, and every file is as before."""
    folder = path.parent / "examples"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file, content in (_store() | {path.name: path.read_bytes()}).items():
        (folder / file).write_bytes(content)
    task, store = _prepared(folder)
    task.truncation.summary()
    assert _contents(store) == _stored(), "other examples than those that were prepared"
    if (folder / path.name).read_bytes() == path.read_bytes():
        return "used"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == _store(), "prepared anew, but otherwise"
    return "prepared anew"


def read_progress(path: Path) -> object:
    """The same examples, half written when the process died, with a forged progress file: continued or written again,
    they are the expected ones."""
    folder = path.parent / "examples"
    shutil.rmtree(folder, ignore_errors=True)
    half = folder.with_name(".examples-draft")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir()
    for file, content in (_draft() | {path.name: path.read_bytes()}).items():
        (half / file).write_bytes(content)
    task, store = _prepared(folder)
    assert _contents(store) == _stored(), "other examples than those that were to be prepared"
    return len(task.truncation.summary())


def make_examples(path: Path) -> object:
    """Any text at all as an example of every task."""
    text = path.read_bytes().decode("utf-8", "replace").replace("\0", " ")
    name = TEXT_TASKS[len(text) % len(TEXT_TASKS)]
    task, words = _task(name), text.split()
    fields: dict[str, Any] = dict.fromkeys(("text", "source", "target", "a", "b", "question", "context"), text)
    fields |= {"words": words, "tags": ["O"] * len(words), "answers": [(text[:5], 0)], "label": task_label(task)}
    row = Row({field: fields[field] for field in task.fields}, "x:1")
    examples = task.examples(row)
    task.token_lengths(row)
    if examples:
        task.collate(examples[:4], seeds=[(0, i) for i in range(len(examples[:4]))], where=["x:1"] * len(examples[:4]))
    return name, min(len(examples), 3)


def read_picture(path: Path) -> object:
    return ImageProcessor(size=(8, 8)).pixels(path).sum() > 0


def read_preprocessor(path: Path) -> object:
    found = Processor.load(path.parent, image_channels=3).image
    return None if found is None else (found.size is None, found.resample, found.crop_size is None, found.mean is None)


def read_generation(path: Path) -> object:
    return sorted(read_defaults(path.parent, {}, reads_source=True, vocab=100).options)


def read_idx(path: Path) -> object:
    labels = bytes([0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 2])
    (path.parent / "train-labels-idx1-ubyte").write_bytes(labels)
    return len(image_parts(path.parent)["train"].rows)


def task_label(task: Any) -> str:
    return task.labels[0] if hasattr(task, "labels") else ""


@cache
def _task(name: str) -> Any:
    rows = tasks.find(name).builtin.rows(size=300)
    return tasks.find(name).from_data(tasks.find(name).scan(rows), tokenizer=None, options={"vocab": 400})


@cache
def _tokenizer_json() -> list[bytes]:
    """Small tokenizers of every kind there is."""
    texts = ["Ada met Charles in Leeds.", "a b c"]
    out = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, size in (("char", 40), ("bpe", 280), ("wordpiece", 60)):
            Tokenizer.train(texts, kind=kind, size=size).save(folder)  # type: ignore[arg-type]
            out.append((Path(folder) / "tokenizer.json").read_bytes())
    added = {"id": 0, "content": "<unk>", "special": True}
    added |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    first, second = ({"Sequence": {"id": name, "type_id": number}} for number, name in enumerate("AB"))
    unigram = {
        "version": "1.0",
        "added_tokens": [added],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Precompiled", "precompiled_charsmap": "ALQCAACEAAAAAACAAQAA"},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            ],
        },
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "post_processor": {
            "type": "TemplateProcessing", "single": [first], "pair": [first, second], "special_tokens": {},
        },
        "decoder": {"type": "Metaspace", "replacement": "▁"},
        "model": {
            "type": "Unigram", "unk_id": 0, "byte_fallback": False,
            "vocab": [["<unk>", 0.0], ["▁", -1.0], ["a", -2.0], ["▁Ada", -3.0]],
        },
    }  # fmt: skip
    unigram_plain = json.loads(json.dumps(unigram))
    unigram_plain["normalizer"] = {"type": "NFKC"}
    return [*out, *seeds.dumped([unigram, unigram_plain])]


def _pictures() -> list[bytes]:
    out = []
    for kind, mode in (("PNG", "RGB"), ("PNG", "I;16"), ("JPEG", "CMYK"), ("GIF", "P"), ("BMP", "L"), ("TIFF", "RGBA"),
                       ("WEBP", "RGB")):  # fmt: skip
        buffer = BytesIO()
        Image.new(mode, (6, 5), 7 if mode in ("P", "L", "I;16") else None).save(buffer, kind)
        out.append(buffer.getvalue())
    return out


@cache
def _model_folder() -> dict[str, bytes]:
    from headway.checkpoints.saved import CHECKSUMS

    with tempfile.TemporaryDirectory() as folder:
        config = seeds.GPT2 | {"vocab_size": 60, "n_positions": 32}
        kind = find("gpt2")
        ours = kind.read(Keys(config), config["architectures"][0])
        tokenizer = Tokenizer.train(["Ada met Charles in Leeds."], kind="wordpiece", size=60)
        Bundle(build(ours), kind.name, Processor(tokenizer), foreign=config).save(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.name != CHECKSUMS}


def _prepared(folder: Path, *, rows: Callable[[list[Row]], Iterable[Row]] = iter) -> tuple[Any, Store]:
    """Four short texts and one that is cut, prepared as for training."""
    task: Any = _TypedTask()
    all_rows = [Row({"text": "so so " * n}, f"f.csv:{n}") for n in (1, 2, 3, 4, 3000)]
    return task, prepare(task, rows(all_rows), folder, key="k")


class _TypedTask:
    """Examples with a field of every kind: integers of rank 0 and 1, floats of rank 2, bytes."""

    def __init__(self) -> None:
        self.truncation = TruncationCounter()

    def encode_ahead(self, rows: Sequence[Row]) -> None:
        pass

    def token_lengths(self, row: Row) -> dict[str, int]:
        return {"text": len(row.fields["text"])}

    def training_examples(self, row: Row) -> list[dict[str, Any]]:
        ids = self.truncation.apply(list(row.fields["text"].encode()), 100, part="text", where=row.where)
        boxes = np.array(ids, np.float32)[: len(ids) // 4 * 4].reshape(-1, 4)
        return [{"ids": np.array(ids, np.int32), "label": np.int64(len(ids)), "boxes": boxes, "image": bytes(ids)}]


def _contents(store: Store) -> list[Any]:
    return [
        ({name: np.asarray(value).tobytes() for name, value in store[i].items()}, store.where(i).rpartition(":")[2])
        for i in range(len(store))
    ]


@cache
def _store() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        _prepared(Path(folder) / "s")
        return {path.name: path.read_bytes() for path in (Path(folder) / "s").iterdir()}


@cache
def _draft() -> dict[str, bytes]:
    """The files after the third row, with progress saved after every row."""
    with tempfile.TemporaryDirectory() as folder, patch.object(store_writer, "PROGRESS_BYTES", 1):
        with contextlib.suppress(KeyboardInterrupt):
            _prepared(Path(folder) / "s", rows=_interrupted)
        return {path.name: path.read_bytes() for path in (Path(folder) / ".s-draft").iterdir()}


def _interrupted(rows: list[Row]) -> Iterator[Row]:
    yield from rows[:3]
    raise KeyboardInterrupt


@cache
def _stored() -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        return _contents(_prepared(Path(folder) / "s")[1])


def _with_checksum(text: bytes, others: Any, random: Any) -> bytes:
    """A forged index or progress file, most of the time with a matching checksum of its own."""
    from headway.data.checksums import json_checksum

    out = lied(text, others, random)
    try:
        value = json.loads(out)
        value["checksum"] = json_checksum({name: part for name, part in value.items() if name != "checksum"})
        return json.dumps(value).encode() if random.random() < 0.9 else out
    except (ValueError, TypeError, RecursionError):
        return out


HEADER = save({"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(0), "c": torch.tensor(7)}, {"format": "pt"})
VOCABULARY = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nada\nmet\n##s\n,\n"
IDX = bytes([0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2]) + bytes(range(12))
INDEX = {"metadata": {"total_size": 8}, "weight_map": {"x": "one.safetensors"}}

TARGETS = [
    Target(
        "config", "config.json", seeds.dumped([*models.family_configs(), *models.own_configs()]), read_config, lied, 28
    ),
    Target("model config", "config.json", [_model_folder()["config.json"]], read_model_config, lied, 1.5),
    Target("headway.json", "headway.json", seeds.dumped(seeds.TASK_FILES), read_task, lied, 1.5),
    Target("safetensors", "model.safetensors", [HEADER], read_header_and_tensors, lied_header, 20),
    Target("shard index", "model.safetensors.index.json", seeds.dumped([INDEX]), read_index, lied, 1),
    Target("json model", "x-model.json", seeds.dumped([seeds.JSON_MODEL]), read_json_tensors, lied, 4),
    Target("modules.json", "modules.json", seeds.dumped(seeds.MODULES), read_modules, lied, 3),
    Target("tokenizer.json", "tokenizer.json", _tokenizer_json(), read_tokenizer, lied, 4),
    Target("vocab.txt", "vocab.txt", [VOCABULARY], read_tokenizer, damaged, 2),
    Target("CSV", "x.csv", seeds.FILES, reads(*TEXT_TASKS), damaged, 10),
    Target("TSV", "x.tsv", seeds.FILES, reads(*TEXT_TASKS), damaged, 6),
    Target("JSON lines", "x.jsonl", seeds.FILES[len(seeds.TABLES) :], reads(*TEXT_TASKS), damaged, 8),
    Target("JSON", "x.json", [*seeds.dumped(seeds.SQUAD), *seeds.FILES], reads(*TEXT_TASKS), damaged, 8),
    Target("SQuAD", "x.json", seeds.dumped(seeds.SQUAD), reads("answer"), lied, 4),
    Target("CoNLL", "x.conll", [text.encode() for text in seeds.CONLL], reads("tag"), damaged, 5),
    Target("plain text", "x.txt", seeds.FILES, reads(*TEXT_TASKS), damaged, 6),
    Target("encodings", "x.csv.gz", seeds.ENCODED, reads(*TEXT_TASKS), damaged, 5),
    Target("image", "x.png", _pictures(), read_picture, damaged, 3),
    Target("preprocessor", "preprocessor_config.json", seeds.dumped(seeds.PREPROCESSORS), read_preprocessor, lied, 2),
    Target("generation", "generation_config.json", seeds.dumped(seeds.GENERATION), read_generation, lied, 2),
    Target("idx", "train-images-idx3-ubyte", [IDX], read_idx, damaged, 1),
    Target("store index", "index.json", [_store()["index.json"]], read_store, _with_checksum, 2),
    Target("store progress", "progress.json", [_draft()["progress.json"]], read_progress, _with_checksum, 2),
    Target("examples", "x.txt", seeds.FILES, make_examples, damaged, 2),
    *more_targets.targets(),
    *data_targets.targets(),
]
TARGETS += format_targets.targets(TARGETS)
