"""`evaluate`, `run` and `info`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headway.cli.app import app
from headway.cli.generation_options import TEXT_OPTIONS, generation_options, names_for, use_of
from headway.cli.help import fewer_options
from headway.cli.options import AsJson, Device, Model, Weights, note, reads_data, say, say_json, say_lines, say_text
from headway.errors import InputError
from headway.kinds.predictions import BoxesPrediction, PicturePrediction, PredictionKind, TranscriptPrediction
from headway.printable import printable

if TYPE_CHECKING:
    from headway.bundle import Bundle
    from headway.data.truncation import TruncationCounter
    from headway.distributed import World
    from headway.tasks.task import Task

T = TypeVar("T")


def note_unfinished(model: str) -> None:
    from headway import jobs

    if jobs.unfinished(model):
        note(
            f"note: the run in {model} has not finished, so these are its initial weights; "
            f"continue it with --resume --out {model}"
        )


def note_truncation(lines: list[str]) -> None:
    for line in lines:
        note(f"note: {line}")


@app.command()
@reads_data
@generation_options
def evaluate(
    model: Model,
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[MODEL…] [DATA]",
            help="More model folders, to compare with the first on the same examples; then a file or folder; two "
            "parallel files for translate (default: the run's held-out part).",
        ),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(help="For draw: a model of classify-image that judges the pictures (default: one is trained)."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="For chat, on preferences: the model that rewards are relative to (usually the one started from)."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Folder for a report: one page with scores by class and length, confusion matrix, calibration and the "
            "worst mistakes, and the same as files."
        ),
    ] = None,
    weights: Weights = None,
    device: Device = "cpu",
    as_json: AsJson = False,
    *,
    reading: dict[str, Any],
    generation: dict[str, Any],
) -> None:
    """Score MODEL on DATA (default: the held-out part of its own run) with the metrics of its task. Given several
    models: the difference of their scores, with its uncertainty (paired bootstrap)."""
    from headway.bundle import load
    from headway.jobs.inference import distributed, evaluation
    from headway.jobs.paired import compare_models, split_models

    models, files = split_models(model, data or [])
    alone = [name for name, value in {"judge": judge, "reference": reference, "report": report}.items() if value]
    if len(models) > 1 and alone:
        raise InputError(f"--{alone[0]} is for the evaluation of one model; {len(models)} are given")
    found: Any
    with distributed() as world:
        for each in models if world.is_main else ():
            note_unfinished(each)
        if len(models) > 1:
            found = compare_models(models, files or None, weights=weights, device=device, **reading, **generation)
        else:
            found = evaluation(
                load(model, weights=weights, device=device), files or None, judge=judge, reference=reference,
                report=report, say=note, **reading, **generation,
            )  # fmt: skip
    if not world.is_main:
        return
    note_truncation(getattr(found, "truncated", []))
    if as_json:
        say_json(found.to_dict())
    else:
        say_lines(found.lines())


def options_of(task: Task) -> tuple[str, ...]:
    """The options of generation that apply to a task of a model."""
    kind = task.prediction_kind
    return (*(TEXT_OPTIONS if kind.generates else ("n",)), *kind.options)


@fewer_options("run")
def options_of_others(arguments: list[str]) -> tuple[str, set[str]] | None:
    """The options of `run` that a model on the command line does not have."""
    from headway.bundle import load
    from headway.errors import HeadwayError
    from headway.lineage.word2vec_files import gives_word_vectors

    model = next((each for each in arguments if Path(each, "config.json").is_file()), None)
    if model is None:
        return None
    try:
        bundle = load(model)
        task = bundle.find_task()
    except HeadwayError:
        return None
    kind, kept = task.prediction_kind, set(options_of(task))
    kept |= {"complete", "top"} if kind.generates and not bundle.model.reads_source else set()
    kept |= {"picture"} if gives_word_vectors(task) else set()
    kept -= set() if kind.generates or isinstance(kind, PicturePrediction) else {"n"}
    line = f"These are the options of {printable(model)} ({task.name}); `headway run --help` shows those of all models."
    return line, {*names_for("run"), "complete", "top", "picture"} - kept


@app.command()
@reads_data
@generation_options
def run(
    model: Model,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[INPUT…]", help="Texts; for pictures and sound files (default: standard input)."),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            help="File of inputs: a table in any format of training (CSV, TSV, JSON lines, …), one input a line, "
            "or a document (.srt, .vtt, .md, .docx); `-` is standard input. May be a pattern ('part*.csv'), a folder "
            "or a zip archive, and given several times."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the predictions beside the columns of the inputs: .csv, .jsonl or .parquet. Of texts in a "
            "--file, and of recordings: a file of its kind (.txt, .srt, …), of several a folder. draw: file for "
            "the pictures (default: picture.png). detect: also a file for the picture with its boxes; of several "
            "pictures, a folder."
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="For vectors: draw the inputs and the words nearest to them to this PNG or SVG file."),
    ] = None,
    complete: Annotated[
        bool,
        typer.Option("--complete", help="For a decoder: show the most probable next words of each input, not a text."),
    ] = False,
    top: Annotated[int, typer.Option(help="With --complete: words to show.")] = 5,
    weights: Weights = None,
    device: Device = "cpu",
    as_json: AsJson = False,
    *,
    reading: dict[str, Any],
    generation: dict[str, Any],
) -> None:
    """Run MODEL on inputs. One generated text is streamed; several inputs are run in batches."""
    if picture is not None:
        from headway.bundle import load
        from headway.lineage.word2vec_files import picture_words

        return say(picture_words(load(model, device=device), inputs or [], picture))
    from headway.jobs.inference import distributed

    if complete:
        from headway.bundle import load
        from headway.cli.completion import complete_all

        bundle = load(model, weights=weights, device=device)
        texts = collect_inputs(bundle, inputs or [], file or [], reading=reading)
        return complete_all(bundle, texts, top=top, as_json=as_json, options=generation)
    with distributed() as world:
        predict_all(
            model,
            world,
            inputs=inputs or [],
            files=file or [],
            out=out,
            reading=reading,
            weights=weights,
            device=device,
            as_json=as_json,
            options=generation,
        )


def predict_all(
    model: str,
    world: World,
    *,
    inputs: list[str],
    files: list[Path],
    out: Path | None,
    reading: dict[str, Any],
    weights: str | None,
    device: str,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    """Runs in every process of `world`; the main one reads the inputs and prints the answers."""
    from headway.bundle import load
    from headway.cli.output_files import fill_documents, takes_documents
    from headway.cli.predictions_table import is_predictions_file, write_table

    if world.is_main:
        note_unfinished(model)
    bundle = load(model, weights=weights, device=device)
    task = bundle.find_task()
    kind = task.prediction_kind
    refuse_other_options(task, options)
    if out is not None and is_predictions_file(out) and kind.tabular:
        return write_table(bundle, world, inputs, files=files, out=out, reading=reading, options=options)
    if takes_documents(task, files, out) and not inputs and not as_json:
        return fill_documents(bundle, world, files, out=out, reading=reading, options=options)
    texts = world.broadcast(world.run_on_main(lambda: collect_inputs(bundle, inputs, files, reading=reading)))
    run_kind = RUN.get(type(kind), run_all)
    run_kind(bundle, world, texts, out=out, as_json=as_json, options=options)


def refuse_other_options(task: Task, options: dict[str, Any]) -> None:
    if other := next((name for name in options if name not in options_of(task)), None):
        raise InputError(f"task {task.name} does not {use_of(other)}, so --{other.replace('_', '-')} does not apply")


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
    from headway import jobs

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
        answers = jobs.run(bundle, inputs, **options)
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
    if unmatched and world.is_main:
        note(f"note: {unmatched} answers do not match the constraint because they were cut off; raise --max-new-tokens")
    if unmatched:
        raise typer.Exit(1)


def refuse_out(out: Path, kind: PredictionKind) -> None:
    also = ", or with --file a document of its kind" if kind.generates else ""
    raise InputError(f"--out {out}: --out takes .csv, .jsonl or .parquet here{also}")


def mark_all(
    bundle: Bundle, world: World, pictures: list[Any], *, out: Path | None, as_json: bool, options: dict[str, Any]
) -> None:
    """With --out, the pictures with the boxes of what is found in them."""
    from headway.jobs.marked import MarkedPictures, summary

    pictures = expanded(pictures, bundle.find_task())
    if out is None:
        return run_all(bundle, world, pictures, out=None, as_json=as_json, options=options)
    labels = bundle.find_task().labels  # type: ignore[attr-defined]
    marked = MarkedPictures(out, count=len(pictures), labels=labels)

    def save(given: Any, answer: Any) -> tuple[Path, str]:
        return marked.save(given, answer), summary(answer)

    run_all(bundle, world, pictures, out=out, as_json=as_json, options=options, save=save)


def draw_all(
    bundle: Bundle, world: World, captions: list[str], *, out: Path | None, as_json: bool, options: dict[str, Any]
) -> None:
    """Draws in every process; the main one writes the file."""
    import secrets

    from headway.jobs.pictures import draw, free_name

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
    from headway.cli.output_files import save_transcripts
    from headway.jobs.transcripts import run_one, run_several

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
    from headway.jobs import read_inputs
    from headway.jobs.inputs import refuse_file_names
    from headway.jobs.pipes import regular_file

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


@app.command()
def info(
    model: Model,
    update_checksums: Annotated[
        bool, typer.Option("--update-checksums", help="Accept files that were changed on purpose, as they are now.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the shape, parameters by part, memory, context length, family and file checksums of MODEL."""
    from headway.jobs.info import info_lines, model_info

    if update_checksums:
        from headway.checkpoints import resolve, saved

        note(f"{saved.CHECKSUMS}: {len(saved.update_checksums(resolve(model)))} files recorded as they are now")
    facts = model_info(model)
    if as_json:
        say_json(facts, indent=2)
    else:
        say_lines(info_lines(facts))
