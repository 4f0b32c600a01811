"""The loop when a step fails: out of memory, or non-finite values."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from headway.errors import HeadwayError, TrainingError
from headway.training.state import load_state, states
from headway.training.step import SPLIT_FILE

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("toy_run.py"))))


pytestmark = pytest.mark.usefixtures("no_picture")


# out of memory


class Cramped(nn.Module):
    """Out of memory with more than two rows, after drawing random numbers."""

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
    assert toy.close(roomy.state_dict(), cramped.state_dict(), 0.0)  # as if it had been split from the start
    assert [entry["warning"] for entry in result.history if "warning" in entry] == [
        "out of memory: each batch is now computed in 2 micro-batches (same result)"
    ]
    assert load_state(states(tmp_path / "cramped" / "training")[0])["stepper"]["accumulate"] == 2


def test_out_of_memory_with_one_example_is_reported(tmp_path):
    with pytest.raises(TrainingError, match="single example"):
        toy.toy_fit(tmp_path, model=Cramped(toy.ToyModel(), MemoryError, "", rows=0))


def test_out_of_memory_where_no_smaller_batch_helps_is_reported(tmp_path):
    def evaluate(model: nn.Module) -> dict[str, float]:
        return {"score": float(torch.empty(2**60).sum())}

    with pytest.raises(TrainingError, match=r"an evaluation or a save.*earlier states are intact"):
        toy.toy_fit(tmp_path, evaluate=evaluate, steps=4, save_every=1, eval_every=2)
    assert load_state(states(tmp_path / "training")[0])["status"]["step"] == 1


def test_other_errors_are_not_out_of_memory(tmp_path):
    with pytest.raises(RuntimeError, match="shapes differ"):
        toy.toy_fit(tmp_path, model=Cramped(toy.ToyModel(), RuntimeError, "shapes differ"))


def test_the_saved_split_is_used_after_a_restart(tmp_path):
    """Invalid contents of the file; restarts themselves are in tests/torture."""
    note = tmp_path / "training" / SPLIT_FILE
    note.parent.mkdir()
    note.write_text(json.dumps({"accumulate": 3}))
    assert "in 3 micro-batches" in toy.toy_fit(tmp_path, steps=1).history[0]["warning"]
    for wrong in ('{"accumulate": 0}', '{"accumulate": true}', "[]", "\x80\x04"):
        note.write_bytes(wrong.encode("latin-1"))
        with pytest.raises(HeadwayError, match=SPLIT_FILE):
            toy.toy_fit(tmp_path, steps=2, resume=True)


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
    """Finite in forward, not in backward."""

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
    assert toy.close(before, model.state_dict(), 0.0)


def test_minus_infinity_in_a_mask_is_not_reported(tmp_path):
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
