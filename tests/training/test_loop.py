"""The loop: gradients independent of the split, intervals, callbacks, log."""

import json
import runpy
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from headway.data.batch import Loss
from headway.errors import ConfigError
from headway.training import loop
from headway.training.state import load_state, states

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("toy_run.py"))))


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


pytestmark = pytest.mark.usefixtures("no_picture")


def trained(folder: Path, *, model: nn.Module | None = None, **options) -> tuple[dict, list[float]]:
    """Weights and losses of a run without dropout."""
    model = model or toy.ToyModel(dropout=0.0)
    result = toy.toy_fit(folder, model=model, **options)
    return dict(model.state_dict()), [entry["loss"] for entry in result.history if "loss" in entry]


def mean_of_means(model: nn.Module, batch) -> Loss:
    """A wrong loss that weights each micro-batch equally, whatever its number of predictions."""
    found = toy.toy_loss(model, batch)
    return Loss(total=found.total / batch.count * 10)


def test_accumulation_changes_nothing(tmp_path):
    def run(folder: str, **options) -> tuple[dict, list[float]]:
        """In float64, whose rounding no optimiser makes visible, whatever the CPU."""
        return trained(tmp_path / folder, model=toy.ToyModel(dropout=0.0).double(), optimizer="adamw", **options)

    weights, losses = run("1", accumulate=1)
    for accumulate in (2, 4, 9):  # 9: more micro-batches than examples
        again, losses_again = run(str(accumulate), accumulate=accumulate)
        assert toy.close(weights, again, 1e-12)
        assert losses_again == pytest.approx(losses, abs=1e-5)
    wrong, _ = run("a", accumulate=1, loss=mean_of_means)
    wrong_again, _ = run("b", accumulate=4, loss=mean_of_means)
    assert not toy.close(wrong, wrong_again, 1e-3)


def test_one_step_is_the_mean_loss_of_the_whole_batch(tmp_path):
    model, reference = toy.ToyModel(dropout=0.0), toy.ToyModel(dropout=0.0)
    source = toy.ToySource()
    batch = source.load(source.epoch(0)[0], 0)
    loss = toy.toy_loss(reference, batch).total / batch.count
    loss.backward()
    norm = torch.cat([parameter.grad.flatten() for parameter in reference.parameters()]).norm()
    result = toy.toy_fit(tmp_path, model=model, steps=1, accumulate=3, clip=0.0)
    first = result.history[0]
    assert first["loss"] == pytest.approx(loss.item(), rel=1e-5) == first["cross_entropy"]
    assert first["norm"] == pytest.approx(norm.item(), rel=1e-5)


def test_clipping_bounds_the_gradient(tmp_path):
    norms = []

    class Watch:
        def on_step(self, status) -> None:
            grads = [parameter.grad.flatten() for parameter in status.model.parameters()]
            norms.append(float(torch.cat(grads).norm()))

    result = toy.toy_fit(tmp_path, clip=0.05, callbacks=[Watch()])
    assert max(norms) <= 0.05 + 1e-6 < min(entry["norm"] for entry in result.history if "norm" in entry)


def test_every_example_once_an_epoch(tmp_path):
    source = toy.ToySource()
    result = toy.toy_fit(tmp_path, source=source, epochs=2, accumulate=3)
    assert (result.stopped_by, result.steps, result.epochs) == ("epochs", 12, 2)
    assert sorted(source.seen) == [(epoch, index) for epoch in range(2) for index in range(22)]


def test_checkpointed_blocks_give_the_same_gradients(tmp_path):
    def run(folder: str, **options) -> dict:
        model = toy.ToyModel(dropout=0.3)
        calls = []
        model.blocks[0].norm.register_forward_hook(lambda *_: calls.append(1))
        toy.toy_fit(tmp_path / folder, model=model, steps=3, **options)
        return {"weights": model.state_dict(), "calls": len(calls), "own": "forward" in vars(model.blocks[0])}

    plain, thrifty = run("plain"), run("thrifty", checkpoint_activations=True)
    assert toy.close(plain["weights"], thrifty["weights"], 0.0)
    assert (plain["calls"], thrifty["calls"], thrifty["own"]) == (3, 6, False)
    with pytest.raises(ConfigError, match="no blocks"):
        toy.toy_fit(tmp_path / "none", model=nn.Linear(2, 2), checkpoint_activations=True)


# rhythm and listeners


def test_callbacks_are_called_in_order(tmp_path):
    calls = []

    class Everything:
        def __getattr__(self, name: str):
            if not name.startswith("on_"):
                raise AttributeError(name)
            return lambda status, *details: calls.append((name[3:], status.step))

    only_steps = SimpleNamespace(on_step=lambda status: calls.append(("other", status.step)))
    rhythm = {"steps": 3, "eval_every": 2, "save_every": 2, "log_every": 2}
    toy.toy_fit(tmp_path, evaluate=toy.toy_evaluate, callbacks=[Everything(), only_steps], **rhythm)
    steps = [[("step", step), ("other", step)] for step in (1, 2, 3)]
    assert calls == [
        ("start", 0),
        *steps[0],
        *steps[1],
        *(("log", 2), ("evaluate", 2), ("save", 2)),
        *steps[2],
        *(("evaluate", 3), ("log", 3), ("save", 3), ("end", 3)),
    ]


