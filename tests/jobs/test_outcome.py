"""A run that has not learned says so in its last lines and in its card, and a healthy run says nothing of the kind."""

import random
from pathlib import Path
from typing import Any

import pytest

from headway import jobs
from headway.baselines import Baseline
from headway.jobs.outcome import run_warnings
from headway.tasks import find
from headway.training.result import FitResult
from headway.training.settings import Settings

SMALL = {"model.width": 16, "model.layers": 1, "model.heads": 2, "batch": 8, "eval_every": 10, "task.vocab": 60}
ALONE = {"task.ngrams": 0, "task.convolutions": 0}  # the transformer, which a few steps teach nothing


def rows(*, learnable: bool, count: int = 160) -> str:
    draw = random.Random(0)
    labels = ["good" if i % 3 else "bad" for i in range(count)]
    words = {"good": "love", "bad": "hate"}
    lines = [f"i {words[label]} number {number}" for number, label in enumerate(labels)]
    if not learnable:
        labels = [draw.choice(["good", "good", "bad"]) for _ in labels]
    return "".join(f"{line}\t{label}\n" for line, label in zip(lines, labels, strict=True))


def trained(folder: Path, text: str, *, steps: int, **settings: Any) -> tuple[jobs.Trained, list[str], str]:
    (folder / "mine.tsv").write_text(text)
    said: list[str] = []
    options: dict[str, Any] = {"steps": steps, "settings": {**SMALL, **settings}, "say": said.append}
    run = jobs.train("classify", folder / "mine.tsv", out=folder / "run", **options)
    return run, said, (folder / "run" / "README.md").read_text()


def test_a_run_that_diverges(tmp_path: Path) -> None:
    run, said, card = trained(tmp_path, rows(learnable=True), steps=40, lr=100, matrix_lr=100, warmup=0.0)
    assert run.result.first_loss is not None and run.result.first_loss < 2
    assert said[-1].startswith("warning      ") or said[-2].startswith("warning      ")
    (line,) = (line for line in said if "diverged" in line)
    assert "--set lr=10 --set matrix_lr=10" in line and line in [f"warning      {each}" for each in run.warnings]
    assert "**Warning:** the training loss diverged" in card


def test_a_run_that_is_not_better_than_the_most_frequent_label(tmp_path: Path) -> None:
    run, said, card = trained(tmp_path, rows(learnable=False), steps=2, **ALONE)
    assert run.scores["accuracy"] <= run.scores["majority"]
    assert said[-1] == f"warning      {run.warnings[0]}" and len(run.warnings) == 1
    assert "is not better than always the most frequent label" in said[-1] and "Train longer" in said[-1]
    assert "**Warning:** accuracy" in card


def test_a_healthy_run_has_no_warning(tmp_path: Path) -> None:
    run, said, card = trained(tmp_path, rows(learnable=True), steps=60)
    assert run.scores["accuracy"] > run.scores["majority"]
    assert not run.warnings and not any(line.startswith("warning") for line in said) and "Warning" not in card


def result(first: float | None, *losses: float | None) -> FitResult:
    history = [{"step": 10 * number, "loss": loss} for number, loss in enumerate(losses, 1)]
    return FitResult(10, 1, None, None, history, "steps", 1.0, first)


@pytest.mark.parametrize(
    ("found", "diverged"),
    [
        (result(0.7, 0.6, 0.3, 0.2), False),
        (result(0.02, 0.1, 0.15, 0.1), False),  # noise of a model that was good already
        (result(0.7, 0.6, 5.0, 0.3, 0.2), False),  # a single bad interval
        (result(0.7, 3.0, 4.0, 5.0), True),
        (result(0.7, None, 4.0), True),
        (result(None, 4.0), False),  # a state of an earlier version does not have the first loss
        (result(0.7), False),
    ],
)
def test_divergence_is_told_by_the_first_and_the_last_losses(found: FitResult, diverged: bool) -> None:
    scores = {"loss": 1.0, "perplexity": 2.7}
    tokenizer: Any = range(300)
    task = find("generate")(tokenizer=tokenizer)
    warnings = run_warnings(found, scores, task=task, settings=Settings(steps=1))
    assert any("diverged" in warning for warning in warnings) == diverged and len(warnings) == diverged


