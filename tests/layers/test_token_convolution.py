"""Convolutions over tokens: what they compute, padding, first values, and that they learn by themselves."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from headway.errors import ConfigError
from headway.layers.ngrams import NgramConfig
from headway.layers.token_convolution import TokenConvolution, TokenConvolutionConfig
from headway.models import recipes
from headway.models.build import build
from headway.models.config import ClassifyHeadConfig, EnsembleConfig
from headway.models.ensemble import Ensemble
from headway.models.init import initialise
from headway.models.recipes import Size

VOCAB, OUTPUTS = 20, 3
CONFIG = TokenConvolutionConfig(VOCAB, width=6, filters=5, sizes=(1, 2, 3, 4))


def layer() -> TokenConvolution:
    made = TokenConvolution(OUTPUTS, CONFIG).eval()
    made.reset(torch.Generator().manual_seed(0))
    return made


def test_each_filter_gives_its_largest_value_over_the_text() -> None:
    made, ids = layer(), [3, 7, 7, 1, 12]
    vectors, pooled = made.tokens.weight[ids], []  # (length, width)
    for convolution, size in zip(made.convolutions, CONFIG.sizes, strict=True):
        padded = F.pad(vectors, (0, 0, size // 2, size))  # zeros before the first token and behind the last
        windows = torch.stack([padded[place : place + size] for place in range(len(ids))])  # (place, size, width)
        values = torch.einsum("psw,fws->pf", windows, convolution.weight) + convolution.bias
        pooled.append(values.relu().amax(0))
    expected = made.project(torch.cat(pooled))
    torch.testing.assert_close(made(torch.tensor([ids]), None)[0], expected)


def test_padding_on_either_side_changes_nothing() -> None:
    made = layer()
    generator = torch.Generator().manual_seed(1)
    texts = [torch.randint(VOCAB, (length,), generator=generator).tolist() for length in (1, 2, 3, 9, 5)]
    alone = torch.cat([made(torch.tensor([text]), None) for text in texts])
    for left in (False, True):
        ids, mask = torch.full((len(texts), 9), 7), torch.zeros(len(texts), 9)
        for row, text in enumerate(texts):
            part = slice(9 - len(text), None) if left else slice(0, len(text))
            ids[row, part], mask[row, part] = torch.tensor(text), 1
        torch.testing.assert_close(made(ids, mask), alone)
    assert not torch.allclose(made(ids, None), alone)


def model() -> Ensemble:
    size = Size(width=8, layers=2, heads=2, dropout=0.0)
    network = recipes.encoder(size, "modern", vocab=VOCAB, head=ClassifyHeadConfig(OUTPUTS))
    made = build(EnsembleConfig(network, NgramConfig(4, VOCAB, 2), CONFIG))
    initialise(made, "modern", seed=0)
    assert isinstance(made, Ensemble)
    return made


def test_first_values_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = model().state_dict()
    torch.manual_seed(2)
    second = model().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert 0.05 < first["convolution.tokens.weight"].std() < 0.15


def test_each_part_learns_by_itself_and_all_are_added_afterwards() -> None:
    made, ids, mask = model(), torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    made.train()
    for pooled_only in (False, True):
        output = made(ids, padding_mask=mask, pooled_only=pooled_only)
        assert list(output.members) == ["convolution"]
        made.convolution.eval()  # no dropout
        expected = made.convolution(ids, mask.bool())
        torch.testing.assert_close(made(ids, padding_mask=mask).members["convolution"], expected)
        made.convolution.train()
        (of_network,) = torch.autograd.grad(
            output.logits.sum(), made.convolution.tokens.weight, allow_unused=True, retain_graph=True
        )
        (of_convolution,) = torch.autograd.grad(
            output.members["convolution"].sum(), made.embedding.tokens.weight, allow_unused=True
        )
        assert of_network is None and of_convolution is None
    alone = made(ids, padding_mask=mask).logits  # without dropout, the network's
    made.eval()
    beside = made.convolution(ids, mask) + made.ngrams(ids, mask)
    torch.testing.assert_close(made(ids, padding_mask=mask).logits, alone + beside)
    made.set_weights([0.5, 2.0, 3.0])
    weighted = 0.5 * alone + 2 * made.ngrams(ids, mask) + 3 * made.convolution(ids, mask)
    torch.testing.assert_close(made(ids, padding_mask=mask).logits, weighted)


def test_ensembles_that_cannot_be() -> None:
    network = recipes.encoder(Size(width=8, layers=1, heads=2), "modern", vocab=VOCAB, head=ClassifyHeadConfig(2))
    for config, message in [
        (EnsembleConfig(network, convolution=CONFIG, weights=(1.0,)), "1 values for 2 parts"),
        (EnsembleConfig(network, convolution=CONFIG, weights=(1.0, -1.0)), "not below 0"),
        (EnsembleConfig(replace(network, head=None), convolution=CONFIG), "no head that classifies"),
    ]:
        with pytest.raises(ConfigError, match=message):
            build(config)
