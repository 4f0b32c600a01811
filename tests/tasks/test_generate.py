"""`generate`: windows over running text, documents with an end, and a loss over the whole held-out text."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from headway.data.row import Row
from headway.models.build import build
from headway.models.outputs import Output
from headway.models.recipes import Size
from headway.tasks.batches import StreamSource
from headway.tasks.generate import Generate

TEXT = "the cat sat on the mat. the dog sat on the log.\n" * 8


def rows() -> Any:
    return iter([Row({"text": TEXT, "running": True}, "a.txt:1")])


@pytest.fixture
def task() -> Generate:
    return Generate.from_data(Generate.scan(rows()), tokenizer=None, options={"kind": "char", "context": 16})


def test_targets_are_the_inputs_one_step_on(task: Generate) -> None:
    ids = task.examples(next(rows()))[0]["ids"]
    source = StreamSource(ids, task, context=16, batch=4, seed=0, fingerprint="x")
    batch = source.load(source.epoch(0)[0], 0)
    assert batch.inputs["inputs"].shape == (4, 16) and batch.count == 64
    assert torch.equal(batch.inputs["inputs"][:, 1:], batch.targets["ids"][:, :-1])
    seen = sorted(int(index) for part in source.epoch(0) for index in part)
    assert seen == list(range(len(source)))


def test_a_document_ends_and_a_piece_of_running_text_does_not(task: Generate) -> None:
    running = task.ids_of(Row({"text": "the cat", "running": True}, "a"))
    document = task.ids_of(Row({"text": "the cat"}, "a"))
    assert document == [*running, task.tokenizer.eos_id]
    assert task.ids_of(Row({"text": ""}, "a")) == []


class Uniform(nn.Module):
    """Knows nothing: every token is as likely as any other."""

    carries_state = False

    def __init__(self, vocab: int):
        super().__init__()
        self.vocab, self.unused = vocab, nn.Parameter(torch.zeros(1))

    def forward(self, inputs: torch.Tensor) -> Output:
        return Output(inputs, logits=torch.zeros(*inputs.shape, self.vocab))


@pytest.mark.parametrize("length", [2, 16, 17, 33, 100])
def test_the_loss_counts_every_token_but_the_first_once(task: Generate, length: int) -> None:
    vocab = len(task.tokenizer)
    total, count = task.text_loss(Uniform(vocab), list(np.arange(length) % vocab))
    assert count == length - 1
    assert total == pytest.approx((length - 1) * math.log(vocab), rel=1e-5)


def test_scores_of_a_uniform_model(task: Generate) -> None:
    scores = task.evaluate(Uniform(len(task.tokenizer)), rows())
    assert scores["loss"] == pytest.approx(math.log(len(task.tokenizer)), rel=1e-5)
    assert scores["perplexity"] == pytest.approx(len(task.tokenizer), rel=1e-4)
    per_byte = scores["loss"] / math.log(2) * (len(TEXT) - 1) / len(TEXT.encode())
    assert scores["bits_per_byte"] == pytest.approx(per_byte, rel=1e-5)


def test_continuations_follow_the_seed(task: Generate) -> None:
    model = build(task.config(Size(width=32, layers=1, heads=2), "modern")).eval()
    options = {"max_new_tokens": 8, "seed": 3, "temperature": 1.0}
    first = task.predict(model, ["the cat", "a"], **options)
    assert first == task.predict(model, ["the cat", "a"], **options)
    assert task.predict(model, ["the cat"], **options)[0] == first[0]
    assert task.predict(model, [""], **options)[0] is not None


def test_options_survive_a_round_trip(task: Generate) -> None:
    assert Generate.from_dict(task.to_dict(), task.tokenizer).to_dict() == task.to_dict()