@pytest.mark.parametrize(
    ("task", "scores", "said"),
    [
        ("generate", {"loss": 5.8}, "loss 5.8 is not better than every token equally likely (5.704)"),
        ("generate", {"loss": 5.6}, None),
        ("fill", {"loss": 3.2, "unigram": 3.1}, "not better than predicting by token frequency alone"),
        ("embed", {"accuracy": 0.01, "chance": 0.01}, "accuracy 0.01 is not better than a random choice (0.01)"),
        ("tag", {"f1": 0.0}, "f1 0 is not better than no correct answer (0)"),
        ("tag", {"f1": 0.1}, None),
        ("classify", {"accuracy": float("nan"), "majority": 0.5}, "accuracy nan is not better"),
        ("classify", {"accuracy": 0.6, "majority": 0.5}, None),
    ],
)
def test_the_baseline_of_each_task(task: str, scores: dict[str, float], said: str | None) -> None:
    kind = find(task)
    made = kind.__new__(kind)
    made.tokenizer = range(300)  # type: ignore[assignment]
    if task == "classify":
        made = kind(tokenizer=made.tokenizer, labels=["a", "b"])  # type: ignore[call-arg]
    warnings = run_warnings(result(1.0, 0.9), scores, task=made, settings=Settings(steps=1))
    assert len(warnings) == (said is not None) and (said is None or said in warnings[0])


def test_a_loss_that_fell_without_a_better_score_gets_other_advice() -> None:
    tokenizer: Any = range(300)
    task = find("classify")(tokenizer=tokenizer, labels=["a", "b"])
    (line,) = run_warnings(result(1.0, 0.1), {"accuracy": 0.4, "majority": 0.5}, task=task, settings=Settings(steps=1))
    assert "The training loss fell" in line


@pytest.mark.parametrize(
    ("task", "scores"),
    [
        ("classify", {"accuracy": 1.0, "majority": 1.0}),  # every held-out example has the same label
        ("embed", {"accuracy": 1.0, "chance": 1.0}),  # there is one held-out pair
    ],
)
def test_a_perfect_score_that_the_trivial_baseline_reaches_too(task: str, scores: dict[str, float]) -> None:
    kind, tokenizer = find(task), range(300)
    made: Any = kind(tokenizer=tokenizer, **({"labels": ["a", "b"]} if task == "classify" else {}))  # type: ignore[call-arg]
    (line,) = run_warnings(result(1.0, 0.9), scores, task=made, settings=Settings(steps=1))
    assert line.startswith("accuracy 1 cannot be better, but") and "not better than" not in line
    assert "these held-out examples do not show whether the model has learned anything" in line
    (line,) = run_warnings(result(1.0, 0.9), dict.fromkeys(scores, 0.9), task=made, settings=Settings(steps=1))
    assert line.startswith("accuracy 0.9 is not better than")  # control: equal, but not perfect


def test_a_model_that_a_cheap_one_is_better_than() -> None:
    tokenizer: Any = range(300)
    task = find("classify")(tokenizer=tokenizer, labels=["a", "b"])
    beside = [Baseline("always a", {"accuracy": 0.5}, trivial=True), Baseline("a cheap model", {"accuracy": 0.9})]

    def warned(accuracy: float) -> list[str]:
        scores = {"accuracy": accuracy, "majority": 0.5}
        return run_warnings(result(1.0, 0.1), scores, task=task, settings=Settings(steps=1), beside=beside)

    assert warned(0.9) == [] and warned(0.95) == []  # as good as the cheap model is no failure
    (line,) = warned(0.8)
    assert line.startswith("accuracy 0.8 is not better than a cheap model (0.9). It is fitted in seconds")
    (line,) = warned(0.5)
    assert "a cheap model (0.9)" in line  # the stronger of the two
