"""Resumable training states on disk.

A state is a folder `training/state-<step>`: one safetensors file per part that has tensors, `state.json` for the rest,
and `manifest.json` with the size and SHA-256 of every file. It is written under a temporary name, flushed to the disk
and renamed, so that it is either complete or absent. A damaged state is reported, and the one before it is used.
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
from headway.training.tensor_tree import TensorCollector, Tensors, flatten, unflatten

State = dict[str, Any]
MANIFEST = "manifest.json"
PARTIAL = ".partial"
UNREADABLE = (SafetensorError, ValueError, LookupError, TypeError, AttributeError, RecursionError)  # by load_state


@dataclass(frozen=True)
class LoadedState:
    state: State
    path: Path
    warnings: list[str]


def states(training: Path) -> list[Path]:
    """The complete states of a run, newest first."""
    found = [path for path in training.glob("state-*") if path.name[6:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[6:]), reverse=True)


def save_state(training: Path, step: int, state: State, *, keep: int) -> Path:
    """Write a state and remove all but the newest `keep`. A failed write leaves the earlier states unchanged."""
    target = training / f"state-{step}"
    write_state(target, state)
    for old in states(training)[keep:]:
        _remove(old)
    return target


def write_state(target: Path, state: State) -> None:
    """Write a state atomically: the folder is complete or absent, even after a power failure."""
    partial = target.with_name(target.name + PARTIAL)
    collectors = {part: TensorCollector() for part in state}
    form = {part: flatten(value, part, collectors[part]) for part, value in state.items()}
    text = json.dumps(form).encode()
    needed = len(text) + sum(collector.bytes for collector in collectors.values())
    with disk_errors(partial, needed, remove=partial):
        _remove(partial)
        partial.mkdir(parents=True)
        for part, collector in collectors.items():
            if collector.tensors:
                save_file(collector.tensors, partial / f"{part}.safetensors")
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


def load_latest(training: Path) -> LoadedState:
    """The newest state whose checksums match. Newer damaged ones are renamed and reported in `warnings`."""
    found = states(training)
    if not found:
        raise TrainingError(f"{training}: contains no state to resume from; start a new run instead")
    damaged: list[tuple[Path, str]] = []
    for path in found:
        problem = verify(path)
        if problem is None:
            try:
                loaded = LoadedState(state=load_state(path), path=path, warnings=[])
                break
            except UNREADABLE as error:
                problem = f"{path}: unreadable although its checksums match ({type(error).__name__})"
        damaged.append((path, problem))
    else:
        raise TrainingError("every saved state is damaged: " + "; ".join(problem for _, problem in damaged))
    for bad, problem in damaged:
        loaded.warnings.append(f"{problem}; resuming from {path.name} (the damaged state is now {bad.name}.damaged)")
        _remove(bad.with_suffix(".damaged"))
        bad.rename(bad.with_suffix(".damaged"))
    return loaded


def load_state(path: Path) -> State:
    """Read a state that `verify` accepts."""
    form = json.loads((path / "state.json").read_bytes())
    tensors: dict[str, Tensors] = {file.stem: load_file(file) for file in path.glob("*.safetensors")}
    return {part: unflatten(value, tensors.get(part, {})) for part, value in form.items()}


def verify(path: Path) -> str | None:
    """A description of what is wrong with the files of a state, or None."""
    try:
        files = json.loads((path / MANIFEST).read_bytes())["files"]
        expected = {str(name): (entry["bytes"], entry["sha256"]) for name, entry in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"{path / MANIFEST}: unreadable ({type(error).__name__})"
    if "state.json" not in expected or {file.name for file in path.iterdir()} != {*expected, MANIFEST}:
        return f"{path}: its files are not the ones listed in its manifest"
    for name, (size, digest) in expected.items():
        if (path / name).stat().st_size != size:
            return f"{path / name}: {(path / name).stat().st_size} bytes, the manifest says {size}"
        if sha256(path / name) != digest:
            return f"{path / name}: its checksum differs from the manifest"
    return None


def save_tensors(path: Path, named: Tensors) -> str:
    """Write tensors to one file atomically. Returns its SHA-256."""
    collector = TensorCollector()
    names = {name: collector.add(tensor, name) for name, tensor in named.items()}
    aliases = {name: stored for name, stored in names.items() if name != stored}
    partial = path.with_name(path.name + PARTIAL)
    with disk_errors(path, collector.bytes, remove=partial):
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(collector.tensors, partial, metadata={"ties": json.dumps(aliases)})
        digest = sha256(partial)
        flush(partial)
        partial.replace(path)
        flush(path.parent)
    return digest


def load_tensors(path: Path) -> Tensors:
    """Read the tensors that `save_tensors` wrote, including aliases."""
    with safe_open(path, framework="pt") as file:
        aliases = json.loads(file.metadata()["ties"])
        tensors: Tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return tensors | {name: tensors[stored] for name, stored in aliases.items()}


def remove_partial(training: Path) -> None:
    """Remove the remains of interrupted saves."""
    for path in training.glob(f"*{PARTIAL}"):
        _remove(path)


@contextmanager
def lock_folder(training: Path) -> Iterator[None]:
    """Lock a run folder; a second process gets an error with the id of the first."""
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
    """Turn a failed write into an error with its path and the bytes needed, and remove the partial file or folder."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        if remove is not None:
            _remove(remove)
        free = shutil.disk_usage(path.parent).free
        raise TrainingError(
            f"{path}: cannot be written ({error}); {needed} bytes are needed and {free} are free. "
            "Earlier states are intact: free disk space and resume"
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
    """Remove a file or a state. A state is renamed first, so that a half-removed one is never read as a state."""
    if path.is_dir():
        if not path.name.endswith(PARTIAL):
            path = path.rename(path.with_name(path.name + ".old" + PARTIAL))
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
