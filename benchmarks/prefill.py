"""Prefill of 512 tokens, up to the first new token, against transformers and llama.cpp (f32 and Q8_0): the
same 134M weights of LLaMA's shape, interleaved, two threads for all.

    python -m benchmarks.prefill [--weights int8]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

import headway
from benchmarks.models import VOCAB, llama_134m, saved_model
from benchmarks.peers import llama_cpp_peers
from benchmarks.timing import interleaved, row
from headway.engine.measure import flop_speed, read_flops
from headway.generation import GenerationSettings, generate


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--weights", help="headway's weight format: int8, bf16, …; default: fp32")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with saved_model(llama_134m) as (folder, reference):
        ours = headway.load(folder, weights=options.weights)
        ids = torch.randint(VOCAB, (options.tokens,)).tolist()
        one = GenerationSettings(max_new_tokens=1)
        jobs: dict[str, Callable[[], object]] = {
            "transformers": lambda: reference(torch.tensor([ids]), logits_to_keep=1).logits.argmax(),
            "headway": lambda: generate(ours.model, [ids], one),  # type: ignore[arg-type]
        }
        peers = llama_cpp_peers(reference, folder, context=options.tokens)
        jobs |= {name: lambda p=peer: p.generate(ids, 1) for name, peer in peers.items()}
        times = interleaved(jobs, repeats=options.repeats, warmup=1)
    ratios = []
    for name in jobs:
        if name != "headway":
            line, ratio = row(f"prefill {options.tokens}", times, peer=name, ours="headway")
            ratios.append(f"{name} {ratio:.2f}")
            print(line)
    done = read_flops(ours.config.stack, options.tokens) / min(times["headway"])  # type: ignore[union-attr]
    limit = flop_speed(torch.device("cpu"))
    print(f"headway {options.tokens / min(times['headway']):.0f} tokens/s, {done / 1e9:.0f} GFLOP/s = "
          f"{done / limit:.0%} of the fp32 product's {limit / 1e9:.0f}")  # fmt: skip
    print(f"ratio {', '.join(ratios)}")


if __name__ == "__main__":
    main()
