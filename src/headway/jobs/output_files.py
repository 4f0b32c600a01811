"""`run --out` for a file or a folder: documents with the model's answers in place of their texts, and transcripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.bundle import Bundle
from headway.data.paths import as_folder, expand
from headway.data.split import data_files
from headway.errors import InputError
from headway.files import atomic_write, disk_errors
from headway.jobs.documents import is_document, read_document, refuse_other
from headway.jobs.inference import run
from headway.jobs.inputs import is_table
from headway.jobs.predictions_file import refuse_present
from headway.tasks.task import Task


def document_files(paths: Sequence[Path], task: Task, *, encoding: str | None) -> list[Path]:
    """The files of these paths: of a pattern those that match, of a folder all. InputError for a table, whose rows are
    written as one."""
    folders = [as_folder(path) for path in expand(paths)]
    files = [file for folder in folders for file in (data_files(folder) if folder.is_dir() else [folder])]
    for file in files:
        if not file.is_file():
            raise InputError(f"{file}: no such file")
        refuse_other(file)
        if not is_document(file) and is_table(file, task, encoding=encoding):
            raise InputError(f"{file} is a table: give --out a file of the kind .csv, .jsonl or .parquet")
    return files


def are_documents(paths: Sequence[Path]) -> bool:
    """Whether these are documents in a structure that is kept, or folders of such."""
    folders = [as_folder(path) for path in expand(paths)]
    files = [file for folder in folders for file in (data_files(folder) if folder.is_dir() else [folder])]
    return bool(files) and all(map(is_document, files))


def outputs(files: Sequence[Path], out: Path, *, suffix: str | None = None) -> list[Path]:
    """Where what is made from each file is written: to `out`, or to a folder of this name, with the file's own suffix
    unless another is given. InputError if there is such a file already."""
    is_folder = out.is_dir() or not out.suffix
    if len(files) != 1 and not is_folder:
        raise InputError(f"--out {out}: {len(files)} files are written to a folder; give one")
    found = [out / file.with_suffix(suffix or file.suffix).name for file in files] if is_folder else [out]
    if double := [path for path, count in Counter(found).items() if count > 1]:
        raise InputError(f"--out {out}: two of the files would be {double[0].name}; run them one after the other")
    for path in found:
        refuse_present(path)
    return found


def document_outputs(files: Sequence[Path], out: Path) -> list[Path]:
    found = outputs(files, out)
    for file, path in zip(files, found, strict=True):
        if path.suffix.lower() != file.suffix.lower() and (is_document(file) or is_document(path)):
            raise InputError(f"--out {path}: what is made of {file.name} is of its kind; give a {file.suffix} file")
    return found


def answered(bundle: Bundle, file: Path, *, encoding: str | None, **options: Any) -> tuple[bytes, int]:
    """The document with the model's answers in place of its texts, and their number."""
    document = read_document(file, encoding=encoding)
    answers = [str(answer) for _, answer in run(bundle, document.texts, **options)]
    return document.rendered(answers), len(answers)


def write_new(path: Path, content: bytes) -> None:
    with disk_errors(path, len(content)), atomic_write(path, new=True) as partial:
        partial.write_bytes(content)
