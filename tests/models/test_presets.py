"""The 2017 Transformer, choice by choice and parameter by parameter."""

import math

import pytest
import torch
from torch import nn

from headway.layers.feedforward import FeedForward
from headway.layers.norms import RMSNorm
from headway.layers.positions import SinusoidalPositions, sinusoids
from headway.models.build import build
from headway.models.config import EncoderDecoderConfig, to_dict
from headway.models.encoder_decoder import EncoderDecoder
from headway.models.presets import transformer_2017
from headway.validation import from_dict


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_base_model_has_the_parameters_of_the_paper() -> None:
    """Its shared vocabulary of 37000; the paper's table 3 says 65 · 10⁶."""
    attention = 4 * 512 * 512
    feedforward = 512 * 2048 + 2048 + 2048 * 512 + 512
    norm = 2 * 512
    encoder = 6 * (attention + feedforward + 2 * norm)
    decoder = 6 * (2 * attention + feedforward + 3 * norm)
    expected = 37000 * 512 + encoder + decoder
    assert expected == 63_045_632
    assert count(build(transformer_2017(37000, start_id=0), device="meta")) == expected


def test_the_big_model() -> None:
    """Table 3: 213 · 10⁶."""
    big = transformer_2017(37000, start_id=0, width=1024, heads=16, inner=4096, dropout=0.3)
    assert count(build(big, device="meta")) == pytest.approx(213e6, rel=0.02)


def test_each_choice_of_the_paper() -> None:
    config = transformer_2017(37000, start_id=2)
    encoder, decoder = config.encoder.stack, config.decoder.stack
    assert (encoder.layers, decoder.layers) == (6, 6)
    for stack in (encoder, decoder):
        block = stack.block
        assert block.width == 512 and (block.attention.heads, block.attention.head_size) == (8, 64)
        assert block.attention.bias == "" and block.attention.scale is None and block.attention.kv_heads is None
        assert (
            block.feedforward.width == 2048 and block.feedforward.activation == "relu" and not block.feedforward.gated
        )
        assert block.norm_place == "post" and block.norm.kind == "layer" and not stack.final_norm
        assert block.dropout == 0.1 and block.attention.dropout == 0 and block.feedforward.dropout == 0
    assert encoder.block.cross is None and decoder.block.cross == decoder.block.attention
    assert not encoder.causal and decoder.causal
    for embedding in (config.encoder.embedding, config.decoder.embedding):
        assert embedding.scale == math.sqrt(512) and embedding.dropout == 0.1 and embedding.norm is None
    assert config.start_id == 2 and config.shared_embedding
    assert from_dict(EncoderDecoderConfig, to_dict(config)) == config


def tiny() -> EncoderDecoder:
    model = build(transformer_2017(50, start_id=0, layers=2, width=16, heads=4, inner=32)).eval()
    assert isinstance(model, EncoderDecoder)
    return model


def test_what_is_built_is_what_is_said() -> None:
    model = tiny()
    assert model.decoder.embedding.tokens is model.encoder.embedding.tokens
    assert model.decoder.head is not None and not list(model.decoder.head.parameters())  # the embedding is the output
    assert isinstance(model.encoder.embedding.positions, SinusoidalPositions)
    assert not any(isinstance(module, RMSNorm) for module in model.modules())
    assert sum(isinstance(module, FeedForward) for module in model.modules()) == 4
    ids = torch.tensor([[7, 8, 9]])
    got = model.encoder.embedding(ids).x
    torch.testing.assert_close(got, model.encoder.embedding.tokens(ids) * 4 + sinusoids(3, 16)[None])


def test_logits_are_the_hidden_state_times_the_embedding() -> None:
    model = tiny()
    output = model(torch.tensor([[3, 4, 5]]), decoder_ids=torch.tensor([[0, 6]]))
    assert output.logits is not None
    torch.testing.assert_close(output.logits, output.hidden @ model.encoder.embedding.tokens.weight.T)
    torch.testing.assert_close(output.hidden.mean(-1), torch.zeros(1, 2), atol=1e-5, rtol=0)  # the norm came last


def test_the_decoder_is_causal_and_the_source_is_seen_whole() -> None:
    model = tiny()
    source, target = torch.tensor([[3, 4, 5, 6]]), torch.tensor([[0, 7, 8, 9]])
    before = model(source, decoder_ids=target).logits
    later = model(source, decoder_ids=torch.tensor([[0, 7, 20, 30]])).logits
    assert torch.equal(later[:, :2], before[:, :2]) and not torch.allclose(later[:, 2], before[:, 2])
    other = model(torch.tensor([[3, 4, 5, 30]]), decoder_ids=target).logits
    assert not torch.allclose(other[:, 0], before[:, 0])
