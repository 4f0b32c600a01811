"""Packed conversations: in one row, without padding, and without attending to each other."""

import numpy as np
import pytest
import torch
from support.variants import DECODER, VARIANTS, random_model

from headway.preprocess.chat_training import Tokens
from headway.tasks.token_rows import log_probabilities, sums_by_sequence, token_batch

LENGTHS = (5, 9, 9, 2, 7)


def sequences(seed: int = 0) -> list[Tokens]:
    chance = np.random.default_rng(seed)
    return [
        Tokens(chance.integers(3, 20, length).astype(np.int32), (np.arange(length) % 3 != 1).astype(np.int8))
        for length in LENGTHS
    ]


@pytest.mark.parametrize("variant", ["rotary", *VARIANTS])
def test_packed_logits_and_gradients_are_those_of_each_conversation_alone(variant: str) -> None:
    model, rows = random_model(VARIANTS.get(variant, DECODER)), sequences()
    assert model.packs_sequences
    packed = token_batch(rows, packing=True, pad_id=0, where=[])
    padded = token_batch(rows, packing=False, pad_id=0, where=[])
    assert packed.inputs["inputs"].shape == (1, sum(LENGTHS) - len(LENGTHS)) and packed.rows == padded.rows == 5
    alone = torch.cat([log_probabilities(model, token_batch([row], packing=False, pad_id=0, where=[])) for row in rows])
    gradients = []
    for batch in (packed, padded):
        model.zero_grad()
        found = log_probabilities(model, batch)
        torch.testing.assert_close(found, alone, atol=1e-5, rtol=1e-5)
        found.sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


def test_a_conversation_does_not_depend_on_its_neighbours() -> None:
    model, rows = random_model(DECODER), sequences()
    others = [*sequences(seed=1)[:2], rows[2], *sequences(seed=2)[3:]]
    one, two = (
        log_probabilities(model, token_batch(each, packing=True, pad_id=0, where=[])) for each in (rows, others)
    )
    owner = token_batch(rows, packing=True, pad_id=0, where=[]).targets["sequence"]
    torch.testing.assert_close(one[owner == 2], two[owner == 2], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(one[owner == 1], two[owner == 1])  # control


def test_sums_by_sequence() -> None:
    batch = token_batch(sequences(), packing=True, pad_id=0, where=[])
    counts = sums_by_sequence(torch.ones(batch.count), batch, sequences=5)
    assert counts.tolist() == [int(row.learnt[1:].sum()) for row in sequences()]
