"""TRUST 25, 26 and 28: sizes in a model folder are validated before memory is allocated; a tokenizer cannot take
unbounded time; special tokens in inputs or data are plain text."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.bad_files import FORMATS, begun, opened, sound
from support.timing import processor_seconds

from headway.errors import CheckpointError
from headway.preprocess.text import Tokenizer

# ---------------------------------------------------------------------------------------- 25, 26: sizes

BOMBS: dict[str, dict[str, Any]] = {
    "many layers": {"n_layer": 10**9},
    "layers that the file does not have": {"n_layer": 10_000},
    "wide": {"n_embd": 10**7, "n_head": 1},
    "a vocabulary without end": {"vocab_size": 10**8, "n_embd": 10**6},
    "nothing wide": {"n_embd": 0},
    "no number": {"layer_norm_epsilon": float("nan")},
    "many positions": {"n_positions": 10**8},
    "beyond floats": {"attn_pdrop": 10**400},
}
MEASURE = """
import json, re, sys
import headway, headway.loading
from headway.errors import HeadwayError
from support.timing import processor_seconds
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) // 1024
out = {}
headway.load(sys.argv[1])
for folder in sys.argv[2:]:
    def load():
        try:
            headway.load(folder)
            out[folder] = "read"
        except HeadwayError as error:
            out[folder] = str(error)[:300]
    before, seconds = peak(), processor_seconds(load, limit=1)
    out[folder] = [out[folder], peak() - before, seconds]
print(json.dumps(out))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's own count of memory")
def test_a_config_with_absurd_sizes_takes_no_memory_and_no_time(tmp_path: Path) -> None:
    from fuzz.targets import _model_folder

    sound_one, folders = tmp_path / "sound", {}
    for name, keys in {"sound": {}, **BOMBS}.items():
        folder = tmp_path / name
        folder.mkdir()
        for file, content in _model_folder().items():
            (folder / file).write_bytes(content)
        config = json.loads((folder / "config.json").read_text()) | keys
        (folder / "config.json").write_text(json.dumps(config))
        folders[name] = str(folder)
    command = [sys.executable, "-c", MEASURE, str(sound_one), *(folders[name] for name in BOMBS)]
    tests = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), *sys.path])}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    for folder, (outcome, megabytes, seconds) in json.loads(done.stdout).items():
        assert outcome != "read", folder
        assert megabytes < 100 and seconds < 1, (folder, outcome, megabytes, seconds)


def tokenizer_with(folder: Path, **parts: Any) -> Path:
    Tokenizer.train(["Ada met Charles in Leeds."], kind="bpe", size=280).save(folder)
    spec = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(spec | parts))
    return folder


def test_tokenizer_bombs(tmp_path: Path) -> None:
    folder = tokenizer_with(tmp_path)
    assert Tokenizer.load(folder).encode("Ada")
    path = folder / "tokenizer.json"

    def refused(because: str) -> None:
        with pytest.raises(CheckpointError, match=because):
            Tokenizer.load(folder)

    for content, because in (
        (b'{"model": {"vocab": {' + b" " * (65 << 20), "bytes allowed"),
        (b'{"x": [' + b"[]," * 5_000_000 + b"[]]}", "lists and objects"),
    ):
        path.write_bytes(content)
        assert processor_seconds(functools.partial(refused, because), limit=0.5) < 0.5
    for parts in (
        {"model": {"type": "BPE", "vocab": {"a": 2**31}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": "0"}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["x", "y"]]}},
        {"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 9}},
        {"model": {"type": "os.system", "vocab": {}}},
        {"added_tokens": [{"id": 0}]},
        {"added_tokens": 5},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        {"decoder": {"type": "Sequence"}},
        {"post_processor": {"type": "TemplateProcessing", "single": "$A [X]", "pair": "$A $B", "special_tokens": []}},
    ):
        with pytest.raises(CheckpointError):
            Tokenizer.load(tokenizer_with(tmp_path, **parts))


# ---------------------------------------------------------------------------------------- 28: special tokens are text

NO_TOKENS = ("label", "tags", "segments", "context", "span")  # numbers of other things
MARKS = "[CLS] [SEP] [MASK] [PAD] [UNK] <s> </s> <pad> <unk> <mask> <|endoftext|>"


@pytest.mark.parametrize("task", FORMATS)
def test_special_tokens_in_the_data_are_plain_text(task: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(sound(task, "jsonl"), encoding="utf-8")
    data = opened(task, path)
    ready = begun(task, data)
    row = next(iter(data.train()))
    special = ready.tokenizer.special_ids - {ready.tokenizer.unk_id}

    def controls(row: Any) -> list[int]:
        named = [(name, ids) for one in ready.examples(row) for name, ids in one.items() if name not in NO_TOKENS]
        return [int(i) for _, ids in named for i in ids if int(i) in special]

    plain = controls(row)
    fields = dict(row.fields)
    for name, value in fields.items():
        if isinstance(value, str) and name != "label":
            fields[name] = value + " " + MARKS
    if task == "tag":
        fields["words"], fields["tags"] = MARKS.split(), ["O"] * len(MARKS.split())
    marked = type(row)(fields, row.where)
    assert controls(marked) == plain
    ids = [int(i) for one in ready.examples(marked) for i in next(iter(one.values()))]
    assert ready.tokenizer.mask_id not in ids
