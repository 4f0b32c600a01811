"""The logit lens: the last layer gives the model's own output, and earlier ones differ."""

from dataclasses import replace

import pytest
import torch
from support.subjects import Subject, make

from headway.errors import InputError
from headway.inspect import logit_lens
from headway.models.build import build
from headway.models.recipes import Size, decoder, recurrent


def test_the_last_layer_gives_the_models_output(headed: Subject) -> None:
    layers = logit_lens(headed.model, headed.inputs, top=2)
    shares = headed.logits().softmax(-1)
    torch.testing.assert_close(layers[-1].probabilities, shares.topk(2).values, atol=1e-6, rtol=1e-5)
    assert torch.equal(layers[-1].ids, shares.topk(2).indices)
    for earlier in layers[:-1]:
        assert (earlier.probabilities - layers[-1].probabilities).abs().max() > 1e-3


def test_the_layers_go_from_the_embedding_to_the_last_block() -> None:
    subject = make("t5")
    names = [layer.name for layer in logit_lens(subject.model, subject.inputs)]
    streams = [f"decoder.stack.blocks.{i}.feedforward_residual.stream" for i in range(3)]
    assert names == ["decoder.embedding.sum", *streams]


def test_the_embedding_alone_goes_through_norm_and_head(gpt2: Subject) -> None:
    model, ids = gpt2.model, torch.tensor([[4, 5]])
    first = logit_lens(model, {"inputs": ids}, top=31)[0]
    x = model.embedding.tokens.weight[ids] + model.embedding.positions.table.weight[:2]
    logits = model.stack.final_norm(x) @ model.embedding.tokens.weight.T
    torch.testing.assert_close(first.probabilities, logits.softmax(-1).sort(descending=True).values)


def test_top_is_limited_by_the_labels() -> None:
    subject = make("bert labels")
    layers = logit_lens(subject.model, subject.inputs, top=99)
    assert layers[0].ids.shape == (2, 3)  # (batch, labels)
    torch.testing.assert_close(layers[0].probabilities.sum(-1), torch.ones(2))


def test_models_without_logits_raise() -> None:
    config = replace(decoder(Size(width=16, layers=1, heads=2), "modern", vocab=9, context=8), head=None)
    with pytest.raises(InputError, match="no head"):
        logit_lens(build(config), {"inputs": torch.tensor([[1, 2]])})
    model = build(recurrent(Size(width=16), vocab=20, start_id=1))
    with pytest.raises(InputError, match="RecurrentEncoderDecoder has no blocks"):
        logit_lens(model, {"inputs": torch.tensor([[1, 2]]), "decoder_ids": torch.tensor([[1]])})
