"""Training reads and tokenises its data once before the first step, and trains the model that it built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.bad_files import sound

from headway import jobs, tasks
from headway.data import text_reader
from headway.jobs import preparation, training
from headway.jobs.cost import SAMPLE
from headway.jobs.run_config import facts_of
from headway.loading import load
from headway.preprocess.text import Tokenizer

SMALL = {"model": {"width": 16, "layers": 1, "heads": 2}, "batch": 4, "eval_every": 0, "save_every": 0, "device": "cpu"}
KINDS = {"classify": "csv", "translate": "tsv", "tag": "jsonl", "answer": "jsonl", "embed": "tsv", "fill": "csv",
         "summarize": "jsonl"}  # fmt: skip


def data_file(task: str, folder: Path) -> Path:
    path = folder / f"x.{KINDS.get(task, 'txt')}"
    text = "".join(f"{i} is a number, and so is {i * i}.\n" for i in range(3000))
    path.write_text(text if task == "generate" else sound(task, KINDS[task], count=300), encoding="utf-8")
    return path


class StoppedError(Exception):
    pass


class FirstStep:
    def __getattr__(self, name: str) -> Any:
        return lambda *_: None

    def on_step(self, status: object) -> None:
        raise StoppedError


@pytest.mark.parametrize("task", [*KINDS, "generate"])
def test_data_is_read_and_tokenised_once(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_reader, "CHUNK", 1 << 10)
    path = data_file(task, tmp_path)
    read, encoded, alone = [0], [0], [0]
    observed = text_reader._observed
    monkeypatch.setattr(text_reader, "_observed", lambda *given: _count(read, observed(*given)))
    batch, single = Tokenizer._encodings, Tokenizer._encode

    def encodings(self: Tokenizer, texts: Any, special: bool) -> Any:
        encoded[0] += len(set(map(str, texts)))
        return batch(self, texts, special)

    def encode(self: Tokenizer, *given: Any, **options: Any) -> Any:
        found = single(self, *given, **options)
        alone[0] += not any(found is known for known in self._ahead.values())
        return found

    monkeypatch.setattr(Tokenizer, "_encodings", encodings)
    monkeypatch.setattr(Tokenizer, "_encode", encode)
    plan = jobs.make_plan(task, path, steps=2, settings=SMALL)
    data = jobs.open_data(plan)
    heads = read[0]  # the layout is detected from the first lines
    loaded = data.load()
    facts = facts_of(plan, loaded)
    preparation.prepare_run(plan, tmp_path / "run", loaded, facts=facts, say=lambda _: None)
    assert read[0] - heads == path.stat().st_size
    rows = list(data.train())
    sample = sorted(map(_texts, rows))[-SAMPLE:] if tasks.find(task).budgeted else []  # whose lengths decide the limit
    assert 0 < encoded[0] <= sum(map(_texts, rows)) + sum(sample)
    assert alone[0] < 40  # a task tries out how its tokenizer joins texts


def _count(total: list[int], data: bytes) -> bytes:
    total[0] += len(data)
    return data


def _texts(row: Any) -> int:
    """An upper bound of the texts in a row."""
    return sum(1 + value.count(".") + value.count("\n") for value in row.fields.values() if isinstance(value, str)) + 1


def test_the_model_is_not_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr(training, "load", refuse)
    monkeypatch.setattr(preparation, "load", refuse)
    path = data_file("classify", tmp_path)
    with pytest.raises(StoppedError):
        jobs.train("classify", path, out=tmp_path / "run", steps=2, settings=SMALL, callbacks=[FirstStep()])


@pytest.mark.parametrize("task", [*KINDS, "generate"])
def test_what_is_trained_is_what_a_resumed_run_loads(task: str, tmp_path: Path) -> None:
    plan = jobs.make_plan(task, data_file(task, tmp_path), steps=2, settings=SMALL)
    data = jobs.open_data(plan).load()
    facts = facts_of(plan, data)
    fresh = preparation.prepare_run(plan, tmp_path / "run", data, facts=facts, say=lambda _: None)
    said: list[str] = []
    again = preparation.prepare_run(plan, tmp_path / "run", data, facts=None, say=said.append)
    assert not any("prepared again" in line for line in said), "the key of the examples differs"
    for name in ("family", "folder", "foreign", "generation"):
        assert getattr(fresh.bundle, name) == getattr(again.bundle, name), name
    one, two = fresh.bundle.model.state_dict(), again.bundle.model.state_dict()
    assert one.keys() == two.keys() and all(bool((one[name] == two[name]).all()) for name in one)
    assert fresh.bundle.task is not None and again.bundle.task is not None
    assert fresh.bundle.task.to_dict() == json.loads(json.dumps(again.bundle.task.to_dict()))
    assert fresh.report is not None and again.report is not None
    measured = {"extra": None, "estimates": None}  # times differ
    left, right = (report.to_dict() | measured for report in (fresh.report, again.report))
    assert left == right
    assert len(fresh.source) == len(again.source)
    assert load(tmp_path / "run").labels == fresh.bundle.labels
