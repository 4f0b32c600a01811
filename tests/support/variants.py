"""Small decoders, one for each slot of the core that a config can fill, with random weights."""

from dataclasses import replace
from typing import Any

import torch

from headway.layers.rotary import RotaryConfig
from headway.layers.score_bias import RelativeKeyConfig
from headway.models.build import build
from headway.models.config import LayerConfig, ModelConfig
from headway.models.recipes import Size, decoder, encoder, encoder_decoder

SIZE = Size(width=16, layers=2, heads=2, dropout=0.0)
DECODER = decoder(SIZE, "modern", vocab=20, context=32)
ENCODER = encoder(SIZE, "classic", vocab=20)
PAIR = encoder_decoder(SIZE, "classic", vocab=20, context=32, start_id=1)


def random_model(config: ModelConfig) -> Any:
    torch.manual_seed(0)
    model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    return model


def with_block(config: Any, **changes: Any) -> Any:
    return replace(config, stack=replace(config.stack, block=replace(config.stack.block, **changes)))


def with_attention(config: Any, **changes: Any) -> Any:
    return with_block(config, attention=replace(config.stack.block.attention, **changes))


def with_stack(config: Any, **changes: Any) -> Any:
    return replace(config, stack=replace(config.stack, **changes))


VARIANTS = {
    "relative keys": with_attention(DECODER, score_bias=RelativeKeyConfig(3)),
    "alibi": with_stack(with_attention(DECODER, rotary=None), score_bias="alibi"),
    "no rotary in one layer": with_stack(DECODER, per_layer=(LayerConfig(rotary="none"), LayerConfig())),
    "two rotary bases": with_stack(DECODER, per_layer=(LayerConfig(rotary=RotaryConfig(100.0)), LayerConfig(window=3))),
    "query and key positions": replace(
        decoder(SIZE, "classic", vocab=20, context=32),
        embedding=replace(decoder(SIZE, "classic", vocab=20, context=32).embedding, positions_at="query_key"),
    ),
}
