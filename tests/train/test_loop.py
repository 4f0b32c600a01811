"""The loop: exact gradients whatever the split, stopping before harm, keeping the best."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from headway.data.batch import Loss
from headway.errors import ConfigError, TrainingError
from headway.train import loop
from headway.train.state import load_state, load_tensors, states

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("toy_run.py"))))


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def no_picture(request, monkeypatch):
    if "curves" not in request.node.name:
        monkeypatch.setattr(loop, "draw_curves", lambda *_: None)


def trained(folder: Path, *, model: nn.Module | None = None, **options) -> tuple[dict, list[float]]:
    """Weights and losses of a run without dropout."""
    model = model or toy.ToyModel(dropout=0.0)
    result = toy.toy_fit(folder, model=model, **options)
    return dict(model.state_dict()), [entry["loss"] for entry in result.history if "loss" in entry]


def close(left: dict, right: dict, tolerance: float) -> bool:
    return all(torch.allclose(left[name], right[name], atol=tolerance, rtol=0) for name in left)


def mean_of_means(model: nn.Module, batch) -> Loss:
    """The mistake the loop must not make: each micro-batch counts the same, however few predictions it has."""
    found = toy.toy_loss(model, batch)
    return Loss(total=found.total / batch.count * 10)


def test_accumulation_changes_nothing(tmp_path):
    weights, losses = trained(tmp_path / "1", accumulate=1)
    for accumulate in (2, 4, 9):  # 9: more micro-batches than examples
        again, losses_again = trained(tmp_path / str(accumulate), accumulate=accumulate)
        assert close(weights, again, 2e-5)
        assert losses_again == pytest.approx(losses, abs=1e-5)
    wrong, _ = trained(tmp_path / "a", accumulate=1, loss=mean_of_means)
    wrong_again, _ = trained(tmp_path / "b", accumulate=4, loss=mean_of_means)
    assert not close(wrong, wrong_again, 1e-3)


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


def test_recomputed_blocks_give_the_same_gradients(tmp_path):
    def run(folder: str, **options) -> dict:
        model = toy.ToyModel(dropout=0.3)
        calls = []
        model.blocks[0].norm.register_forward_hook(lambda *_: calls.append(1))
        toy.toy_fit(tmp_path / folder, model=model, steps=3, **options)
        return {"weights": model.state_dict(), "calls": len(calls), "own": "forward" in vars(model.blocks[0])}

    plain, thrifty = run("plain"), run("thrifty", checkpoint_activations=True)
    assert close(plain["weights"], thrifty["weights"], 0.0)
    assert (plain["calls"], thrifty["calls"], thrifty["own"]) == (3, 6, False)
    with pytest.raises(ConfigError, match="no blocks"):
        toy.toy_fit(tmp_path / "none", model=nn.Linear(2, 2), checkpoint_activations=True)


# out of memory


class Cramped(nn.Module):
    """Has no room for more than two rows; the failed attempt draws from the random stream first."""

    def __init__(self, model: nn.Module, error: type[Exception], text: str, rows: int = 2) -> None:
        super().__init__()
        self.model, self.error, self.text, self.rows = model, error, text, rows
        self.failed = 0

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        torch.rand(7)
        if len(ids) > self.rows:
            self.failed += 1
            raise self.error(self.text)
        return self.model(ids)


ERRORS = [
    (torch.cuda.OutOfMemoryError, "CUDA out of memory"),
    (RuntimeError, "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried 1 byte"),
    (MemoryError, ""),
]


@pytest.mark.parametrize("error,text", ERRORS)
def test_out_of_memory_halves_the_micro_batch(tmp_path, error, text):
    roomy = Cramped(toy.ToyModel(), error, text, rows=99)
    toy.toy_fit(tmp_path / "roomy", model=roomy, accumulate=2)
    cramped = Cramped(toy.ToyModel(), error, text)
    source = toy.ToySource()
    result = toy.toy_fit(tmp_path / "cramped", model=cramped, source=source, accumulate=1)
    assert result.steps == 14 and cramped.failed == 1
    assert close(roomy.state_dict(), cramped.state_dict(), 0.0)  # as if it had been split from the start
    assert [entry["warning"] for entry in result.history if "warning" in entry] == [
        "out of memory: each batch is now computed in 2 micro-batches (same result)"
    ]
    assert load_state(states(tmp_path / "cramped" / "training")[0])["stepper"]["accumulate"] == 2


def test_out_of_memory_with_one_example_is_told(tmp_path):
    with pytest.raises(TrainingError, match="single example"):
        toy.toy_fit(tmp_path, model=Cramped(toy.ToyModel(), MemoryError, "", rows=0))


def test_other_errors_are_not_taken_for_it(tmp_path):
    with pytest.raises(RuntimeError, match="shapes differ"):
        toy.toy_fit(tmp_path, model=Cramped(toy.ToyModel(), RuntimeError, "shapes differ"))


# numbers that are not finite


def test_a_huge_learning_rate_stops_before_the_update(tmp_path):
    model = toy.ToyModel()
    with pytest.raises(TrainingError) as caught:
        toy.toy_fit(tmp_path, model=model, optimizer="adamw", lr=1e20, warmup=0, save_every=1)
    text = str(caught.value)
    assert "step 2:" in text and "lower lr" in text
    assert "first seen at: blocks.0.up;" in text or "first seen at: blocks.0.norm;" in text
    assert all(f"toy.tsv:{index + 1}" in text for index in toy.ToySource().epoch(0)[1])
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    state = load_state(states(tmp_path / "training")[0])
    assert state["status"]["step"] == 1
    assert all(tensor.isfinite().all() for tensor in state["model"].values())


class Poisoned(nn.Module):
    """Finite going forward, not so going back."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Embedding(toy.VOCABULARY, 4), nn.Linear(4, toy.VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.first(ids)
        return self.second(torch.where(x == x, x, 0)) + torch.sqrt((x - x.detach()).sum(-1, keepdim=True))


