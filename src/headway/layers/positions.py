"""Where a token stands: sinusoidal and learned vectors added to embeddings, rotary angles for queries and
keys (half-split), and biases added to scores (ALiBi, T5's relative buckets)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headway.layers.linear import TokenTable

# ---------------------------------------------------------------------------------------- added to the embeddings


@dataclass(frozen=True)
class LearnedConfig:
    count: int
    offset: int = 0  # published models that keep rows free before position 0 (BART 2, RoBERTa pad + 1)


@dataclass(frozen=True)
class SinusoidalConfig:
    count: int = 0  # positions that a published file keeps as a table; the formula itself has no end
    layout: Literal["interleaved", "halves"] = "interleaved"  # 2017: sin, cos, sin, cos…; Marian: all sin, all cos


class LearnedPositions(nn.Module):
    def __init__(self, width: int, config: LearnedConfig):
        super().__init__()
        self.table = TokenTable(config.count + config.offset, width)
        self.offset = config.offset

    def forward(self, positions: Tensor, max_position: int) -> Tensor:  # (batch, length) → (batch, length, width)
        return self.table(positions + self.offset if self.offset else positions)


class SinusoidalPositions(nn.Module):
    """PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = cos(…) (Vaswani et al. 2017, section 3.5)."""

    def __init__(self, width: int, config: SinusoidalConfig):
        super().__init__()
        self.width, self.layout = width, config.layout
        self._table: Tensor | None = None

    def forward(self, positions: Tensor, max_position: int) -> Tensor:  # (batch, length) → (batch, length, width)
        """Every position is below `max_position`, which the caller knows without asking the device."""
        if self._table is None or len(self._table) < max_position or self._table.device != positions.device:
            count = max(2 * max_position, 512)
            self._table = sinusoids(count, self.width, layout=self.layout).to(positions.device)
        return self._table[positions]


def sinusoids(count: int, width: int, *, layout: Literal["interleaved", "halves"] = "interleaved") -> Tensor:
    position = torch.arange(count, dtype=torch.float64)[:, None]
    even = torch.arange(0, width, 2, dtype=torch.float64)
    angle = position / 10000 ** (even / width)  # (count, width/2)
    sin, cos = angle.sin(), angle.cos()[:, : width // 2]
    if layout == "halves":
        return torch.cat([sin, cos], dim=1).float()
    table = torch.empty(count, width, dtype=torch.float64)
    table[:, 0::2], table[:, 1::2] = sin, cos
    return table.float()


# ---------------------------------------------------------------------------------------- rotary


@dataclass(frozen=True)
class RotaryScaling:
    """How a model stretches its rotary angles past the length it was trained on, by LLaMA-like configs' names."""

    kind: Literal["linear", "dynamic", "yarn", "longrope", "llama3"]
    factor: float = 1.0
    original_length: int = 0
    attention_factor: float | None = None  # yarn, longrope: multiplies cos and sin
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0
    short_factor: tuple[float, ...] = ()  # longrope
    long_factor: tuple[float, ...] = ()


@dataclass(frozen=True)
class RotaryConfig:
    theta: float = 10000.0
    share: float = 1.0  # of each head's numbers that turn; the rest stay as they are
    scaling: RotaryScaling | None = None


