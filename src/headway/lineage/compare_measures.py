"""What a comparison measures besides scores: cost against length, how far gradients reach, alignments, speed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.bundle import Bundle
from headway.data.row import Row
from headway.explain.choices import vocabulary
from headway.explain.model_map import attentions
from headway.inspect import record
from headway.inspect.parts import eval_mode
from headway.models.protocol import Model
from headway.tasks.task import Task

LENGTHS = (32, 64, 128, 256, 512, 1024)
REPEATS = 3
GRADIENT_TOKENS = 128
SPEED_INPUTS = 32


def inputs_of_length(model: Model, length: int, *, seed: int = 0) -> dict[str, Tensor]:
    """Random tokens; for an encoder-decoder as many in the target as in the source."""
    generator = torch.Generator().manual_seed(seed)
    vocab = model.vocab_size or 1
    ids = torch.randint(vocab, (1, length), generator=generator)
    return {"inputs": ids, "decoder_ids": ids} if model.reads_source else {"inputs": ids}


def cost_by_length(model: Model) -> list[dict[str, float]]:
    """Milliseconds of a forward pass, and MiB of values that training keeps for the backward pass, by length. Lengths
    that the model cannot read are left out."""
    out = []
    with eval_mode(model):
        for length in LENGTHS:
            if length > min(model.max_length or length, model.max_context or length):
                break
            inputs = inputs_of_length(model, length)
            times = []
            for _ in range(REPEATS):
                began = time.perf_counter()
                with torch.no_grad():
                    model(**inputs)
                times.append(time.perf_counter() - began)
            out.append({"length": length, "ms": 1e3 * min(times), "mib": kept_bytes(model, inputs) / 2**20})
    return out


def kept_bytes(model: nn.Module, inputs: dict[str, Tensor]) -> int:
    """Bytes that autograd keeps of a forward pass, each storage once, without the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(**inputs)
    del output
    return sum(kept.values())


def gradient_by_distance(model: Model) -> list[float]:
    """The norm of the gradient that the last logits send to the embedding of the token d places back, for d = 0, 1, …,
    relative to the largest. In an encoder-decoder the distance is to the end of the source."""
    length = min(GRADIENT_TOKENS, model.max_length or GRADIENT_TOKENS, model.max_context or GRADIENT_TOKENS)
    front = model.parts[0].model.embedding if model.parts else model.embedding
    seen: list[Tensor] = []

    def listen(module: nn.Module, args: Any, output: Any) -> None:
        output.x.retain_grad()
        seen.append(output.x)

    handle = front.register_forward_hook(listen)
    total = torch.zeros(length)
    try:
        with eval_mode(model), torch.enable_grad():
            for seed in range(4):
                seen.clear()
                inputs = inputs_of_length(model, length, seed=seed)
                if model.reads_source:
                    inputs["decoder_ids"] = inputs["decoder_ids"][:, :1]
                logits = model(**inputs).logits
                assert logits is not None
                last = logits.flatten(0, -2)[-1]
                last.log_softmax(-1).max().backward()
                grad = seen[0].grad
                assert grad is not None
                total += grad[0].norm(dim=-1).flip(0)
    finally:
        handle.remove()
        model.zero_grad(set_to_none=True)
    return (total / total.max().clamp(min=1e-30)).tolist()


def alignment(bundle: Bundle, task: Task, row: Row) -> dict[str, Any] | None:
    """The weights with which each token of the reference attends to the source, of the last layer, averaged over its
    heads; None without such attention."""
    model = bundle.model
    if not model.reads_source:
        return None
    taps = [f"{layer.name}.weights" for layer in attentions(model) if layer.cross]
    if not model.parts:
        taps = ["cross.weights"] if getattr(model, "cross", None) is not None else []
    if not taps:
        return None
    (example,) = task.examples(row)
    inputs = task.collate([example], seeds=[()], where=[""]).inputs
    with eval_mode(model), torch.no_grad(), record(model, taps[-1]) as found:
        model(**inputs)
    weights = found[taps[-1]][0][0].mean(0)  # (target, source)
    return {
        "weights": np.round(weights.numpy(), 4).tolist(),
        "source": vocabulary(task.tokenizer)(example["source"].tolist()),
        "target": vocabulary(task.tokenizer)(example["target"].tolist()),
    }


def prediction_speed(task: Task, model: Model, rows: Sequence[Row]) -> dict[str, float]:
    """Predictions a second, and for generated texts tokens a second."""
    if task.stream:
        inputs, options = [row.fields["text"][:60] for row in rows[:8]] or ["a"], {"max_new_tokens": 50}
    else:
        inputs, options = [task.model_input(row) for row in rows[:SPEED_INPUTS]], {}
    began = time.perf_counter()
    found = task.predict(model, inputs, **options)
    seconds = time.perf_counter() - began
    out = {"examples": len(inputs) / seconds}
    if task.prediction_kind.generates:
        out["tokens"] = sum(len(task.tokenizer.encode(text, special=False)) for text in found) / seconds
    return out