def test_the_schedule_is_followed(tmp_path):
    options = {"schedule": "linear", "warmup": 2, "lr": 0.01, "steps": 6}
    result = toy.toy_fit(tmp_path, **options)
    factors = [entry["lr"] / 0.01 for entry in result.history]
    assert factors == pytest.approx([0.5, 1, 1, 0.75, 0.5, 0.25])
    epochs = toy.toy_fit(tmp_path / "epochs", **{**options, "steps": 0, "epochs": 1})
    assert [entry["lr"] for entry in epochs.history] == [entry["lr"] for entry in result.history]


def test_states_by_time(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(loop, "monotonic", lambda: now[0])
    saved = []
    clock = SimpleNamespace(
        on_step=lambda status: now.__setitem__(0, now[0] + 10), on_save=lambda status, path: saved.append(status.step)
    )
    toy.toy_fit(tmp_path, save_every="30s", callbacks=[clock], steps=8)
    assert saved == [3, 6, 8]


def test_saving_by_the_clock_costs_at_most_three_percent(tmp_path, monkeypatch):
    """A save takes 3 s here, so states are saved every 100 s instead of 30, with a warning."""
    now, saved, warnings = [0.0], [], []
    monkeypatch.setattr(loop, "monotonic", lambda: now[0])
    save = loop.save_state

    def slowly(*args, **options):
        now[0] += 3
        return save(*args, **options)

    monkeypatch.setattr(loop, "save_state", slowly)
    clock = SimpleNamespace(
        on_step=lambda status: now.__setitem__(0, now[0] + 10),
        on_save=lambda status, path: saved.append(status.step),
        on_warning=lambda status, message: warnings.append(message),
    )
    result = toy.toy_fit(tmp_path, save_every="30s", callbacks=[clock], steps=33)
    assert saved == [3, 13, 23, 33]
    assert warnings == ["a save takes 3.0 s: states are 100 s apart, to cost no more than 3%"]
    assert not any("warning" in entry for entry in result.history)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_trains(tmp_path, precision):
    seen = set()

    def loss(model: nn.Module, batch) -> Loss:
        logits = model(**batch.inputs)
        seen.add(logits.dtype)
        flat = logits.flatten(0, 1).float(), batch.targets["ids"].flatten()
        return Loss(total=nn.functional.cross_entropy(*flat, reduction="sum"))

    _, losses = trained(tmp_path / "half", precision=precision, loss=loss, steps=60, lr=0.03)
    _, full = trained(tmp_path / "full", steps=60, lr=0.03)
    assert seen == {torch.float32 if precision == "bf16" else torch.float16}  # on a CPU, bf16 rounds factors alone
    assert losses[-1] == pytest.approx(full[-1], rel=0.15) and losses[-1] < losses[0]


def test_fp16_overflow_skips_the_update_and_halves_the_scale(tmp_path):
    before = toy.ToyModel().state_dict()
    model = toy.ToyModel()

    def steep(model: nn.Module, batch) -> Loss:  # 2^16 × this gradient is beyond what fp16 can hold
        steepness = batch.count * 30.0 * model.blocks[0].up(torch.ones(8)).sum()
        return Loss(total=toy.toy_loss(model, batch).total + steepness)

    result = toy.toy_fit(tmp_path, model=model, precision="fp16", loss=steep, steps=2)
    assert [entry.get("skipped") for entry in result.history] == [1, 1]
    assert toy.close(before, model.state_dict(), 0.0)
    assert load_state(states(tmp_path / "training")[0])["stepper"]["scale"]["value"] == 2.0**14


# what is left to read


def test_the_share_of_time_spent_on_reading_data_is_logged(tmp_path):
    class Slow(toy.ToySource):
        def load(self, indices, epoch):
            time.sleep(0.1)
            return super().load(indices, epoch)

    (slow,) = toy.toy_fit(tmp_path / "slow", source=Slow(), steps=4, log_every=4).history
    # seconds, of which the first batch, which cannot be read ahead, has 0.1 however busy the machine is
    assert slow["waiting"] * slow["predictions"] / slow["speed"] >= 0.1 and slow["waiting"] <= 1
    (quick,) = toy.toy_fit(tmp_path / "quick", steps=4, log_every=4).history
    assert 0 < quick["waiting"] < 1


def test_log_lines_and_curves(tmp_path):
    result = toy.toy_fit(tmp_path, evaluate=toy.toy_evaluate, eval_every=5, log_every=5)
    lines = (tmp_path / "training" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == result.history
    assert [entry["step"] for entry in result.history] == [5, 5, 10, 10, 14, 14]
    measured = {"predictions", "speed", "waiting", "seconds"}
    assert {"step", "epoch", "loss", "cross_entropy", "norm", "lr", *measured} == set(result.history[0])
    picture = (tmp_path / "training" / "curves.png").read_bytes()
    assert picture[:4] == b"\x89PNG" and len(picture) > 5000


def test_logged_loss_is_the_mean_over_predictions(tmp_path):
    fine = toy.toy_fit(tmp_path / "fine", log_every=1, steps=6, model=toy.ToyModel(dropout=0.0))
    coarse = toy.toy_fit(tmp_path / "coarse", log_every=6, steps=6, model=toy.ToyModel(dropout=0.0))
    source = toy.ToySource()
    counts = [source.load(batch, 0).count for batch in source.epoch(0)]
    assert coarse.history[0]["loss"] == pytest.approx(
        np.average([entry["loss"] for entry in fine.history], weights=counts), rel=1e-5
    )
