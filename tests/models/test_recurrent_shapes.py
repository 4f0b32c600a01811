"""Recurrent models of every cell: they step as they train, padding changes nothing, a state is carried, and their own
tokens can be their inputs (scheduled sampling)."""

import pytest
import torch

from headway.models.build import build
from headway.models.config import ClassifyHeadConfig, TokenHeadConfig
from headway.models.init import initialise
from headway.models.recipes import CELLS, RECURRENT, Size, recurrent, recurrent_decoder, recurrent_encoder

SIZE = Size(width=16, layers=4, heads=2, dropout=0.0)


def made(config):
    model = build(config)
    initialise(model, "modern", seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)) * 0.3)
    return model.eval()


@pytest.mark.parametrize("name", RECURRENT)
def test_an_encoder_decoder_steps_as_it_trains(name: str) -> None:
    model = made(recurrent(SIZE, vocab=20, start_id=1, name=name))
    source, target = torch.randint(2, 20, (3, 6)), torch.randint(2, 20, (3, 5))
    mask = torch.arange(6)[None] < torch.tensor([6, 3, 4])[:, None]
    with torch.no_grad():
        logits = model(source, decoder_ids=target, padding_mask=mask).logits
        cache = model.encode_to_cache(source, padding_mask=mask)
        stepped = [model.step(target[:, :2], cache)] + [model.step(target[:, at : at + 1], cache) for at in (2, 3, 4)]
        alone = model(source[1:2, :3], decoder_ids=target[1:2]).logits
    torch.testing.assert_close(torch.stack(stepped, dim=1), logits[:, 1:], atol=1e-5, rtol=0)
    torch.testing.assert_close(alone, logits[1:2], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", RECURRENT)
def test_teacher_forcing_with_probability_one_and_zero(name: str) -> None:
    model = made(recurrent(SIZE, vocab=20, start_id=1, name=name))
    source, target = torch.randint(2, 20, (3, 6)), torch.randint(2, 20, (3, 5))
    target[:, 0] = 1
    with torch.no_grad():
        given = model(source, decoder_ids=target).logits
        forced = model(source, decoder_ids=target, forced=torch.ones(3, 5, dtype=torch.bool)).logits
        free = model(source, decoder_ids=target, forced=torch.zeros(3, 5, dtype=torch.bool)).logits
        cache, ids, steps = model.encode_to_cache(source), target[:, :1], []
        for _ in range(5):
            steps.append(model.step(ids, cache))
            ids = steps[-1].argmax(-1, keepdim=True)
    torch.testing.assert_close(forced, given, atol=1e-5, rtol=0)
    torch.testing.assert_close(free, torch.stack(steps, dim=1), atol=1e-5, rtol=0)
    assert not torch.allclose(free, given)


@pytest.mark.parametrize("cell", CELLS)
def test_a_language_model_steps_as_it_trains_and_rows_have_their_lengths(cell: str) -> None:
    model = made(recurrent_decoder(SIZE, vocab=20, cell=cell))
    ids = torch.randint(0, 20, (2, 7))
    with torch.no_grad():
        logits = model(ids).logits
        cache = model.new_cache(2)
        first = model.step(ids[:, :4], cache, lengths=[4, 2])
        second = model.step(torch.stack([ids[0, 4:6], ids[1, 2:4]]), cache)
    assert cache.lengths == [6, 4] and model.max_length is None
    torch.testing.assert_close(first, torch.stack([logits[0, 3], logits[1, 1]]), atol=1e-5, rtol=0)
    torch.testing.assert_close(second, torch.stack([logits[0, 5], logits[1, 3]]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("cell", CELLS)
def test_a_window_goes_on_from_the_one_before_without_its_gradients(cell: str) -> None:
    model = made(recurrent_decoder(SIZE, vocab=20, cell=cell))
    ids = torch.randint(0, 20, (2, 8))
    slots = torch.eye(4)
    whole = model(ids).logits
    model(ids[:, :4], read_slots=torch.zeros(2, 4), write_slots=slots[:2])
    again = model(ids[:, 4:], read_slots=slots[:2], write_slots=slots[2:])
    torch.testing.assert_close(again.logits, whole[:, 4:], atol=1e-5, rtol=0)
    repeated = model(ids[:, 4:], read_slots=slots[:2], write_slots=slots[2:])
    assert torch.equal(repeated.logits, again.logits)  # what is read is not what was written
    assert model.carried is not None and not model.carried.requires_grad
    assert "carried" not in model.state_dict()


@pytest.mark.parametrize("cell", CELLS)
def test_an_encoder_leaves_padding_out(cell: str) -> None:
    ids = torch.randint(0, 20, (2, 6))
    mask = torch.arange(6)[None] < torch.tensor([6, 4])[:, None]
    for head in (ClassifyHeadConfig(3, pool="mean"), TokenHeadConfig(3)):
        model = made(recurrent_encoder(SIZE, vocab=20, head=head, cell=cell))
        with torch.no_grad():
            both = model(ids, padding_mask=mask).logits
            alone = model(ids[1:, :4]).logits
        torch.testing.assert_close(both[1:] if both.ndim == 2 else both[1:, :4], alone, atol=1e-5, rtol=0)