class Rotary:
    """cos and sin for a set of positions. Not a module: it has no weights, and its table follows the device."""

    def __init__(self, head_size: int, config: RotaryConfig):
        self.size = int(head_size * config.share)
        self.config = config
        self._tables: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __call__(self, positions: Tensor, max_position: int, *, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """(batch, length) positions, each below `max_position` → cos, sin of shape (batch, 1, length, size/2)."""
        scaling = self.config.scaling
        if scaling is not None and scaling.kind in ("dynamic", "longrope"):  # angles depend on each row's length
            cos, sin = self._turns(positions.float(), positions.amax(-1) + 1)
        else:
            cos, sin = self._table(positions, max_position)
        return cos[:, None].to(dtype), sin[:, None].to(dtype)

    def _table(self, positions: Tensor, max_position: int) -> tuple[Tensor, Tensor]:
        table = self._tables.get(positions.device)
        if table is None or len(table[0]) < max_position:
            count = max(512, 2 * max_position)
            table = self._turns(torch.arange(count, dtype=torch.float32, device=positions.device), None)
            self._tables[positions.device] = table
        return table[0][positions], table[1][positions]

    def _turns(self, positions: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        frequencies, factor = rotary_frequencies(self.size, self.config, lengths=lengths)
        frequencies = frequencies.to(positions.device)  # (size/2), or (batch, size/2)
        angle = positions[..., None] * (frequencies if frequencies.ndim == 1 else frequencies[:, None])
        return angle.cos() * factor, angle.sin() * factor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the pair (x[i], x[i + size/2]) by its angle; numbers past `size` are left alone. x: (…, length, head)."""
    return _Rotate.apply(x, cos, sin, 1.0)


class _Rotate(torch.autograd.Function):
    """What turns a gradient is the same turn the other way round."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, way: float) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.way = way
        half = cos.shape[-1]
        a, b = x[..., :half], x[..., half : 2 * half]
        turned = torch.empty_like(x)
        torch.mul(a, cos, out=turned[..., :half]).addcmul_(b, sin, value=-way)
        torch.mul(b, cos, out=turned[..., half : 2 * half]).addcmul_(a, sin, value=way)
        turned[..., 2 * half :] = x[..., 2 * half :]
        return turned

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        return _Rotate.apply(g, *ctx.saved_tensors, -ctx.way), None, None, None


def rotary_frequencies(size: int, config: RotaryConfig, *, lengths: Tensor | None = None) -> tuple[Tensor, float]:
    """(frequencies, factor on cos and sin). Frequencies are (size/2), or one set a row, (batch, size/2), for the kinds
    whose angles depend on the row's length."""
    scaling, theta = config.scaling, config.theta
    steps = torch.arange(0, size, 2, dtype=torch.float32) / size
    plain = 1.0 / theta**steps
    if scaling is None:
        return plain, 1.0
    if scaling.kind == "linear":
        return plain / scaling.factor, 1.0
    if scaling.kind in ("dynamic", "longrope"):
        assert lengths is not None
        long = lengths.cpu()[:, None]  # (batch, 1)
        if scaling.kind == "longrope":
            factors = torch.where(
                long > scaling.original_length, torch.tensor(scaling.long_factor), torch.tensor(scaling.short_factor)
            )
            return plain / factors, _longrope_factor(scaling)
        stretch = scaling.factor * long.clamp(min=scaling.original_length) / scaling.original_length
        return 1.0 / (theta * (stretch - scaling.factor + 1) ** (size / (size - 2))) ** steps, 1.0
    if scaling.kind == "llama3":
        return _llama3(plain, scaling), 1.0
    return _yarn(plain, size, theta, scaling)


def _longrope_factor(scaling: RotaryScaling) -> float:
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    if scaling.factor <= 1:
        return 1.0
    return math.sqrt(1 + math.log(scaling.factor) / math.log(scaling.original_length))


def _llama3(plain: Tensor, scaling: RotaryScaling) -> Tensor:
    """Long waves are stretched, short ones kept, those between blended."""
    waves = 2 * math.pi / plain
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    blend = ((scaling.original_length / waves - low) / (high - low)).clamp(0, 1)  # 0 = stretch fully, 1 = keep
    return (1 - blend) * plain / scaling.factor + blend * plain


def _yarn(plain: Tensor, size: int, theta: float, scaling: RotaryScaling) -> tuple[Tensor, float]:
    def dimension(turns: float) -> float:  # the pair that makes `turns` full turns over the original length
        return size * math.log(scaling.original_length / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    if low == high:
        high += 0.001
    stretch = ((torch.arange(size // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)

    def mscale(weight: float) -> float:
        return 0.1 * weight * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0

    factor = scaling.attention_factor
    if factor is None and scaling.mscale and scaling.mscale_all_dim:
        factor = mscale(scaling.mscale) / mscale(scaling.mscale_all_dim)
    return plain / scaling.factor * stretch + plain * (1 - stretch), mscale(1.0) if factor is None else factor


# ---------------------------------------------------------------------------------------- added to the scores


@dataclass(frozen=True)
class RelativeBiasConfig:
    buckets: int = 32
    max_distance: int = 128


class RelativeBias(nn.Module):
    """T5's learned bias per head and distance bucket (Raffel et al. 2020): half the buckets are exact distances, the
    other half widen logarithmically up to `max_distance`; shared by all layers of a stack."""

    def __init__(self, heads: int, config: RelativeBiasConfig, *, causal: bool):
        super().__init__()
        self.table = TokenTable(config.buckets, heads)
        self.config, self.causal = config, causal

    def forward(self, queries: int, keys: int) -> Tensor:  # → (1, head, query, key)
        device = self.table.weight.device
        query = torch.arange(keys - queries, keys, device=device)[:, None]
        key = torch.arange(keys, device=device)[None, :]
        return self.table(self.bucket(key - query)).permute(2, 0, 1)[None]

    def bucket(self, distance: Tensor) -> Tensor:
        """`distance` is key position - query position."""
        if self.causal:
            buckets, side, distance = self.config.buckets, torch.zeros_like(distance), (-distance).clamp(min=0)
        else:
            buckets = self.config.buckets // 2
            side, distance = (distance > 0).long() * buckets, distance.abs()
        exact = buckets // 2
        ratio = torch.log(distance.float().clamp(min=1) / exact) / math.log(self.config.max_distance / exact)
        share = ratio.nan_to_num(1.0).clamp(0, 1)  # without end where max_distance is no further than what is exact
        wide = (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1)
        return side + torch.where(distance < exact, distance, wide)


def alibi_slopes(heads: int) -> Tensor:
    """Geometric slopes 2^(-8/n)… (Press et al. 2022); for a head count that is no power of two, the next one's
    every other slope fills up."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(slopes)


def alibi_bias(heads: int, *, queries: int, keys: int, device: torch.device) -> Tensor:  # → (1, head, query, key)
    """-slope × distance."""
    query = torch.arange(keys - queries, keys, device=device)[:, None]
    key = torch.arange(keys, device=device)[None, :]
    return -alibi_slopes(heads).to(device)[None, :, None, None] * (query - key).abs()
