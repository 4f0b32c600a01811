"""Vectors of relative positions and DeBERTa's bias: skewed as gathered as written out, with gradients."""

import math

import pytest
import torch
from support.variants import random_model
from torch import Tensor

from headway.families import find
from headway.families.family import Keys
from headway.layers.positions import positions_of
from headway.layers.relative import Relative, RelativeVectorsConfig, _Skew, pick

SIZES = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 20, "vocab_size": 30}
DEBERTA = SIZES | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
V3 = {"position_buckets": 8, "max_relative_positions": 40, "share_att_key": True, "norm_rel_ebd": "layer_norm"}


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_skewed_read(length: int) -> None:
    x = torch.randn(2, 3, length, 2 * length - 1, dtype=torch.float64, requires_grad=True)
    expected = torch.stack(
        [torch.stack([x[..., i, j - i + length - 1] for j in range(length)], -1) for i in range(length)], -2
    )
    torch.testing.assert_close(_Skew.apply(x), expected)
    assert torch.autograd.gradcheck(_Skew.apply, (x,))


@pytest.mark.parametrize("transpose", [False, True])
def test_skewed_is_gathered(transpose: bool) -> None:
    length, products = 6, torch.randn(2, 3, 6, 11, requires_grad=True)
    query, key = torch.arange(length)[:, None], torch.arange(length)[None]
    distance = query - key if transpose else key - query
    gathered = pick(products, Relative(torch.empty(0), distance + length - 1), transpose=transpose)
    skewed = pick(products, Relative(torch.empty(0), None), transpose=transpose)
    torch.testing.assert_close(skewed, gathered)
    weight = torch.randn_like(gathered)
    first, second = (torch.autograd.grad((x * weight).sum(), products)[0] for x in (skewed, gathered))
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
