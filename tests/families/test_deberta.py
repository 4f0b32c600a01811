"""DeBERTa beyond the parity cases: the convolution on packed rows, and the enhanced mask decoder, written out here as
the paper and the published pre-training code have it."""

import json
import math
from pathlib import Path

import pytest
import torch
from support.variants import random_model
from torch import Tensor, nn

import headway
from headway.bundle import Bundle
from headway.errors import ConfigError
from headway.families import find
from headway.families.family import Keys
from headway.models.build import build
from headway.models.config import TokenHeadConfig
from headway.models.rehead import with_head

SIZES = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 40, "vocab_size": 31,
         "max_position_embeddings": 20, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # fmt: skip
DEBERTA = SIZES | {"relative_attention": True, "pos_att_type": "c2p|p2c", "position_biased_input": False}
V3 = {"position_buckets": 8, "max_relative_positions": 40, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
CONVOLUTION = {"conv_kernel_size": 3, "conv_act": "gelu"}
TITLES = {"deberta": "Deberta", "deberta-v2": "DebertaV2"}
BOTH = pytest.mark.parametrize(("name", "keys"), [("deberta", DEBERTA), ("deberta-v2", DEBERTA | V3 | CONVOLUTION)])


def words(name: str, keys: dict) -> nn.Module:
    return random_model(find(name).read(Keys(keys), TITLES[name] + "ForMaskedLM")).eval()


def attention_written_out(layer: nn.Module, relative: nn.Module, queries: Tensor, hidden: Tensor) -> Tensor:
    """One row: queries (length, width) attend to hidden (length, width), pair by pair."""

    def heads(x: Tensor) -> Tensor:  # (head, length, size)
        return x.unflatten(-1, (4, 6)).transpose(0, 1)

    table = relative._normalise(relative.table.weight)
    q, k, v = heads(layer.query(queries)), heads(layer.key(hidden)), heads(layer.value(hidden))
    to_key = heads((layer.score_bias.key or layer.key)(table))
    to_query = heads((layer.score_bias.query or layer.query)(table))
    length, span = len(hidden), relative.config.span
    scores = torch.empty(4, length, length)
    for i in range(length):
        for j in range(length):
            row = max(0, min(2 * span - 1, int(relative.bucket(torch.tensor(i - j))) + span))
            pair = (q[:, i] * k[:, j] + q[:, i] * to_key[:, row] + k[:, j] * to_query[:, row]).sum(-1)
            scores[:, i, j] = pair / math.sqrt(3 * 6)
    z = scores.softmax(-1) @ v
    return layer.output(z.transpose(0, 1).flatten(1))


@BOTH
def test_the_mask_decoder_written_out(name: str, keys: dict) -> None:
    """The last block twice: queries are the hidden states before it plus absolute positions, keys and values the hidden
    states alone."""
    model, ids = words(name, keys), torch.randint(31, (1, 7))
    bare = build(find(name).read(Keys(keys | {"num_hidden_layers": 2}), TITLES[name] + "Model"))
    bare.load_state_dict({key: value for key, value in model.state_dict().items() if key in bare.state_dict()})
    last = model.stack.blocks[-1]
    with torch.no_grad():
        hidden = bare.eval()(ids).hidden[0]
        x = hidden + model.head.mask_decoder.positions.table.weight[:7]
        for _ in range(2):
            x = last.attention_residual.norm(x + attention_written_out(last.attention, model.stack.relative, x, hidden))
            x = last.feedforward_residual.norm(x + last.feedforward(x))
        expected = model.head.norm(nn.functional.gelu(model.head.dense(x))) @ model.token_table.T + model.head.bias
        torch.testing.assert_close(model(ids).logits[0], expected, atol=1e-5, rtol=1e-4)
        plain = model.stack.finish(model.stack(model.embed(ids)), None)
        assert (model(ids).hidden - plain).abs().max() > 0.1  # the reference library's head reads this


@BOTH
def test_a_padded_row_decodes_as_alone(name: str, keys: dict) -> None:
    model, ids = words(name, keys), torch.randint(31, (2, 7))
    real = torch.ones(2, 7, dtype=torch.bool)
    real[1, 4:] = False
    with torch.no_grad():
        both = model(ids, padding_mask=real).logits
        torch.testing.assert_close(both[1:, :4], model(ids[1:, :4]).logits, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(both[:1], model(ids[:1]).logits, atol=1e-5, rtol=1e-4)


def test_a_packed_row_is_convolved_text_by_text() -> None:
    model = words("deberta-v2", DEBERTA | V3 | CONVOLUTION)
    first, second = torch.randint(31, (1, 5)), torch.randint(31, (1, 3))
    positions = torch.cat([torch.arange(5), torch.arange(3)])[None]
    with torch.no_grad():
        packed = model.encode(torch.cat([first, second], 1), positions=positions, sequence_lengths=(5, 3))
        for got, ids in ((packed[:, :5], first), (packed[:, 5:], second)):
            torch.testing.assert_close(got, model.encode(ids), atol=1e-5, rtol=1e-4)


@BOTH
def test_files_say_which_head_it_is(name: str, keys: dict, tmp_path: Path) -> None:
    """With the positions of the mask decoder in the file it decodes; without, as the reference library saves it, the
    last hidden state is read. Another head leaves the decoder out."""
    model, ids = words(name, keys), torch.randint(31, (1, 7))
    folder = Bundle(model, name, foreign=dict(keys)).save(tmp_path / "published")
    assert json.loads((folder / "config.json").read_text())["max_position_embeddings"] == 20
    again = headway.load(folder)
    assert again.model.max_length == 20
    torch.testing.assert_close(again.logits(input_ids=ids), model(ids).logits.detach())
    transformers = pytest.importorskip("transformers")
    reference = getattr(transformers, TITLES[name] + "ForMaskedLM").from_pretrained(folder)
    reference.save_pretrained(tmp_path / "theirs")
    theirs = headway.load(tmp_path / "theirs")
    assert theirs.model.mask_decoder is None
    with torch.no_grad():
        torch.testing.assert_close(theirs.logits(input_ids=ids), reference(ids).logits, atol=1e-4, rtol=1e-4)
    tags = with_head(model, TokenHeadConfig(3))
    assert tags.mask_decoder is None and tags(ids).logits.shape == (1, 7, 3)


def test_an_even_kernel_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kernel is 4: it must be odd"):
        build(find("deberta-v2").read(Keys(DEBERTA | {"conv_kernel_size": 4}), "DebertaV2Model"))
