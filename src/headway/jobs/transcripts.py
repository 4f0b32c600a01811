"""`run` of a model of speech: recordings to transcripts, in the format of `--format`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headway.bundle import Bundle
from headway.errors import InputError
from headway.jobs.inference import run
from headway.jobs.pipes import STANDARD_INPUT, regular_file
from headway.tasks.transcripts import Format, OnProgress, Writer

TIMED = ("srt", "vtt", "tsv")


def run_one(
    bundle: Bundle, name: str, *, form: Format, write: Callable[[str], object], on_progress: OnProgress | None = None,
    **options: Any,
) -> None:  # fmt: skip
    """Writes the transcript of one recording as its segments become final; `-` is standard input."""
    writer = Writer(form)
    write(writer.begin())
    with ExitStack() as stack:
        source = stack.enter_context(regular_file(Path(name)))
        listen: dict[str, Any] = {"on_segment": lambda segment: write(writer.add(segment)), "on_progress": on_progress}
        [(_, found)] = run(bundle, [source], **listen, **options)
    if form == "json":
        write(json.dumps(found, ensure_ascii=False, indent=2) + "\n")


def run_several(bundle: Bundle, names: Sequence[str], *, form: str | None, **options: Any) -> Iterator[str]:
    """A line for each recording: its text, or with `form` json its transcript."""
    if form in TIMED:
        raise InputError(f"--format {form} is the transcript of one recording; {len(names)} were given")
    if len(names) > 1 and str(STANDARD_INPUT) in names:
        raise InputError("- is standard input: give it alone")
    with ExitStack() as stack:
        sources = [stack.enter_context(regular_file(Path(name))) for name in names]
        for name, (_, found) in zip(names, run(bundle, sources, **options), strict=True):
            yield json.dumps({"input": name, "answer": found}, ensure_ascii=False) if form == "json" else found["text"]
