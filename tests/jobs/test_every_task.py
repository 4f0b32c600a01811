"""Every task, from its built-in data to an answer: train, save, load, evaluate, run."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import headway
from headway import jobs
from headway.tasks import TASKS, find

pytestmark = pytest.mark.usefixtures("little_data")
SMALL: dict[str, Any] = {"model.width": 32, "model.layers": 1, "model.heads": 2, "eval_every": 0, "batch": 8}
DRAWN = ("classify", "vectors")  # tasks whose curves are drawn: one by each of the two loops
# a model that has learned nothing writes as long as it may
BRIEF: dict[str, dict[str, Any]] = {
    task: {"task.target_limit": 24} for task in ("translate", "summarize", "transcribe")
}
INPUTS: dict[str, Any] = {
    "generate": "The import statement",
    "chat": "What is the capital of Peru?",
    "translate": "3 May 1998",
    "summarize": "Rain fell on Monday in Leeds. It stopped at noon.",
    "classify": "please cancel my order",
    "tag": "Ada Lovelace met Charles in London .",
    "answer": json.dumps({"question": "Where does Ada live?", "context": "Ada lives in Leeds."}),
    "fill": "the [MASK] statement",
    "embed": "a short text",
    "vectors": "king",
    "draw": "a red circle on blue",
}


@pytest.mark.parametrize("task", TASKS)
def test_train_evaluate_run(task: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if task in DRAWN:
        request.getfixturevalue("curves")
    settings = {
        **SMALL,
        **({"task.vocab": 300} if task not in ("classify-image", "detect") else {}),
        **BRIEF.get(task, {}),
    }
    settings, length = (settings, {"steps": 2}) if task != "vectors" else ({"dimensions": 8}, {"epochs": 2})
    trained = jobs.train(task, out=tmp_path / "run", settings=settings, **length)
    assert trained.result.steps == 2 and trained.result.stopped_by == next(iter(length))
    assert all(math.isfinite(value) for value in trained.scores.values()), trained.scores
    for name in ("config.json", "model.safetensors", "headway.json", "README.md", "training/plan.json"):
        assert (tmp_path / "run" / name).exists(), name
    picture = tmp_path / "run" / "training" / "curves.png"
    assert picture.stat().st_size > 1000 if task in DRAWN else not picture.exists()

    again = headway.load(tmp_path / "run")
    assert again.task is not None and again.task.name == task
    row = find(task).builtin.rows(split="test", size=1)[0].fields
    given = INPUTS[task] if task in INPUTS else row["audio" if task == "transcribe" else "image"]
    brief = {"max_new_tokens": 5, "seed": 0}
    options = {"generate": brief, "chat": brief, "draw": {"steps": 2}}.get(task, {})
    first = [answer for _, answer in jobs.run(again, [given, given], **options)]
    assert len(first) == 2
    if task not in ("generate", "chat", "embed", "draw"):
        assert first[0] == first[1]
    if task != "draw":
        assert again.task.prediction_kind.line(first[0]) is not None


@pytest.mark.parametrize("task", ["generate", "fill"])
def test_check_of_running_text_counts_the_steps_of_an_epoch(task: str, tmp_path: Path) -> None:
    """Where an example is a part of a text, and a file's pieces are not what is counted."""
    path = tmp_path / "text.txt"
    path.write_text("".join(f"Line {n} says that {n * n} is the square of {n}.\n\n" for n in range(2000)))
    settings = {**SMALL, "task.vocab": 300, "batch": 64}
    lines = jobs.check_plan(jobs.make_plan(task, path, epochs=1, settings=settings)).summary()
    length = len(path.read_text())
    assert lines[0] == f"text         {int(length * 0.9):,} characters, held out {length - int(length * 0.9):,}"
    told = int(next(line for line in lines if line.startswith("time")).split(" steps")[0].split()[-1].replace(",", ""))
    trained = jobs.train(task, path, out=tmp_path / "run", epochs=1, settings=settings)
    assert told == pytest.approx(trained.result.steps, rel=0.1), (told, trained.result.steps)


def test_the_recurrent_model_trains_and_generates_by_the_same_code(tmp_path: Path) -> None:
    settings = {**SMALL, "task.vocab": 300, "architecture": "bahdanau-gru", "batch": 16, **BRIEF["translate"]}
    trained = jobs.train("translate", out=tmp_path / "run", steps=30, settings=settings)
    losses = [entry["loss"] for entry in trained.result.history if "loss" in entry]
    assert losses[-1] < losses[0]
    loaded = headway.load(tmp_path / "run")
    assert loaded.config.shape == "recurrent"
    assert isinstance(loaded("3 May 1998"), str)
    with headway.inspect.record(loaded.model, "cross.weights") as seen:
        loaded("3 May 1998", beams=1)
    assert seen["cross.weights"][0].shape[:2] == (1, 1)


def test_lora_starts_from_a_model_and_ends_as_a_plain_one(tmp_path: Path) -> None:
    first = jobs.train("classify", out=tmp_path / "a", steps=2, settings={**SMALL, "task.vocab": 300})
    second = jobs.train("classify", out=tmp_path / "b", start=first.folder, steps=3, lora=2, settings={"eval_every": 0})
    assert headway.load(second.folder)("cancel it")["label"] in second.bundle.task.labels  # type: ignore[union-attr]
    names = {name for name, _ in headway.load(second.folder).model.named_modules()}
    assert not any("lora" in name for name in names)


def test_truncation_is_reported_and_is_in_the_card(tmp_path: Path) -> None:
    said: list[str] = []
    settings = {**SMALL, "task.vocab": 300, "source_limit": 4}
    jobs.train("translate", out=tmp_path / "run", steps=1, settings=settings, say=said.append)
    line = next(line for line in said if line.startswith("cut "))
    assert "source" in line and "cut to 4 tokens" in line and "builtin/translate/train:" in line
    card = (tmp_path / "run" / "README.md").read_text()
    assert "Truncated:" in card and line.removeprefix("cut").strip() in card
