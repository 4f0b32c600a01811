"""A run on disk that can be gone on with, bit for bit.

A state is a folder `training/state-<step>`: one safetensors file per part that has tensors, `state.json` for all the
rest, and `manifest.json` with every file's size and SHA-256. It is written beside its place, flushed to the disk and
renamed, so a state either exists whole or not at all. Damage found later is said, and the state before it is used.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from headway.errors import TrainingError
from headway.training.tensor_tree import Shelf, Tensors, join, split

State = dict[str, Any]
MANIFEST = "manifest.json"
PARTIAL = ".partial"
UNREADABLE = (SafetensorError, ValueError, LookupError, TypeError, AttributeError, RecursionError)  # by `load_state`


@dataclass(frozen=True)
class Loaded:
    state: State
    path: Path
    warnings: list[str]


def states(training: Path) -> list[Path]:
    """The complete states of a run, the newest first."""
    found = [path for path in training.glob("state-*") if path.name[6:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[6:]), reverse=True)


def save_state(training: Path, step: int, state: State, *, keep: int) -> Path:
    """Write a state and rotate the older ones; on failure the earlier states are as they were."""
    target = training / f"state-{step}"
    write_folder(target, state)
    for old in states(training)[keep:]:
        _remove(old)
    return target


def write_folder(target: Path, state: State) -> None:
    """Write a state so that the folder exists whole or not at all, also if the power fails."""
    partial = target.with_name(target.name + PARTIAL)
    shelves = {part: Shelf() for part in state}
    form = {part: split(value, part, shelves[part]) for part, value in state.items()}
    text = json.dumps(form).encode()
    needed = len(text) + sum(shelf.bytes for shelf in shelves.values())
    with disk_errors(partial, needed, remove=partial):
        _remove(partial)
        partial.mkdir(parents=True)
        for part, shelf in shelves.items():
            if shelf.tensors:
                save_file(shelf.tensors, partial / f"{part}.safetensors")
        (partial / "state.json").write_bytes(text)
        files = {
            path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in sorted(partial.iterdir())
        }
        (partial / MANIFEST).write_text(json.dumps({"version": 1, "files": files}, indent=1))
        for path in partial.iterdir():
            flush(path)
        flush(partial)
        _remove(target)
        partial.rename(target)
        flush(target.parent)


def load_latest(training: Path) -> Loaded:
    """The newest state whose every byte is as it was written; newer damaged ones are set aside and named."""
    found = states(training)
    if not found:
        raise TrainingError(f"{training}: there is no state to resume from; start a new run instead")
    damaged: list[tuple[Path, str]] = []
    for path in found:
        problem = verify(path)
        if problem is None:
            try:
                loaded = Loaded(state=load_state(path), path=path, warnings=[])
                break
            except UNREADABLE as error:
                problem = f"{path}: unreadable, though its checksums agree ({type(error).__name__})"
        damaged.append((path, problem))
    else:
        raise TrainingError("every saved state is damaged: " + "; ".join(problem for _, problem in damaged))
    for bad, problem in damaged:
        loaded.warnings.append(f"{problem}; going back to {path.name} (the damaged one is kept as {bad.name}.damaged)")
        _remove(bad.with_suffix(".damaged"))
        bad.rename(bad.with_suffix(".damaged"))
    return loaded


def load_state(path: Path) -> State:
    """Read a state that has been verified."""
    form = json.loads((path / "state.json").read_bytes())
    tensors: dict[str, Tensors] = {file.stem: load_file(file) for file in path.glob("*.safetensors")}
    return {part: join(value, tensors.get(part, {})) for part, value in form.items()}


def verify(path: Path) -> str | None:
    """What is wrong with a state's files, or None."""
    try:
        files = json.loads((path / MANIFEST).read_bytes())["files"]
        expected = {str(name): (entry["bytes"], entry["sha256"]) for name, entry in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"{path / MANIFEST}: unreadable ({type(error).__name__})"
    if "state.json" not in expected or {file.name for file in path.iterdir()} != {*expected, MANIFEST}:
        return f"{path}: its files are not those its manifest lists"
    for name, (size, digest) in expected.items():
        if (path / name).stat().st_size != size:
            return f"{path / name}: {(path / name).stat().st_size} bytes where {size} were written"
        if sha256(path / name) != digest:
            return f"{path / name}: its checksum differs from the one written"
    return None


def save_tensors(path: Path, named: Tensors) -> str:
    """Write tensors so that the file is replaced whole or not at all; its SHA-256."""
    shelf = Shelf()
    names = {name: shelf.put(tensor, name) for name, tensor in named.items()}
    aliases = {name: standing for name, standing in names.items() if name != standing}
    partial = path.with_name(path.name + PARTIAL)
    with disk_errors(path, shelf.bytes, remove=partial):
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(shelf.tensors, partial, metadata={"ties": json.dumps(aliases)})
        digest = sha256(partial)
        flush(partial)
        partial.replace(path)
        flush(path.parent)
    return digest


def load_tensors(path: Path) -> Tensors:
    """What `save_tensors` wrote, every name again."""
    with safe_open(path, framework="pt") as file:
        aliases = json.loads(file.metadata()["ties"])
        tensors: Tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return tensors | {name: tensors[standing] for name, standing in aliases.items()}


def clean(training: Path) -> None:
    """Remove what an interrupted save left behind."""
    for path in training.glob(f"*{PARTIAL}"):
        _remove(path)


@contextmanager
def locked(training: Path) -> Iterator[None]:
    """Hold a run folder; a second process is refused with the first one's id."""
    path = training / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise TrainingError(
                f"{training.parent}: process {holder} is training in this folder; choose another folder"
            ) from None
        with disk_errors(path, 20):
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield


@contextmanager
def disk_errors(path: Path, needed: int, *, remove: Path | None = None) -> Iterator[None]:
    """A failed write leaves no remains and is told with its path and the bytes it needs."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        if remove is not None:
            _remove(remove)
        free = shutil.disk_usage(path.parent).free
        raise TrainingError(
            f"{path}: cannot be written ({error}); {needed} bytes are needed and {free} are free. "
            "What was saved before is intact: make room and resume"
        ) from error


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush(path: Path) -> None:
    """Force a file or folder onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a file or a state; a state loses its name first, so that half of one is never taken for a state."""
    if path.is_dir():
        if not path.name.endswith(PARTIAL):
            path = path.rename(path.with_name(path.name + ".old" + PARTIAL))
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
