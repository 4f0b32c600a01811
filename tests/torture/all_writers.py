"""Every kind of writer, each with one text in all that it writes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torture.writers import Writer

import headway
from headway.bundle import Bundle
from headway.checkpoints import TensorFiles, read_json, save_json, save_tensors
from headway.checkpoints.saved import save_folder, verified
from headway.data.store import Store
from headway.data.store_writer import StoreWriter
from headway.files import atomic_write
from headway.jobs import predictions_file
from headway.serving.runs_data import UPLOADS, Uploads
from headway.training.log import MetricsLog
from headway.training.state import load_state, lock_folder, states, verify, write_state

NUMBERS = {"old": 0.0, "first": 1.0, "second": 2.0}
TEXTS = {number: text for text, number in NUMBERS.items()}
ROWS = 400


def one(found: set[str]) -> str:
    assert len(found) == 1, f"a mixture of {sorted(found)}"
    return found.pop()


def _write_file(folder: Path, text: str) -> str:
    with atomic_write(folder / "file") as partial:
        partial.write_text(f"{text}\n" * ROWS)
    return ""


def _read_lines(path: Path) -> str | None:
    if not path.exists():
        return None
    lines = path.read_text().splitlines()
    assert len(lines) == ROWS, f"{len(lines)} of {ROWS} lines"
    return one(set(lines))


def _write_predictions(folder: Path, text: str) -> str:
    predictions_file.refuse_present(folder / "out.jsonl")
    with predictions_file.writer(folder / "out.jsonl", None) as write:
        for _ in range(ROWS):
            write([{"text": text}])
    return ""


def _read_predictions(folder: Path, told: str) -> str | None:
    path = folder / "out.jsonl"
    if not path.exists():
        return None
    rows = [json.loads(line)["text"] for line in path.read_text().splitlines()]
    assert len(rows) == ROWS, f"{len(rows)} of {ROWS} rows"
    return one(set(rows))


def _write_state(folder: Path, text: str) -> str:
    write_state(
        folder / "run" / "training" / "state-1", {"model": {"w": torch.full((50,), NUMBERS[text])}, "name": text}
    )
    return ""


def _read_state(folder: Path, told: str) -> str | None:
    training = folder / "run" / "training"
    if not states(training):
        return None
    assert (problem := verify(training / "state-1")) is None, problem
    found = load_state(training / "state-1")
    return one({found["name"], TEXTS[float(found["model"]["w"][0])]})


def _write_model(folder: Path, text: str) -> str:
    with save_folder(folder / "model") as work:
        save_tensors(work, {"w": torch.full((50,), NUMBERS[text])})
        for name in ("config.json", "headway.json", "1_Pooling/config.json"):
            save_json(work / name, {"text": text})
    return ""


def _read_model(folder: Path, told: str) -> str | None:
    model = folder / "model"
    if not model.exists():
        return None
    with verified(model):
        files = [model / name for name in ("config.json", "headway.json", "1_Pooling/config.json")]
        return one({*(read_json(file)["text"] for file in files), TEXTS[float(TensorFiles(model)["w"][0])]})


@cache
def _bundle() -> Bundle:
    from support.writers import tiny_decoder

    model = tiny_decoder(12)
    return Bundle(model, "headway")


def _save_bundle(folder: Path, text: str) -> str:
    bundle = _bundle()
    with torch.no_grad():
        for parameter in bundle.model.parameters():
            parameter.fill_(NUMBERS[text])
    bundle.save(folder / "model")
    return ""


def _read_bundle(folder: Path, told: str) -> str | None:
    if not (folder / "model").exists():
        return None
    found = headway.load(folder / "model")
    numbers = {float(parameter.detach().flatten()[0]) for parameter in found.model.parameters()}
    return one({TEXTS[number] for number in numbers})


def _write_log(folder: Path, text: str) -> str:
    with lock_folder(folder / "run" / "training"):
        log = MetricsLog(folder / "run" / "training" / "metrics.jsonl")
        for step in range(3):
            log.write({"step": step, "text": text})
        return str(log.length())


def _read_log(folder: Path, told: str) -> str | None:
    path = folder / "run" / "training" / "metrics.jsonl"
    if not path.exists() or not path.read_bytes():
        return None
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert not told or len(lines) == 3, f"{len(lines)} of 3 lines"
    return one({line["text"] for line in lines})


def _upload(folder: Path, text: str) -> str:
    return Uploads(folder).save("data.csv", f"{text}\n".encode() * ROWS)


def _read_upload(folder: Path, told: str) -> str | None:
    return _read_lines(folder / UPLOADS / told) if told else None


def _write_store(folder: Path, text: str) -> str:
    with StoreWriter(folder / "examples", key="key") as writer:
        for number in range(writer.count, 20):
            writer.add({"ids": np.full(3, NUMBERS[text], dtype="float32"), "where": f"x.csv:{number + 1}"})
        writer.finish()
    return ""


def _read_store(folder: Path, told: str) -> str | None:
    store = Store.open(folder / "examples", key="key")
    if store is None:
        return None
    return one({TEXTS[float(store[number]["ids"][0])] for number in range(len(store))})


WRITERS = [
    Writer("a file", _write_file, lambda folder, told: _read_lines(folder / "file"), old=True),
    Writer("predictions", _write_predictions, _read_predictions, is_new=True),
    Writer("a training state", _write_state, _read_state),
    Writer("a training state that is there", _write_state, _read_state, old=True),
    Writer("a new model folder", _write_model, _read_model),
    Writer("a model folder that is there", _write_model, _read_model, old=True),
    Writer("Bundle.save over a model", _save_bundle, _read_bundle, old=True),
    Writer("the log of a run", _write_log, _read_log, in_turn=True),
    Writer("an upload", _upload, _read_upload, apart=True),
    Writer("prepared examples", _write_store, _read_store, in_turn=True),
]
