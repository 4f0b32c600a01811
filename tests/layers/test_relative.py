"""Vectors of relative positions and DeBERTa's bias: products by distance as written out, with gradients."""

import math

import pytest
import torch
from support.variants import random_model
from torch import Tensor

from headway.families import find
from headway.families.family import Keys
from headway.layers.positions import positions_of
from headway.layers.relative import RelativeVectorsConfig, relative_scores

SIZES = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 20, "vocab_size": 30}
DEBERTA = SIZES | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
V3 = {"position_buckets": 8, "max_relative_positions": 40, "share_att_key": True, "norm_rel_ebd": "layer_norm"}


@pytest.mark.parametrize(  # the keys before the tokens are a memory
    ("tokens", "keys", "transpose"),
    [(1, 1, False), (3, 8, False), (40, 45, False), (5, 5, True), (64, 64, True)],
)
def test_scores_by_distance_written_out(tokens: int, keys: int, transpose: bool) -> None:
    x = torch.randn(2, 3, tokens, 4, dtype=torch.float64, requires_grad=True)
    vectors = torch.randn(3, tokens + keys - 1, 4, dtype=torch.float64, requires_grad=True)
    row = torch.arange(keys) - torch.arange(tokens)[:, None] + tokens - 1
    found = relative_scores(x, vectors, None, transpose=transpose)
    gathered = relative_scores(x, vectors, row.T if transpose else row, transpose=transpose)
    by_hand = torch.einsum("bhid,hijd->bhij", x, vectors[:, row])
    torch.testing.assert_close(found, by_hand.transpose(-2, -1) if transpose else by_hand)
    torch.testing.assert_close(found, gathered)
    weight = torch.randn_like(gathered)
    grads = [torch.autograd.grad((y * weight).sum(), (x, vectors)) for y in (found, gathered)]
    for first, second in zip(*grads, strict=True):
        torch.testing.assert_close(first, second)


def test_buckets_widen_and_mirror() -> None:
    vectors = RelativeVectorsConfig(8, max_distance=40).build(4)
    distances = torch.arange(-60, 61)
    bucket = vectors.bucket(distances)
    assert torch.equal(bucket, -bucket.flip(0))
    assert bucket[60:65].tolist() == [0, 1, 2, 3, 4] and (bucket.diff() >= 0).all() and bucket[99] == 7
    by_hand = 4 + math.ceil(math.log(10 / 4) / math.log(39 / 4) * 3)
    assert bucket[70] == by_hand


@pytest.mark.parametrize(("name", "keys"), [("deberta", DEBERTA), ("deberta-v2", DEBERTA | V3)])
def test_the_score_of_a_pair_written_out(name: str, keys: dict) -> None:
    """q·k + q·K(r) + k·Q(r), over √(3·size)."""
    title = {"deberta": "Deberta", "deberta-v2": "DebertaV2"}[name]
    model = random_model(find(name).read(Keys(keys), f"{title}Model")).eval()
    ids, seen = torch.randint(30, (1, 7)), {}
    layer = model.stack.blocks[0].attention
    for tap in ("q", "k", "scores"):
        getattr(layer, tap).register_forward_hook(lambda module, args, out, tap=tap: seen.setdefault(tap, out))
    with torch.no_grad():
        model(ids)
        table = model.stack.relative._normalise(model.stack.relative.table.weight)
        project_key, project_query = layer.score_bias.key or layer.key, layer.score_bias.query or layer.query
        keys_of, queries_of = (split(project(table)) for project in (project_key, project_query))
    for head, i, j in [(0, 0, 6), (1, 5, 2), (0, 3, 3)]:
        row = int(model.stack.relative.bucket(torch.tensor(i - j))) + model.stack.relative.config.span
        q, k = seen["q"][0, head, i], seen["k"][0, head, j]
        score = (q @ k + q @ keys_of[head, row] + k @ queries_of[head, row]) / math.sqrt(3 * 8)
        torch.testing.assert_close(seen["scores"][0, head, i, j], score)


def split(x: Tensor) -> Tensor:
    return x.unflatten(-1, (2, 8)).transpose(0, 1)


def test_short_rows_are_skewed_and_long_ones_gathered() -> None:
    vectors = RelativeVectorsConfig(8, max_distance=40).build(4)
    device = torch.device("cpu")
    assert vectors(positions_of(4, device=device)).rows is None
    assert vectors(positions_of(5, device=device)).rows is not None
