"""Saves the files of a model all or none, with their checksums, and verifies these when the folder is opened.

The files are written to a temporary folder and flushed. A new folder is then renamed to its place. Into a folder that
is there they are moved one by one from `.headway-commit`, whose name says that all of them are complete: whoever opens
or saves the folder after a crash moves the rest. Idea: the write-ahead log of a database.

`checksums.json` lists every file with its size and SHA-256, and has a checksum of its own. It detects accidents, not
forgery. A folder without it was written by another program or an earlier version, and is opened as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypedDict

from headway.checkpoints.header import INDEX, SHARD, SINGLE, is_safe_name, read_json
from headway.checkpoints.text_files import save_json
from headway.errors import CheckpointError, ConfigError
from headway.files import (
    NEW,
    TakenError,
    atomic_folder,
    disk_errors,
    flush_folder,
    folder_lock,
    fsync,
    identity,
    is_present,
    require_file,
    require_inside,
    sha256,
    workplace,
)
from headway.validation import from_dict

CHECKSUMS = "checksums.json"
ADAPTER = "adapter"  # in the folder of a run with LoRA: its adapters in the layout of PEFT
COMMIT = ".headway-commit"  # a folder with files that are complete, and are moved to the folder it is in
AT_ONCE = 4 << 20  # bytes of a file that is verified before anything is read; larger ones are verified meanwhile
THREADS = 2
_skipped: list[bool] = []  # not empty: nothing is verified
REMEDY = (
    "Restore the file, or save the model again. If it was changed on purpose: headway info {folder} --update-checksums"
)
MODEL_FILES = (  # what is read of a model folder beside shards of weights
    "config.json", "gliner_config.json", "generation_config.json", "headway.json", SINGLE, INDEX,
    "adapter_config.json", "adapter_model.safetensors", "modules.json", "sentence_bert_config.json",
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
    "vocab.txt", "vocab.json", "target_vocab.json", "merges.txt", "spiece.model", "source.spm", "target.spm",
    "tokenizer.model", "sentencepiece.bpe.model", "spm.model", "character_tokenizer.json", "preprocessor_config.json",
    "processor_config.json",
)  # fmt: skip


class FileEntry(TypedDict):
    bytes: int
    sha256: str


class Checksums(TypedDict):
    version: Literal[1]
    files: dict[str, FileEntry]
    checksum: str


# ---------------------------------------------------------------------------------------- saving


@contextmanager
def save_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Context that yields an empty folder for the files of a model. On success they and their checksums are in
    `folder`, where other files stay; on an error nothing is changed. What another process has saved there meanwhile is
    kept, and an error."""
    folder = Path(folder)
    with disk_errors(folder, 0):
        if not is_present(folder):
            with atomic_folder(folder) as work:
                yield work
                _write_checksums(work, _entries(work))
            return
        complete(folder)
        before = {path.name: identity(path) for path in folder.iterdir()}
        with workplace(folder) as place:
            work = place / NEW
            work.mkdir()
            yield work
            new = _entries(work)
            _require_places(folder, new)
            _write_checksums(work, _kept(folder, new) | new)
            flush_folder(work)
            with folder_lock(folder):
                if any(
                    identity(folder / name) != before.get(name) for name in (CHECKSUMS, COMMIT, *new) if "/" not in name
                ):
                    raise TakenError(folder)
                os.rename(work, folder / COMMIT)
                fsync(folder)
                _move(folder)


def complete(folder: Path) -> None:
    """Move the files of a save that a crash has interrupted after all of them were complete."""
    if is_present(folder / COMMIT):
        with (
            disk_errors(folder, 0, advice="A save was interrupted there, and is completed when it is opened"),
            folder_lock(folder),
        ):
            if is_present(folder / COMMIT):
                _move(folder)


def _move(folder: Path) -> None:
    """All but the checksums first: they say that the move is complete."""
    commit = folder / COMMIT
    if commit.is_symlink() or not commit.is_dir():
        raise CheckpointError(f"{commit}: not a folder of files to be moved; remove it")
    if (commit / CHECKSUMS).is_file():
        listed = read_checksums(commit)
        _require_places(folder, listed)
        for name in listed:
            if is_present(commit / name):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(commit / name, folder / name)
        if any(name == SINGLE or SHARD.fullmatch(name) for name in listed):
            for old in folder.iterdir():
                if old.name not in listed and is_weight_file(old.name):
                    old.unlink()
        fsync(folder)
        os.replace(commit / CHECKSUMS, folder / CHECKSUMS)
    shutil.rmtree(commit)
    fsync(folder)


def is_weight_file(name: str) -> bool:
    return name in (SINGLE, INDEX) or SHARD.fullmatch(name) is not None


