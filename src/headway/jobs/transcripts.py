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
    bundle: Bundle,
    recording: Path,
    *,
    form: Format,
    write: Callable[[str], object],
    on_progress: OnProgress | None = None,
    **options: Any,
) -> None:
    """Writes the transcript of one recording as its segments become final; `-` is standard input."""
    writer = Writer(form)
    write(writer.begin())
    with ExitStack() as stack:
        source = stack.enter_context(regular_file(recording))
        listen: dict[str, Any] = {"on_segment": lambda segment: write(writer.add(segment)), "on_progress": on_progress}
        [(_, found)] = run(bundle, [source], **listen, **options)
    if form == "json":
        write(json.dumps(found, ensure_ascii=False, indent=2) + "\n")


def run_several(bundle: Bundle, recordings: Sequence[Path], *, form: str | None, **options: Any) -> Iterator[str]:
    """A line for each recording: its text, or with `form` json its transcript."""
    if form in TIMED:
        raise InputError(f"--format {form} is the transcript of one recording; {len(recordings)} were given")
    if len(recordings) > 1 and STANDARD_INPUT in recordings:
        raise InputError("- is standard input: give it alone")
    with ExitStack() as stack:
        sources = [stack.enter_context(regular_file(each)) for each in recordings]
        for given, (_, found) in zip(recordings, run(bundle, sources, **options), strict=True):
            line = {"input": str(given), "answer": found}
            yield json.dumps(line, ensure_ascii=False) if form == "json" else found["text"]
