"""Greedy decoding beside transformers, llama.cpp (f32 and Q8_0) and CTranslate2 (int8): the same 134M weights of
LLaMA's shape, interleaved, two threads for all. One prompt, and eight of different lengths in one batch.

    python -m benchmarks.decode [--new 128] [--batch 8]

Each line gives the share of the measured memory bandwidth that the weights alone need: the limit for one prompt.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

import headway
from benchmarks.models import VOCAB, llama_134m, saved_model
from benchmarks.peers import ctranslate2_peers, llama_cpp_peers, word
from benchmarks.timing import interleaved
from headway.engine import prepare, release
from headway.engine.measure import memory_speed, step_bytes
from headway.generation import GenerationSettings, generate

PLAIN, ENGINE, BF16, INT8 = "headway fp32 plain", "headway fp32", "headway bf16", "headway int8"
COMPARISONS = [
    ("transformers", ENGINE),
    ("llama.cpp f32", ENGINE),
    ("llama.cpp Q8_0", INT8),
    (PLAIN, ENGINE),
]


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--new", type=int, default=128, help="tokens to generate")
    parser.add_argument("--prompt", type=int, default=16, help="tokens of the prompt")
    parser.add_argument("--batch", type=int, default=8, help="prompts of different lengths, in the second table")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with saved_model(llama_134m) as (folder, reference):
        ours = models(folder)
        noise = torch.Generator().manual_seed(0)
        lengths = [options.prompt * (1 + i) for i in range(options.batch)]
        one, many = ([torch.randint(1, VOCAB, (n,), generator=noise).tolist() for n in some]
                     for some in ([options.prompt], lengths))  # fmt: skip
        speed = memory_speed(torch.device("cpu"))
        print(f"one prompt of {options.prompt} tokens, {options.new} generated; memory {speed / 1e9:.1f} GB/s, "
              f"{torch.get_num_threads()} threads")  # fmt: skip
        jobs: dict[str, Callable[[], object]] = {
            "transformers": lambda: transformers_generate(reference, one, options.new)
        }
        cpp = llama_cpp_peers(reference, folder, context=options.prompt + options.new)
        jobs |= {name: lambda p=peer: p.generate(one[0], options.new) for name, peer in cpp.items()}
        jobs |= {name: lambda m=model: headway_generate(m, one, options.new) for name, model in ours.items()}
        times = interleaved(jobs, repeats=options.repeats, warmup=1)
        for name, seconds in times.items():
            moved = step_bytes(ours[name], past=options.prompt, source=0) if name in ours else None
            report(name, seconds, tokens=options.new, share=moved and moved * options.new / min(seconds) / speed)
        print(f"\n{options.batch} prompts of {lengths[0]} to {lengths[-1]} tokens, {options.new} generated for each")
        jobs = {"transformers": lambda: transformers_generate(reference, many, options.new)}
        jobs |= {n: lambda m=ours[n]: headway_generate(m, many, options.new) for n in (PLAIN, ENGINE, INT8)}
        batched = interleaved(jobs, repeats=options.repeats, warmup=1)
        for name, seconds in batched.items():
            report(name, seconds, tokens=options.new * options.batch)
        with_ctranslate2 = compare_with_ctranslate2(
            reference, folder, ours[INT8], one, options.new, repeats=options.repeats
        )
    ratios = [
        f"{mine} / {peer} {min(times[peer]) / min(times[mine]):.2f}" for peer, mine in COMPARISONS if peer in times
    ]
    ratios += [
        f"batch {mine} / transformers {min(batched['transformers']) / min(batched[mine]):.2f}"
        for mine in (ENGINE, INT8)
    ]
    ratios += [
        f"{INT8} / {peer} {min(with_ctranslate2[peer]) / min(with_ctranslate2[INT8]):.2f}"
        for peer in with_ctranslate2
        if peer != INT8
    ]
    print("ratio " + ", ".join(ratios))


def compare_with_ctranslate2(
    reference: transformers.LlamaForCausalLM, folder: Path, model: Any, prompts: list[list[int]], new: int, repeats: int
) -> dict[str, list[float]]:
    """Separately and last: its threads slow down everything else in the process."""
    peers = ctranslate2_peers(reference, folder, "CTranslate2 int8")
    if not peers:
        return {}
    print("\none prompt again, beside CTranslate2")
    jobs: dict[str, Callable[[], object]] = {INT8: lambda: headway_generate(model, prompts, new)}
    jobs |= {name: lambda p=peer: ctranslate2_generate(p, prompts, new) for name, peer in peers.items()}
    times = interleaved(jobs, repeats=repeats, warmup=1)
    for name, seconds in times.items():
        report(name, seconds, tokens=new)
    return times


def models(folder: Path) -> dict[str, Any]:
    made = {name: headway.load(folder).model for name in (PLAIN, ENGINE, BF16, INT8)}
    release(made[PLAIN])
    prepare(made[ENGINE])
    prepare(made[BF16], "bf16")
    prepare(made[INT8], "int8")
    return made


def headway_generate(model: Any, prompts: list[list[int]], new: int) -> None:
    generate(model, prompts, GenerationSettings(max_new_tokens=new, speculate=False))


def transformers_generate(model: transformers.LlamaForCausalLM, prompts: list[list[int]], new: int) -> None:
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in prompts])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts])
    model.generate(ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0)


def ctranslate2_generate(peer: Any, prompts: list[list[int]], new: int) -> None:
    words = [[word(token) for token in prompt] for prompt in prompts]
    found = peer.generate_batch(words, max_length=new, min_length=new, sampling_topk=1, include_prompt_in_result=False)
    assert all(len(answer.sequences_ids[0]) == new for answer in found)


def report(name: str, seconds: list[float], *, tokens: int, share: float | None = None) -> None:
    suffix = "" if share is None else f"   {share:4.0%} of the bandwidth"
    best, median = tokens / min(seconds), tokens / statistics.median(seconds)
    print(f"{name:<20} {best:8.1f} tokens/s (median {median:8.1f}){suffix}", flush=True)


if __name__ == "__main__":
    main()
