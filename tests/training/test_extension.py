"""A run resumed with another length: data and learning rate go on, and it can be stopped and resumed exactly."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from headway.errors import TrainingError
from headway.training.schedule import Extension, Schedule
from headway.training.state import load_state, states, write_state
from headway.training.state_diff import first_difference

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("toy_run.py"))))
resume_tests = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("test_resume.py"))))
pytestmark = pytest.mark.usefixtures("no_picture")
RUN = {"average": 0.9, "eval_every": 5, "warmup": 0.2, "schedule": "wsd", "decay": 0.5}
SCORED = {"evaluate": toy.toy_evaluate, "score": "loss", "higher_is_better": False}


class Notes:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.factors: list[float] = []

    def on_note(self, status, message: str) -> None:
        self.lines.append(message)

    def on_step(self, status) -> None:
        self.factors.append(status.factor)


def extended(folder: Path, *callbacks, first: int = 14, then: int = 25, stop: int | None = None):
    """A run of `first` steps, extended to `then`; stopped at step `stop` and resumed without naming a length again."""
    source, notes = toy.ToySource(), Notes()
    toy.toy_fit(folder, source=source, steps=first, callbacks=[notes], **RUN, **SCORED)
    again = {"source": source, "resume": True, "steps": then, **RUN, **SCORED}
    if stop is not None:
        toy.toy_fit(folder, model=toy.ToyModel(seed=1), callbacks=[notes, resume_tests.StopAt(stop)], **again)
    model = toy.ToyModel(seed=2)
    result = toy.toy_fit(folder, model=model, callbacks=[notes], **again)
    return SimpleNamespace(
        state=resume_tests.everything(folder, result),
        kept=model.state_dict(),
        seen=source.seen,
        notes=notes,
        result=result,
    )


def test_the_data_goes_on_and_the_learning_rate_joins_the_longer_schedule(tmp_path: Path) -> None:
    run = extended(tmp_path / "a")
    whole = toy.ToySource()
    toy.toy_fit(tmp_path / "b", source=whole, steps=25, **RUN)
    assert run.seen == whole.seen and run.result.steps == 25 == len(run.notes.factors)
    schedule = Schedule("wsd", warmup=0.2, decay=0.5)
    assert run.notes.factors[:14] == [schedule.factor(step, 14) for step in range(14)]
    planned = [schedule.factor(step, 25) for step in range(25)]
    assert run.notes.factors[18:] == planned[18:]
    rising = run.notes.factors[13:16]
    assert rising == sorted(rising) and rising[0] < 0.2 and rising[1] < planned[14]
    assert run.notes.lines == [
        "the run now has 25 steps, was 14 steps: its learning rate rises from 14.3% to 80.0% of its peak at step 16, "
        "then falls to 8.0%"
    ]


def test_an_extended_run_is_deterministic_and_resumes_exactly(tmp_path: Path) -> None:
    whole = extended(tmp_path / "a")
    for stop in (15, 19, 22):
        again = extended(tmp_path / str(stop), stop=stop)
        assert first_difference(whole.state, again.state) is None and first_difference(whole.kept, again.kept) is None
        assert len(again.notes.lines) == 1


def test_a_run_is_extended_by_epochs_and_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        toy.toy_fit(tmp_path / name, epochs=1, **RUN)
        toy.toy_fit(tmp_path / name, epochs=3, resume=True, **RUN)
        result = toy.toy_fit(tmp_path / name, epochs=4, resume=True, **RUN)
        assert (result.steps, result.epochs, result.stopped_by) == (24, 4, "epochs")
    left, right = (load_state(states(tmp_path / name / "training")[0]) for name in ("a", "b"))
    assert first_difference(left["model"], right["model"]) is None
    assert left["status"]["extended_at"] == 18


def test_a_length_that_is_not_more_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    toy.toy_fit(tmp_path, **RUN)
    before = sorted(path.name for path in (tmp_path / "training").iterdir())
    for shorter in ({"steps": 13}, {"epochs": 2}):
        with pytest.raises(TrainingError, match=r"has trained 14 steps \(2 epochs, .* is not more"):
            toy.toy_fit(tmp_path, resume=True, **RUN, **shorter)
    assert before == sorted(path.name for path in (tmp_path / "training").iterdir())


def test_early_stopping_begins_again(tmp_path: Path) -> None:
    def worse(model) -> dict[str, float]:
        worse.score -= 1
        return {"accuracy": worse.score}

    worse.score = 10.0
    options = {"evaluate": worse, "score": "accuracy", "eval_every": 1, "patience": 2}
    assert toy.toy_fit(tmp_path, steps=14, **options).stopped_by == "patience"
    result = toy.toy_fit(tmp_path, steps=20, resume=True, **options)
    assert (result.stopped_by, result.steps) == ("patience", 5)


def test_a_finished_run_says_how_it_is_extended(tmp_path: Path) -> None:
    toy.toy_fit(tmp_path, **RUN)
    notes = Notes()
    toy.toy_fit(tmp_path, resume=True, callbacks=[notes], **RUN)
    assert notes.lines == [
        "the run has finished its 14 steps; to extend it, resume it with more steps, epochs or minutes"
    ]


def test_a_state_of_an_earlier_version_is_extended(tmp_path: Path) -> None:
    toy.toy_fit(tmp_path, **RUN)
    state = states(tmp_path / "training")[0]
    content = load_state(state)
    for name in ("extended_at", "extended_factor", "first_loss"):
        del content["status"][name]
    write_state(state, content)
    assert toy.toy_fit(tmp_path, steps=16, resume=True, **RUN).steps == 16


@pytest.mark.parametrize("kind", ["wsd", "cosine", "linear", "inverse_sqrt", "constant"])
@pytest.mark.parametrize("warmup", [0.0, 0.1, 5])
def test_every_schedule_goes_on_without_a_jump_up(kind, warmup) -> None:
    schedule = Schedule(kind, warmup=warmup, decay=0.6)
    last = schedule.factor(99, 100)
    extension = Extension(100, last)
    factors = [schedule.factor(step, 200, extension) for step in range(100, 200)]
    assert all(factor <= schedule.factor(step, 200) for step, factor in enumerate(factors, 100))
    assert factors[-1] == schedule.factor(199, 200) and all(0 <= factor <= 1 for factor in factors)
    steps = [after - before for before, after in zip([last, *factors], factors, strict=False)]
    assert not warmup or max(steps) <= 1 / min(5, warmup * 100) + 1e-9
    if kind == "constant":
        assert set(factors) == {1.0}
    if kind == "inverse_sqrt" and warmup == 5:
        assert factors == [schedule.factor(step, 100) for step in range(100, 200)]  # it does not depend on the end
    words = schedule.continuation(200, extension)
    assert words.startswith(
        {"constant": "stays", "inverse_sqrt": "falls" if warmup != 0.1 else "rises"}.get(kind, "rises")
    )
