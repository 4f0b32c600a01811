"""Muon (Jordan et al. 2024): momentum whose update is replaced by the nearest semi-orthogonal matrix, so that all
singular directions of a weight matrix are updated by the same amount.

The orthogonal factor UVᵀ of an update USVᵀ is approximated by four odd quintic polynomials in the singular values, each
optimal for the interval left by the one before (Polar Express, Amsel et al. 2025). The coefficients below are solved
for singular values in [0.003, 1]; the result is in [0.77, 1.22]. Four are enough, instead of the usual five, because of
a tighter bound on the largest singular value: the eighth root of Σσ⁸, computed from the square of the Gram matrix that
the first quintic needs anyway, instead of the Frobenius norm.

On a CPU it is fast for three reasons: matrices of one shape are one batched product; for a matrix that is not square
the polynomials are applied to its Gram matrix, which has the smaller side (half the work at 1:4); and products are
written into preallocated buffers. It computes in float32, since bfloat16 is emulated on most CPUs. On CUDA it computes
in bfloat16, which is too coarse for the Gram matrix, so every shape uses the plain iteration there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headway.errors import ConfigError
from headway.training.eager import Optimizer

QUINTICS = (
    (8.1383, -22.7182, 16.3293),
    (3.9674, -2.8383, 0.5228),
    (3.5016, -2.5739, 0.5037),
    (2.5118, -1.8244, 0.4229),
)
ROUNDING = 1.01  # keeps the largest singular value below 1 when the bound is tight
TINY = 1e-18  # an update of a smaller norm counts as zero


class Orthogonalizer:
    """Approximates UVᵀ for a stack of matrices of one shape. Owns its buffers and the result it returns."""

    def __init__(self, count: int, rows: int, columns: int, *, device: torch.device, dtype: torch.dtype):
        side = min(rows, columns)
        empty = partial(torch.empty, device=device, dtype=dtype)
        self.tall = rows > columns
        self.through_gram = rows != columns and dtype != torch.bfloat16
        self.x, self.y = (empty(count, rows, columns) for _ in range(2))
        self.gram, self.polynomial = (empty(count, side, side) for _ in range(2))  # (matrix, side, side)
        if self.through_gram:
            self.factor, self.spare = torch.empty_like(self.gram), torch.empty_like(self.gram)

    def __call__(self) -> Tensor:
        """Orthogonalise `x`, which the caller has filled. The result is overwritten by the next call."""
        scale = self._first_polynomial()
        return self._through_gram(scale) if self.through_gram else self._plain(scale)

    def _first_polynomial(self) -> Tensor:
        """Compute `gram` of the scaled matrix and `polynomial` = b·gram + c·gram². Returns the scale."""
        norm = torch.linalg.vector_norm(self.x, dim=(1, 2), keepdim=True, dtype=torch.float32).clamp_min(TINY)
        if self.through_gram:  # the matrix is scaled at the end, by the factor it is multiplied with
            self._multiply_gram().mul_(norm.square().reciprocal())
        else:
            self.x.div_(norm)
            self._multiply_gram()
        torch.bmm(self.gram, self.gram, out=self.polynomial)
        fourth = torch.linalg.vector_norm(self.polynomial, dim=(1, 2), keepdim=True, dtype=torch.float32)  # √Σσ⁸
        square = fourth.clamp_min(TINY).sqrt().mul_(ROUNDING**2)  # of the bound on the largest singular value
        _, b, c = QUINTICS[0]
        self.gram.div_(square)
        self.polynomial.mul_(c / square.square()).add_(self.gram, alpha=b)
        return square.rsqrt_().div_(norm) if self.through_gram else square.rsqrt_()

    def _multiply_gram(self) -> Tensor:
        x = self.x
        return torch.bmm(x.mT, x, out=self.gram) if self.tall else torch.bmm(x, x.mT, out=self.gram)

    def _next_polynomial(self, b: float, c: float) -> None:
        torch.baddbmm(self.gram, self.gram, self.gram, beta=b, alpha=c, out=self.polynomial)

    def _plain(self, scale: Tensor) -> Tensor:
        """Four iterations of x ← a·x + (b·xxᵀ + c·(xxᵀ)²)·x."""
        self.x.mul_(scale)
        for step, (a, b, c) in enumerate(QUINTICS):
            if step:
                self._multiply_gram()
                self._next_polynomial(b, c)
            left, right = (self.x, self.polynomial) if self.tall else (self.polynomial, self.x)
            torch.baddbmm(self.x, left, right, beta=a, out=self.y)
            self.x, self.y = self.y, self.x
        return self.x

    def _through_gram(self, scale: Tensor) -> Tensor:
        """The same iterations on the Gram matrix: P = a + b·gram + c·gram²; factor ← P·factor; gram ← P·gram·P."""
        for step, (a, b, c) in enumerate(QUINTICS):
            if step:
                self._next_polynomial(b, c)
            self.polynomial.diagonal(dim1=1, dim2=2).add_(a)
            if step:
                torch.bmm(self.polynomial, self.factor, out=self.spare)
                self.factor, self.spare = self.spare, self.factor
            else:
                torch.mul(self.polynomial, scale, out=self.factor)
            if step + 1 < len(QUINTICS):
                torch.bmm(self.polynomial, self.gram, out=self.spare)
                torch.bmm(self.spare, self.polynomial, out=self.gram)
        left, right = (self.x, self.factor) if self.tall else (self.factor, self.x)
        return torch.bmm(left, right, out=self.y)


class Muon(Optimizer):
    """For hidden weight matrices only; use AdamW for embeddings, heads, norms and biases.

    The orthogonal update is scaled by √max(1, rows/columns), Jordan's convention: it changes an output by about the
    same amount for every shape, so one learning rate (usually 0.02) fits every matrix and width. It is not comparable
    with Adam's learning rate. Weight decay is decoupled: p ← p·(1 − lr·decay).
    """

    def __init__(
        self,
        params: Any,
        *,
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._orthogonalizers: dict[tuple[int, torch.Size, torch.device], Orthogonalizer] = {}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            if parameter.ndim != 2 or parameter.dtype != torch.float32:
                raise ConfigError(
                    f"Muon takes float32 matrices, not a {parameter.dtype} tensor of shape {tuple(parameter.shape)}; "
                    "use AdamW for it"
                )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            same: dict[tuple[torch.Size, torch.device], list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    same.setdefault((parameter.shape, parameter.device), []).append(parameter)
            for parameters in same.values():
                self._step_stack(parameters, **{key: group[key] for key in ("lr", "momentum", "weight_decay")})
        return loss

    def _step_stack(self, parameters: list[Tensor], *, lr: float, momentum: float, weight_decay: float) -> None:
        momenta = [self._momentum(parameter) for parameter in parameters]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        orthogonalize = self._orthogonalizer(len(parameters), parameters[0])
        updates = list(orthogonalize.x.unbind())
        torch._foreach_lerp_(momenta, gradients, 1 - momentum)
        if orthogonalize.x.dtype == torch.float32:
            for gradient, average, update in zip(gradients, momenta, updates, strict=True):
                torch.lerp(gradient, average, momentum, out=update)  # Nesterov momentum
        else:
            torch._foreach_copy_(updates, torch._foreach_lerp(gradients, momenta, momentum))
        if weight_decay:
            torch._foreach_mul_(parameters, 1 - lr * weight_decay)
        rows, columns = parameters[0].shape
        torch._foreach_add_(parameters, list(orthogonalize().unbind()), alpha=-lr * max(1, rows / columns) ** 0.5)

    def _momentum(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        return state["momentum"]

    def _orthogonalizer(self, count: int, like: Tensor) -> Orthogonalizer:
        """The cached orthogonalizer of `count` matrices of one shape."""
        shape, device = like.shape, like.device
        key = count, shape, device
        if key not in self._orthogonalizers:
            dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
            self._orthogonalizers[key] = Orthogonalizer(count, *shape, device=device, dtype=dtype)
        return self._orthogonalizers[key]


def orthogonalize(matrices: Tensor) -> Tensor:
    """Approximate orthogonal factors, in float32, of matrices of shape (matrix, row, column) or (row, column)."""
    stack = matrices.reshape(-1, *matrices.shape[-2:])
    work = Orthogonalizer(*stack.shape, device=stack.device, dtype=torch.float32)
    work.x.copy_(stack)
    return work().view_as(matrices)
