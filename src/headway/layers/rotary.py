"""Rotary positions (Su et al. 2021), half-split: pairs of numbers of each query and key are rotated by an angle that
grows with the position; and the ways in which models stretch the angles past the length they were trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from headway.layers.positions import Positions
from headway.layers.replaceable import replaceable


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

    def problem(self, size: int) -> str | None:
        """As `RotaryConfig.problem`, for `size` rotated numbers."""
        least, most = 1e-3, 1e6
        for name in ("factor", "beta_fast", "beta_slow"):
            if not least <= getattr(self, name) <= most:
                return f"{name} is {getattr(self, name)}: it must be from {least} to {most:.0f}"
        for name in ("mscale", "mscale_all_dim"):
            if (getattr(self, name) or 0) < 0:
                return f"{name} is {getattr(self, name)}: it must not be negative"
        if self.kind in ("dynamic", "yarn", "longrope") and self.original_length < 2:
            return f"original_length is {self.original_length}: it must be at least 2"
        if self.kind == "dynamic" and size < 4:
            return f"kind is dynamic: it needs at least 4 rotated numbers, not {size}"
        if self.kind == "llama3" and not self.high_freq_factor > self.low_freq_factor > 0:
            return f"high_freq_factor is {self.high_freq_factor}: it must be above low_freq_factor, which is above 0"
        for name in ("short_factor", "long_factor"):
            if self.kind == "longrope" and len(getattr(self, name)) != size // 2:
                return f"{name} has {len(getattr(self, name))} numbers: it must have {size // 2}, one a pair"
        return None


@dataclass(frozen=True)
class RotaryConfig:
    theta: float = 10000.0
    share: float = 1.0  # of each head's numbers that are rotated; the rest stay as they are
    scaling: RotaryScaling | None = None

    @property
    def depends_on_length(self) -> bool:
        """Whether the angles of a token change with the length of its row."""
        return self.scaling is not None and self.scaling.kind in ("dynamic", "longrope")

    def problem(self, head_size: int) -> str | None:
        """Why no angles follow from these values, or None; the first words are the field."""
        if not self.theta > 1:
            return f"theta is {self.theta}: it must be above 1"
        if not 0 < self.share <= 1:
            return f"share is {self.share}: it must be above 0 and at most 1"
        size = int(head_size * self.share)
        if size < 2 or size % 2:
            return f"share is {self.share}: {size} of the {head_size} numbers of a head cannot be rotated in pairs"
        problem = None if self.scaling is None else self.scaling.problem(size)
        return problem and f"scaling.{problem}"


class Rotary:
    """cos and sin for a set of positions. Not a module: it has no weights, and its table follows the device."""

    def __init__(self, head_size: int, config: RotaryConfig):
        self.size = int(head_size * config.share)
        self.config = config
        self._tables: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __call__(self, positions: Positions, *, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin, (batch or 1, 1, query, size/2)."""
        ids = positions.ids
        if self.config.depends_on_length:
            cos, sin = self._cos_sin(ids.float(), ids.amax(-1) + 1)
        elif positions.max_position is None:
            cos, sin = self._cos_sin(ids.float(), None)
        else:
            cos, sin = self._table(ids, positions.max_position)
        return cos[:, None].to(dtype), sin[:, None].to(dtype)

    def _table(self, ids: Tensor, max_position: int) -> tuple[Tensor, Tensor]:
        table = self._tables.get(ids.device)
        if table is None or len(table[0]) < max_position:
            count = max(512, 2 * max_position)
            table = self._cos_sin(torch.arange(count, dtype=torch.float32, device=ids.device), None)
            self._tables[ids.device] = table
        return table[0][ids], table[1][ids]

    def _cos_sin(self, positions: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        angles, factor = self.angles(positions, lengths)
        return angles.cos() * factor, angles.sin() * factor

    def angles(self, positions: Tensor, lengths: Tensor | None) -> tuple[Tensor, float]:
        """(angles in radians, (…, size/2), and the factor on cos and sin) of positions (…); `lengths` (batch) where the
        angles depend on the length of the row."""
        frequencies, factor = rotary_frequencies(self.size, self.config, lengths=lengths)
        frequencies = frequencies.to(positions.device)  # (size/2), or (batch, size/2)
        return positions[..., None] * (frequencies if frequencies.ndim == 1 else frequencies[:, None]), factor


@replaceable
def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the pair (x[i], x[i + size/2]) by its angle; numbers past `size` are copied. x: (…, length, d_k)."""
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1)


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
        plain, steps = plain.to(lengths.device), steps.to(lengths.device)
        long = lengths[:, None]  # (batch, 1)
        if scaling.kind == "longrope":
            longer, shorter = plain.new_tensor(scaling.long_factor), plain.new_tensor(scaling.short_factor)
            factors = torch.where(long > scaling.original_length, longer, shorter)
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
