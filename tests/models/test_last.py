"""Only the last token is wanted: the last block leaves out what the others would not use, and nothing else changes."""

from typing import Any

import pytest
import torch
from support.subjects import make

from headway import inspect
from headway.models import stack

DECODERS = ["gpt2", "llama", "mistral window", "modern decoder", "classic decoder"]


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "LAST", 2)


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_the_last_token_is_the_same_alone(name: str) -> None:
    subject = make(name)
    whole, alone = subject.model(**subject.inputs), subject.model(**subject.inputs, last=True)
    assert alone.logits.shape[1] == alone.hidden.shape[1] == 1
    torch.testing.assert_close(alone.logits, whole.logits[:, -1:], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(alone.hidden, whole.hidden[:, -1:], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_others_are_left_out_unless_somebody_listens() -> None:
    subject = make("llama")
    model: Any = subject.model
    lengths: list[int] = []
    up = model.stack.blocks[-1].feedforward.up
    multiply = up.forward

    def counted(x: torch.Tensor) -> torch.Tensor:
        lengths.append(x.shape[1])
        return multiply(x)

    up.forward = counted
    model(**subject.inputs, last=True)
    with inspect.record(model, "*feedforward_residual.branch") as seen:
        model(**subject.inputs, last=True)
    assert lengths == [2, 7]
    assert all(value[0].shape[1] == 7 for value in seen.values())