def _kept(folder: Path, new: Collection[str]) -> dict[str, FileEntry]:
    """The entries of the model's files that stay beside the new ones: those that were recorded, and others as they
    are."""
    with suppress(CheckpointError):
        listed = read_checksums(folder)
        names = {*listed, *model_files(folder)} - {*new}
        if any(map(is_weight_file, new)):
            names = {name for name in names if not is_weight_file(name)}
        return {name: listed.get(name) or _entry(folder / name) for name in sorted(names) if is_present(folder / name)}
    return {}


def model_files(folder: Path) -> list[str]:
    """The names of a model's files in a folder."""
    return sorted(path.name for path in folder.iterdir() if path.name in MODEL_FILES or SHARD.fullmatch(path.name))


def _require_places(folder: Path, names: Iterable[str]) -> None:
    """Raise unless every file can be moved to its place in the folder."""
    for name in names:
        if not is_safe_name(name):
            raise CheckpointError(f"{folder / CHECKSUMS}: {name!a:.80} is not a file of this folder")
        require_inside((folder / name).parent, folder)
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            raise CheckpointError(f"{folder / name}: a folder, where a file is to be saved; rename it")


# ---------------------------------------------------------------------------------------- checksums


def _entries(folder: Path) -> dict[str, FileEntry]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: _entry(path) for name, path in names.items() if name != CHECKSUMS}


def _entry(path: Path) -> FileEntry:
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def _write_checksums(folder: Path, files: dict[str, FileEntry]) -> None:
    content = {"version": 1, "files": files}
    save_json(folder / CHECKSUMS, {**content, "checksum": _checksum(content)})


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_checksums(folder: Path) -> dict[str, FileEntry]:
    """The recorded files; none if the folder has no checksums."""
    path = folder / CHECKSUMS
    if not is_present(path):
        return {}
    try:
        content = read_json(path)
        own = content.get("checksum")
        if own != _checksum({name: value for name, value in content.items() if name != "checksum"}):
            raise CheckpointError(f"{path}: damaged: it does not match its own checksum")
        files = from_dict(Checksums, content, path=str(path))["files"]
    except (CheckpointError, ConfigError) as error:
        raise CheckpointError(f"{error}. {REMEDY.format(folder=folder)}") from error
    _require_places(folder, files)
    return files


def remove_weights(folder: Path) -> None:
    """Of a model whose weights are kept elsewhere."""
    for path in folder.iterdir():
        if is_weight_file(path.name):
            path.unlink()
    update_checksums(folder)


def update_checksums(folder: Path) -> list[str]:
    """Record the files of a model as they are now; returns their names."""
    complete(folder)
    listed: dict[str, FileEntry] = {}
    with suppress(CheckpointError):
        listed = read_checksums(folder)
    names = sorted({name for name in listed if is_present(folder / name)} | {*model_files(folder)})
    with disk_errors(folder / CHECKSUMS, 0):
        _write_checksums(folder, {name: _entry(folder / name) for name in names})
    return names


# ---------------------------------------------------------------------------------------- verifying


@contextmanager
def verified(folder: Path, *, verify: bool = True) -> Iterator[None]:
    """Context in which the files of a model are read. Raises if one of them is not as it was saved: at once, or at
    the end where a large file is verified in a thread while the model is built."""
    complete(folder)
    if not verify or _skipped or not (listed := read_checksums(folder)):
        yield
        return
    if added := [name for name in model_files(folder) if name not in listed]:
        raise _changed(folder, added[0], "not one of the files that were saved")
    large = [name for name, entry in listed.items() if entry["bytes"] > AT_ONCE]
    for name in listed.keys() - {*large}:
        _verify(folder, name, listed[name])
    with ThreadPoolExecutor(THREADS) as pool:
        running = [pool.submit(_verify, folder, name, listed[name]) for name in large]
        try:
            yield
        finally:
            for each in running:
                each.result()  # before an error of reading what is damaged


@contextmanager
def unverified() -> Iterator[None]:
    """Context in which no file is verified."""
    _skipped.append(True)
    try:
        yield
    finally:
        _skipped.pop()


def _verify(folder: Path, name: str, saved: FileEntry) -> None:
    try:
        require_file(folder / name, inside=folder)
        size = (folder / name).stat().st_size
        if size != saved["bytes"]:
            raise _changed(folder, name, f"{size:,} bytes, but {saved['bytes']:,} were saved")
        if sha256(folder / name, inside=folder) != saved["sha256"]:
            raise _changed(folder, name, "its content is not what was saved (another SHA-256)")
    except FileNotFoundError:
        raise _changed(folder, name, "is missing") from None
    except OSError as error:
        raise CheckpointError(f"{folder / name}: cannot be read ({error.strerror})") from error


def _changed(folder: Path, name: str, what: str) -> CheckpointError:
    return CheckpointError(f"{folder / name}: {what}. {REMEDY.format(folder=folder)}; --no-verify opens it as it is")
