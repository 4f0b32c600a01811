"""Faults at the command line: messages, files kept, exit codes."""

import shutil
from pathlib import Path

import pytest
from support.faulty_process import resume_with_new_dropout
from typer.testing import CliRunner

from headway.cli import app
from headway.errors import ConfigError, TrainingError
from headway.jobs import make_plan, resume, train
from headway.jobs.verify import compare, replay, verify_resume
from headway.training import loop
from headway.training.state import states

SMALL = {"model.width": 16, "model.layers": 1, "model.heads": 2, "task.vocab": 200, "batch": 8, "log_every": 1}


@pytest.fixture(autouse=True)
def no_picture(monkeypatch):
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [f"a {'fine' if i % 2 else 'poor'} thing, number {i}\t{'good' if i % 2 else 'bad'}" for i in range(120)]
    (tmp_path / "things.tsv").write_text("\n".join(rows) + "\n")
    return tmp_path / "things.tsv"


def headway(*args: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(arg) for arg in args])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def settings(**more: object) -> list[str]:
    return [word for key, value in {**SMALL, **more}.items() for word in ("--set", f"{key}={value}")]


# numbers that are not finite


@pytest.mark.parametrize("lora", [0, 2])
def test_a_step_that_is_not_finite_can_be_replayed(data: Path, tmp_path: Path, lora: int) -> None:
    run = tmp_path / "run"
    explosive = {**SMALL, "lr": 1e20, "optimizer": "adamw", "warmup": 0, "clip": 0, "save_every": 1, "eval_every": 0}
    with pytest.raises(TrainingError) as caught:
        train("classify", data, out=run, steps=20, settings=explosive, lora=lora)
    message = str(caught.value)
    assert "things.tsv:" in message and "The weights were not updated" in message
    step = int(message.removeprefix("step ").partition(":")[0])
    path = run / "training" / f"autopsy-{step}"
    assert f"`headway replay {path}`" in message
    again = replay(path)
    assert again.reproduced and f"first seen at: {again.first_nonfinite};" in message and again.step == step
    code, output = headway("replay", path)
    assert code == 0 and f"first not finite now:        {again.first_nonfinite}" in output and "things.tsv:" in output
    assert {place in message for place in again.where[:3]} == {True}


def test_a_step_dump_is_verified_before_it_is_used(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    explosive = {**SMALL, "lr": 1e20, "optimizer": "adamw", "warmup": 0, "clip": 0}
    with pytest.raises(TrainingError, match="autopsy"):
        train("classify", data, out=run, steps=20, settings=explosive)
    path = next((run / "training").glob("autopsy-*"))
    weights = path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(TrainingError, match=r"checksum differs.*cannot be replayed"):
        replay(path)
    weights.write_bytes(whole)
    assert replay(path).reproduced
    with pytest.raises(ConfigError, match="no such folder"):
        replay(run / "training" / "autopsy-999")


# going on


def test_a_run_killed_before_its_first_state_starts_again(data: Path, tmp_path: Path) -> None:
    options = {"steps": 4, "settings": {**SMALL, "save_every": 2, "eval_every": 0, "keep_states": True}}
    whole = train("classify", data, out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        train("classify", data, out=tmp_path / "run", callbacks=[Stop(at=1)], **options)
    assert not states(tmp_path / "run" / "training")
    message: list[str] = []
    again = resume(tmp_path / "run", say=message.append)
    assert any("no state had been saved yet" in line for line in message)
    assert again.result.steps == whole.result.steps == 4
    assert compare(tmp_path / "whole", tmp_path / "run") == dict.fromkeys(compare(tmp_path / "whole", tmp_path / "run"))


class Stop:
    """Ends the run without an error message, as a crash would."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step(self, status) -> None:
        if status.step == self.at:
            raise KeyboardInterrupt


def test_a_changed_file_is_refused_by_name(data: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(
            "classify",
            data,
            out=tmp_path / "run",
            steps=6,
            settings={**SMALL, "save_every": 2, "eval_every": 0},
            callbacks=[Stop(at=3)],
        )
    before = data.read_text()
    data.write_text(before.replace("number 7\t", "number 8\t"))
    with pytest.raises(TrainingError, match=r"the data changed.*things\.tsv"):
        resume(tmp_path / "run")
    data.write_text(before)
    assert resume(tmp_path / "run").result.steps == 6


# verify-resume


def test_verify_resume_finds_a_sound_run_exact(data: Path, tmp_path: Path) -> None:
    code, output = headway(
        "verify-resume", "classify", data, "--steps", 10, "--kills", 3, "--seed", 5, "--out", tmp_path, *settings()
    )
    assert code == 0, output
    assert output.startswith("seed 5\n") and "10 steps, killed" in output and "resuming is exact" in output
    assert output.count("identical") == 8
    # what it compares with is not the run itself
    shutil.copy(states(tmp_path / "killed" / "training")[1] / "model.safetensors", tmp_path / "killed")
    assert compare(tmp_path / "whole", tmp_path / "killed")["model file"] is not None


@pytest.mark.slow
def test_verify_resume_notices_what_is_not_saved(data: Path, tmp_path: Path) -> None:
    plan = make_plan("classify", data, steps=8, settings={**SMALL, "model.dropout": 0.2, "save_every": 2})
    verified = verify_resume(plan, tmp_path, kills=2, seed=3, train_or_resume=resume_with_new_dropout)
    assert not verified.same
    assert "values differ" in (verified.compared["weights"] or "")
    assert verified.report()[-1] == "the resumed run differs"


def test_verify_resume_refuses_the_clock(data: Path, tmp_path: Path) -> None:
    for given in ({"minutes": 1.0}, {"steps": 5, "eval_every": "10s"}):
        length = {key: given.pop(key) for key in ("minutes", "steps") if key in given}
        plan = make_plan("classify", data, **length, settings={**SMALL, **given})
        with pytest.raises(ConfigError, match="not repeat exactly"):
            verify_resume(plan, tmp_path, kills=1, seed=0)


def test_a_run_that_fails_is_reported(data: Path, tmp_path: Path) -> None:
    plan = make_plan("classify", data, steps=8, settings={**SMALL, "lr": 1e20, "clip": 0, "optimizer": "adamw"})
    with pytest.raises(TrainingError, match="the run failed"):
        verify_resume(plan, tmp_path, kills=1, seed=0)
