"""Resumable training states on disk.

A state is a folder `training/state-<step>`: one safetensors file per part that has tensors, `state.json` for the rest,
and `manifest.json` with the size and SHA-256 of every file. It is written under a temporary name, flushed to the disk
and renamed, so that it is either complete or absent. A damaged state is reported, and the one before it is used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import Any, Literal, TypedDict

from safetensors import SafetensorError, safe_open

from headway import files
from headway.checkpoints import read_json
from headway.checkpoints.save import write_safetensors
from headway.errors import HeadwayError, TrainingError
from headway.files import (
    PARTIAL,
    atomic_folder,
    atomic_write,
    disk_errors,
    open_file,
    require_file,
    require_inside,
    sha256,
)
from headway.locks import LockedError, lock
from headway.training.folder import LOCK
from headway.training.tensor_tree import TensorCollector, Tensors, flatten, unflatten
from headway.validation import from_dict

State = dict[str, Any]
MANIFEST = "manifest.json"
UNREADABLE = (SafetensorError, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
_held: dict[tuple[int, int, str], str | None] = {}  # locks of run folders: (process, thread, path) → warning
RESUMABLE = "Earlier states are intact: free disk space and resume"


class StateFile(TypedDict):
    bytes: int
    sha256: str


class Manifest(TypedDict):
    version: Literal[1]
    files: dict[str, StateFile]


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
        files.remove(old)
    return target


def write_state(target: Path, state: State) -> None:
    """Write a state atomically: the folder is complete or absent, even after a power failure."""
    collectors = {part: TensorCollector() for part in state}
    form = {part: flatten(value, part, collectors[part]) for part, value in state.items()}
    text = json.dumps(form).encode()
    needed = len(text) + sum(collector.bytes for collector in collectors.values())
    with disk_errors(target, needed, advice=RESUMABLE), atomic_folder(target) as partial:
        for part, collector in collectors.items():
            if collector.tensors:
                write_safetensors(partial / f"{part}.safetensors", collector.tensors)
        (partial / "state.json").write_bytes(text)
        manifest = {
            path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in sorted(partial.iterdir())
        }
        (partial / MANIFEST).write_text(json.dumps({"version": 1, "files": manifest}, indent=1))


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
        with disk_errors(bad, 0):
            files.remove(bad.with_suffix(".damaged"))
            bad.rename(bad.with_suffix(".damaged"))
    return loaded


def load_state(path: Path) -> State:
    """Read a state that `verify` accepts."""
    with open_file(path / "state.json", inside=_run_folder(path)) as file:
        form = json.loads(file.read())
    tensors = {file.stem: _read_tensors(file, inside=_run_folder(path))[0] for file in path.glob("*.safetensors")}
    return {part: unflatten(value, tensors.get(part, {})) for part, value in form.items()}


def verify(path: Path) -> str | None:
    """A description of what is wrong with the files of a state, or None."""
    try:
        content = read_json(path / MANIFEST, inside=_run_folder(path))
        listed = from_dict(Manifest, content, path=str(path / MANIFEST))["files"]
    except HeadwayError as error:
        return str(error)
    if "state.json" not in listed or {file.name for file in path.iterdir()} != {*listed, MANIFEST}:
        return f"{path}: its files are not the ones listed in its manifest"
    for name, entry in listed.items():
        try:
            require_file(path / name, inside=_run_folder(path))
            if (path / name).stat().st_size != entry["bytes"]:
                return f"{path / name}: {(path / name).stat().st_size} bytes, the manifest says {entry['bytes']}"
            if sha256(path / name) != entry["sha256"]:
                return f"{path / name}: its checksum differs from the manifest"
        except OSError as error:
            return f"{path / name}: cannot be read ({error.strerror})"
    return None


def _run_folder(state: Path) -> Path:
    """The folder that links from files of a state may not leave."""
    return state.parent.parent


def save_tensors(path: Path, named: Tensors) -> str:
    """Write tensors to one file atomically. Returns its SHA-256."""
    collector = TensorCollector()
    names = {name: collector.add(tensor, name) for name, tensor in named.items()}
    aliases = {name: stored for name, stored in names.items() if name != stored}
    with disk_errors(path, collector.bytes, advice=RESUMABLE), atomic_write(path) as partial:
        write_safetensors(partial, collector.tensors, {"ties": json.dumps(aliases)})
        return sha256(partial)


def load_tensors(path: Path) -> Tensors:
    """Read the tensors that `save_tensors` wrote, including aliases."""
    tensors, metadata = _read_tensors(path, inside=path.parent.parent)
    return tensors | {name: tensors[stored] for name, stored in json.loads(metadata["ties"]).items()}


def _read_tensors(path: Path, *, inside: Path) -> tuple[Tensors, dict[str, str]]:
    """(tensors, metadata) of a file whose checksum was compared."""
    require_file(path, inside=inside)
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, file.metadata() or {}


def remove_partial(training: Path) -> None:
    """Remove the remains of interrupted saves, also those of earlier versions."""
    files.remove_leftovers(training, alone=True)
    for path in training.glob(f"*{PARTIAL}"):
        if files.LEFTOVER.fullmatch(path.name) is None:
            files.remove(path)


@contextmanager
def lock_folder(training: Path) -> Iterator[str | None]:
    """Lock a run folder; a second process gets an error with the id of the first, and a thread that holds the lock
    goes on holding it. Yields a warning where the file system has no locks."""
    path = training / LOCK
    held = os.getpid(), get_ident(), os.path.realpath(path)
    if held in _held:
        yield _held[held]
        return
    with ExitStack() as stack:
        try:
            with disk_errors(path, 20, advice=RESUMABLE):
                require_inside(training, training.parent)
                warning = stack.enter_context(lock(path))
        except LockedError as error:
            raise TrainingError(
                f"{training.parent}: process {error.holder} is training in this folder; choose another folder"
            ) from None
        _held[held] = warning
        stack.callback(_held.pop, held)
        yield warning
