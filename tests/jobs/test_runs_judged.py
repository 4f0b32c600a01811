"""The score that `headway runs` shows: the one that the user named, or the metric of the task."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import headway

from headway.jobs.runs import TASK_METRICS, run_summary
from headway.tasks import TASKS, find
from headway.tasks.targets import LabelSet, Number, OneLabel
from headway.tasks.vectors import Vectors


def finished(
    folder: Path, scores: dict[str, float], *, baselines: list[dict[str, Any]] | None = None, **plan: Any
) -> Path:
    training = folder / "training"
    training.mkdir(parents=True)
    (training / "plan.json").write_text(json.dumps({"data": ["d.csv"], "train": {"steps": 2}, **plan}))
    (training / "scores.json").write_text(json.dumps(scores))
    (training / "baselines.json").write_text(json.dumps({"baselines": baselines or []}))
    return folder


def test_the_table_of_metrics_is_that_of_the_tasks() -> None:
    several = {
        "classify": {OneLabel.metric, LabelSet.metric, Number.metric},
        "vectors": {Vectors.metric, Vectors.variant({"architecture": "elmo"}).metric},
    }
    assert {name: several.get(name, {find(name).metric}) for name in TASKS} == {
        name: set(metrics) for name, metrics in TASK_METRICS.items()
    }


TRANSLATED = {"loss": 5.565, "exact": 0.0, "bleu": 1.5, "chrf": 4.0}


@pytest.mark.parametrize(
    ("plan", "scores", "shown"),
    [
        ({"task": "translate"}, TRANSLATED, ("bleu", 1.5)),
        ({"task": "tag"}, {"precision": 0.5455, "recall": 0.2, "f1": 0.3}, ("f1", 0.3)),
        ({"task": "classify"}, {"exact": 0.5, "loss": 0.1, "micro_f1": 0.7}, ("micro_f1", 0.7)),
        ({"task": "translate", "train": {"score": "chrf"}, "given": ["train.score"]}, TRANSLATED, ("chrf", 4.0)),
        ({"task": "translate", "train": {"score": "loss"}, "given": ["train.lr"]}, TRANSLATED, ("bleu", 1.5)),
        ({"task": "translate", "train": {"score": "loss"}, "given": None}, TRANSLATED, ("bleu", 1.5)),
        ({"task": "a task of a plugin"}, {"own": 0.4, "loss": 1.0}, ("own", 0.4)),
        ({"task": "tag", "train": 5, "given": 7}, {}, None),
    ],
)
def test_the_score_that_a_run_is_judged_by(
    plan: dict[str, Any], scores: dict[str, float], shown: tuple[str, float] | None, tmp_path: Path
) -> None:
    found = run_summary(finished(tmp_path / "run", scores, **plan))
    assert found.score == shown and found.scores == scores


def test_the_table_shows_it_beside_the_same_score_of_the_baseline(tmp_path: Path) -> None:
    baselines = [
        {"name": "never right", "scores": {"bleu": 0.0}},
        {"name": "copy", "scores": {"bleu": 2.25, "chrf": 9}},
    ]
    finished(tmp_path / "runs" / "one", TRANSLATED, baselines=baselines, task="translate")
    head, row = headway("runs", cwd=tmp_path).stdout.splitlines()
    assert head.split()[4:6] == ["score", "baseline"] and row.split()[4:7] == ["bleu", "1.5", "2.25"]
