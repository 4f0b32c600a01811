"""Atomic writes leave the old content or the new one; a lock has one holder."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from headway import files
from headway.files import LockedError, atomic_folder, atomic_write, lock, sha256


def listing(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_file_is_unchanged_if_the_block_fails(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(RuntimeError, match="half way"), atomic_write(path) as partial:
        partial.write_text("half", encoding="utf-8")
        raise RuntimeError("half way")
    assert (path.read_text(encoding="utf-8"), listing(tmp_path)) == ("old", {"state"})
    with atomic_write(path) as partial:
        partial.write_text("new", encoding="utf-8")
        assert path.read_text(encoding="utf-8") == "old"
    assert (path.read_text(encoding="utf-8"), listing(tmp_path)) == ("new", {"state"})


def test_a_folder_is_unchanged_if_the_block_fails(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with atomic_folder(path) as partial:
        (partial / "a").write_text("old")
    with pytest.raises(RuntimeError, match="half way"), atomic_folder(path) as partial:
        (partial / "b").write_text("half")
        raise RuntimeError("half way")
    assert (listing(path), listing(tmp_path)) == ({"a"}, {"state"})
    with atomic_folder(path) as partial:
        (partial / "b").write_text("new")
    assert (listing(path), listing(tmp_path)) == ({"b"}, {"state"})


def test_files_are_flushed_before_and_folders_after_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[tuple[str, bool]] = []
    monkeypatch.setattr(files, "fsync", lambda path: flushed.append((path.name, (tmp_path / "file").exists())))
    with atomic_write(tmp_path / "file") as partial:
        partial.write_text("new")
    assert flushed == [(".file.partial", False), (tmp_path.name, True)]


def test_sha256_is_the_known_one(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def hold(path: Path) -> None:
    with lock(path):
        time.sleep(60)


def hold_by_creation(path: Path) -> None:
    with files._locked_by_creation(path):
        time.sleep(60)


@pytest.mark.parametrize("how", [hold, hold_by_creation])
def test_a_lock_has_one_holder_and_ends_with_its_process(tmp_path: Path, how) -> None:
    path = tmp_path / "lock"
    take = lock if how is hold else files._locked_by_creation
    child = multiprocessing.get_context("fork").Process(target=how, args=(path,))
    child.start()
    shown = path if how is hold else tmp_path / "lock.held"
    deadline = time.monotonic() + 30
    while not (shown.exists() and shown.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(LockedError, match=f"locked by process {child.pid}"), take(path):
        pass
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    with take(path), pytest.raises(LockedError, match=str(os.getpid())), take(path):
        pass
