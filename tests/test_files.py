"""Only regular files are opened, links stay in their folder; atomic writes leave the old content or the new one; a lock
has one holder."""

import errno
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from headway import files, locks
from headway.errors import DiskError
from headway.files import (
    RefusedFileError,
    append_file,
    atomic_folder,
    atomic_write,
    disk_errors,
    is_present,
    open_file,
    require_file,
    sha256,
)
from headway.locks import LockedError, lock


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
    assert flushed == [("file", False), (tmp_path.name, True)]


def test_sha256_is_the_known_one(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def hold(path: Path) -> None:
    with lock(path):
        time.sleep(60)


def hold_by_creation(path: Path) -> None:
    with locks._locked_by_creation(path):
        time.sleep(60)


@pytest.mark.parametrize("how", [hold, hold_by_creation])
def test_a_lock_has_one_holder_and_ends_with_its_process(tmp_path: Path, how) -> None:
    path = tmp_path / "lock"
    take = lock if how is hold else locks._locked_by_creation
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


# ---------------------------------------------------------------------------------------- opening

needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")


def outside(folder: Path) -> Path:
    """A file beside `folder`."""
    path = folder.parent / f"{folder.name}-outside"
    path.write_text("mine")
    return path


@needs_pipes
def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    kinds = {"pipe": "a named pipe", "folder": "a folder", "device": "a device"}
    for name, kind in kinds.items():
        for action in (open_file, append_file, sha256, require_file):
            with pytest.raises(OSError) as caught:
                action(tmp_path / name)
            link = name == "device" and action is append_file
            assert (caught.value.strerror or "").startswith("a link" if link else kind), (name, action)


@needs_pipes
def test_a_pipe_that_appears_after_the_check_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "require_file", lambda path, inside=None: None)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RefusedFileError, match="a named pipe"):
        open_file(tmp_path / "pipe")


def test_links_are_followed_inside_the_folder_only(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "deeper").mkdir(parents=True)
    (folder / "a").write_text("a")
    (folder / "inside").symlink_to("a")
    (folder / "up").symlink_to("deeper/../a")
    (folder / "out").symlink_to(outside(folder))
    (folder / "dangling").symlink_to(tmp_path / "nothing")
    (folder / "link to folder").symlink_to(tmp_path)
    for name in ("a", "inside", "up"):
        with open_file(folder / name, inside=folder) as file:
            assert file.read() == b"a"
    for name in ("out", "dangling", f"link to folder/{outside(folder).name}"):
        with pytest.raises(RefusedFileError, match="a link that leaves the folder"):
            open_file(folder / name, inside=folder)
    with open_file(folder / "out") as file:  # a file that the user names may be anywhere
        assert file.read() == b"mine"
    linked = tmp_path / "linked"
    linked.symlink_to(folder)  # the folder itself may be reached by a link
    with open_file(linked / "a", inside=linked) as file:
        assert file.read() == b"a"


def test_links_from_a_snapshot_of_the_hub_cache_lead_to_its_own_blobs(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--owner--name"
    snapshot, blobs = repository / "snapshots" / "0123", repository / "blobs"
    for folder in (snapshot / "1_Pooling", blobs, tmp_path / "hub" / "models--other--name" / "blobs"):
        folder.mkdir(parents=True)
    (blobs / "hash").write_text("x")
    (tmp_path / "hub" / "models--other--name" / "blobs" / "hash").write_text("y")
    (blobs / "out").symlink_to(outside(repository))
    (snapshot / "config.json").symlink_to("../../blobs/hash")
    (snapshot / "1_Pooling" / "config.json").symlink_to("../../../blobs/hash")
    for path in (snapshot / "config.json", snapshot / "1_Pooling" / "config.json"):
        for inside in (path.parent, snapshot):
            with open_file(path, inside=inside) as file:
                assert file.read() == b"x"
    (snapshot / "other").symlink_to(tmp_path / "hub" / "models--other--name" / "blobs" / "hash")
    (snapshot / "through").symlink_to("../../blobs/out")
    for name in ("other", "through"):
        with pytest.raises(RefusedFileError, match="leaves the folder"):
            open_file(snapshot / name, inside=snapshot)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    mine = outside(folder)
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "precious").write_text("mine")
    for name in ("lock", "log", "plan.json", ".plan.json.partial", ".state-1.partial", "state-1"):
        (folder / name).symlink_to(tmp_path / "others" if "state" in name else mine)
    with pytest.raises(RefusedFileError, match="not written through"), lock(folder / "lock"):
        pass
    with pytest.raises(RefusedFileError, match="not written through"):
        append_file(folder / "log")
    with atomic_write(folder / "plan.json") as partial:
        partial.write_text("new")
    with atomic_folder(folder / "state-1") as partial:
        (partial / "a").write_text("new")
    files.remove(folder / "log")
    assert mine.read_text() == "mine" and listing(tmp_path / "others") == {"precious"}
    assert (folder / "plan.json").read_text() == "new" and not (folder / "plan.json").is_symlink()
    assert listing(folder / "state-1") == {"a"} and not (folder / "state-1").is_symlink()


@needs_pipes
def test_a_device_or_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RefusedFileError, match="a named pipe"), atomic_write(tmp_path / "pipe") as partial:
        partial.write_text("new")
    assert listing(tmp_path) == {"pipe"}


def test_a_dangling_link_is_present(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    assert is_present(tmp_path / "dangling") and not is_present(tmp_path / "nothing")


# ---------------------------------------------------------------------------------------- file systems without locks


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_locks_the_creation_of_a_file_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    path = tmp_path / "lock"
    with lock(path) as warning:
        assert warning is not None and f"{path}: this file system has no locks" in warning
        with pytest.raises(LockedError, match=f"process {os.getpid()}"), lock(path):
            pass
    assert not listing(tmp_path)
    (tmp_path / "lock.held").write_text("4 on another-machine")
    with pytest.raises(LockedError, match="4 on another-machine"), lock(path):
        pass


def test_a_lock_that_fails_otherwise_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def flock(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="Input/output"), lock(tmp_path / "lock"):
        pass


# ---------------------------------------------------------------------------------------- failed writes


def test_a_failed_write_names_path_bytes_and_free_space(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(DiskError) as caught, disk_errors(path, 1234567, advice="Go on"):
        raise OSError(errno.ENOSPC, "No space left on device")
    message = str(caught.value)
    assert message.startswith(f"{path}: cannot be written (No space left on device): 1,234,567 bytes are needed and ")
    assert message.endswith("are free. Go on")
    with pytest.raises(DiskError, match=r"file: cannot be written \(Permission denied\)$"), disk_errors(path, 5):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_a_disk_without_inodes_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda folder: os.statvfs_result((1, 1, 9, 9, 9, 100, 0, 0, 0, 0)))
    with pytest.raises(DiskError, match=r"no free inodes\): remove files"), disk_errors(tmp_path / "file", 5):
        raise OSError(errno.ENOSPC, "No space left on device")
