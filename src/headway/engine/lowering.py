"""Lowers a decoder to a program for the interpreter. Tensors are not copied: instructions hold their addresses.

A part that the instruction set does not cover raises UnsupportedModelError, and the model keeps its plain step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from headway.engine import kernels
from headway.engine.bf16 import Bf16Linear, Bf16Table
from headway.engine.half_copies import HalfCopies
from headway.engine.inplace import FastBlock
from headway.engine.int8 import Int8Linear, Int8Table
from headway.engine.kernels import ACTIVATIONS
from headway.engine.opcodes import FIELDS, Buffer, Field, Op
from headway.engine.supported import COMPILED_STEP, STEP_MODULES, unsupported_config, unsupported_module
from headway.errors import HeadwayError
from headway.layers.attention import Attention
from headway.layers.block import Block, Residual
from headway.layers.feedforward import FeedForward
from headway.layers.linear import Linear, TokenTable
from headway.layers.norms import NormConfig, RMSNorm
from headway.layers.positions import LearnedPositions
from headway.layers.rotary import RotaryConfig
from headway.models.config import BlockConfig
from headway.models.decoder import Decoder
from headway.models.heads import LanguageHead


class UnsupportedModelError(HeadwayError):
    """The model has a part that cannot be compiled."""


@dataclass
class Program:
    instructions: list[list[int]] = field(default_factory=list)
    constants: list[tuple[float, float]] = field(default_factory=list)  # (eps, factor) of each instruction
    tensors: list[Tensor] = field(default_factory=list)  # keeps what instructions point at alive
    buffer_widths: dict[Buffer, int] = field(default_factory=dict)  # floats per token
    max_in_features: int = 0
    halves: HalfCopies | None = None

    def emit(self, op: Op, *, eps: float = 0.0, factor: float = 1.0, **fields: int) -> None:
        row = [0] * FIELDS
        row[Field.OP], row[Field.RESIDUAL], row[Field.GROUPS] = op, -1, 1
        for name, value in fields.items():
            row[Field[name.upper()]] = value
        self.instructions.append(row)
        self.constants.append((eps, factor))

    def address(self, tensor: Tensor | None) -> int:
        if tensor is None:
            return 0
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise UnsupportedModelError(f"a tensor of shape {list(tensor.shape)} is not contiguous in CPU memory")
        self.tensors.append(tensor)
        return tensor.data_ptr()

    def float_address(self, tensor: Tensor | None) -> int:
        if tensor is not None and tensor.dtype != torch.float32:
            raise UnsupportedModelError(f"a tensor is {tensor.dtype}, not float32")
        return self.address(tensor)

    def reserve(self, buffer: Buffer, width: int) -> None:
        """Makes a buffer at least `width` floats per token."""
        self.buffer_widths[buffer] = max(self.buffer_widths.get(buffer, 0), width)

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """(instructions (n, FIELDS) int64, constants (n, 2) float32)"""
        return np.array(self.instructions, dtype=np.int64), np.array(self.constants, dtype=np.float32)


def lower(decoder: Decoder, halves: HalfCopies | None = None) -> Program:
    """The program of a whole decoding step, from token ids to logits. Matrix products read the copies in `halves`.
    Raises UnsupportedModelError."""
    program, config = Program(halves=halves), decoder.config
    block, modules = config.stack.block, decoder.named_modules(prefix="model")
    reason = unsupported_config(config, COMPILED_STEP) or unsupported_module(modules, STEP_MODULES | {FastBlock})
    if reason is not None:
        raise UnsupportedModelError(f"{reason}, which the compiled step does not implement")
    if len(decoder.stack.rotaries) > 1:
        raise UnsupportedModelError("layers have different rotary angles")
    if isinstance(decoder.embedding.positions, LearnedPositions):
        program.float_address(decoder.embedding.positions.table.weight)
    residual = _embedding(program, decoder)
    for number, part in enumerate(decoder.stack.blocks):
        assert isinstance(part, Block)
        kind = config.stack.layer(number)
        residual = _attention(
            program,
            part.attention,
            part.attention_residual,
            block,
            residual=residual,
            layer=number,
            window=kind.window or 0,
            rotary=config.stack.rotary(kind),
        )
        if part.cross is not None:
            residual = _attention(
                program, part.cross, part.cross_residual, block, residual=residual, layer=number, cross=1
            )
        assert isinstance(part.feedforward, FeedForward)  # others are refused before
        residual = _feedforward(program, part.feedforward, part.feedforward_residual, block, residual=residual)
    _head(program, decoder, residual)
    return program


def vocabulary_matrix(decoder: Decoder) -> nn.Module:
    """The module whose weight gives the logits: the head's own, or the token table it is tied to."""
    project = cast(LanguageHead, decoder.head).project
    return decoder.embedding.tokens if project is None else project


