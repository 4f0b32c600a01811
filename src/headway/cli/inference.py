"""`evaluate`, `run` and `info`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headway.cli.app import app
from headway.cli.generation_options import OTHER_NAMES, TEXT_OPTIONS, generation_options, names_for, use_of
from headway.cli.help import fewer_options
from headway.cli.options import AsJson, Device, Model, Weights, note, reads_data, say, say_json, say_lines
from headway.errors import InputError
from headway.printable import printable

if TYPE_CHECKING:
    from headway.tasks.task import Task

T = TypeVar("T")


def note_unfinished(model: str) -> None:
    from headway import jobs

    if jobs.unfinished(model):
        note(
            f"note: the run in {model} has not finished, so these are its initial weights; "
            f"continue it with --resume --out {model}"
        )


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
    from headway.jobs.inference import distributed, evaluation
    from headway.jobs.paired import compare_models, split_models
    from headway.loading import load

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
    for line in getattr(found, "truncated", []):
        note(f"note: {line}")
    if as_json:
        say_json(found.to_dict())
    else:
        say_lines(found.lines())


def options_of(task: Task) -> tuple[str, ...]:
    """The options of generation that apply to a task of a model."""
    kind = task.prediction_kind
    return (*(TEXT_OPTIONS if kind.generates else ()), *kind.options)


@fewer_options("run")
def options_of_others(arguments: list[str]) -> tuple[str, set[str]] | None:
    """The options of `run` that a model on the command line does not have."""
    from headway.errors import HeadwayError
    from headway.lineage.word2vec_files import gives_word_vectors
    from headway.loading import load

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
        from headway.lineage.word2vec_files import picture_words
        from headway.loading import load

        return say(picture_words(load(model, device=device), inputs or [], picture))
    from headway.cli import answers
    from headway.jobs.inference import distributed
    from headway.loading import load

    if complete:
        bundle = load(model, weights=weights, device=device)
        texts = answers.collect_inputs(bundle, inputs or [], file or [], reading=reading)
        return answers.complete_all(bundle, texts, top=top, as_json=as_json, options=generation)
    with distributed() as world:
        if world.is_main:
            note_unfinished(model)
        bundle = load(model, weights=weights, device=device)
        refuse_other_options(bundle.find_task(), generation)
        answers.answer_all(
            bundle, world, inputs=inputs or [], files=file or [], out=out, reading=reading, as_json=as_json,
            options=generation,
        )  # fmt: skip


def refuse_other_options(task: Task, options: dict[str, Any]) -> None:
    if other := next((name for name in options if name not in options_of(task)), None):
        option = OTHER_NAMES.get(other, f"--{other.replace('_', '-')}")
        raise InputError(f"task {task.name} does not {use_of(other)}, so {option} does not apply")


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
