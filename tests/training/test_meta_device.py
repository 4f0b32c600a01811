"""A training step on the `meta` device, which has shapes and no values. A tensor on another device, or a value read
back to the host (which costs a synchronisation on a GPU), fails."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.task_run import SMALL, started
from torch import nn

from headway import tasks
from headway.data.batch import Batch, Loss
from headway.distributed import World
from headway.jobs.training import make_source
from headway.models.build import build
from headway.models.init import initialise
from headway.models.recipes import recurrent
from headway.tasks.task import Task
from headway.training.activation_checkpointing import checkpoint_blocks
from headway.training.loop import TrainingRun
from headway.training.settings import Settings

META = torch.device("meta")
ROWS = 24
SETTINGS = {"steps": 3, "batch": 8, "average": 0.9, "weight_decay": 0.1, "device": "meta"}


def step(task: Any, model: nn.Module, source: Any, folder: Path, **settings: Any) -> TrainingRun:
    """One step, without the read of loss and norm between the gradients and the update."""
    given = Settings(**SETTINGS | settings)
    run = TrainingRun(
        model.train(), source, loss=task.loss, settings=given, training=folder, world=World(), device=META
    )
    batches, count, rows = run.stepper.collate(source.epoch(0)[0], 0)
    gradients = run.stepper.forward_backward(batches, count=count, rows=rows)
    run.update(gradients)
    run.running.add(gradients)
    assert {gradients.total.device, gradients.norm.device} == {META}
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained and all(parameter.device == META for parameter in trained.values())
    assert [name for name, parameter in trained.items() if parameter.grad is None] == []
    return run


def prepared(name: str, folder: Path) -> tuple[Task, nn.Module, Any]:
    task, model, data = started(name, rows=ROWS, **OPTIONS.get(name, {}))
    return task, model, make_source(task, data, folder, settings=Settings(**SETTINGS), say=lambda _: None)


def is_padded(source: Any) -> bool:
    """Whether a mask tells the rows of the first batch from padding."""
    return any("mask" in name for name in source.load(source.epoch(0)[0], 0).inputs)


# CTC has no kernel for this device; the rest of the loss of transcribe has.
OPTIONS = {"transcribe": {"ctc": 0.0}}

# Hungarian matching is done on the host (scipy), so the loss of a detector reads values back once a step.
MATCHED_ON_HOST = "detect"


@pytest.mark.parametrize("name", sorted(set(tasks.TASKS) - {MATCHED_ON_HOST, "vectors"}))  # word2vec has its own job
def test_a_step_of_each_task(name: str, tmp_path: Path) -> None:
    task, model, source = prepared(name, tmp_path)
    assert is_padded(source) or name in ("generate", "classify-image", "chat")  # a chat is packed
    run = step(task, model, source, tmp_path, accumulate=2)
    assert set(run.optimizers.parts) == {"muon", "adamw"}


def test_the_gradients_of_a_detector(tmp_path: Path) -> None:
    """All of its step but the matching: every output, those of noised targets too, has a gradient."""
    _, model, source = prepared(MATCHED_ON_HOST, tmp_path)
    inputs = {name: value.to(META) for name, value in source.load(source.epoch(0)[0], 0).inputs.items()}
    assert "denoising_boxes" in inputs
    output = model.to(META).train()(**inputs)
    found = [*output.auxiliary, output.proposals, *output.denoised]
    sum(each.logits.sum() + each.boxes.sum() for each in found).backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_a_step_of_a_recurrent_model(tmp_path: Path) -> None:
    task, _, source = prepared("translate", tmp_path)
    model = build(recurrent(SMALL, vocab=len(task.tokenizer), start_id=task.tokenizer.bos_id or 0))
    initialise(model, "modern", seed=0)
    assert is_padded(source)
    step(task, model, source, tmp_path, optimizer="adamw")


def test_a_step_with_checkpointed_blocks(tmp_path: Path) -> None:
    task, model, source = prepared("classify", tmp_path)
    with checkpoint_blocks(model):
        step(task, model, source, tmp_path)


class ReadsBack(nn.Module):
    """A model with one of the faults that the tests above would find."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.weight, self.fault = nn.Parameter(torch.ones(3)), fault

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fault == "item":
            return x * self.weight * self.weight.sum().item()
        if self.fault == "branch":
            return x * self.weight if (self.weight > 0).all() else x
        if self.fault == "nonzero":
            return (x * self.weight)[x > 0]
        if self.fault == "host tensor":
            return x * self.weight + torch.ones(3)
        return x * self.weight


class Rows:
    fingerprint = ""

    def epoch(self, number: int) -> list[np.ndarray]:
        return [np.arange(2)]

    def load(self, indices: np.ndarray, epoch: int) -> Batch:
        return Batch(inputs={"x": torch.ones(len(indices), 3)}, targets={}, count=len(indices), where=[])


class Sum:
    @staticmethod
    def loss(model: nn.Module, batch: Batch) -> Loss:
        return Loss(total=model(**batch.inputs).sum())


@pytest.mark.parametrize("fault", ["", "item", "branch", "nonzero", "host tensor"])
def test_what_the_meta_device_finds(fault: str, tmp_path: Path) -> None:
    if not fault:
        step(Sum, ReadsBack(fault), Rows(), tmp_path)
        return
    with pytest.raises((RuntimeError, NotImplementedError)):
        step(Sum, ReadsBack(fault), Rows(), tmp_path)
