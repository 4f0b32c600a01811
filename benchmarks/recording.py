"""What recording costs: BERT-base- and GPT-2-shaped passes with nothing recorded, one layer's weights, and more.

    python -m benchmarks.recording

Passes take turns. `nothing` is the same pass after a recording has ended; its hooks are gone, so it is the plain pass.
The last lines say what the taps themselves cost when nobody listens (their calls, against the whole pass), and the
largest ratios: of `nothing`, and of `one layer`, to the plain pass by the best times.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.timing import interleaved
from headway.families import find
from headway.families.family import Keys
from headway.inspect import record
from headway.inspect.parts import taps_of
from headway.layers.tap import Tap
from headway.models.build import build

SHAPES = [(1, 32), (8, 128), (2, 512)]
BERT = {"model_type": "bert", "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072,
        "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu",
        "layer_norm_eps": 1e-12}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
LAYER = "stack.blocks.{}.attention.weights"


def models(layers: int) -> dict[str, nn.Module]:
    torch.manual_seed(0)
    bert = find("bert").read(Keys(BERT | {"num_hidden_layers": layers}), "BertModel")
    gpt2 = find("gpt2").read(Keys(GPT2 | {"n_layer": layers}), "GPT2LMHeadModel")
    return {"bert": build(bert).eval(), "gpt2": build(gpt2).eval()}


def passes(model: nn.Module, ids: Tensor, layer: int) -> dict[str, Callable[[], object]]:
    def run(names: str | None = None, **narrow: Any) -> Callable[[], object]:
        def job() -> object:
            with nullcontext() if names is None else record(model, names, **narrow):
                return model(ids)

        return job

    one = LAYER.format(layer)
    return {
        "plain": run(),
        "one layer": run(one),
        "nothing": run(),
        "one head, one query": run(one, heads=[0], queries=[-1]),
        "every layer": run("*.weights"),
    }


def silent_taps(model: nn.Module, calls: int = 100_000) -> float:
    """Seconds that the taps of one pass take when nobody listens."""
    tap, value = Tap(), torch.zeros(1)
    began = time.perf_counter()
    for _ in range(calls):
        tap(value)
    return (time.perf_counter() - began) / calls * len(taps_of(model))


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    worst = {"nothing": 0.0, "one layer": 0.0}
    for name, model in models(options.layers).items():
        for batch, length in SHAPES:
            ids = torch.randint(5, 20000, (batch, length))
            times = interleaved(passes(model, ids, options.layers // 2), repeats=options.repeats)
            best = {job: min(seconds) for job, seconds in times.items()}
            ratios = {job: seconds / best["plain"] for job, seconds in best.items()}
            shown = "   ".join(f"{job} {ratio:.3f}x" for job, ratio in ratios.items() if job != "plain")
            print(f"{name} {batch}x{length:<4} plain {best['plain'] * 1e3:8.1f} ms   {shown}", flush=True)
            worst = {job: max(most, ratios[job]) for job, most in worst.items()}
            share = silent_taps(model) / best["plain"]
            print(f"{'':<12} {len(taps_of(model))} taps, nobody listening: {share:.2%} of the pass", flush=True)
    print(f"ratio nothing {worst['nothing']:.3f} one layer {worst['one layer']:.3f}")


if __name__ == "__main__":
    main()
