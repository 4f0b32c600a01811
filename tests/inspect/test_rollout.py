"""Attention rollout: rows sum to one, and small cases are computed by hand."""

import torch
from support.subjects import Subject, make

from headway.inspect import attention_rollout, record
from headway.inspect.rollout import roll


def test_two_layers_by_hand() -> None:
    first = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    second = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    # halves with the identity: [[1, 0], [¼, ¾]] and [[½, ½], [½, ½]]; the second acts on the first
    expected = torch.tensor([[0.625, 0.375], [0.625, 0.375]])
    torch.testing.assert_close(roll([first, second]), expected)
    assert not torch.allclose(roll([second, first]), expected)  # the order matters


def test_rows_sum_to_one(subject: Subject) -> None:
    rollout = attention_rollout(subject.model, subject.inputs)
    total = rollout.own.sum(-1) + (0.0 if rollout.source is None else rollout.source.sum(-1))
    torch.testing.assert_close(total, torch.ones_like(total))
    assert (rollout.own >= 0).all()
    assert (rollout.source is None) == ("decoder_ids" not in subject.inputs)


def test_a_causal_model_takes_nothing_from_later_tokens(gpt2: Subject) -> None:
    own = attention_rollout(gpt2.model, gpt2.inputs).own
    assert (own.triu(1) == 0).all() and (own[0].tril() > 0).sum() == 28


def test_nothing_comes_from_padding() -> None:
    subject = make("bart")
    source = attention_rollout(subject.model, subject.inputs).source
    assert source is not None
    assert (source[1, :, 5:] == 0).all() and (source[1, :, :5] > 0).all()


def test_one_decoder_block_by_hand() -> None:
    subject = make("t5")
    del subject.model.encoder.stack.blocks[1:], subject.model.decoder.stack.blocks[1:]
    with torch.no_grad(), record(subject.model, "*.weights") as seen:
        subject.model(**subject.inputs)
    read, own, cross = (values[0].mean(1) for values in seen.values())
    halves = [(weights + torch.eye(weights.shape[-1])) / 2 for weights in (read, own)]
    rollout = attention_rollout(subject.model, subject.inputs)
    torch.testing.assert_close(rollout.own, halves[1] / 2)
    torch.testing.assert_close(rollout.source, cross @ halves[0] / 2)
