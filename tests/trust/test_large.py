"""TRUST 13 and 14, and what is larger than memory: measured in processes of their own, under a stated cap."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import preparing
from support.bad_files import FORMATS, begun, opened, sound

from headway import tasks
from headway.data import checksums, store_writer
from headway.data.store import Store
from headway.errors import DataError, DiskError
from headway.tasks.batches import prepare

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's own count of memory")

CAP = 128  # megabytes beyond what Python and Headway take before they open a file
PROBE = """
import json, re, sys
from headway.data.dataset import open_files
from headway.errors import DataError
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) // 1024
before, answers = peak(), {}
for task, fields, running, path in json.loads(sys.argv[1]):
    try:
        data = open_files(path, fields=fields, columns={}, running=running)
        answers[path] = f"read {sum(1 for row in data.train())}"
    except DataError as error:
        answers[path] = str(error)
print(json.dumps([answers, peak() - before]))
"""


def probe(files: dict[str, Path]) -> tuple[dict[str, str], int]:
    """What each file was answered with, and how many megabytes that took at most."""
    requested = [
        (task, tasks.find(task).fields, tasks.find(task).running_text, str(path)) for task, path in files.items()
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(requested)], capture_output=True, text=True, check=True
    )
    answers, megabytes = json.loads(done.stdout)
    return answers, megabytes


def test_a_line_of_200_megabytes_within_the_cap(tmp_path: Path) -> None:
    """Running text is read, in pieces; for every other task the line is refused by its number."""
    whole = tmp_path / "line"
    with whole.open("wb") as file:
        for _ in range(200):
            file.write((b"word " * 209716)[: 1 << 20])
    kinds = {"generate": "txt", "fill": "txt", "translate": "tsv", "summarize": "jsonl", "classify": "csv",
             "tag": "conll", "answer": "json", "embed": "tsv"}  # fmt: skip
    assert set(kinds) == set(FORMATS)
    files = {task: tmp_path / f"{task}.{kind}" for task, kind in kinds.items()}
    for path in files.values():
        os.link(whole, path)
    answers, megabytes = probe(files)
    for path, answer in answers.items():
        if path.endswith(".txt"):
            assert answer == "read 2881", path  # nine tenths of 200 MB in pieces of 64 KB
        else:
            assert answer.startswith(f"{path}:1: ") and ("16,777,216 bytes" in answer or "bad JSON" in answer), answer
    assert megabytes < CAP


@pytest.mark.slow
def test_a_gigabyte_in_a_megabyte_within_the_cap(tmp_path: Path) -> None:
    line = {"txt": "word " * 8000, "tsv": "word " * 8000 + "\tx"}
    line["jsonl"] = json.dumps({"words": ["word"] * 4000, "tags": ["O"] * 4000})
    line["json"] = '{"data": [' + " " * 40_000
    kinds = {"generate": "txt", "classify": "tsv", "tag": "jsonl", "answer": "json"}
    files = {}
    for task, kind in kinds.items():
        member = gzip.compress((line[kind] + "\n").encode() * 260, 9)
        path = tmp_path / f"{task}.{kind}.gz"
        path.write_bytes(member * 100)  # a file of many members is one file
        assert path.stat().st_size < 5 << 20
        files[task] = path
    answers, megabytes = probe(files)
    for path, answer in answers.items():
        refused = "longer than 16,777,216 bytes" if "answer" in path else "unpacks to over"
        assert answer.startswith(path) and refused in answer, answer
    assert megabytes < CAP


def run(corpus: Path, folder: Path, *, kill_at: int | None = None) -> dict[str, Any] | None:
    """In a process of its own; None if it was killed."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def work() -> None:
        there.send(preparing.prepared(corpus, folder, kill_at=kill_at, real=False, progress_bytes=4_000_000))

    process = context.Process(target=work)
    process.start()
    there.close()
    process.join()
    if process.exitcode == -signal.SIGKILL:
        return None
    assert process.exitcode == 0
    found: dict[str, Any] = here.recv()
    return found


def test_sixty_megabytes_are_prepared_in_bounded_memory_and_through_kills(tmp_path: Path) -> None:
    """Killed three times, it continues from its saved progress; the result is bit-equal to an uninterrupted run."""
    corpus = tmp_path / "corpus.txt"
    with corpus.open("w") as file:
        for start in range(75):
            file.write("".join(f"{start * 20_000 + i} is a number, and so is {i * i}.\n" for i in range(20_000)))
    assert corpus.stat().st_size > 50_000_000
    quiet = run(corpus, tmp_path / "quiet")
    assert quiet and quiet["megabytes"] < CAP and quiet["begun_at"] == 1
    assert quiet["values"] == pytest.approx(corpus.stat().st_size * 0.9, rel=0.01)
    for kill_at in (700, 1500, 2900):
        assert run(corpus, tmp_path / "killed", kill_at=kill_at) is None
    last = run(corpus, tmp_path / "killed")
    assert last
    assert last["begun_at"] > 2500, "it began again instead of continuing"
    assert last["checksum"] == quiet["checksum"]
    assert last["megabytes"] < CAP


