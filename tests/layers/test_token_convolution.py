"""Convolutions over tokens: what they compute, padding, first values, and that they learn by themselves."""

import torch
import torch.nn.functional as F

from headway.layers.ngrams import NgramConfig
from headway.layers.token_convolution import TokenConvolution, TokenConvolutionConfig
from headway.models import recipes
from headway.models.build import build
from headway.models.config import ClassifyHeadConfig
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


def model() -> torch.nn.Module:
    head = ClassifyHeadConfig(OUTPUTS, convolution=CONFIG, ngrams=NgramConfig(4, VOCAB, 2))
    size = Size(width=8, layers=2, heads=2, dropout=0.0)
    made = build(recipes.encoder(size, "modern", vocab=VOCAB, head=head))
    initialise(made, "modern", seed=0)
    return made


def test_first_values_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = model().state_dict()
    torch.manual_seed(2)
    second = model().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert 0.05 < first["head.convolution.tokens.weight"].std() < 0.15


def test_each_part_learns_by_itself_and_all_are_added_afterwards() -> None:
    made, ids, mask = model(), torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    made.train()
    for pooled_only in (False, True):
        output = made(ids, padding_mask=mask, pooled_only=pooled_only)
        made.head.convolution.eval()  # no dropout
        torch.testing.assert_close(
            made(ids, padding_mask=mask).convolution_logits, made.head.convolution(ids, mask.bool())
        )
        made.head.convolution.train()
        (of_network,) = torch.autograd.grad(
            output.logits.sum(), made.head.convolution.tokens.weight, allow_unused=True, retain_graph=True
        )
        (of_convolution,) = torch.autograd.grad(
            output.convolution_logits.sum(), made.embedding.tokens.weight, allow_unused=True
        )
        assert of_network is None and of_convolution is None
    alone = made(ids, padding_mask=mask).logits  # without dropout, the network's
    made.eval()
    found = made(ids, padding_mask=mask)
    assert found.convolution_logits is None
    beside = made.head.convolution(ids, mask) + made.head.ngrams(ids, mask)
    torch.testing.assert_close(found.logits, alone + beside)
