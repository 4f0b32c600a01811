"""How the answers of `run` are shown and written, by the kind of prediction: lines, pictures, transcripts, tables,
documents."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import typer

from headway.cli.options import note, say, say_json, say_text
from headway.errors import InputError
from headway.jobs.inference import run
from headway.jobs.inputs import INPUT, Record, read_inputs, read_records, refuse_file_names
from headway.jobs.output_files import answered, are_documents, document_files, document_outputs, outputs, write_new
from headway.jobs.pictures import MarkedPictures, draw, found_in_words, free_name
from headway.jobs.pipes import STANDARD_INPUT, regular_file
from headway.jobs.predict import complete
from headway.jobs.predictions_file import all_columns, is_predictions_file, write_predictions
from headway.jobs.transcripts import run_one, run_several
from headway.kinds.predictions import BoxesPrediction, PicturePrediction, PredictionKind, TranscriptPrediction
from headway.printable import printable
from headway.tasks.transcripts import FORMATS, Format

if TYPE_CHECKING:
    from headway.bundle import Bundle
    from headway.data.truncation import TruncationCounter
    from headway.distributed import World
    from headway.tasks.task import Task

T = TypeVar("T")
END = "(the text ends)"


def answer_all(
    bundle: Bundle,
    world: World,
    *,
    inputs: list[str],
    files: list[Path],
    out: Path | None,
    reading: dict[str, Any],
    as_json: bool,
    options: dict[str, Any],
) -> None:
    """Runs in every process of `world`; the main one reads the inputs and prints the answers."""
    task = bundle.find_task()
    if out is not None and is_predictions_file(out) and task.prediction_kind.tabular:
        return write_table(bundle, world, inputs, files=files, out=out, reading=reading, options=options)
    if takes_documents(task, files, out) and not inputs and not as_json:
        return fill_documents(bundle, world, files, out=out, reading=reading, options=options)
    given = world.broadcast(world.run_on_main(lambda: collect_inputs(bundle, inputs, files, reading=reading)))
    RUN.get(type(task.prediction_kind), run_all)(bundle, world, given, out=out, as_json=as_json, options=options)


def run_all(
    bundle: Bundle,
    world: World,
    inputs: list[Any],
    *,
    out: Path | None,
    as_json: bool,
    options: dict[str, Any],
    save: Callable[[Any, Any], tuple[Path, str]] | None = None,
) -> None:
    """A line for each answer; a single generated text is printed as it is generated. `save` writes a file for an answer
    and says in words what is in it."""
    kind = bundle.find_task().prediction_kind
    if out is not None and save is None:
        refuse_out(out, kind)
    streamed = kind.generates and len(inputs) == 1 and not as_json and "n" not in options
    if kind.generates:
        options["details"] = True
    if streamed:
        options["on_text"] = lambda text: say_text(text, end="")
    unmatched = 0
    with bundle.find_task().count_truncation() as truncated:
        answers = run(bundle, inputs, **options)
        for given, answer in with_progress(answers, len(inputs)) if world.is_main else answers:
            unmatched += kind.unmatched(answer)
            if not world.is_main:
                continue
            file, words = save(given, answer) if save is not None else (None, "")
            if as_json:
                say_json({"input": given, "answer": answer} | ({} if file is None else {"file": str(file)}))
            elif file is not None:
                say_text(f"{printable(str(file))}: {words}")
            elif isinstance(given, Path):  # a file: among several, its name says which
                say_text(f"{printable(str(given))}\t{kind.line(answer)}")
            else:
                say_text("" if streamed else kind.line(answer))
    lines = merged(truncated, world).summary()
    if world.is_main:
        note_truncation(lines)
    fail_on_unmatched(unmatched, world)


def fail_on_unmatched(unmatched: int, world: World) -> None:
    if unmatched and world.is_main:
        note(f"note: {unmatched} answers do not match the constraint because they were cut off; raise --max-new-tokens")
    if unmatched:
        raise typer.Exit(1)


def note_truncation(lines: list[str]) -> None:
    for line in lines:
        note(f"note: {line}")


def refuse_out(out: Path, kind: PredictionKind) -> None:
    also = ", or with --file a document of its kind" if kind.generates else ""
    raise InputError(f"--out {out}: --out takes .csv, .jsonl or .parquet here{also}")


def mark_all(
    bundle: Bundle, world: World, pictures: list[Any], *, out: Path | None, as_json: bool, options: dict[str, Any]
) -> None:
    """With --out, the pictures with the boxes of what is found in them."""
    pictures = expanded(pictures, bundle.find_task())
    if out is None:
        return run_all(bundle, world, pictures, out=None, as_json=as_json, options=options)
    labels = bundle.find_task().labels  # type: ignore[attr-defined]
    marked = MarkedPictures(out, count=len(pictures), labels=labels)

    def save(given: Any, answer: Any) -> tuple[Path, str]:
        return marked.save(given, answer), found_in_words(answer)

    run_all(bundle, world, pictures, out=out, as_json=as_json, options=options, save=save)


def draw_all(
    bundle: Bundle, world: World, captions: list[str], *, out: Path | None, as_json: bool, options: dict[str, Any]
) -> None:
    """Draws in every process; the main one writes the file."""
    seed = world.broadcast(secrets.randbits(32))
    with bundle.find_task().count_truncation() as truncated:
        drawn = draw(bundle, captions, **{"seed": seed, **options})
    lines = merged(truncated, world).summary()
    if world.is_main:
        file = drawn.save(out or free_name(Path("picture.png")))
        say_json(drawn.to_dict(file)) if as_json else say(f"{file}: {drawn}")
        note_truncation(lines)


def transcribe_all(
    bundle: Bundle, world: World, inputs: list[Any], *, out: Path | None, as_json: bool, options: dict[str, Any]
) -> None:
    """Transcribes in every process; the main one prints: one recording as it goes, several when they are done."""
    recordings = expanded(inputs, bundle.find_task())
    if out is not None:
        if as_json:
            refuse_out(out, bundle.find_task().prediction_kind)
        return save_transcripts(bundle, world, recordings, out=out, options=options)
    form = options.pop("format", None)
    if as_json or len(recordings) != 1:
        for line in run_several(bundle, recordings, form="json" if as_json else form, **options):
            if world.is_main:
                say(line)
        return
    write = (lambda text: print(text, end="", flush=True)) if world.is_main else (lambda text: None)
    with progress_bar(sys.stderr.isatty() and not sys.stdout.isatty()) as on_progress:
        run_one(bundle, recordings[0], form=form or "txt", write=write, on_progress=on_progress, **options)


# how answers of a kind are shown, where it is not a line each
RUN: dict[type[PredictionKind], Callable[..., None]] = {
    BoxesPrediction: mark_all,
    PicturePrediction: draw_all,
    TranscriptPrediction: transcribe_all,
}


@contextmanager
def progress_bar(shown: bool) -> Iterator[Callable[[float, float], None] | None]:
    """A function of the seconds done and all seconds that draws a bar on standard error."""
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        row = bar.add_task("transcribing", total=None)
        yield lambda done, total: bar.update(row, completed=done, total=total)


def merged(truncated: TruncationCounter, world: World) -> TruncationCounter:
    """The counts of all processes, each of which runs on its own inputs."""
    states = world.all_gather(truncated.state_dict())
    for rank, state in enumerate(states):
        if rank != world.rank:
            truncated.merge(state)
    return truncated


def expanded(texts: list[Any], task: Task) -> list[Any]:
    """The inputs, with those that a text stands for in its place: a folder for its files."""
    return [each for text in texts for each in (task.input_kind.parse_all(text) if isinstance(text, str) else [text])]


def collect_inputs(bundle: Bundle, given: list[str], files: list[Path], *, reading: dict[str, Any]) -> list[Any]:
    """Those of the command line and the files; without any, the lines of standard input."""
    refuse_file_names(given, bundle.find_task())
    if files:
        with ExitStack() as stack:
            paths = [stack.enter_context(regular_file(file)) for file in files]
            return given + read_inputs(paths, bundle, **reading)
    if given:
        return given
    if sys.stdin.isatty():
        note("one input a line; Ctrl-D to finish")
    return [line.rstrip("\n") for line in sys.stdin]


def with_progress(items: Iterable[T], total: int) -> Iterator[T]:
    """A progress bar at a terminal whose standard output goes elsewhere."""
    if total <= 1 or not sys.stderr.isatty() or sys.stdout.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, total=total, description="running", console=Console(stderr=True))


# ---------------------------------------------------------------------------------------- files


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
    if world.is_main:
        note_truncation(truncated.summary())


def save_transcripts(
    bundle: Bundle, world: World, recordings: list[Path], *, out: Path, options: dict[str, Any]
) -> None:
    """A file for each recording, in the format of `--format` or of the suffix of `out`."""
    suffix = out.suffix.lower().removeprefix(".")
    form = options.pop("format", None) or suffix or "txt"
    if form not in FORMATS or suffix not in ("", form):
        raise InputError(f"--out {out}: a transcript is written as {', '.join(FORMATS)}, by --format or the suffix")
    targets = world.broadcast(world.run_on_main(lambda: outputs(recordings, out, suffix=f".{form}")))
    for recording, target in zip(recordings, targets, strict=True):
        parts = list[str]()
        run_one(bundle, recording, form=cast(Format, form), write=parts.append, **options)
        if world.is_main:
            write_new(target, "".join(parts).encode(errors="backslashreplace"))
            say(f"{target}: {recording.name}")


def write_table(
    bundle: Bundle,
    world: World,
    inputs: list[str],
    *,
    files: list[Path],
    out: Path,
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Runs in every process of `world`; the main one writes the file."""
    if files and inputs:
        raise InputError(f"--out {out}: give the inputs in --file or on the command line, not both")
    options.pop("format", None)
    with ExitStack() as stack:
        paths = [stack.enter_context(regular_file(file)) for file in files]
        on_rows = stack.enter_context(_counter(world.is_main))
        truncated = stack.enter_context(bundle.find_task().count_truncation())
        columns = None
        records: Iterable[tuple[Record, Any]]
        if paths:
            if out.suffix.lower() != ".jsonl":
                columns = all_columns(read_records(paths, bundle, **reading))  # CSV and Parquet begin with them
            records = read_records(paths, bundle, **reading)
        else:
            refuse_file_names(inputs, bundle.find_task())
            texts = world.broadcast(world.run_on_main(lambda: inputs or [line.rstrip("\n") for line in sys.stdin]))
            records = [row for text in texts for row in _rows_of(text, bundle)]
        rows, added, unmatched = write_predictions(
            bundle, records, out, columns=columns, is_main=world.is_main, on_rows=on_rows, **options
        )
    if not world.is_main:
        return
    note_truncation(truncated.summary())
    say(f"{out}: {rows:,} rows; added: {', '.join(added)}")
    fail_on_unmatched(unmatched, world)