@pytest.mark.parametrize("task", FORMATS)
def test_every_task_continues_to_the_same_bytes(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts of what was truncated, and what a task remembers of the row before, survive too."""
    monkeypatch.setattr(store_writer, "PROGRESS_BYTES", 3000)
    kind = "csv" if task == "fill" else "jsonl"
    path = tmp_path / f"x.{kind}"
    path.write_text(sound(task, kind, count=400), encoding="utf-8")
    data = opened(task, path)
    limit = {"source_limit": 5} if task in ("translate", "summarize") else {"context": 4} if task == "generate" else {}
    limit |= {"limit": 10} if task in ("classify", "tag", "embed") else {}
    whole = begun(task, data, **limit)
    prepare(whole, data.train(), tmp_path / "whole", key="k")
    expected = preparing.checksum(tmp_path / "whole")
    for stop in (150, 330):

        def interrupt(count: int, stop: int = stop) -> None:
            if count >= stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            prepare(begun(task, data, **limit), data.train(), tmp_path / "again", key="k", progress=interrupt)
        assert (tmp_path / ".again-draft" / store_writer.PROGRESS).exists()
    ready = begun(task, data, **limit)
    prepare(ready, data.train(), tmp_path / "again", key="k")
    assert preparing.checksum(tmp_path / "again") == expected
    assert ready.truncation.state_dict() == whole.truncation.state_dict()
    opened_again = begun(task, data, **limit)
    prepare(opened_again, data.train(), tmp_path / "again", key="k")
    assert opened_again.truncation.summary() == whole.truncation.summary()


@pytest.mark.parametrize("lie", [0, -1, 19, 21, 10**9, 20.0, "20", True, None])
def test_progress_with_a_wrong_row_count_is_refused_and_removed(lie: object, tmp_path: Path) -> None:
    """Continuing from it would skip or repeat rows."""
    path = tmp_path / "x.jsonl"
    path.write_text(sound("classify", "jsonl", count=60), encoding="utf-8")
    data = opened("classify", path)
    prepare(begun("classify", data), data.train(), tmp_path / "whole", key="k")
    task = begun("classify", data)
    with pytest.raises(KeyboardInterrupt), store_writer.StoreWriter(tmp_path / "again", key="k") as writing:
        for row in list(data.train())[:20]:
            for example in task.examples(row):
                writing.add({**example, "where": row.where})
        writing.save_progress({"rows": lie, "truncation": task.truncation.state_dict()})
        raise KeyboardInterrupt
    with pytest.raises(DataError, match="damaged and is removed; start again"):
        prepare(begun("classify", data), data.train(), tmp_path / "again", key="k")
    prepare(begun("classify", data), data.train(), tmp_path / "again", key="k")
    assert preparing.checksum(tmp_path / "again") == preparing.checksum(tmp_path / "whole")


def half_done(folder: Path) -> Path:
    """60 examples written, progress saved at the fiftieth."""

    with pytest.raises(KeyboardInterrupt), store_writer.StoreWriter(folder, key="k") as writing:
        for number in range(60):
            writing.add({"ids": np.arange(number, dtype=np.int32), "where": f"f:{number}"})
            if number == 49:
                writing.save_progress({"rows": 50})
        raise KeyboardInterrupt
    return folder.with_name(f".{folder.name}-draft")


DAMAGES = ["nothing", "another key", "a flipped byte", "a flipped byte in the last file", "a cut file",
           "false progress", "no file", "a link"]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_writing_continues_only_from_intact_files(damage: str, tmp_path: Path) -> None:
    place = half_done(tmp_path / "s")
    values = place / "ids.bin"
    data = bytearray(values.read_bytes())
    if damage == "a flipped byte":
        data[100] ^= 1
        values.write_bytes(data)
    elif damage == "a flipped byte in the last file":
        places = bytearray((place / "where.bin").read_bytes())
        places[100] ^= 1
        (place / "where.bin").write_bytes(places)
    elif damage == "a cut file":
        values.write_bytes(data[:100])
    elif damage == "false progress":
        (place / store_writer.PROGRESS).write_text((place / store_writer.PROGRESS).read_text().replace("50", "51"))
    elif damage == "no file":
        values.unlink()
    elif damage == "a link":
        (tmp_path / "mine").write_bytes(data + b"more than the progress says")
        values.unlink()
        values.symlink_to(tmp_path / "mine")
    with store_writer.StoreWriter(tmp_path / "s", key="other" if damage == "another key" else "k") as writing:
        assert (writing.count, writing.metadata) == ((50, {"rows": 50}) if damage == "nothing" else (0, {}))
        writing.add({"ids": np.arange(7, dtype=np.int32), "where": "f:99"})
        writing.finish()
    assert damage != "a link" or (tmp_path / "mine").read_bytes().endswith(b"says"), (
        "truncated or written through a link"
    )
    store = Store.open(tmp_path / "s", writing.key)
    assert store is not None and len(store) == (51 if damage == "nothing" else 1)
    assert (store[len(store) - 1]["ids"].tolist(), store.where(len(store) - 1)) == (list(range(7)), "f:99")


def test_two_processes_cannot_prepare_one_folder(tmp_path: Path) -> None:
    with (
        store_writer.StoreWriter(tmp_path / "s", key="k"),
        pytest.raises(DataError, match="another process is preparing"),
    ):
        store_writer.StoreWriter(tmp_path / "s", key="k").__enter__()


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with store_writer.StoreWriter(tmp_path / "s", key="k") as writing:
        writing.add({"ids": [1, 2]})
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(DiskError, match=r"s: cannot be written \(No space left.*are free"):
            writing.finish()


def test_forged_progress_cannot_reach_files_elsewhere(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(b"precious" * 100)
    place = half_done(tmp_path / "s")
    answers = checksums.read_checksummed(place / store_writer.PROGRESS)
    assert answers is not None
    answers["files"]["../mine"] = {"bytes": 3, "checksum": ""}
    checksums.write_checksummed(place / store_writer.PROGRESS, answers)
    with store_writer.StoreWriter(tmp_path / "s", key="k") as writing:
        assert writing.count == 0
    assert mine.read_bytes() == b"precious" * 100
