"""A decoder that attends to a memory of another width than its own: it trains, generates with a cache as without, is
recorded, compiled and saved."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.variants import with_block

from headway.bundle import Bundle
from headway.engine import prepare, unsupported_reason
from headway.errors import ConfigError
from headway.inspect.record import record
from headway.loading import load
from headway.models.build import build
from headway.models.config import EncoderDecoderConfig, to_dict
from headway.models.config_checks import validate
from headway.models.recipes import Size, encoder, encoder_decoder

SOURCE, TARGET = Size(width=24, layers=1, heads=3, dropout=0.0), Size(width=16, layers=2, heads=2, dropout=0.0)


def config(memory_width: int | None = 24) -> EncoderDecoderConfig:
    whole = encoder_decoder(TARGET, "modern", vocab=20, context=32, start_id=1)
    cross = whole.decoder.stack.block.cross
    assert cross is not None
    decoder = with_block(whole.decoder, cross=replace(cross, memory_width=memory_width))
    return replace(whole, encoder=encoder(SOURCE, "modern", vocab=20), decoder=decoder, shared_embedding=False)


def ids(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(1, 20, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    return build(config())


def test_it_trains_and_is_recorded(model: Any) -> None:
    """The keys and values of the memory learn too: the target is a copy of the source."""
    source = ids(8, 6)
    key = model.decoder.stack.blocks[0].cross.key
    assert key.weight.shape == (16, 24) and model.decoder.stack.blocks[0].attention.key.weight.shape == (16, 16)
    before, losses = key.weight.detach().clone(), []
    weights = list(model.parameters())
    for _ in range(30):
        logits = model(source, decoder_ids=source.roll(1, 1)).logits
        loss = F.cross_entropy(logits.flatten(0, 1), source.flatten())
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            torch._foreach_add_(weights, gradients, alpha=-0.5)
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.3 * losses[0] and not torch.allclose(before, key.weight)
    with torch.no_grad(), record(model, "decoder.*.cross.weights") as recorded:
        model(source, decoder_ids=source[:, :3])
    assert [value.shape for values in recorded.values() for value in values] == [(8, 2, 3, 6)] * 2


@pytest.mark.parametrize("compiled", [False, True])
def test_with_a_cache_as_without(model: Any, compiled: bool) -> None:
    source, target = ids(2, 6), ids(2, 4, seed=1)
    model.eval()
    with torch.no_grad():
        whole = model(source, decoder_ids=target).logits
        if compiled:
            pytest.importorskip("numba")
            prepare(model)
        cache = model.encode_to_cache(source)
        parts = [model.step(target[:, at : at + 1], cache) for at in range(4)]
    torch.testing.assert_close(torch.stack(parts, dim=1), whole, atol=1e-5, rtol=1e-5)
    assert unsupported_reason(model) is None


def test_a_saved_model_opens(model: Any, tmp_path: Path) -> None:
    Bundle(model.eval(), "headway").save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert to_dict(again.config) == to_dict(model.config)
    source, target = ids(2, 6), ids(2, 4, seed=1)
    with torch.no_grad():
        assert torch.equal(again.model(source, decoder_ids=target).logits, model(source, decoder_ids=target).logits)


def test_widths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"cross\.memory_width is 16, but the encoder's width is 24"):
        validate(config(memory_width=None))
    own = config()
    attention = replace(own.decoder.stack.block.attention, memory_width=24)
    with pytest.raises(ConfigError, match=r"attention\.memory_width is for cross-attention"):
        validate(replace(own, decoder=with_block(own.decoder, attention=attention)))
