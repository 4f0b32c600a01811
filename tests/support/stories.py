"""Small untrained models of every shape to explain, and a check of any story's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from support.task_run import started

from headway.bundle import Bundle
from headway.explain import story
from headway.preprocess.processor import Processor


def bundle(name: str, *, rows: int = 40, **options: Any) -> Bundle:
    task, model, _ = started(name, rows=rows, **options)
    for parameter in model.parameters():
        if not parameter.any():  # zero at initialisation, so it would have no effect
            torch.nn.init.normal_(parameter, std=0.2)
    return Bundle(model, "headway", Processor(task.tokenizer), None, {}, task)


def computed_weights(each: story.Attention) -> np.ndarray:
    """softmax(q·k · scale + bias, where the mask allows), from the story's own vectors, in double precision."""
    assert each.q is not None and each.k is not None
    keys = np.repeat(each.k, each.heads // each.kv_heads, axis=0).astype(np.float64)
    scores = each.q.astype(np.float64) @ keys.transpose(0, 2, 1) * each.scale
    if each.bias is not None:
        scores = scores + each.bias
    scores = np.where(each.mask, scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def check_numbers(explained: story.Story) -> int:
    """Every weight is the softmax of its scores, every z the sum of its values; returns how many layers have both."""
    full = 0
    for each in explained.attention:
        weights = story.dequantize(each.weights)
        shape = len(explained.sequences[each.queries].tokens), len(explained.sequences[each.keys].tokens)
        assert weights.shape == (each.heads, *shape) and each.mask.shape == shape
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-4)
        assert (weights[:, ~each.mask] == 0).all()
        if each.q is None:
            continue
        full += 1
        np.testing.assert_allclose(weights, computed_weights(each), atol=1e-5)
        assert each.v is not None and each.z is not None
        values = np.repeat(each.v, each.heads // each.kv_heads, axis=0)
        np.testing.assert_allclose(each.z, computed_weights(each) @ values, atol=2e-5)
    return full
