"""A decoder written down as the machine's orders. Its tensors are not copied: orders hold addresses.

Every shape the layers can make is either planned or refused with a reason, and what is refused runs as it did before.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from headway.engine import kernels
from headway.engine.bf16 import Bf16Linear, Bf16Table
from headway.engine.int8 import Int8Linear, Int8Table
from headway.engine.kernels import ACTIVATIONS
from headway.engine.opcodes import ORDER, Does, Order, Place
from headway.errors import HeadwayError
from headway.layers.attention import Attention
from headway.layers.block import Block, Residual
from headway.layers.feedforward import FeedForward
from headway.layers.linear import Linear, TokenTable
from headway.layers.norms import NormConfig, RMSNorm
from headway.layers.positions import LearnedPositions
from headway.models.config import BlockConfig
from headway.models.decoder import Decoder
from headway.models.heads import LanguageHead


class NotPlannedError(HeadwayError):
    """The model has a part that the compiled step does not know."""


@dataclass
class Plan:
    orders: list[list[int]] = field(default_factory=list)
    pairs: list[tuple[float, float]] = field(default_factory=list)
    kept: list[Tensor] = field(default_factory=list)  # what is pointed at, so that it stays
    room: dict[Place, int] = field(default_factory=dict)  # numbers a token needs at each place
    inputs: int = 0  # of the widest matrix

    def order(self, does: Does, *, eps: float = 0.0, factor: float = 1.0, **columns: int) -> None:
        row = [0] * ORDER
        row[Order.DOES], row[Order.RESIDUAL], row[Order.GROUPS] = does, -1, 1
        for name, value in columns.items():
            row[Order[name.upper()]] = value
        self.orders.append(row)
        self.pairs.append((eps, factor))

    def address(self, tensor: Tensor | None) -> int:
        if tensor is None:
            return 0
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise NotPlannedError(f"a tensor of shape {list(tensor.shape)} is not laid out in order in main memory")
        self.kept.append(tensor)
        return tensor.data_ptr()

    def floats(self, tensor: Tensor | None) -> int:
        if tensor is not None and tensor.dtype != torch.float32:
            raise NotPlannedError(f"a tensor is {tensor.dtype}, not float32")
        return self.address(tensor)

    def needs(self, place: Place, numbers: int) -> None:
        self.room[place] = max(self.room.get(place, 0), numbers)

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.orders, dtype=np.int64), np.array(self.pairs, dtype=np.float32)


def plan(decoder: Decoder) -> Plan:
    """The whole step: tokens in, logits out. Raises NotPlannedError."""
    made, config = Plan(), decoder.config
    block, rotary = config.stack.block, config.stack.block.attention.rotary
    if rotary is not None and rotary.scaling is not None and rotary.scaling.kind in ("dynamic", "longrope"):
        raise NotPlannedError(f"{rotary.scaling.kind} rotary angles depend on each row's length")
    if decoder.embedding.segments is not None:
        raise NotPlannedError("the decoder's tokens have segments")
    if isinstance(decoder.embedding.positions, LearnedPositions):
        made.floats(decoder.embedding.positions.table.weight)
    stream = _embedding(made, decoder)
    for number, part in enumerate(decoder.stack.blocks):
        assert isinstance(part, Block)
        window = config.stack.windows[number] if config.stack.windows else None
        stream = _attention(
            made, part.attention, part.attention_residual, block, stream=stream, layer=number, window=window or 0
        )
        if part.cross is not None:
            stream = _attention(made, part.cross, part.cross_residual, block, stream=stream, layer=number, cross=1)
        stream = _feedforward(made, part.feedforward, part.feedforward_residual, block, stream=stream)
    _head(made, decoder, stream)
    return made


def matrix(made: Plan, module: nn.Module) -> dict[str, int]:
    """How and where a matrix is stored."""
    bias = made.floats(module.bias) if isinstance(module, Linear | Int8Linear | Bf16Linear) else 0
    match module:
        case Int8Linear() | Int8Table():
            scale = module.weight_scale
            stored = {"stored": kernels.INT8, "scale": made.floats(scale), "groups": scale.shape[1]}
        case Bf16Linear() | Bf16Table():
            stored = {"stored": kernels.BFLOAT16}
        case Linear() | TokenTable():
            if not module.weight.is_contiguous():  # as files of the other way round leave it
                module.weight.data = module.weight.data.contiguous()
            made.floats(module.weight)
            stored = {"stored": kernels.FLOAT32}
        case _:
            raise NotPlannedError(f"{type(module).__name__} in the place of a matrix")
    outputs, inputs = module.weight.shape
    made.inputs = max(made.inputs, inputs)
    return stored | {"weight": made.address(module.weight), "bias": bias, "inputs": inputs, "outputs": outputs}


def _norm(made: Plan, norm: nn.Module | None, config: NormConfig | None) -> dict[str, int]:
    if norm is None or config is None:
        return {"norm": kernels.NO_NORM}
    weight, bias = getattr(norm, "weight", None), getattr(norm, "bias", None)
    kind = {nn.LayerNorm: kernels.LAYER_NORM, RMSNorm: kernels.RMS_NORM}.get(type(norm))
    if kind is None:
        raise NotPlannedError(f"{type(norm).__name__} in the place of a norm")
    return {"norm": kind, "norm_weight": made.floats(weight), "norm_bias": made.floats(bias)}


def _embedding(made: Plan, decoder: Decoder) -> Place:
    embedding, config = decoder.embedding, decoder.config.embedding
    table = matrix(made, embedding.tokens)
    width = table["outputs"] = table.pop("inputs")
    made.needs(Place.STREAM, width)
    made.needs(Place.NORMED, width)
    eps = config.norm.eps if config.norm else 0.0
    norm = _norm(made, embedding.norm, config.norm)
    made.order(Does.EMBED, eps=eps, factor=config.scale, target=Place.STREAM, wait=1, **table, **norm)
    return Place.STREAM


def _before(made: Plan, residual: Residual, block: BlockConfig, stream: Place) -> Place:
    """What a branch reads: the stream, or its norm."""
    if residual.post:
        return stream
    norm = _norm(made, residual.norm, block.norm)
    made.order(Does.NORM, eps=block.norm.eps, source=stream, target=Place.NORMED, outputs=block.width, wait=0, **norm)
    return Place.NORMED


def _after(made: Plan, residual: Residual, block: BlockConfig) -> Place:
    """The stream behind a branch, whose sum is in STREAM. A norm of it each thread works out for itself."""
    if not residual.post:
        return Place.STREAM
    norm = _norm(made, residual.norm, block.norm)
    made.order(Does.NORM, eps=block.norm.eps, source=Place.STREAM, target=Place.NORMED, outputs=block.width, **norm)
    return Place.NORMED


def _attention(
    made: Plan,
    attention: Attention,
    residual: Residual | None,
    block: BlockConfig,
    *,
    stream: Place,
    layer: int,
    window: int = 0,
    cross: int = 0,
) -> Place:
    assert residual is not None
    config, heads, kv_heads = attention.config, attention.heads, attention.kv_heads
    size = config.head_size
    row = (heads if cross else heads + 2 * kv_heads) * size
    made.needs(Place.PROJECTED, row)
    made.needs(Place.MIXED, heads * size)
    source = _before(made, residual, block, stream)
    columns = {attention.query: 0} | ({} if cross else {attention.key: heads, attention.value: heads + kv_heads})
    for number, (module, column) in enumerate(columns.items(), 1):
        where = {"source": source, "target": Place.PROJECTED, "row": row, "column": column * size}
        made.order(Does.LINEAR, **where, **matrix(made, module), wait=int(number == len(columns)))
    keys = _norm(made, attention.key_norm, config.qk_norm)
    made.order(
        Does.ATTEND,
        eps=config.qk_norm.eps if config.qk_norm else 0.0,
        factor=size**-0.5 if config.scale is None else config.scale,
        source=Place.PROJECTED,
        target=Place.MIXED,
        row=row,
        heads=heads,
        kv_heads=kv_heads,
        size=size,
        turned=int(size * config.rotary.share) // 2 if config.rotary and not cross else 0,
        window=window,
        layer=layer,
        cross=cross,
        key_weight=keys.get("norm_weight", 0),
        key_bias=keys.get("norm_bias", 0),
        wait=1,
        **_norm(made, attention.query_norm, config.qk_norm),
    )
    _linear_back(made, attention.output, block, source=Place.MIXED, stream=stream)
    return _after(made, residual, block)


def _linear_back(made: Plan, module: nn.Module, block: BlockConfig, *, source: Place, stream: Place) -> None:
    """The last matrix of a branch, added to the stream."""
    made.needs(Place.BRANCH, block.width)
    where = {"source": source, "target": Place.BRANCH, "row": block.width, "residual": stream}
    made.order(Does.LINEAR, **where, **matrix(made, module), wait=1)


def _feedforward(made: Plan, part: FeedForward, residual: Residual, block: BlockConfig, *, stream: Place) -> Place:
    config = block.feedforward
    made.needs(Place.HIDDEN, config.width)
    made.needs(Place.GATED, config.width)
    source = _before(made, residual, block, stream)
    activation = ACTIVATIONS.index(config.activation)
    gated = part.gate is not None
    up = {"source": source, "target": Place.GATED if gated else Place.HIDDEN, "row": config.width}
    made.order(Does.LINEAR, **up, **matrix(made, part.up), activation=0 if gated else activation, wait=int(not gated))
    if part.gate is not None:
        up["target"] = Place.HIDDEN
        made.order(Does.LINEAR, **up, **matrix(made, part.gate), activation=activation)
        made.order(Does.GATE, source=Place.GATED, target=Place.HIDDEN, outputs=config.width, wait=1)
    _linear_back(made, part.down, block, source=Place.HIDDEN, stream=stream)
    return _after(made, residual, block)


def _head(made: Plan, decoder: Decoder, stream: Place) -> None:
    head, block = decoder.head, decoder.config.stack.block
    if not isinstance(head, LanguageHead) or head.dense is not None:
        raise NotPlannedError(f"{type(head).__name__} in the place of a plain language head")
    norm = _norm(made, decoder.stack.final_norm, block.norm)
    made.order(
        Does.NORM,
        eps=block.norm.eps,
        factor=head.scale,
        source=stream,
        target=Place.NORMED,
        outputs=block.width,
        chosen=1,
        **norm,
    )
    words = matrix(made, decoder.embedding.tokens if head.project is None else head.project)
    words["bias"] = made.floats(head.bias)
    where = {"source": Place.NORMED, "target": Place.OUT, "row": words["outputs"]}
    made.order(Does.LINEAR, **where, **words, chosen=1)
