"""Rare labels weigh more in the training loss where macro F1 is what counts, and only there."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.commands import headway

from headway import jobs
from headway.data.row import Row
from headway.errors import ConfigError
from headway.tasks.classify import Classify
from headway.tasks.classify_kinds import balanced_weights
from headway.tasks.targets import OneLabel
from headway.tasks.text_settings import choose_for_labels

LINES = [("love it", "good")] * 90 + [("hate it", "bad")] * 20 + [("what is it", "question")] * 10
SMALL = {"model.width": 16, "model.layers": 1, "model.heads": 2, "batch": 8, "task.vocab": 60}


def rows(lines: list[tuple[str, str]]) -> Any:
    return lambda: (Row({"text": f"{text} {i}", "label": label}, f"row {i}") for i, (text, label) in enumerate(lines))


def test_weights_have_a_mean_of_one_over_the_examples() -> None:
    counts = [90, 20, 10]
    weights = balanced_weights(counts)
    assert sum(w * c for w, c in zip(weights, counts, strict=True)) == pytest.approx(sum(counts))
    assert weights[2] / weights[0] == pytest.approx(3.0)
    target = OneLabel(["a", "b", "c"], weights=weights)
    logits, labels = torch.zeros(2, 3), torch.tensor([0, 2])
    plain = OneLabel(["a", "b", "c"])
    assert float(target.loss(logits, labels, training=False)) == float(plain.loss(logits, labels, training=False))
    ratio = target.loss(logits[:1], labels[1:], training=True) / target.loss(logits[:1], labels[:1], training=True)
    assert float(ratio) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("lines", "given", "balance"),
    [
        (LINES, {"train.score": "macro_f1"}, True),
        (LINES, {}, None),
        (LINES, {"train.score": "accuracy"}, None),
        (LINES[80:110], {"train.score": "macro_f1"}, None),  # 10 of one, 20 of the other
        ([("a", "1.5"), ("b", "2.5")], {"train.score": "macro_f1", "task.kind": "regression"}, None),
    ],
)
def test_labels_are_balanced_only_where_it_helps(lines: list[Any], given: dict[str, Any], balance: bool | None) -> None:
    choice = choose_for_labels(Classify.scan(rows(lines)()), recipe="modern", given=given)
    assert choice.settings.get("task.balance") == balance and ("balance" in choice.why) == bool(balance)


def test_the_best_weights_by_a_named_score(tmp_path: Path) -> None:
    text = "".join(f"{line} {i}\t{label}\n" for i, (line, label) in enumerate(LINES))
    (tmp_path / "mine.tsv").write_text(text)
    said: list[str] = []
    settings = {**SMALL, "score": "macro_f1", "eval_every": 6}
    run = jobs.train(
        "classify", tmp_path / "mine.tsv", out=tmp_path / "run", steps=18, settings=settings, say=said.append
    )
    found = [entry["scores"]["macro_f1"] for entry in run.result.history if "scores" in entry]
    assert run.result.best == max(found)
    assert any(line.startswith("balance") for line in said)
    (line,) = (line for line in said if "TF-IDF + logistic regression" in line and line.startswith("baseline"))
    stored = json.loads((tmp_path / "run" / "training" / "baselines.json").read_text())["baselines"]
    assert [each["name"] for each in stored] == [each.name for each in run.baselines]
    assert f"accuracy {stored[1]['scores']['accuracy']:.4g}" in line and stored[1]["scores"]["accuracy"] > 0.9
    assert (
        "| score | value | always the most frequent label | TF-IDF + logistic regression |"
        in (tmp_path / "run" / "README.md").read_text()
    )
    evaluated = headway("evaluate", "run", cwd=tmp_path)
    assert f"baseline: {line.removeprefix('baseline     ')}" in evaluated.stdout.splitlines()
    (tmp_path / "new.tsv").write_text("love it all\tgood\nhate it all\tbad\n")
    other = json.loads(headway("evaluate", "run", "new.tsv", "--json", cwd=tmp_path).stdout)
    assert other["baselines"]["TF-IDF + logistic regression"]["accuracy"] == 1.0
    (tmp_path / "mine.tsv").rename(tmp_path / "moved.tsv")
    assert "baselines" not in json.loads(headway("evaluate", "run", "new.tsv", "--json", cwd=tmp_path).stdout)
    (tmp_path / "moved.tsv").rename(tmp_path / "mine.tsv")
    with pytest.raises(ConfigError, match="did you mean 'macro_f1'"):
        jobs.train(
            "classify", tmp_path / "mine.tsv", out=tmp_path / "other", steps=2, settings={**SMALL, "score": "macrof1"}
        )
