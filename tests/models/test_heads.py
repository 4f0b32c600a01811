"""From hidden states to what is asked: pooling with padding on either side, and each head against its formula."""

import pytest
import torch
from torch import Tensor

from headway.layers.norms import NormConfig
from headway.models.config import (
    ClassifyHeadConfig,
    LanguageHeadConfig,
    PoolerConfig,
    TokenHeadConfig,
    TransformConfig,
)
from headway.models.heads import build_head, pool

WIDTH, VOCAB = 6, 11
RIGHT = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
LEFT = RIGHT.flip(1)


def hidden() -> Tensor:
    return torch.randn(3, 4, WIDTH)


@pytest.mark.parametrize("how", ["first", "last", "mean"])
@pytest.mark.parametrize("mask", [RIGHT, LEFT, RIGHT.bool()], ids=["right", "left", "bool"])
def test_pool_looks_at_real_tokens_only(how: str, mask: Tensor) -> None:
    x = hidden()
    got = pool(x, mask, how)
    for row in range(3):
        real = x[row][mask[row].bool()]
        torch.testing.assert_close(got[row], {"first": real[0], "last": real[-1], "mean": real.mean(0)}[how])
    wild = torch.where(mask[:, :, None].bool(), x, torch.full_like(x, 1e6))
    torch.testing.assert_close(pool(wild, mask, how), got)


@pytest.mark.parametrize("how", ["first", "last", "mean"])
def test_pool_without_a_mask_is_pool_with_a_full_one(how: str) -> None:
    x = hidden()
    torch.testing.assert_close(pool(x, None, how), pool(x, torch.ones(3, 4), how))


@pytest.mark.parametrize("how", ["first", "last", "mean"])
def test_pool_of_a_row_without_tokens_is_finite(how: str) -> None:
    assert torch.isfinite(pool(hidden(), torch.zeros(3, 4, dtype=torch.long), how)).all()


def test_pool_last_steps_over_holes() -> None:
    x, mask = hidden(), torch.tensor([[1, 0, 1, 0]] * 3)
    assert torch.equal(pool(x, mask, "last"), x[:, 2])


def test_language_head_tied_scaled_with_a_bias() -> None:
    head = build_head(WIDTH, VOCAB, LanguageHeadConfig(tied=True, bias=True, scale=0.5))
    assert head is not None
    torch.nn.init.normal_(head.bias)
    x, table = hidden(), torch.randn(VOCAB, WIDTH)
    torch.testing.assert_close(head(x, table=table, padding_mask=None).logits, 0.5 * x @ table.T + head.bias)
    assert set(head.state_dict()) == {"bias"}


def test_language_head_untied_ignores_the_table() -> None:
    head = build_head(WIDTH, VOCAB, LanguageHeadConfig(tied=False))
    assert head is not None
    x = hidden()
    got = head(x, table=torch.full((VOCAB, WIDTH), torch.nan), padding_mask=None).logits
    torch.testing.assert_close(got, x @ head.project.weight.T)


def test_language_head_with_a_transform() -> None:
    transform = TransformConfig("gelu", NormConfig(eps=1e-12))
    head = build_head(WIDTH, VOCAB, LanguageHeadConfig(bias=True, transform=transform))
    assert head is not None
    x, table = hidden(), torch.randn(VOCAB, WIDTH)
    expected = head.norm(torch.nn.functional.gelu(head.dense(x))) @ table.T + head.bias
    torch.testing.assert_close(head(x, table=table, padding_mask=None).logits, expected)


def test_classify_head() -> None:
    head = build_head(WIDTH, VOCAB, ClassifyHeadConfig(labels=3, pool="mean", dense="tanh"))
    assert head is not None
    x = hidden()
    output = head(x, table=None, padding_mask=LEFT)
    expected = torch.tanh(head.dense(pool(x, LEFT, "mean")))
    torch.testing.assert_close(output.pooled, expected)
    torch.testing.assert_close(output.logits, head.project(expected))
    assert output.logits.shape == (3, 3)


def test_heads_drop_out_in_training_only() -> None:
    for config in (ClassifyHeadConfig(labels=3, dropout=0.5), TokenHeadConfig(labels=3, dropout=0.5)):
        head, x = build_head(WIDTH, VOCAB, config), hidden()
        assert head is not None
        assert not torch.equal(
            head(x, table=None, padding_mask=None).logits, head(x, table=None, padding_mask=None).logits
        )
        head.eval()
        assert torch.equal(head(x, table=None, padding_mask=None).logits, head(x, table=None, padding_mask=None).logits)


def test_token_head_labels_every_token() -> None:
    head = build_head(WIDTH, VOCAB, TokenHeadConfig(labels=2))
    assert head is not None
    x = hidden()
    torch.testing.assert_close(head(x, table=None, padding_mask=None).logits, head.project(x))


@pytest.mark.parametrize("mask", [None, LEFT], ids=["whole", "left-padded"])
def test_pooler_takes_the_first_real_token(mask: Tensor | None) -> None:
    config = PoolerConfig(next_sentence=True, language=LanguageHeadConfig())
    head = build_head(WIDTH, VOCAB, config)
    assert head is not None
    x, table = hidden(), torch.randn(VOCAB, WIDTH)
    output = head(x, table=table, padding_mask=mask)
    torch.testing.assert_close(output.pooled, torch.tanh(head.dense(pool(x, mask, "first"))))
    torch.testing.assert_close(output.next_sentence, head.next_sentence(output.pooled))
    torch.testing.assert_close(output.logits, x @ table.T)


def test_no_head() -> None:
    assert build_head(WIDTH, VOCAB, None) is None
