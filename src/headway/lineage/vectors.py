"""The training of word vectors: from text to a model folder whose token table holds them. `lineage/word2vec_fit.py`
says why this is not the one loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch

from headway.bundle import Bundle
from headway.checkpoints import save_json
from headway.data.builtin.families import FAMILIES
from headway.data.dataset import Dataset, RowReader
from headway.data.row import Row
from headway.errors import ConfigError, InputError
from headway.files import is_present
from headway.jobs.card import write_card
from headway.jobs.outcome import run_warnings
from headway.jobs.preparation import Say, locked_run, removed_unless_started
from headway.jobs.prune import drop_states
from headway.jobs.run_config import Plan, complete, facts_of, open_data, saved_plan
from headway.jobs.run_folder import PLAN, SCORES, Paths, listed, require_own_folders, run_file
from headway.jobs.training import Trained
from headway.lineage.word2vec import Corpus, make_objective, train_chunk
from headway.lineage.word2vec_fit import TrainChunk, fit_word2vec
from headway.loading import load
from headway.preprocess.processor import Processor
from headway.tasks.vectors import Vectors
from headway.training.result import FitResult

NO_NUMBA = "numba is not installed (pip install headway[fast]), so this runs on numpy, about a hundred times slower"


def run_vectors(plan: Plan, folder: Path, *, callbacks: Iterable[Any], say: Say, resume: bool) -> Trained:
    """Trains by `plan` in `folder`; `resume` goes on with the run there."""
    require_own_folders(folder)
    refuse_options(plan)
    with locked_run(folder, resume=resume) as is_new:
        return _run_vectors(plan, folder, callbacks=callbacks, say=say, resume=resume, is_new=is_new)


def _run_vectors(
    plan: Plan, folder: Path, *, callbacks: Iterable[Any], say: Say, resume: bool, is_new: bool
) -> Trained:
    with removed_unless_started(folder, is_new=is_new):
        data = open_data(plan).load()
        plan = plan if resume else complete(plan, facts_of(plan, data))
        settings = plan.settings()
        task = Vectors.without_words(plan.options)
        words, counts, corpus = Corpus.read(task.sentences(training_rows(plan, data)), min_count=task.min_count)
        bundle = load(folder) if resume else new_bundle(task, words)
        task = cast(Vectors, bundle.find_task())
        if task.words != words:
            raise ConfigError(f"{folder}: the words of the text are not those the run began with; start another run")
        if not resume:
            bundle.save(folder)
            save_json(run_file(folder, PLAN), dataclasses.asdict(plan))
    say(f"vectors, {describe(task)}, {settings.epochs} epochs")
    say(f"data         {data.name} ({data.layout})" if plan.data is None else f"data         {data.name}")
    say(f"text         {len(corpus):,} words, {len(words):,} different that occur at least {task.min_count} times")
    compiled, note = kernel()
    if note:
        say(f"note         {note}")
    objective = make_objective(
        counts, method=cast(Any, task.architecture), window=task.window, negatives=task.negatives, sample=task.sample
    )
    vectors, result = fit_word2vec(
        bundle.model,
        corpus,
        objective,
        width=task.dimensions,
        settings=settings,
        folder=folder,
        fingerprint=data.fingerprint,
        train_chunk=compiled,
        threads=task.threads or torch.get_num_threads(),
        callbacks=callbacks,
        resume=resume,
    )
    if result.exit_code:
        return Trained(bundle, result, {}, folder, [])
    save_json(run_file(folder, PLAN), dataclasses.asdict(plan))  # its length may have changed
    task.set_vectors(bundle.model, vectors)
    bundle.save(folder)
    return finished(plan, folder, bundle, data, words=len(corpus), result=result, say=say)


def refuse_options(plan: Plan) -> None:
    """What `train` takes for other tasks and this one has no use for."""
    given = {name.partition(".")[0] for name in plan.given or []}
    wrong = {
        "--start": plan.start is not None,
        "--lora": bool(plan.lora),
        "--freeze": bool(plan.freeze),
        "--size or --set model.…": "model" in given,
        "--steps or --minutes": not plan.settings().epochs,
    }
    for name, is_given in wrong.items():
        if is_given:
            raise ConfigError(
                f"task vectors has no {name}; its length is --epochs, its size --set dimensions=100 and its settings "
                "window, negatives, sample, min_count, lr and threads"
            )


def training_rows(plan: Plan, data: Dataset) -> Iterable[Row]:
    """All of the text: nothing is held out, as vectors are judged by questions about words. (The held-out rows of the
    built-in data are such questions.)"""
    return data.train() if plan.data is None or plan.valid else chain(data.train(), data.valid())


def new_bundle(task: Vectors, words: list[str]) -> Bundle:
    filled, model = Vectors.from_words(words, **task.to_dict())
    return Bundle(cast(Any, model), "headway", Processor(filled.tokenizer), task=filled)


def kernel() -> tuple[TrainChunk, str]:
    """The function that trains a chunk, and a note where it is the slow one."""
    from headway.engine.compiler import can_compile

    if not can_compile():
        return train_chunk, NO_NUMBA
    from headway.lineage import word2vec_kernel

    return word2vec_kernel.train_chunk, ""


def describe(task: Vectors) -> str:
    objective = f"{task.negatives} negatives" if task.negatives else "hierarchical softmax"
    return f"{task.architecture}, {task.dimensions} numbers a word, window {task.window}, {objective}"


def finished(
    plan: Plan, folder: Path, bundle: Bundle, data: Dataset, *, words: int, result: FitResult, say: Say
) -> Trained:
    """Scores, card and report of a run that has come to its end."""
    task = cast(Vectors, bundle.find_task())
    asked = plan_questions(plan, data)
    scores = task.evaluate(bundle.model, asked()) if asked is not None else {}
    scores |= {} if result.last_loss is None else {"loss": result.last_loss}
    checker, settings = task.checker(), plan.settings()
    for row in training_rows(plan, data):
        checker.add(row, {})
    report = checker.report()
    warnings = run_warnings(result, scores, task=task, settings=settings)
    write_card(
        folder, bundle=bundle, plan=plan, result=result, scores=scores, report=report, data=data, cut=[],
        warnings=warnings,
    )  # fmt: skip
    save_json(run_file(folder, SCORES), scores)
    drop_states(folder, kept=settings.keep_states)
    seconds = max(result.seconds, 1e-9)
    speed = words * settings.epochs / seconds
    say(f"trained {settings.epochs} epochs in {seconds / 60:.1f} minutes, {speed:,.0f} words/s")
    for warning in warnings:
        say(f"warning      {warning}")
    return Trained(bundle, result, scores, folder, warnings)


def questions(bundle: Bundle, data: Paths | None, *, encoding: str | None) -> tuple[RowReader, str]:
    """The questions to evaluate vectors on, and their name: of files, of the run, or the built-in ones."""
    if data:
        return Vectors.question_rows(listed(data), encoding=encoding), ", ".join(path.name for path in listed(data))
    plan = saved_plan(bundle.folder) if bundle.folder is not None and has_plan(bundle.folder) else None
    if plan is None or plan.data is None:
        return lambda: iter(FAMILIES.rows(split="test")), "built-in data for vectors"
    asked = plan_questions(plan, open_data(plan))
    if asked is None:
        raise InputError(
            "vectors are evaluated on questions about words: give a file of analogies (questions-words.txt) or of "
            "pairs of words with a similarity (wordsim353.tsv)"
        )
    return asked, ", ".join(plan.valid or [])


def has_plan(folder: Path) -> bool:
    return is_present(run_file(folder, PLAN))


def plan_questions(plan: Plan, data: Dataset) -> RowReader | None:
    """Questions that the run's vectors are judged by: of `--valid`, or of the built-in data; None: it has none."""
    if plan.valid:
        return Vectors.question_rows([Path(path) for path in plan.valid], encoding=plan.encoding)
    return data.valid if plan.data is None else None