def test_a_gradient_that_is_not_finite_is_named(tmp_path):
    model = Poisoned()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(TrainingError, match=r"step 1:.*the gradient of first\.weight"):
        toy.toy_fit(tmp_path, model=model)
    assert close(before, model.state_dict(), 0.0)


def test_minus_infinity_in_a_mask_is_not_blamed(tmp_path):
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask, self.model, self.bad = nn.Identity(), toy.ToyModel(), nn.Identity()
            self.bad.register_forward_hook(lambda module, args, output: output * float("nan"))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            self.mask(torch.tensor(float("-inf")))
            return self.bad(self.model(ids))

    with pytest.raises(TrainingError, match="first seen at: bad;"):
        toy.toy_fit(tmp_path, model=Masked())


# what is evaluated and kept


def scripted(*values: float):
    """An evaluation with the scores given, and a record of the weights it saw."""
    seen: list[torch.Tensor] = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        assert not model.training and not torch.is_grad_enabled()
        seen.append(model.embed.weight.clone())
        return {"accuracy": values[len(seen) - 1]}

    return evaluate, seen


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_best_weights_come_back_and_patience_ends_the_run(tmp_path, average):
    evaluate, seen = scripted(0.1, 0.5, float("nan"), 0.5, 0.4, 0.9)
    model = toy.ToyModel()
    options = {"eval_every": 2, "patience": 3, "average": average}
    result = toy.toy_fit(tmp_path, model=model, evaluate=evaluate, score="accuracy", **options)
    assert (result.stopped_by, result.steps, result.best, len(seen)) == ("patience", 10, 0.5, 5)
    assert torch.equal(model.embed.weight, seen[1])
    assert torch.equal(load_tensors(tmp_path / "training" / "best.safetensors")["out.weight"], seen[1])
    last = load_state(states(tmp_path / "training")[0])["model"]["embed.weight"]
    assert not torch.equal(last, seen[1])  # the state goes on from the last weights, not from the best
    assert torch.equal(last, seen[-1]) == (average == 0.0)


def test_lower_may_be_better(tmp_path):
    evaluate, seen = scripted(0.5, 0.2, 0.3)
    result = toy.toy_fit(tmp_path, evaluate=evaluate, score="accuracy", higher_is_better=False, eval_every=5, steps=12)
    assert (result.best, result.stopped_by, len(seen)) == (0.2, "steps", 3)


def test_averaged_weights_are_left_when_nothing_is_scored(tmp_path):
    model = toy.ToyModel()
    toy.toy_fit(tmp_path, model=model, average=0.9)
    state = load_state(states(tmp_path / "training")[0])
    assert torch.equal(model.embed.weight, state["average"]["mean"]["embed.weight"])
    assert not torch.equal(model.embed.weight, state["model"]["embed.weight"])


def test_evaluating_changes_nothing(tmp_path):
    rare, often = toy.ToyModel(), toy.ToyModel()
    toy.toy_fit(tmp_path / "rare", model=rare)
    toy.toy_fit(tmp_path / "often", model=often, evaluate=toy.toy_evaluate, eval_every=1)
    assert close(rare.state_dict(), often.state_dict(), 0.0)


