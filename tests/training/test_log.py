"""metrics.jsonl, curves, experiment trackers and the progress line."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch import nn

from headway.errors import ConfigError
from headway.training.log import MetricsLog, draw_curves, make_tracker
from headway.training.progress import ProgressLine, format_seconds
from headway.training.protocols import Status


def test_a_log_is_truncated_to_the_length_in_its_state(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.write({"step": 1, "loss": 0.5})
    length = log.length()
    log.write({"step": 2, "loss": float("nan"), "scores": {"f1": float("inf")}})
    assert [json.loads(line) for line in path.read_text().splitlines()][1] == {
        **{"step": 2, "loss": None},
        "scores": {"f1": None},
    }
    again = MetricsLog(path, length=length)
    assert again.history == [{"step": 1, "loss": 0.5}] and path.stat().st_size == length and again.problems == []
    assert MetricsLog(path).history == [] and path.stat().st_size == 0


def test_a_damaged_log_is_reported_and_not_fatal(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"st\x00ep": 2\n{"step": 3}\n')
    log = MetricsLog(path, length=path.stat().st_size + 7)
    assert log.history == [{"step": 1}, {"step": 3}]
    assert [problem.partition("metrics.jsonl")[2] for problem in log.problems] == [
        ": 7 bytes at the end of the log are missing",
        ":2: this line of the log is damaged",
    ]


def test_curves_show_loss_and_scores(tmp_path):
    from PIL import Image

    losses = [{"step": step, "loss": 5 / step} for step in range(1, 60)]
    scores = [{"step": step, "scores": {"accuracy": step / 60, "f1": None}} for step in range(10, 60, 10)]
    draw_curves(losses, tmp_path / "one.png")
    draw_curves(losses + scores, tmp_path / "two.png")
    with Image.open(tmp_path / "one.png") as one, Image.open(tmp_path / "two.png") as two:
        assert one.width == two.width and two.height == 2 * one.height
    draw_curves([], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb", "trackio"])
def test_a_missing_tracker_names_its_package(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=f"pip install {name}"):
        make_tracker(name, tmp_path, {})


def test_a_tracker_gets_metrics_and_scores(tmp_path, monkeypatch):
    calls: list[tuple] = []
    board = SimpleNamespace(
        init=lambda **options: calls.append(("init", options)),
        log=lambda values, step: calls.append((values, step)),
        finish=lambda: calls.append(("finish",)),
    )
    monkeypatch.setitem(sys.modules, "trackio", board)
    listener = make_tracker("trackio", tmp_path / "my run" / "training", {"lr": 0.1})
    status = Status(nn.Identity(), step=7)
    listener.on_log(status, {"loss": 1.0})
    listener.on_evaluate(status, {"f1": 0.5})
    listener.on_end(status)
    assert calls == [
        ("init", {"project": "headway", "name": "my run", "config": {"lr": 0.1}}),
        ({"train/loss": 1.0}, 7),
        ({"evaluation/f1": 0.5}, 7),
        ("finish",),
    ]


def tracked(name: str, training: Path) -> None:
    """Writes one training loss and one score with a real library."""
    training.mkdir(parents=True)
    tracker = make_tracker(name, training, {"lr": 0.25})
    tracker.on_log(Status(nn.Identity(), step=7), {"loss": 1.5})
    tracker.on_evaluate(Status(nn.Identity(), step=8), {"f1": 0.5})
    tracker.on_end(Status(nn.Identity(), step=8))


def test_tensorboard_reads_what_is_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="pip install tensorboard to run this test")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracked("tensorboard", tmp_path / "run" / "training")
    found = EventAccumulator(str(tmp_path / "run" / "training" / "tensorboard"))
    found.Reload()
    values = {name: [(each.step, each.value) for each in found.Scalars(name)] for name in found.Tags()["scalars"]}
    assert values == {"train/loss": [(7, 1.5)], "evaluation/f1": [(8, 0.5)]}


def test_mlflow_has_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="pip install mlflow to run this test")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    tracked("mlflow", tmp_path / "run" / "training")
    (run,) = mlflow.MlflowClient().search_runs([mlflow.get_experiment_by_name("headway").experiment_id])
    assert (run.info.run_name, run.info.status, run.data.params) == ("run", "FINISHED", {"lr": "0.25"})
    assert run.data.metrics == {"train/loss": 1.5, "evaluation/f1": 0.5}


def test_weights_and_biases_writes_into_the_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="pip install wandb to run this test")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracked("wandb", tmp_path / "run" / "training")
    (file,) = (tmp_path / "run" / "training" / "wandb").glob("offline-run-*/*.wandb")
    written = file.read_bytes()
    assert all(name in written for name in (b"train/loss", b"evaluation/f1", b"0.25"))


def test_plain_lines_without_a_terminal(capsys):
    line = ProgressLine(unit="tokens", score="bleu", every=0.0)
    status = Status(nn.Identity(), step=5, steps=20, elapsed=10.0)
    line.on_start(status)
    line.on_step(status)
    line.on_evaluate(status, {"bleu": 31.25})
    line.on_log(status, {"loss": 1.5, "speed": 12345.6, "lr": 0.001})
    line.on_end(status)
    assert capsys.readouterr().out.splitlines() == [
        "step 5: bleu 31.25",
        "step 5/20  loss 1.5000  bleu 31.25  12,346 tokens/s  lr 1.00e-03  0:30 left",
    ]


def test_plain_lines_at_intervals(capsys):
    line = ProgressLine(every=1000.0)
    for step in range(1, 5):
        line.on_log(Status(nn.Identity(), step=step, steps=9), {"loss": 1.0})
    assert capsys.readouterr().out.count("\n") == 1


def test_a_live_view_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    line = ProgressLine()
    status = Status(nn.Identity(), step=1, steps=4, elapsed=1.0)
    line.on_start(status)
    assert line.live is not None
    line.on_log(status, {"loss": 2.5})
    line.on_step(status)
    line.live.refresh()
    line.on_end(status)
    out = capsys.readouterr().out
    assert "25%  step 1/4  0:03 left" in out and "loss 2.5000" in out


def test_format_seconds():
    assert [format_seconds(seconds) for seconds in (0, 61.4, 3600, 36061)] == ["0:00", "1:01", "1:00:00", "10:01:01"]
