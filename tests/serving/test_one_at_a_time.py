"""Uploads and trainings of many clients at once: what was promised holds. What a server writes is for its user alone,
and its messages name no folder."""

import asyncio
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.server import Running, running

from headway.cli.serve import open_to_others, private_files
from headway.errors import DataError, DiskError
from headway.serving import runs, runs_data, runs_process
from headway.serving.api_errors import ApiError, as_api_error, without_folders
from headway.serving.runs import MOST_TRAININGS
from headway.serving.runs_data import Uploads, safe_name
from headway.serving.runs_table import RunTable


@pytest.fixture
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A server whose trainings sleep."""
    monkeypatch.setattr(runs_process, "command", lambda _: [sys.executable, "-c", "import time; time.sleep(60)"])
    table = RunTable(tmp_path / "runs", train=True)
    (tmp_path / "runs").mkdir()
    with running(runs=table) as found:
        yield found
        for record in table.processes.records().values():
            if record.is_alive():
                os.kill(record.pid, 9)


def at_once(count: int, call: Callable[[int], Any]) -> list[Any]:
    ready = threading.Barrier(count)

    def one(number: int) -> Any:
        ready.wait()
        return call(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def started(server: Running) -> list[int]:
    return at_once(12, lambda n: server.post("/studio/runs", {"task": "classify", "name": f"run{n}"}).status)


def test_no_more_trainings_start_than_the_limit(studio: Running) -> None:
    assert sorted(started(studio)) == [201] * MOST_TRAININGS + [429] * (12 - MOST_TRAININGS)
    assert set(at_once(4, lambda _: studio.post("/studio/runs", {"task": "tag", "name": "x"}).status)) == {429}


def test_control_without_the_lock_more_start(studio: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    table: Any = studio.server.runs
    monkeypatch.setattr(table, "turn", asyncio.Semaphore(100))
    monkeypatch.setattr(runs, "changing", lambda folder: nullcontext())
    require = runs._require_place

    def slow(table: RunTable) -> None:
        require(table)
        time.sleep(0.3)

    monkeypatch.setattr(runs, "_require_place", slow)
    assert started(studio).count(201) > MOST_TRAININGS


def acknowledged(uploads: Uploads) -> list[bool]:
    """Whether each upload is there under the name that was told."""
    names = at_once(16, lambda n: uploads.save("a.csv", b"%d" % n))
    return [(uploads.folder / name).read_bytes() == b"%d" % n for n, name in enumerate(names)]


def test_every_acknowledged_upload_is_there(tmp_path: Path) -> None:
    assert all(acknowledged(Uploads(tmp_path))) and len(list((tmp_path / "uploads").iterdir())) == 16


def test_control_without_the_lock_uploads_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_data, "changing", lambda folder: nullcontext())
    monkeypatch.setattr(runs_data, "save_bytes", lambda path, data, new: (time.sleep(0.05), path.write_bytes(data)))
    assert not all(acknowledged(Uploads(tmp_path)))


def test_a_name_that_no_disk_takes_is_the_clients_fault(studio: Running) -> None:
    for name in ("a" * 300 + ".csv", "ä" * 150 + ".csv", "文" * 90 + ".csv"):
        with pytest.raises(ApiError) as refused:
            safe_name(name)
        assert refused.value.status_code == 400 and "shorten" in str(refused.value.detail)
    assert len(os.fsencode(safe_name("文" * 70 + ".csv"))) < 255


def test_messages_name_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for message, shown in (
        (f"{tmp_path}/a b.csv:3: broken", "a b.csv:3: broken"), ("/srv/me/x/y.csv: no", "y.csv: no"),
        ("see (/srv/models/m): no", "see (m): no"), ("3/4 of a/b, https://a.b/c/d", "3/4 of a/b, https://a.b/c/d"),
    ):  # fmt: skip
        assert without_folders(message) == shown
    for error in (DataError("/srv/data/a.csv: bad"), DiskError("/srv/data/a.csv: bad")):
        assert "/srv" not in str(as_api_error(error).detail)

    def full(*_: Any, **__: Any) -> None:
        raise DiskError(f"{tmp_path}/uploads/a.csv: cannot be written")

    monkeypatch.setattr(runs_data, "save_bytes", full)
    with pytest.raises(ApiError) as refused:
        Uploads(tmp_path).save("a.csv", b"1")
    assert refused.value.status_code == 507 and refused.value.detail == "a.csv: cannot be written"


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_what_a_server_writes_is_private(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with private_files():
            Uploads(tmp_path / "private").save("a.csv", b"1")
        Uploads(tmp_path / "open").save("a.csv", b"1")  # control
    finally:
        assert os.umask(before) == 0o022
    modes = [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (tmp_path / "private").rglob("*")]
    assert modes and not any(modes)
    key = tmp_path / "key"
    key.write_text("k" * 20)
    key.chmod(0o644)
    assert open_to_others(key) and open_to_others(tmp_path / "open")
    key.chmod(0o600)
    assert not open_to_others(key) and not open_to_others(tmp_path / "private")