def matrix(program: Program, module: nn.Module) -> dict[str, int]:
    """The fields that describe a weight matrix."""
    bias = program.float_address(module.bias) if isinstance(module, Linear | Int8Linear | Bf16Linear) else 0
    match module:
        case Int8Linear() | Int8Table():
            scale = module.weight_scale
            stored = {"format": kernels.INT8, "scale": program.float_address(scale), "groups": scale.shape[1]}
        case Bf16Linear() | Bf16Table():
            stored = {"format": kernels.BFLOAT16}
        case Linear() | TokenTable():
            if not module.weight.is_contiguous():  # e.g. transposed at loading
                module.weight.data = module.weight.data.contiguous()
            program.float_address(module.weight)
            stored = {"format": kernels.FLOAT32}
        case _:
            raise UnsupportedModelError(f"{type(module).__name__} in the place of a weight matrix")
    outputs, inputs = module.weight.shape
    program.max_in_features = max(program.max_in_features, inputs)
    weight = {"weight": program.address(module.weight), "bias": bias}
    return stored | weight | {"in_features": inputs, "out_features": outputs}


def factor_matrix(program: Program, module: nn.Module) -> dict[str, int]:
    """The fields of a matrix that is multiplied with tokens."""
    fields = matrix(program, module)
    copy = None if program.halves is None else program.halves.get(module)
    return fields if copy is None else fields | {"format": kernels.FLOAT16, "weight": program.address(copy)}


def _norm(program: Program, norm: nn.Module | None, config: NormConfig | None) -> dict[str, int]:
    if norm is None or config is None:
        return {"norm_kind": kernels.NO_NORM}
    weight, bias = getattr(norm, "weight", None), getattr(norm, "bias", None)
    kind = {nn.LayerNorm: kernels.LAYER_NORM, RMSNorm: kernels.RMS_NORM}.get(type(norm))
    if kind is None:
        raise UnsupportedModelError(f"{type(norm).__name__} in the place of a norm")
    addresses = {"norm_weight": program.float_address(weight), "norm_bias": program.float_address(bias)}
    return {"norm_kind": kind, **addresses}


def _embedding(program: Program, decoder: Decoder) -> Buffer:
    embedding, config = decoder.embedding, decoder.config.embedding
    table = matrix(program, embedding.tokens)
    width = table["out_features"] = table.pop("in_features")
    program.reserve(Buffer.RESIDUAL, width)
    program.reserve(Buffer.NORMED, width)
    eps = config.norm.eps if config.norm else 0.0
    norm = _norm(program, embedding.norm, config.norm)
    program.emit(Op.EMBED, eps=eps, factor=config.scale, target=Buffer.RESIDUAL, barrier=1, **table, **norm)
    return Buffer.RESIDUAL


def _pre_norm(program: Program, residual: Residual, block: BlockConfig, stream: Buffer) -> Buffer:
    """The input of a branch: the residual stream, or its norm. Every thread computes all of the norm."""
    if residual.post:
        return stream
    norm = _norm(program, residual.norm, block.norm)
    where = {"source": stream, "target": Buffer.NORMED, "out_features": block.width}
    program.emit(Op.NORM, eps=block.norm.eps, **where, **norm)
    return Buffer.NORMED


def _post_norm(program: Program, residual: Residual, block: BlockConfig) -> Buffer:
    """The residual stream after a branch. Every thread computes all of the norm."""
    if not residual.post:
        return Buffer.RESIDUAL
    norm = _norm(program, residual.norm, block.norm)
    where = {"source": Buffer.RESIDUAL, "target": Buffer.NORMED, "out_features": block.width}
    program.emit(Op.NORM, eps=block.norm.eps, **where, **norm)
    return Buffer.NORMED


