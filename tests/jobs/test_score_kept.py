"""The score that weights are kept by: which may be named, and which one the progress line shows."""

from types import SimpleNamespace
from typing import Any

import pytest

from headway.errors import ConfigError
from headway.jobs.run_config import make_plan, with_choices
from headway.jobs.training import kept_score, progress, require_score
from headway.tasks.task import Choice
from headway.training.settings import Settings

FOUND = {"accuracy": 0.5, "macro_f1": 0.4, "majority": 0.6, "loss": 0.7}
OTHERS = [
    ("tag", "f1", "majority"),
    ("fill", "gain", "unigram"),
    ("summarize", "rouge1", "lead_rouge1"),
    ("embed", "mrr", "chance"),
    ("classify", "mae", "mean_mae"),
    ("generate", "perplexity", "tokens"),
]


def test_constants_of_the_data_are_refused() -> None:
    require_score("macro_f1", FOUND)
    with pytest.raises(ConfigError, match="'majority' depends on the data alone") as refused:
        require_score("majority", FOUND)
    assert str(refused.value).endswith("known: accuracy, macro_f1, loss")
    with pytest.raises(ConfigError) as unknown:
        require_score("zzzz", FOUND)
    assert str(unknown.value).endswith("known: accuracy, macro_f1, loss")


@pytest.mark.parametrize(("task", "score", "constant"), OTHERS)
def test_constants_of_other_tasks(task: str, score: str, constant: str) -> None:
    found = {score: 0.1, constant: 0.2}
    require_score(score, found)
    with pytest.raises(ConfigError, match=f"known: {score}$"):
        require_score(constant, found)


def test_the_progress_line_shows_the_score_that_the_user_named() -> None:
    named = progress(make_plan("classify", "d.tsv", settings={"score": "macro_f1"}))
    named.scores = FOUND
    assert named._learning() == ["macro_f1 0.4"]
    assert progress(make_plan("translate", "d.tsv", settings={"train.score": "chrf"})).score == "chrf"
    assert progress(make_plan("translate", "d.tsv")).score == "bleu"


def test_it_shows_the_metric_where_a_score_was_chosen_for_the_data() -> None:
    chosen = with_choices(make_plan("classify", "d.tsv"), Choice({"train.score": "loss"}))
    assert chosen.settings().score == "loss"
    line = progress(chosen)
    line.scores = FOUND
    assert line._learning() == ["accuracy 0.5"]


def test_the_score_that_weights_are_kept_by() -> None:
    task: Any = SimpleNamespace(metric="wer")
    assert kept_score(task, Settings(steps=1)) == ("wer", False)
    assert kept_score(task, Settings(steps=1, score="f1")) == ("f1", True)
    assert kept_score(task, Settings(steps=1, score="loss")) == ("loss", False)
