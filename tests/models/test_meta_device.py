"""Every shape on the `meta` device: a tensor made on the wrong device, or a value read back to the host, fails here as
it would stall a GPU."""

from typing import Any

import pytest
import torch
from support.variants import VARIANTS, with_attention, with_block, with_stack

from headway.layers.norms import NormConfig
from headway.layers.rotary import RotaryConfig, RotaryScaling
from headway.models.build import build
from headway.models.config import ClassifyHeadConfig, LanguageHeadConfig, LayerConfig, TokenHeadConfig
from headway.models.recipes import (
    Size,
    decoder,
    encoder,
    encoder_decoder,
    recurrent,
    recurrent_decoder,
    recurrent_encoder,
    vision,
)

SIZE = Size(width=16, layers=2, heads=2)
META = torch.device("meta")
LONG = RotaryScaling("longrope", factor=2.0, original_length=4, short_factor=(1.0,) * 4, long_factor=(2.0,) * 4)
DECODERS = {
    "modern": decoder(SIZE, "modern", vocab=20, context=32),
    "classic": decoder(SIZE, "classic", vocab=20, context=32),
    "window": with_stack(decoder(SIZE, "modern", vocab=20, context=32), per_layer=(LayerConfig(window=2),) * 2),
    "longrope": with_attention(decoder(SIZE, "modern", vocab=20, context=32), rotary=RotaryConfig(scaling=LONG)),
    **VARIANTS,
}
ENCODERS = {
    "fill": encoder(SIZE, "modern", vocab=20, head=LanguageHeadConfig()),
    "classify": encoder(SIZE, "classic", vocab=20, segments=2, head=ClassifyHeadConfig(3, pool="mean")),
    "classify by the last": encoder(SIZE, "modern", vocab=20, head=ClassifyHeadConfig(3, pool="last")),
    "tag": encoder(SIZE, "modern", vocab=20, head=TokenHeadConfig(3)),
    "recurrent": recurrent_encoder(SIZE, vocab=20, head=TokenHeadConfig(3), cell="lstm"),
    "batch norm": with_block(encoder(SIZE, "classic", vocab=20), norm=NormConfig("batch")),
}
SOURCES = {
    "translator": encoder_decoder(SIZE, "modern", vocab=20, context=32, start_id=1),
    "recurrent": recurrent(SIZE, vocab=20, start_id=1),
    "lstm-luong": recurrent(SIZE, vocab=20, start_id=1, name="lstm-luong"),
    "rnn": recurrent(SIZE, vocab=20, start_id=1, name="rnn"),
}


def ids(rows: int, length: int) -> torch.Tensor:
    return torch.zeros(rows, length, dtype=torch.long, device=META)


def mask(rows: int, length: int) -> torch.Tensor:
    return torch.ones(rows, length, dtype=torch.bool, device=META)


def on_meta(config: Any, *, training: bool) -> Any:
    return build(config, device="meta").train(training)


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", DECODERS)
def test_a_masked_forward_and_backward_of_a_decoder(name: str, training: bool) -> None:
    model = on_meta(DECODERS[name], training=training)
    logits = model(ids(2, 6), padding_mask=mask(2, 6)).logits
    assert logits.shape == (2, 6, 20) and logits.device == META
    logits.sum().backward()
    assert model(ids(1, 6), sequence_lengths=(2, 4)).logits.shape == (1, 6, 20)


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", ENCODERS)
def test_a_masked_forward_and_backward_of_an_encoder(name: str, training: bool) -> None:
    model = on_meta(ENCODERS[name], training=training)
    positions = torch.zeros(3, dtype=torch.long, device=META)
    extra = {"logit_positions": positions} if name == "fill" else {}
    output = model(ids(2, 6), padding_mask=mask(2, 6), **extra)
    (output.hidden if output.logits is None else output.logits).sum().backward()


def test_a_forward_and_backward_of_an_image_model() -> None:
    config = vision(SIZE, "modern", image=(8, 8), patch=4, channels=1, head=ClassifyHeadConfig(3))
    model = on_meta(config, training=True)
    model(torch.zeros(2, 1, 8, 8, device=META)).logits.sum().backward()


@pytest.mark.parametrize("name", SOURCES)
def test_a_masked_forward_and_backward_of_a_model_with_a_source(name: str) -> None:
    model = on_meta(SOURCES[name], training=True)
    more = {"padding_mask": mask(2, 6), "decoder_padding_mask": mask(2, 4)}
    model(ids(2, 6), decoder_ids=ids(2, 4), **more).logits.sum().backward()


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_rows_of_a_decoder_step_join_and_leave(name: str) -> None:
    model = on_meta(DECODERS[name], training=False)
    cache, other = model.new_cache(2), model.new_cache(1)
    assert model.step(ids(2, 5), cache, lengths=[5, 3]).shape == (2, 20)
    model.step(ids(1, 2), other)
    cache.append_rows(other)
    cache.select([2, 0])
    assert model.step(ids(2, 3), cache, every=True).shape == (2, 3, 20)
    cache.truncate([4, 6])
    assert model.step(ids(2, 1), cache).device == META and cache.lengths == [5, 7]


@pytest.mark.parametrize("name", SOURCES)
@torch.no_grad()
def test_rows_of_a_model_with_a_source_step_join_and_leave(name: str) -> None:
    model = on_meta(SOURCES[name], training=False)
    cache, other = (model.encode_to_cache(ids(n, n + 3), padding_mask=mask(n, n + 3)) for n in (2, 1))
    for each in (cache, other):
        model.step(ids(len(each), 1), each)
    cache.append_rows(other)
    cache.select([2, 0, 0])
    assert model.step(ids(3, 2), cache, lengths=[2, 1, 1]).shape == (3, 20)


def test_a_carried_state_and_scheduled_sampling() -> None:
    model = on_meta(recurrent_decoder(SIZE, vocab=20, cell="lstm"), training=True)
    slots = torch.zeros(2, 4, device=META)
    for _ in range(2):
        model(ids(2, 6), read_slots=slots, write_slots=slots).logits.sum().backward()
    model = on_meta(SOURCES["recurrent"], training=True)
    model(ids(2, 6), decoder_ids=ids(2, 4), forced=mask(2, 4)).logits.sum().backward()


@torch.no_grad()
def test_rows_of_a_recurrent_decoder_step_join_and_leave() -> None:
    model = on_meta(recurrent_decoder(SIZE, vocab=20, cell="gru"), training=False)
    cache, other = model.new_cache(2), model.new_cache(1)
    assert model.step(ids(2, 5), cache, lengths=[5, 3]).shape == (2, 20)
    cache.append_rows(other)
    cache.select([2, 0])
    assert model.step(ids(2, 3), cache, every=True).shape == (2, 3, 20)


def test_reading_a_value_back_fails_here() -> None:
    """The control: what this file looks for cannot pass."""
    with pytest.raises(RuntimeError):
        bool(mask(2, 3).all())