def test_a_lost_best_file_is_told(tmp_path):
    evaluate, _ = scripted(0.5, 0.2, 0.1)

    class Vandal:
        def on_save(self, status, path) -> None:
            (path.parent / "best.safetensors").write_bytes(b"gone")

    result = toy.toy_fit(tmp_path, evaluate=evaluate, score="accuracy", eval_every=5, callbacks=[Vandal()])
    assert "no longer holds the best weights (of step 5)" in result.history[-1]["warning"]


def test_misunderstandings_are_named(tmp_path):
    with pytest.raises(TrainingError, match="'bleu' was not among those evaluated \\(loss\\)"):
        toy.toy_fit(tmp_path / "a", evaluate=toy.toy_evaluate, score="bleu")
    with pytest.raises(TrainingError, match="nothing to evaluate with"):
        toy.toy_fit(tmp_path / "b", score="bleu")
    with pytest.raises(TrainingError, match="early stopping needs a score"):
        toy.toy_fit(tmp_path / "c", patience=3)
    with pytest.raises(TrainingError, match="not a single batch"):
        toy.toy_fit(tmp_path / "d", source=toy.ToySource(examples=0))


# rhythm and listeners


def test_listeners_hear_everything_in_order(tmp_path):
    heard = []

    class Everything:
        def __getattr__(self, name: str):
            if not name.startswith("on_"):
                raise AttributeError(name)
            return lambda status, *details: heard.append((name[3:], status.step))

    only_steps = SimpleNamespace(on_step=lambda status: heard.append(("other", status.step)))
    rhythm = {"steps": 3, "eval_every": 2, "save_every": 2, "log_every": 2}
    toy.toy_fit(tmp_path, evaluate=toy.toy_evaluate, callbacks=[Everything(), only_steps], **rhythm)
    steps = [[("step", step), ("other", step)] for step in (1, 2, 3)]
    assert heard == [
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
    """A save takes 3 s here, so that states come 100 s apart though 30 were asked for; and that is said."""
    now, saved, said = [0.0], [], []
    monkeypatch.setattr(loop, "monotonic", lambda: now[0])
    save = loop.save_state

    def slowly(*args, **options):
        now[0] += 3
        return save(*args, **options)

    monkeypatch.setattr(loop, "save_state", slowly)
    clock = SimpleNamespace(
        on_step=lambda status: now.__setitem__(0, now[0] + 10),
        on_save=lambda status, path: saved.append(status.step),
        on_warning=lambda status, message: said.append(message),
    )
    result = toy.toy_fit(tmp_path, save_every="30s", callbacks=[clock], steps=33)
    assert saved == [3, 13, 23, 33]
    assert said == ["a save takes 3.0 s: states are 100 s apart, to cost no more than 3%"]
    assert not any("warning" in entry for entry in result.history)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_learns(tmp_path, precision):
    seen = set()

    def loss(model: nn.Module, batch) -> Loss:
        logits = model(**batch.inputs)
        seen.add(logits.dtype)
        flat = logits.flatten(0, 1).float(), batch.targets["ids"].flatten()
        return Loss(total=nn.functional.cross_entropy(*flat, reduction="sum"))

    _, losses = trained(tmp_path / "half", precision=precision, loss=loss, steps=60, lr=0.03)
    _, full = trained(tmp_path / "full", steps=60, lr=0.03)
    assert seen == {torch.bfloat16 if precision == "bf16" else torch.float16}
    assert losses[-1] == pytest.approx(full[-1], rel=0.15) and losses[-1] < losses[0]


def test_fp16_overflow_skips_the_update_and_halves_the_scale(tmp_path):
    before = toy.ToyModel().state_dict()
    model = toy.ToyModel()

    def steep(model: nn.Module, batch) -> Loss:  # 2^16 × this gradient is beyond what fp16 can hold
        steepness = batch.count * 30.0 * model.blocks[0].up(torch.ones(8)).sum()
        return Loss(total=toy.toy_loss(model, batch).total + steepness)

    result = toy.toy_fit(tmp_path, model=model, precision="fp16", loss=steep, steps=2)
    assert [entry.get("skipped") for entry in result.history] == [1, 1]
    assert close(before, model.state_dict(), 0.0)
    assert load_state(states(tmp_path / "training")[0])["stepper"]["scale"]["value"] == 2.0**14


# what is left to read


def test_log_lines_and_curves(tmp_path):
    result = toy.toy_fit(tmp_path, evaluate=toy.toy_evaluate, eval_every=5, log_every=5)
    lines = (tmp_path / "training" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == result.history
    assert [entry["step"] for entry in result.history] == [5, 5, 10, 10, 14, 14]
    assert {"step", "epoch", "loss", "cross_entropy", "norm", "lr", "speed", "seconds"} == set(result.history[0])
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
