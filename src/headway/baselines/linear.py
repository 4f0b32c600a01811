"""Linear models with an L2 penalty, by L-BFGS: multinomial logistic regression, one logistic regression a label, and
ridge regression. They differ in their loss alone. The intercepts are not penalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Kind = Literal["one", "several", "number"]
ITERATIONS = 150


@dataclass(frozen=True)
class LinearModel:
    weights: np.ndarray  # (feature, output)
    intercept: np.ndarray  # (output,)

    def __call__(self, inputs: Any) -> np.ndarray:
        """(row, output)"""
        return np.asarray(inputs @ self.weights) + self.intercept


def fit(
    inputs: Any, targets: np.ndarray, *, kind: Kind, strength: float, scales: np.ndarray | float = 1.0,
    iterations: int = ITERATIONS, tolerance: float = 1e-9,
) -> LinearModel:  # fmt: skip
    """`inputs` (row, feature), sparse or dense; `targets` (row, output): one 1 a row (`one`), any number of them
    (`several`), or numbers. Minimises the summed loss plus `strength`/2 · the squared weights: scikit-learn's C is
    1 / strength, its Ridge's alpha is strength (with the squared error halved on both sides). It ends where a step
    lowers the objective by less than this share (`tolerance`). With `scales` (feature, output) the penalty is that of
    the weights divided by them: those with a large scale may become large."""
    from scipy.optimize import minimize

    features, outputs = inputs.shape[1], targets.shape[1]
    transposed = inputs.T.tocsr() if hasattr(inputs, "tocsr") else inputs.T

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = flat.reshape(features + 1, outputs)
        weights = parameters[:-1]
        loss, residual = _loss(np.asarray(inputs @ (weights * scales)) + parameters[-1], targets, kind)
        gradient = np.empty_like(parameters)
        gradient[:-1] = (transposed @ residual) * scales
        gradient[:-1] += strength * weights
        gradient[-1] = residual.sum(0)
        return loss + strength / 2 * float((weights**2).sum()), gradient.ravel()

    start = np.zeros((features + 1, outputs))
    if kind == "number":
        start[-1] = targets.mean(0)
    options = {"maxiter": iterations, "maxcor": 8, "gtol": 1e-4 if kind != "number" else 1e-6, "ftol": tolerance}
    found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options=options).x
    found = found.reshape(features + 1, outputs)
    return LinearModel(found[:-1] * scales, found[-1])


def _loss(logits: np.ndarray, targets: np.ndarray, kind: Kind) -> tuple[float, np.ndarray]:
    """The summed loss, and its gradient by the logits."""
    if kind == "number":
        residual = logits - targets
        return float((residual**2).sum()) / 2, residual
    if kind == "several":
        loss = np.logaddexp(0.0, logits) - targets * logits
        return float(loss.sum()), 1 / (1 + np.exp(-np.clip(logits, -60, 60))) - targets
    shifted = logits - logits.max(1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return -float((targets * log_probs).sum()), np.exp(log_probs) * targets.sum(1, keepdims=True) - targets
