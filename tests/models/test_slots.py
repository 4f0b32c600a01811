"""The slots of the core, through whole models: masks, positions at q and k's inputs, score biases, per-layer rotary and
windows, conditioning; each with a cache as without, where a model has one."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.variants import DECODER, ENCODER, PAIR, VARIANTS, random_model, with_block, with_stack
from torch import Tensor

from headway import inspect
from headway.layers import masks
from headway.layers.attend import attention_weights
from headway.layers.embeddings import PatchConfig
from headway.models.build import build
from headway.models.config import ModelConfig, to_dict
from headway.models.init import initialise
from headway.validation import from_dict


@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_every_slot_has_an_effect_is_saved_and_cached(name: str) -> None:
    config, plain = VARIANTS[name], random_model(DECODER)
    assert from_dict(ModelConfig, to_dict(config)) == config
    model, ids = random_model(config), torch.randint(20, (2, 9))
    whole = model(ids).logits
    assert not torch.allclose(whole, plain(ids).logits, atol=1e-3)
    cache = model.new_cache(2)
    steps = [model.step(part, cache, every=True) for part in ids.split([4, 1, 3, 1], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_rows_of_different_lengths_step_as_they_do_alone(name: str) -> None:
    model, ids = random_model(VARIANTS[name]), torch.randint(20, (2, 9))
    cache = model.new_cache(2)
    first = model.step(ids[:, :6], cache, lengths=[6, 2])
    second = model.step(torch.stack([ids[0, 6:8], ids[1, 2:4]]), cache)
    for row, length in enumerate((6, 2)):
        alone = model(ids[row : row + 1, : length + 2]).logits[0]
        torch.testing.assert_close(first[row], alone[length - 1], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(second[row], alone[-1], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_recorded_weights_are_those_of_the_formula(name: str) -> None:
    model, ids = random_model(VARIANTS[name]), torch.randint(20, (2, 7))
    taps = [f"stack.blocks.1.attention.{part}" for part in ("q", "k", "v", "z", "weights")]
    with inspect.record(model, taps) as seen:
        model(ids)
    q, k, v, z, weights = (seen[name][0] for name in taps)
    torch.testing.assert_close(weights @ v, z, atol=1e-5, rtol=1e-4)
    _, plain = attention_weights(q, k, mask=masks.CAUSAL)
    changed = name in ("relative keys", "alibi", "two rotary bases")  # a bias, or a window in this layer
    assert torch.allclose(weights, plain, atol=1e-6) != changed


def influences(model: Any, mask: masks.Mask, length: int, **inputs: Tensor) -> Tensor:
    """(query, key), True where the output at a query depends on the token at a key."""
    ids = torch.randint(20, (1, length))
    table = []
    with torch.no_grad():
        before = model(ids, mask=mask, **inputs).hidden[0]
        for key in range(length):
            changed = ids.clone()
            changed[0, key] = (ids[0, key] + 7) % 20
            table.append((model(changed, mask=mask, **inputs).hidden[0] != before).any(-1))
    return torch.stack(table, dim=1)


def test_a_prefix_mask_goes_through_a_decoder() -> None:
    mask = masks.prefix(torch.tensor([3]), queries=6, keys=6)
    seen = influences(random_model(DECODER), mask, 6)
    expected = torch.ones(6, 6, dtype=torch.bool).tril()
    expected[:, :3] = True
    assert torch.equal(seen, expected)


def test_a_permutation_mask_goes_through_an_encoder() -> None:
    order = torch.tensor([[2, 0, 3, 1]])
    one_layer = random_model(with_stack(ENCODER, layers=1))
    assert torch.equal(influences(one_layer, masks.permutation(order), 4), order[0][None] <= order[0][:, None])


def test_masks_go_through_an_encoder_decoder() -> None:
    model, ids, target = random_model(PAIR), torch.randint(20, (1, 5)), torch.randint(20, (1, 4))
    causal = masks.Mask(torch.ones(5, 5, dtype=torch.bool).tril())
    with torch.no_grad():
        memory = model(ids, decoder_ids=target, mask=causal).memory
        short = model(ids[:, :3], decoder_ids=target, mask=masks.Mask(torch.ones(3, 3, dtype=torch.bool).tril())).memory
        torch.testing.assert_close(memory[:, :3], short)
        open_ = masks.prefix(torch.tensor([4]), queries=4, keys=4)
        changed = torch.cat([target[:, :3], (target[:, 3:] + 5) % 20], dim=1)
        first, second = (model(ids, decoder_ids=each, decoder_mask=open_).logits for each in (target, changed))
    assert not torch.equal(first[:, 0], second[:, 0])


@pytest.mark.parametrize("config", [ENCODER, DECODER], ids=["encoder", "decoder"])
@torch.no_grad()
def test_a_condition_goes_through_a_model(config: Any) -> None:
    model, ids = random_model(with_block(config, condition=5)), torch.randint(20, (2, 4))
    one, other = (model(ids, condition=torch.randn(2, 5)).hidden for _ in range(2))
    assert not torch.allclose(one, other, atol=1e-3)
    names = set(build(config).state_dict())
    assert not any("modulation" in name for name in names)


@pytest.mark.parametrize("recipe", ["modern", "classic"])
def test_a_modulated_model_begins_to_learn(recipe: Any) -> None:
    """Its gates begin at zero, so the weights before them must not."""
    model, ids, condition = build(with_block(DECODER, condition=5)), torch.randint(20, (2, 4)), torch.randn(2, 5)
    initialise(model, recipe, seed=0)
    embedded = model.embedding(ids).x
    torch.testing.assert_close(
        model.stack(model.embedding(ids), condition=condition), model.stack.finish(embedded, None)
    )
    model(ids, condition=condition).hidden.square().sum().backward()
    for block in model.stack.blocks:
        assert block.modulation.project.weight.grad.abs().sum() > 0


def test_patches_without_a_class_token() -> None:
    config = PatchConfig(8, image=(6, 4), patch=(2, 2), channels=1)
    with_token, without = config.build(), replace(config, class_token=False).build()
    without.project.load_state_dict(with_token.project.state_dict())
    assert without.first is None and without.positions.shape == (1, 6, 8)
    images = torch.randn(2, 1, 6, 4)
    torch.testing.assert_close(without(images).x, with_token(images).x[:, 1:])


@torch.no_grad()
def test_positions_at_query_and_key_leave_values_alone() -> None:
    config = VARIANTS["query and key positions"]
    model, ids = random_model(config), torch.tensor([[3, 3, 3, 3]])
    with inspect.record(model, ["stack.blocks.0.attention.v", "stack.blocks.0.attention.k"]) as seen:
        model(ids)
    values, keys = seen["stack.blocks.0.attention.v"][0], seen["stack.blocks.0.attention.k"][0]
    assert torch.equal(values[:, :, 0], values[:, :, 3])
    assert not torch.allclose(keys[:, :, 0], keys[:, :, 3], atol=1e-3)


@torch.no_grad()
def test_cross_attention_adds_the_sources_positions_to_its_keys() -> None:
    at = {"positions_at": "query_key"}
    pair = replace(PAIR, encoder=replace(PAIR.encoder, embedding=replace(PAIR.encoder.embedding, **at)))
    model, ids, target = random_model(pair), torch.tensor([[3, 3, 3], [4, 5, 6]]), torch.randint(20, (2, 4))
    tap = "decoder.stack.blocks.0.cross.k"
    with inspect.record(model, tap) as seen:
        whole = model(ids, decoder_ids=target).logits
    assert not torch.allclose(seen[tap][0][0, :, 0], seen[tap][0][0, :, 2], atol=1e-3)
    cache = model.encode_to_cache(ids)
    steps = [model.step(target[:, i : i + 1], cache) for i in range(4)]
    torch.testing.assert_close(torch.stack(steps, dim=1), whole, atol=1e-5, rtol=1e-4)