def _rows_of(text: str, bundle: Bundle) -> list[tuple[Record, Any]]:
    """The rows of one argument: a folder has one for each of its files, which has its name."""
    found = bundle.find_task().input_kind.parse_all(text)
    names = [str(each) if isinstance(each, Path) and each != Path(text) else text for each in found]
    return [({INPUT: name}, each) for name, each in zip(names, found, strict=True)]


@contextmanager
def _counter(shown: bool) -> Iterator[Callable[[int], None]]:
    """The number of rows that are done, at a terminal."""
    if not shown or not sys.stderr.isatty():
        yield lambda rows: None
        return
    from rich.console import Console

    with Console(stderr=True).status("running") as status:
        yield lambda rows: status.update(f"{rows:,} rows")


# ---------------------------------------------------------------------------------------- next words


def complete_all(bundle: Any, texts: Sequence[str], *, top: int, as_json: bool, options: dict[str, Any]) -> None:
    if options:
        raise InputError(f"--complete generates nothing, so --{next(iter(options)).replace('_', '-')} does not apply")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"--complete takes texts, not {type(text).__name__}")
        words = complete(bundle, text, top=top)
        if as_json:
            found = [
                {"word": word.word, "text": word.text, "probability": round(word.probability, 6)} for word in words
            ]
            say_json({"input": text, "words": found})
            continue
        if len(texts) > 1:
            say_text(("\n" if number else "") + printable(text))
        for word in words:
            say_text(f"{word.probability:7.2%}  {printable(word.word) or END}")
