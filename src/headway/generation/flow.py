"""Noise → images by rectified flow (Liu et al. 2023): Euler steps along the velocity that a model predicts.

Classifier-free guidance (Ho & Salimans 2022) moves the velocity away from the one for the empty caption:
v = v_empty + guidance · (v_caption − v_empty).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

Velocity = Callable[[Tensor, Tensor], Tensor]  # images (batch, …) and times (batch,) → velocities (batch, …)
OnStep = Callable[[int, Tensor], object]  # the number of steps so far, and the images after them


class FlowNetwork(Protocol):
    """What a model of a flow has: an encoder of captions, and the velocity for encoded captions."""

    encoder: Any
    denoiser: Any


def integrate(velocity: Velocity, noise: Tensor, *, steps: int, on_step: OnStep | None = None) -> Tensor:
    """From time 0 (noise) to time 1 (images) in Euler steps of equal size."""
    x = noise
    for step in range(steps):
        time = torch.full((len(x),), step / steps, device=x.device, dtype=x.dtype)
        x = x + velocity(x, time) / steps
        if on_step is not None:
            on_step(step + 1, x)
    return x


def guided_velocity(
    model: FlowNetwork, captions: Tensor, empty: Tensor, *, padding_mask: Tensor | None, guidance: float
) -> Velocity:
    """`captions` are token ids (batch, source) with their padding mask; `empty` (source) is the empty caption."""
    if guidance != 1:
        captions, padding_mask = _with_empty(captions, empty, padding_mask)
    memory = model.encoder.encode(captions, padding_mask=padding_mask)  # (batch or 2 · batch, source, width)

    def velocity(images: Tensor, time: Tensor) -> Tensor:
        if guidance == 1:
            return model.denoiser(images, time=time, memory=memory, memory_padding_mask=padding_mask).velocity
        both = model.denoiser(
            images.repeat(2, 1, 1, 1), time=time.repeat(2), memory=memory, memory_padding_mask=padding_mask
        ).velocity
        with_caption, without = both.chunk(2)
        return torch.lerp(without, with_caption, guidance)

    return velocity


def _with_empty(captions: Tensor, empty: Tensor, padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The captions, and below them as many empty ones."""
    rows, length = captions.shape
    real = torch.ones_like(captions, dtype=torch.bool) if padding_mask is None else padding_mask.bool()
    longest = max(length, len(empty))
    ids = captions.new_zeros(2 * rows, longest)
    mask = torch.zeros(2 * rows, longest, dtype=torch.bool, device=captions.device)
    ids[:rows, :length], mask[:rows, :length] = captions, real
    ids[rows:, : len(empty)], mask[rows:, : len(empty)] = empty, True
    return ids, mask


def noise_of(seeds: Sequence[int], shape: Sequence[int], *, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(seed, *shape): the noise of each picture depends on its seed alone, not on the batch or the device."""
    each = [torch.randn(*shape, generator=torch.Generator().manual_seed(seed % 2**63)) for seed in seeds]
    return torch.stack(each).to(device, dtype)
