"""What follows from the data and the budget: length limit, batch, rate, epochs and evaluations of fine-tuning."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from support.untrained import embedder

from headway.bundle import Bundle
from headway.data.dataset import Dataset
from headway.data.row import Row
from headway.jobs.budget import Pace, _evaluations, _shorter, _updates, fit_budget
from headway.jobs.preparation import check_data, initial_bundle
from headway.jobs.run_config import Plan, facts_of, make_plan
from headway.tasks.language_settings import UPDATES
from headway.training.intervals import Intervals
from headway.training.protocols import Status
from headway.training.settings import Settings


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return embedder(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture(scope="module")
def long(start: Path) -> Dataset:
    """Texts of up to about 300 tokens."""
    bundle = planned(start, data := dataset(40))[1]
    lengths = [bundle.find_task().token_lengths(row)["text"] for row in data.train()]
    return dataset(300, words=round(300 / ((lengths[4] - lengths[0]) / 4)))


def dataset(count: int, *, words: int = 5) -> Dataset:
    def rows() -> Any:
        return (
            Row({"text": " ".join(["hello"] * (1 + i % words)), "label": "ab"[i % 2]}, f"row {i}") for i in range(count)
        )

    return Dataset("made up", "rows", rows, rows, rows, identity=f"{count} {words}")


def planned(start: Path, data: Dataset, **options: Any) -> tuple[Plan, Bundle]:
    plan = make_plan("classify", "data.tsv", start=start, **options)
    return plan, initial_bundle(plan, facts_of(plan, data))


@pytest.mark.parametrize(("count", "epochs", "batch"), [(100, 12, 4), (1000, 3, 8), (20_000, 3, 32)])
def test_small_data_is_repeated_in_small_batches(start: Path, count: int, epochs: int, batch: int) -> None:
    plan, bundle = planned(start, data := dataset(count))
    settings = fit_budget(plan, bundle, facts_of(plan, data)).settings()
    assert (settings.epochs, settings.batch) == (epochs, batch)
    assert count * settings.epochs / settings.batch >= UPDATES
    again = fit_budget(plan, bundle, facts_of(plan, data)).settings()
    assert again == settings  # nothing depends on the clock


@pytest.mark.parametrize(("example", "batch"), [(0.001, 32), (0.02, 16), (0.032, 16), (0.13, 4)])
def test_a_short_fine_tune_makes_hundreds_of_updates(start: Path, example: float, batch: int) -> None:
    """3 minutes on one core, at a thousand texts a second and at seven."""
    plan, bundle = planned(start, dataset(40), minutes=3)
    pace = Pace(example, update=0.05)
    choice = _updates(plan, bundle.find_task(), bundle, pace=pace, count=200_000)
    assert choice.settings["train.batch"] == batch
    assert pace.examples(180, batch) / batch >= 0.9 * UPDATES
    assert "train.epochs" not in choice.settings and "updates" in choice.why
    rate = choice.settings["train.lr"]
    smaller = _updates(plan, bundle.find_task(), bundle, pace=Pace(1.0, 0.05), count=200_000).settings["train.lr"]
    assert smaller <= rate  # smaller batches, lower rate


def test_more_time_than_the_data_is_worth(start: Path) -> None:
    plan, bundle = planned(start, dataset(40), minutes=30)
    choice = _updates(plan, bundle.find_task(), bundle, pace=Pace(0.001, 0.01), count=2000)
    assert choice.settings["train.epochs"] == 10 and "too often" in choice.why["updates"]


def test_the_limit_covers_the_texts_and_is_kept_if_given(start: Path, long: Dataset) -> None:
    plan, bundle = planned(start, data := long)
    longest = max(bundle.find_task().token_lengths(row)["text"] for row in data.train())
    fitted = fit_budget(plan, bundle, facts_of(plan, data))
    assert fitted.options["limit"] == bundle.find_task().length_limits()["text"]
    assert max(256, 0.9 * longest) < fitted.options["limit"] <= longest + 16 and "cover" in fitted.why["limit"]
    short, bundle = planned(start, dataset(300))
    usual = fit_budget(short, bundle, facts_of(short, dataset(300)))
    assert "limit" not in usual.options, "the usual limit covers them"
    plan, bundle = planned(start, data, settings={"task.limit": 20, "batch": 7, "lr": 0.5})
    fitted = fit_budget(plan, bundle, facts_of(plan, data))
    assert fitted.options["limit"] == 20 and (fitted.train["batch"], fitted.train["lr"]) == (7, 0.5)
    assert "limit" not in fitted.why and "learning rate" not in fitted.why


def test_long_texts_are_cut_where_the_time_does_not_suffice(start: Path, long: Dataset) -> None:
    plan, bundle = planned(start, data := long, minutes=1)
    task = bundle.find_task()
    task.limit = 304  # type: ignore[attr-defined]
    examples = [example for row in data.train() for example in task.examples(row)]
    assert not _shorter(plan, task, examples, pace=Pace(0.001, 0.01), count=300).settings
    cut = _shorter(plan, task, examples, pace=Pace(0.2, 0.01), count=300).settings["task.limit"]
    assert 128 < cut < 304
    assert _shorter(plan, task, examples, pace=Pace(9.0, 0.01), count=300).settings["task.limit"] == 128


def test_evaluations_take_a_small_share_of_the_time(start: Path) -> None:
    plan, bundle = planned(start, dataset(40), minutes=3)
    slow = _evaluations(plan, bundle.find_task(), pace=Pace(0.14, 0.05), count=5000).settings
    fast = _evaluations(plan, bundle.find_task(), pace=Pace(0.001, 0.05), count=5000).settings
    assert slow == {"train.eval_every": "45s", "train.eval_rows": 96} and fast["train.eval_rows"] == 1000
    moment, _ = planned(start, dataset(40), minutes=0.4)
    short = _evaluations(moment, bundle.find_task(), pace=Pace(0.001, 0.05), count=5000).settings
    assert short["train.eval_every"] == "12s"  # two evaluations, not four
    intervals = Intervals(Settings(minutes=3, eval_every="10s"))
    status = Status(None, elapsed=11.0)  # type: ignore[arg-type]
    assert intervals.due("eval_every", status)
    intervals.mark_done("eval_every", status)
    status.elapsed = 16.0  # the evaluation took 5 seconds: a tenth of 50
    assert not intervals.due("eval_every", status)
    status.elapsed = 60.0
    assert not intervals.due("eval_every", status)
    status.elapsed = 61.1
    assert intervals.due("eval_every", status)


def test_a_time_limit_is_planned_by_timed_steps_and_shown(start: Path) -> None:
    data = dataset(200)
    plan = make_plan("classify", "data.tsv", start=start, minutes=0.02)
    report, plan = check_data(plan, data, facts_of(plan, data))
    settings = plan.settings()
    assert settings.batch in (4, 8, 16, 32) and (settings.eval_every == "1s" or settings.epochs)
    assert {"updates", "learning rate"} <= set(report.extra)
    assert json.loads(json.dumps(dataclasses.asdict(plan)))["why"] == plan.why
