"""The plans of `generate`, `chat` and `fill` with a time limit: hundreds of updates, printed and saved."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import headway

from headway.bundle import Bundle
from headway.data.facts import Facts
from headway.jobs.budget import SCRATCH_UPDATES, SHORT_RATE, SHORT_RUN, Pace, _evaluations, _updates, fit_budget
from headway.jobs.preparation import initial_bundle
from headway.jobs.run_config import Plan, facts_of, make_plan, open_data

TASKS = ("generate", "chat", "fill")
SMALL = {"model.width": 16, "model.layers": 1, "model.heads": 2, "task.vocab": 300}
LINE = "The cat sat on the mat. The dog sat on the cat.\n"
TALK = [{"role": "user", "content": "Where is the cat?"}, {"role": "assistant", "content": "On the mat."}]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "text.txt").write_text(LINE * 400)
    (folder / "talk.jsonl").write_text((json.dumps({"messages": TALK}) + "\n") * 40)
    return {"generate": folder / "text.txt", "fill": folder / "text.txt", "chat": folder / "talk.jsonl"}


@pytest.fixture(scope="module")
def models(files: dict[str, Path]) -> dict[str, tuple[Bundle, Facts]]:
    out = {}
    for task in TASKS:
        plan = make_plan(task, files[task], settings=SMALL)
        facts = facts_of(plan, open_data(plan))
        out[task] = initial_bundle(plan, facts), facts
    return out


def planned(task: str, files: dict[str, Path], **options: Any) -> Plan:
    return make_plan(task, files[task], **{"settings": SMALL, **options})


@pytest.mark.parametrize("task", TASKS)
def test_hundreds_of_updates_in_three_minutes(task: str, files: Any, models: Any) -> None:
    plan, bundle = planned(task, files, minutes=3), models[task][0]
    usual = plan.settings().batch
    for example, update in ((0.001, 0.01), (0.05, 0.05), (0.1, 0.05)):
        pace = Pace(example, update)
        found = _updates(plan, bundle.find_task(), bundle, pace=pace, count=1_000_000).settings
        batch = found["train.batch"]
        assert pace.examples(180, batch) / batch >= 0.9 * SCRATCH_UPDATES and batch <= usual
        short = task == "generate" and pace.examples(180, usual) / batch < SHORT_RUN
        scale = (batch / usual) ** 0.5 * (SHORT_RATE if short else 1)
        if scale != 1:
            assert found["train.lr"] == pytest.approx(plan.settings().lr * scale, rel=0.05)
            assert found["train.matrix_lr"] == pytest.approx(plan.settings().matrix_lr * scale, rel=0.05)
        else:
            assert "train.lr" not in found


@pytest.mark.parametrize("task", TASKS)
def test_what_is_given_stays_and_without_a_time_limit_nothing_is_chosen(task: str, files: Any, models: Any) -> None:
    bundle, facts = models[task]
    same = planned(task, files)
    assert fit_budget(same, bundle, facts) == same
    given = planned(task, files, minutes=0.5, settings={**SMALL, "batch": 3, "lr": 0.5, "matrix_lr": 0.25})
    fitted = fit_budget(given, bundle, facts)
    settings = fitted.settings()
    assert (settings.batch, settings.lr, settings.matrix_lr) == (3, 0.5, 0.25) and "updates" in fitted.why
    assert settings.epochs == 40 or "evaluated" in fitted.why  # ends early, or is evaluated by the clock


def test_small_data_is_not_repeated_without_end(files: Any, models: Any) -> None:
    plan, bundle = planned("generate", files, minutes=30), models["generate"][0]
    choice = _updates(plan, bundle.find_task(), bundle, pace=Pace(0.001, 0.01), count=50)
    assert choice.settings["train.epochs"] == 40 and "too often" in choice.why["updates"]
    assert "windows of 256 tokens" in choice.why["updates"]


def test_rows_of_running_text_are_long(files: Any, models: Any) -> None:
    plan, task = planned("generate", files, minutes=3), models["generate"][0].find_task()
    long, short = (
        _evaluations(plan, task, pace=Pace(0.01, 0.05), count=5000, per_row=per_row).settings["train.eval_rows"]
        for per_row in (100.0, 1.0)
    )
    assert 1 <= long < short


def test_it_is_printed_and_saved(files: dict[str, Path], tmp_path: Path) -> None:
    options = [f"--set={name}={value}" for name, value in SMALL.items()]
    command = ("train", "generate", files["generate"], "--minutes", "0.01", *options)
    shown = headway(*command, "--dry-run", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert all(f"\n{name}" in f"\n{shown.stdout}" for name in ("size ", "dropout ", "updates "))
    done = headway(*command, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0 and "\nupdates " in done.stdout, done.stderr
    plan = json.loads((tmp_path / "run" / "training" / "plan.json").read_text())
    assert plan["why"]["dropout"].startswith(f"{plan['model']['dropout']:g}, ") and "updates" in plan["why"]
