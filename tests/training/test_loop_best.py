"""The loop: evaluation, and the weights at the end."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from headway.errors import TrainingError
from headway.training.state import load_state, load_tensors, states, write_state

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("toy_run.py"))))


pytestmark = pytest.mark.usefixtures("no_picture")


def scripted(*values: float):
    """An evaluation with the scores given, and a record of the weights it saw."""
    seen: list[torch.Tensor] = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        assert not model.training and not torch.is_grad_enabled()
        seen.append(model.embed.weight.clone())
        return {"accuracy": values[len(seen) - 1]}

    return evaluate, seen


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_best_weights_are_restored_and_patience_ends_the_run(tmp_path, average):
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


def test_a_tie_is_broken_by_the_loss_and_still_counts_towards_patience(tmp_path):
    scripts = iter([(0.5, 3.0), (0.5, 2.0), (0.5, 2.5), (0.5, float("nan")), (0.4, 0.1)])
    seen: list[torch.Tensor] = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        seen.append(model.embed.weight.clone())
        return dict(zip(("accuracy", "loss"), next(scripts), strict=True))

    model = toy.ToyModel()
    options = {"eval_every": 2, "patience": 4, "evaluate": evaluate, "score": "accuracy"}
    result = toy.toy_fit(tmp_path, model=model, **options)
    assert (result.stopped_by, result.best, result.best_step) == ("patience", 0.5, 4)
    assert torch.equal(model.embed.weight, seen[1])


def test_a_state_without_the_loss_of_the_best_weights_resumes(tmp_path):
    evaluate, _ = scripted(0.5, 0.2, 0.3)
    toy.toy_fit(tmp_path, evaluate=evaluate, score="accuracy", eval_every=2, steps=4)
    state = states(tmp_path / "training")[0]
    content = load_state(state)
    del content["status"]["best_loss"]
    write_state(state, content)
    evaluate, _ = scripted(0.9, 0.9)
    result = toy.toy_fit(tmp_path, evaluate=evaluate, score="accuracy", eval_every=2, steps=6, resume=True)
    assert (result.best, result.best_step) == (0.9, 6)


def test_lower_may_be_better(tmp_path):
    evaluate, seen = scripted(0.5, 0.2, 0.3)
    result = toy.toy_fit(tmp_path, evaluate=evaluate, score="accuracy", higher_is_better=False, eval_every=5, steps=12)
    assert (result.best, result.stopped_by, len(seen)) == (0.2, "steps", 3)


def test_the_ema_is_the_result_without_a_score(tmp_path):
    model = toy.ToyModel()
    toy.toy_fit(tmp_path, model=model, average=0.9)
    state = load_state(states(tmp_path / "training")[0])
    assert torch.equal(model.embed.weight, state["average"]["mean"]["embed.weight"])
    assert not torch.equal(model.embed.weight, state["model"]["embed.weight"])


def test_evaluation_does_not_change_training(tmp_path):
    rare, often = toy.ToyModel(), toy.ToyModel()
    toy.toy_fit(tmp_path / "rare", model=rare)
    toy.toy_fit(tmp_path / "often", model=often, evaluate=toy.toy_evaluate, eval_every=1)
    assert toy.close(rare.state_dict(), often.state_dict(), 0.0)


def test_a_missing_best_file_is_reported(tmp_path):
    evaluate, _ = scripted(0.5, 0.2, 0.1)

    class Vandal:
        def on_save(self, status, path) -> None:
            (path.parent / "best.safetensors").write_bytes(b"gone")

    result = toy.toy_fit(tmp_path, evaluate=evaluate, score="accuracy", eval_every=5, callbacks=[Vandal()])
    assert "no longer holds the best weights (of step 5)" in result.history[-1]["warning"]


def test_impossible_arguments_are_named(tmp_path):
    with pytest.raises(TrainingError, match="'bleu' is not among the evaluated scores \\(loss\\)"):
        toy.toy_fit(tmp_path / "a", evaluate=toy.toy_evaluate, score="bleu")
    with pytest.raises(TrainingError, match="no evaluate function is given"):
        toy.toy_fit(tmp_path / "b", score="bleu")
    with pytest.raises(TrainingError, match="early stopping needs a score"):
        toy.toy_fit(tmp_path / "c", patience=3)
    with pytest.raises(TrainingError, match="does not fill a single batch"):
        toy.toy_fit(tmp_path / "d", source=toy.ToySource(examples=0))