def _attention(
    program: Program,
    attention: Attention,
    branch: Residual | None,
    block: BlockConfig,
    *,
    residual: Buffer,
    layer: int,
    window: int = 0,
    rotary: RotaryConfig | None = None,
    cross: int = 0,
) -> Buffer:
    assert branch is not None
    config, heads, kv_heads = attention.config, attention.heads, attention.kv_heads
    size = config.head_size
    width = (heads if cross else heads + 2 * kv_heads) * size
    program.reserve(Buffer.QKV, width)
    program.reserve(Buffer.ATTENTION_OUT, heads * size)
    source = _pre_norm(program, branch, block, residual)
    columns = {attention.query: 0} | ({} if cross else {attention.key: heads, attention.value: heads + kv_heads})
    for number, (module, column) in enumerate(columns.items(), 1):
        where = {"source": source, "target": Buffer.QKV, "row_stride": width, "column_offset": column * size}
        program.emit(Op.LINEAR, **where, **factor_matrix(program, module), barrier=int(number == len(columns)))
    key_norm = _norm(program, attention.key_norm, config.qk_norm)
    program.emit(
        Op.ATTEND,
        eps=config.qk_norm.eps if config.qk_norm else 0.0,
        factor=size**-0.5 if config.scale is None else config.scale,
        source=Buffer.QKV,
        target=Buffer.ATTENTION_OUT,
        row_stride=width,
        heads=heads,
        kv_heads=kv_heads,
        head_size=size,
        rotary_pairs=int(size * rotary.share) // 2 if rotary is not None else 0,
        window=window,
        layer=layer,
        cross=cross,
        key_norm_weight=key_norm.get("norm_weight", 0),
        key_norm_bias=key_norm.get("norm_bias", 0),
        barrier=1,
        **_norm(program, attention.query_norm, config.qk_norm),
    )
    _linear_and_add(program, attention.output, block, source=Buffer.ATTENTION_OUT, residual=residual)
    return _post_norm(program, branch, block)


def _linear_and_add(
    program: Program, module: nn.Module, block: BlockConfig, *, source: Buffer, residual: Buffer
) -> None:
    """The last matrix of a branch; its output is added to the residual stream."""
    program.reserve(Buffer.BRANCH_OUT, block.width)
    where = {"source": source, "target": Buffer.BRANCH_OUT, "row_stride": block.width, "residual": residual}
    program.emit(Op.LINEAR, **where, **factor_matrix(program, module), barrier=1)


def _feedforward(
    program: Program, part: FeedForward, branch: Residual, block: BlockConfig, *, residual: Buffer
) -> Buffer:
    config = block.feedforward
    program.reserve(Buffer.FFN_HIDDEN, config.width)
    program.reserve(Buffer.FFN_UP, config.width)
    source = _pre_norm(program, branch, block, residual)
    activation = ACTIVATIONS.index(config.activation)
    gated = part.gate is not None
    up = {"source": source, "target": Buffer.FFN_UP if gated else Buffer.FFN_HIDDEN, "row_stride": config.width}
    program.emit(
        Op.LINEAR,
        **up,
        **factor_matrix(program, part.up),
        activation=0 if gated else activation,
        barrier=int(not gated),
    )
    if part.gate is not None:
        up["target"] = Buffer.FFN_HIDDEN
        program.emit(Op.LINEAR, **up, **factor_matrix(program, part.gate), activation=activation)
        program.emit(Op.GATE, source=Buffer.FFN_UP, target=Buffer.FFN_HIDDEN, out_features=config.width, barrier=1)
    _linear_and_add(program, part.down, block, source=Buffer.FFN_HIDDEN, residual=residual)
    return _post_norm(program, branch, block)


def _head(program: Program, decoder: Decoder, residual: Buffer) -> None:
    head, block = cast(LanguageHead, decoder.head), decoder.config.stack.block
    norm = _norm(program, decoder.stack.final_norm, block.norm)
    program.emit(
        Op.NORM,
        eps=block.norm.eps,
        factor=head.scale,
        source=residual,
        target=Buffer.NORMED,
        out_features=block.width,
        logit_tokens=1,
        **norm,
    )
    vocabulary = factor_matrix(program, vocabulary_matrix(decoder))
    vocabulary["bias"] = program.float_address(head.bias)
    where = {"source": Buffer.NORMED, "target": Buffer.OUTPUT, "row_stride": vocabulary["out_features"]}
    program.emit(Op.LINEAR, **where, **vocabulary, logit_tokens=1)
