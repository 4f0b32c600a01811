"""`headway plan`: estimates memory, time and network traffic of a training run.

The formulas are those of this code's own blocks and optimisers (the modern decoder), counted tensor by tensor;
dev/LOG.md has them, and tests compare them with small runs. Layouts: DDP or FSDP (`shard=full`, ZeRO
stage 3), each with and without activation checkpointing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from headway.errors import ConfigError

UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12, "p": 1e15}
ASPECT = 128  # default ratio of width to layers, as in GPT-3 6.7B and Llama 7B
FP32 = 4

Precision = Literal["fp32", "bf16"]
Optimizer = Literal["muon", "adamw"]

# Bytes stored for the backward pass per token, layer and unit of width: 20 tensors with dropout.
BLOCK = {"fp32": 80, "bf16": 56}


def number(name: str, text: str) -> float:
    """Parses 7B, 1T, 80GB, 4096 or 3.5e11."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)([kmgbtp]?)b?", text.strip().replace(",", "").lower())
    if found is None or not float(found[1]):
        raise ConfigError(f"{name}: {text!r} is not a number such as 4096, 7B, 1T or 80GB")
    return float(found[1]) * UNITS[found[2]]


@dataclass(frozen=True)
class DecoderShape:
    """A decoder of the modern recipe with tied embeddings."""

    layers: int
    width: int
    vocab: int = 32_000
    heads: int = 0  # 0: heads of size 128, at least four

    @property
    def block(self) -> int:
        """Parameters of one block's matrices: four of attention, two feed-forward ones four times as large."""
        return 12 * self.width**2

    @property
    def embedding(self) -> int:
        return self.vocab * self.width

    @property
    def matrices(self) -> int:
        return self.layers * self.block

    @property
    def parameters(self) -> int:
        return self.matrices + self.embedding  # norms are a few widths

    @property
    def scales(self) -> int:
        """Values stored per token and layer besides tensors of the width: of two norms, queries, keys and attention."""
        return 2 + 3 * (self.heads or max(4, self.width // 128))


def shape_of(parameters: float, *, layers: int = 0, width: int = 0, vocab: int = 32_000) -> DecoderShape:
    """The shape with about this many parameters; given layers and width are kept."""
    if width and not layers:
        layers = max(1, round((parameters - vocab * width) / (12 * width**2)))
    elif layers and not width:
        half = vocab / (24 * layers)
        width = _multiple(math.sqrt(half**2 + parameters / (12 * layers)) - half)
    elif not layers:
        best = min(
            range(1, 513), key=lambda n: abs(DecoderShape(n, _multiple(ASPECT * n), vocab).parameters - parameters)
        )
        return shape_of(parameters, layers=best, vocab=vocab)
    return DecoderShape(layers, width, vocab)


def plan_shape(parameters: str, *, layers: int = 0, width: int = 0, vocab: int = 32_000) -> DecoderShape:
    """From command-line values: the number of parameters, or layers and width, or both of them combined."""
    if not parameters and not (layers and width):
        raise ConfigError("params: how many? Give --params 7B, or both --layers and --width")
    return shape_of(number("params", parameters) if parameters else 0, layers=layers, width=width, vocab=vocab)


def _multiple(width: float, of: int = 64) -> int:
    return max(of, round(width / of) * of)


@dataclass(frozen=True)
class Machine:
    gpus: int
    memory: float = 80e9  # bytes per GPU
    flops: float = 312e12  # per second and GPU, at the precision of the run
    efficiency: float = 0.4  # share that a training step reaches
    bandwidth: float = 25e9  # bytes per second and GPU


@dataclass(frozen=True)
class Work:
    tokens: float
    context: int
    batch: int  # sequences of an effective batch, over all GPUs
    precision: Precision = "bf16"
    optimizer: Optimizer = "muon"

    @property
    def steps(self) -> int:
        return math.ceil(self.tokens / (self.batch * self.context))


@dataclass(frozen=True)
class ShardLayout:
    shard: bool
    recompute: bool

    @property
    def name(self) -> str:
        return ("shard=full" if self.shard else "DDP") + (" + checkpointing" if self.recompute else "")


LAYOUTS = [ShardLayout(shard, recompute) for shard in (False, True) for recompute in (False, True)]


@dataclass(frozen=True)
class Memory:
    """Peak bytes on one GPU during a step."""

    weights: float
    gradients: float
    optimizer: float
    gathered: float  # temporary whole tensors: gathered shards, or weights cast to bf16
    activations: float

    @property
    def total(self) -> float:
        """Activations are freed while gradients are computed, so only the larger of the two counts."""
        return self.weights + self.optimizer + self.gathered + max(self.activations, self.gradients)


def memory(shape: DecoderShape, layout: ShardLayout, *, ranks: int, rows: int, work: Work, cuda: bool = True) -> Memory:
    """For a pass over `rows` sequences. With `cuda` Muon computes in bfloat16; on a CPU in float32, and the whole model
    is in memory besides the shards."""
    count, share = shape.parameters, ranks if layout.shard else 1
    cast = 2 * count if work.precision == "bf16" else 0  # autocast caches the cast weights until the pass ends
    buckets = FP32 * count if ranks > 1 and not layout.shard else 0  # DDP's gradient buckets
    gathered = float(cast + buckets)
    if layout.shard and ranks > 1:
        block, embedding = FP32 * shape.block, FP32 * shape.embedding
        held = cast / shape.layers if layout.recompute else cast  # cached cast weights are not sharded
        weights = 3 * block + embedding  # a block's, and the next one's as received and as unpacked
        gradients = 2 * block + embedding  # a block's, and packed for sending
        gathered = held + weights + gradients
        gathered += 0 if cuda else FP32 * count + block  # the whole model; gloo's copy of what it sends
    return Memory(
        weights=FP32 * count / share,
        gradients=FP32 * count / share,
        optimizer=optimizer_bytes(shape, work.optimizer, cuda=cuda) / share,
        gathered=gathered,
        activations=activation_bytes(shape, layout, tokens=rows * work.context, precision=work.precision),
    )


def optimizer_bytes(shape: DecoderShape, optimizer: Optimizer, *, cuda: bool) -> float:
    """Adam stores two values per weight. Muon stores one, and buffers for its products: per block, whose matrices have
    12 width² weights, twice those and, for each of six, two (with the Gram matrix four) squares of the smaller side."""
    if optimizer == "adamw":
        return 2 * FP32 * shape.parameters
    squares = 6 * 2 * 2 if cuda else (4 * 2 + 2 * 4) * FP32
    buffers = shape.layers * shape.width**2 * (24 * (2 if cuda else FP32) + squares)
    return FP32 * shape.matrices + 2 * FP32 * shape.embedding + buffers


def activation_bytes(shape: DecoderShape, layout: ShardLayout, *, tokens: int, precision: Precision) -> float:
    """What the backward pass needs, and the temporary tensors at its start: log-probabilities of the logits and two
    gradients, or, if that is more, ten tensors of the width for the last block."""
    block = BLOCK[precision] * shape.width + FP32 * shape.scales
    kept = shape.layers * FP32 * shape.width + block if layout.recompute else shape.layers * block
    ends = 4 * FP32 * shape.width  # the embedding's norm and dropout, the final norm
    logits = (3 * FP32 + (2 if precision == "bf16" else 0)) * shape.vocab
    return float(tokens * (kept + ends + max(logits, 10 * FP32 * shape.width)))


def step_flops(shape: DecoderShape, layout: ShardLayout, work: Work) -> float:
    """Two per weight and token in the forward pass, four in the backward pass, two more with activation checkpointing;
    attention likewise, over half the context on average since it is causal."""
    passes = 8 if layout.recompute else 6
    attention = shape.layers * 2 * shape.width * work.context / 2  # scores, and the weighted sum of values
    return work.batch * work.context * (passes * (shape.matrices + attention) + 6 * shape.embedding)


def step_traffic(
    shape: DecoderShape, layout: ShardLayout, *, ranks: int, passes: int, optimizer: Optimizer, cuda: bool = True
) -> float:
    """Bytes that a GPU sends per step. DDP: a ring all-reduce of the gradients. Shards: in every pass an all-gather of
    the weights, of the blocks' again in the backward pass, and a reduce-scatter of the gradients; then Muon's matrices
    to their owner and back. Gloo (without `cuda`) has no reduce-scatter and sends matrices to all ranks."""
    part = (ranks - 1) / ranks
    if not layout.shard:
        return 2 * part * FP32 * shape.parameters
    a_pass = shape.parameters + shape.matrices + (1 if cuda else 2) * shape.parameters
    muon = 2 * shape.matrices / (ranks if cuda else 1) if optimizer == "muon" else 0
    return part * FP32 * (passes * a_pass + muon)


@dataclass(frozen=True)
class Estimate:
    layout: ShardLayout
    rows: int  # sequences per GPU and micro-batch: as many as fit
    passes: int  # micro-batches per step: the setting `accumulate`
    memory: Memory
    fits: bool
    compute: float  # seconds per step
    network: float  # seconds per step, mostly overlapped with computation
    steps: int

    @property
    def days(self) -> float:
        return self.steps * max(self.compute, self.network) / 86_400


def estimate(shape: DecoderShape, work: Work, machine: Machine) -> list[Estimate]:
    """Every layout, with the largest micro-batch that fits; a single sequence if none does."""
    if work.batch < machine.gpus:
        raise ConfigError(
            f"batch: {work.batch} sequences cannot be shared by {machine.gpus} GPUs; give one each at least"
        )
    share = math.ceil(work.batch / machine.gpus)
    out = []
    for layout in LAYOUTS:
        for passes in range(1, share + 1):
            rows = math.ceil(share / passes)
            needed = memory(shape, layout, ranks=machine.gpus, rows=rows, work=work)
            if needed.total <= machine.memory:
                break
        compute = step_flops(shape, layout, work) / (machine.gpus * machine.flops * machine.efficiency)
        traffic = step_traffic(shape, layout, ranks=machine.gpus, passes=passes, optimizer=work.optimizer)
        network = traffic / machine.bandwidth
        fits = needed.total <= machine.memory
        out.append(Estimate(layout, rows, passes, needed, fits, compute, network, work.steps))
    return out
