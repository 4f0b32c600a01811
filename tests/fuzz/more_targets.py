"""Targets beside data and weights: constraints of decoding, tokenizer files, adapters, processors, settings."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

from fuzz import models, seeds
from fuzz.campaign import Target
from fuzz.mutate import damaged, lied
from PIL import Image
from support.sentencepiece_models import trained

from headway.checkpoints import read_json
from headway.checkpoints.sentence import sentence_settings
from headway.cli.generation_options import read_schema
from headway.data.images import image_parts
from headway.generation.constraints import Grammar
from headway.generation.settings import GenerationSettings
from headway.jobs.overrides import from_file
from headway.jobs.run_config import make_plan
from headway.models.build import build
from headway.preprocess.image_processor import ImageProcessor
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer
from headway.training.lora import add_lora
from headway.training.peft_files import open_lora, save_lora

STEPS = 6  # tokens of a constrained answer

SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "string", "maxLength": 4}, "b": {"type": "integer", "minimum": 0}},
     "required": ["a"], "additionalProperties": False},
    {"type": "array", "items": {"anyOf": [{"type": "number", "maximum": 1.5}, {"const": "x"}]}, "maxItems": 3},
    {"$defs": {"n": {"enum": [1, None, "a"]}}, "type": "array", "prefixItems": [{"$ref": "#/$defs/n"}], "items": False},
    {"type": "string", "pattern": "^[a-z]{2,5}$"}, {"allOf": [{"type": "integer"}, {"multipleOf": 5}]},
    {"type": "string", "format": "date"}, {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
]  # fmt: skip
PATTERNS = [
    rb"[0-9]{3}-[0-9]{4}", rb"yes|no", rb"(cat|dog)( (cat|dog)){0,2}", r"[a-z]{2,5}é€".encode(), rb"\d{1,3}/\w+\s?",
    rb"(?i:a)[^b]*?c+", rb"\p{L}+(\.[\x41-\x5a])?", rb"((a|b)*c){2,}",
]  # fmt: skip
PATTERN_BYTES = [
    b"(", b")", b"[", b"]", b"*", b"+", b"?", b"{2,}", b"{0,99}", b"|", b"\\", b"^", b".", b"(?:", b"(?=", b"\\p{L}",
]  # fmt: skip


def read_schema_file(path: Path) -> object:
    settings = GenerationSettings(json_schema=read_schema(path))
    return _compile(settings) if settings.constrained else "none"


def read_pattern(path: Path) -> object:
    return _compile(GenerationSettings(regex=path.read_bytes().decode("utf-8", "surrogateescape")))


def _compile(settings: GenerationSettings) -> object:
    """Compiled, and followed for a few tokens. The trial in a separate process has a test of its own: it would take
    most of the time. Without it a few schemas exceed the time limit of the fuzzer; see `_is_costly`."""
    if settings.json_schema is not None and _is_costly(settings.json_schema):
        return "costly"
    grammar = _UntriedGrammar(settings, _tokenizer())
    state = grammar.new_state(begins_text=True)
    for step in range(STEPS):
        allowed = state.allowed(len(_tokenizer())).nonzero().flatten().tolist()
        if not allowed:
            return step
        state.push(allowed[step * 7 % len(allowed)])
    grammar.matches("x")
    return STEPS


LARGE = re.compile(r"\d{18}")  # a number of 64 bits


class _UntriedGrammar(Grammar):
    def _try(self, source: str) -> None:
        pass


def _is_costly(schema: str) -> bool:
    """Schemas whose compilation is known to be unbounded, or to crash, which the trial refuses."""
    return (
        "multipleOf" in schema
        or LARGE.search(schema) is not None
        or schema.count("allOf") > 1
        or schema.count("pattern") > 3
    )


@cache
def _tokenizer() -> Tokenizer:
    return Tokenizer.train(['{"a": "x", "b": [1, 2.5]} yes no 2024-01-02'] * 3, kind="bpe", size=300)


def pattern_damaged(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    at = random.randint(0, len(data))
    if random.random() < 0.6:
        return (data[:at] + random.choice(PATTERN_BYTES) + data[at + random.choice((0, 0, 1)) :])[:2_000]
    return damaged(data, others, random)[:2_000]


# ---------------------------------------------------------------------------------------- tokenizer files


def tokenizer_folder(kind: str) -> Callable[[Path], object]:
    """A tokenizer whose one file lies, beside the sound others."""

    def read(path: Path) -> object:
        for name, content in _sound_tokenizer(kind).items():
            if name != path.name:
                (path.parent / name).write_bytes(content)
        tokenizer = Tokenizer.load(path.parent)
        ids = tokenizer.encode("Ada <s> met\n[MASK] 🙂 in Leeds")
        tokenizer.decode(ids)
        return min(len(ids), 20), sorted(tokenizer.roles)

    return read


def read_pieces(path: Path) -> object:
    tokenizer = Tokenizer.load(path.parent)
    ids = tokenizer.encode("the quick <s> fox\n🙂 is Straße")
    tokenizer.decode(ids)
    return len(ids), tokenizer.roles.keys()


@cache
def _sound_tokenizer(kind: str) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        Tokenizer.train(["Ada met Charles in Leeds."] * 2, kind="bpe", size=280).save(folder)
        files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    if kind == "byte-level":
        model = json.loads(files.pop("tokenizer.json"))["model"]
        files["vocab.json"] = json.dumps(model["vocab"]).encode()
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
        files["merges.txt"] = "\n".join(["#version: 0.2", *merges]).encode()
    return files


COMPANIONS: dict[str, list[Any]] = {
    "tokenizer_config.json": [
        {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "model_max_length": 1e30, "do_lower_case": True,
         "additional_special_tokens": ["<x>"], "add_prefix_space": False,
         "chat_template": [{"name": "default", "template": "{{ messages }}"}]},
        {"added_tokens_decoder": {"280": {"content": "<new>", "special": True}}, "strip_accents": None},
    ],
    "special_tokens_map.json": [
        {"bos_token": "<s>", "pad_token": {"content": "<pad>"}, "extra_special_tokens": {"a": "b"}}
    ],
    "added_tokens.json": [{"<new>": 280, "<newer>": 281}],
    "config.json": [{"eos_token_id": [2, 3], "pad_token_id": 0, "bos_token_id": None}],
}  # fmt: skip


# ---------------------------------------------------------------------------------------- adapters, sentences, settings


def read_adapter(path: Path) -> object:
    model = _unadapted()
    for name, content in _adapter().items():
        if name != path.name:
            (path.parent / name).write_bytes(content)
    return len(open_lora(model, path.parent))


def _unadapted() -> Any:
    return build(models.read(seeds.GPT2))


@cache
def _adapter() -> dict[str, bytes]:
    model = _unadapted()
    add_lora(model, rank=2)
    with tempfile.TemporaryDirectory() as folder:
        save_lora(model, folder, base="x")
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def read_sentence_part(name: str) -> Callable[[Path], object]:
    """A sentence-transformers folder of which one settings file lies."""

    def read(path: Path) -> object:
        folder = path.parents[1] / "sentence"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "1_Pooling").mkdir(parents=True)
        (folder / "modules.json").write_bytes(json.dumps(seeds.MODULES[0]).encode())
        (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
        shutil.copy(path, folder / name)
        return sentence_settings(folder)

    return read


def read_processor(path: Path) -> object:
    found = Processor.load(path.parent, image_channels=3)
    return found.image is None, found.tokenizer is None


def read_settings(path: Path) -> object:
    """As `headway train --config` reads it."""
    return sorted(make_plan("classify", settings=from_file(path)).train)[:3]


def read_pictures(path: Path) -> object:
    """A zip archive or a table of pictures, each of which is opened."""
    (path.parent / "dark.png").write_bytes(_png(3))
    found = {part: rows.rows for part, rows in image_parts(path).items()}
    processor = ImageProcessor(size=(4, 4))
    for row in [row for rows in found.values() for row in rows][:5]:
        processor.pixels(row.fields["image"], where=row.where)
    return sorted((part, min(len(rows), 3)) for part, rows in found.items())


@cache
def _png(grey: int) -> bytes:
    out = BytesIO()
    Image.new("L", (6, 5), grey).save(out, "PNG")
    return out.getvalue()


@cache
def _archives() -> list[bytes]:
    out = []
    for names in (("a/1.png", "b/2.png"), ("train/a/1.png", "test/b/2.png", "notes.txt")):
        buffer = BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for grey, name in enumerate(names):
                archive.writestr(name, _png(grey))
        out.append(buffer.getvalue())
    return out


PICTURE_TABLE = b"image,label\ndark.png,dark\ndark.png,light\n"


def read_run_config(path: Path) -> object:
    return models.build_and_run(models.read(read_json(path)))


SETTINGS = [
    {"lr": 0.001, "batch": 8, "model": {"width": 16, "layers": 1, "heads": 2}, "task": {"vocab": 300}, "steps": 3},
    {"train.precision": "fp32", "save_every": "5m", "eval_every": 10, "clip": 1.0, "task.overflow": "truncate"},
]
PROCESSORS = [{"image_processor": value, "processor_class": "X"} for value in seeds.PREPROCESSORS] + [
    {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80, "sampling_rate": 16000, "hop_length": 160,
     "chunk_length": 30, "n_fft": 400, "padding_value": 0.0}
]  # fmt: skip


def targets() -> list[Target]:
    dumped = seeds.dumped
    adapter = _adapter()
    out = [
        Target("run config", "config.json", dumped(models.family_configs()), read_run_config, lied, 10),
        Target("own run config", "config.json", dumped(models.own_configs()), read_run_config, lied, 10),
        Target("JSON schema", "schema.json", dumped(SCHEMAS), read_schema_file, lied, 4),
        Target("regex", "regex.txt", PATTERNS, read_pattern, pattern_damaged, 4),
        Target("adapter config", "adapter_config.json", [adapter["adapter_config.json"]], read_adapter, lied, 3),
        Target("pooling", "x/config.json", dumped([{"pooling_mode_mean_tokens": True, "word_embedding_dimension": 8},
               {"pooling_mode": "cls"}]), read_sentence_part("1_Pooling/config.json"), lied, 1),
        Target("sentence length", "x/s.json", dumped([{"max_seq_length": 64, "do_lower_case": False}]),
               read_sentence_part("sentence_bert_config.json"), lied, 1),
        Target("processor", "processor_config.json", dumped(PROCESSORS), read_processor, lied, 2),
        Target("settings", "settings.json", dumped(SETTINGS), read_settings, lied, 3),
        Target("vocab.json", "vocab.json", [_sound_tokenizer("byte-level")["vocab.json"]],
               tokenizer_folder("byte-level"), lied, 1),
        Target("zip of pictures", "x.zip", _archives(), read_pictures, damaged, 1),
        Target("table of pictures", "x.csv", [PICTURE_TABLE], read_pictures, damaged, 1),
        Target("merges.txt", "merges.txt", [_sound_tokenizer("byte-level")["merges.txt"]],
               tokenizer_folder("byte-level"), damaged, 1),
        Target("SentencePiece", "tokenizer.model", [trained(kind, rule="identity", size=size)
               for kind, size in (("unigram", 400), ("bpe", 800))], read_pieces, damaged, 2),
    ]  # fmt: skip
    for name, values in COMPANIONS.items():
        kind = "byte-level" if name in ("tokenizer_config.json", "added_tokens.json") else "json"
        out.append(Target(f"tokenizer {name}", name, dumped(values), tokenizer_folder(kind), lied, 1))
    return out
