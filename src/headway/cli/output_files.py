"""`run --out` for documents and transcripts: a file, or a folder for several."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from headway.cli.options import note, say, say_text
from headway.errors import InputError
from headway.jobs.output_files import answered, are_documents, document_files, document_outputs, outputs, write_new
from headway.jobs.pipes import STANDARD_INPUT, regular_file

if TYPE_CHECKING:
    from headway.bundle import Bundle
    from headway.distributed import World
    from headway.tasks.task import Task
    from headway.tasks.transcripts import Format


def takes_documents(task: Task, files: list[Path], out: Path | None) -> bool:
    """Whether the answers take the place of the texts in files."""
    if not task.prediction_kind.generates or not files:
        return False
    return out is not None or (STANDARD_INPUT not in files and are_documents(files))


def fill_documents(
    bundle: Bundle,
    world: World,
    files: list[Path],
    *,
    out: Path | None,
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Runs in every process of `world`; the main one writes."""
    task, encoding = bundle.find_task(), reading["encoding"]
    if "n" in options:
        raise InputError("--count: a document has one answer in the place of each text; leave it out")
    with ExitStack() as stack:
        paths = [stack.enter_context(regular_file(file)) for file in files]
        found = document_files(paths, task, encoding=encoding)
        if out is None and (len(found) > 1 or found[0].suffix.lower() == ".docx"):
            raise InputError(f"{found[0]}: give --out, a file or a folder, for what is made of it")
        targets = world.broadcast(world.run_on_main(lambda: None if out is None else document_outputs(found, out)))
        truncated = stack.enter_context(task.count_truncation())
        for number, file in enumerate(found):
            content, count = answered(bundle, file, encoding=encoding, **options)
            if world.is_main and targets is None:
                say_text(content.decode().replace("\r\n", "\n"), end="")
            elif world.is_main and targets is not None:
                write_new(targets[number], content)
                say(f"{targets[number]}: {count:,} texts")
    for line in truncated.summary() if world.is_main else ():
        note(f"note: {line}")


def save_transcripts(
    bundle: Bundle, world: World, recordings: list[Path], *, out: Path, options: dict[str, Any]
) -> None:
    """A file for each recording, in the format of `--format` or of the suffix of `out`."""
    from headway.jobs.transcripts import run_one
    from headway.tasks.transcripts import FORMATS

    suffix = out.suffix.lower().removeprefix(".")
    form = options.pop("format", None) or suffix or "txt"
    if form not in FORMATS or suffix not in ("", form):
        raise InputError(f"--out {out}: a transcript is written as {', '.join(FORMATS)}, by --format or the suffix")
    targets = world.broadcast(world.run_on_main(lambda: outputs(recordings, out, suffix=f".{form}")))
    for recording, target in zip(recordings, targets, strict=True):
        parts = list[str]()
        run_one(bundle, recording, form=cast("Format", form), write=parts.append, **options)
        if world.is_main:
            write_new(target, "".join(parts).encode(errors="backslashreplace"))
            say(f"{target}: {recording.name}")
