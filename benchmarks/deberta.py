"""DeBERTa-v3-base's shape against transformers: forward and forward + backward at 128 tokens, same weights and inputs,
interleaved, by processor time; then the peak memory of each in a process of its own.

    python -m benchmarks.deberta

Training has the dropout of the published config (0.1). The optimiser's step is not part of the training step: it is the
same work in both.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import torch
import transformers
from torch import nn

import headway
from benchmarks.timing import interleaved, row, use_threads
from headway import engine

PEER, OURS = "transformers", "headway"
V3 = dict(
    hidden_size=768, num_attention_heads=12, num_hidden_layers=12, intermediate_size=3072, vocab_size=128100,
    max_position_embeddings=512, type_vocab_size=0, layer_norm_eps=1e-7, relative_attention=True, position_buckets=256,
    max_relative_positions=-1, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"],
    position_biased_input=False,
)  # fmt: skip


def models(layers: int) -> dict[str, nn.Module]:
    torch.manual_seed(0)
    config = transformers.DebertaV2Config(**V3 | dict(num_hidden_layers=layers))
    reference = transformers.DebertaV2ForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        reference.save_pretrained(folder)
        return {PEER: reference, OURS: headway.load(folder).model}


def forward(name: str, model: nn.Module, ids: torch.Tensor) -> Callable[[], torch.Tensor]:
    def run() -> torch.Tensor:
        model.eval()
        with torch.no_grad():
            return (model(input_ids=ids) if name == PEER else model(ids)).logits

    return run


def training_step(name: str, model: nn.Module, ids: torch.Tensor) -> Callable[[], torch.Tensor]:
    labels = torch.zeros(len(ids), dtype=torch.long)

    def run() -> torch.Tensor:
        model.train()
        model.zero_grad(set_to_none=True)
        logits = (model(input_ids=ids) if name == PEER else model(ids)).logits
        nn.functional.cross_entropy(logits, labels).backward()
        return logits.detach()

    return run


WORK = {"forward": forward, "training step": training_step}


def peak_memory(name: str, kind: str, layers: int, batch: int, length: int) -> float:
    """MiB above the model, of a process that does one kind of work twice."""
    args = [sys.executable, "-m", "benchmarks.deberta", "--child", name, kind, "--layers", str(layers)]
    done = subprocess.run(
        [*args, "--batch", str(batch), "--length", str(length)], capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    use_threads()
    ids = torch.randint(5, 100_000, (options.batch, options.length))
    found = models(options.layers)
    if options.child:
        name, kind = options.child
        model = found.pop(name)
        found.clear()
        if kind == "forward" and name == OURS:
            engine.prepare(model)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(2):
            WORK[kind](name, model, ids)()
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
        return
    label = f"{options.batch}x{options.length}"
    for kind, work in WORK.items():
        if kind == "forward":
            engine.prepare(found[OURS])
        else:
            engine.release(found[OURS])
        jobs = {name: work(name, model, ids) for name, model in found.items()}
        difference = (jobs[PEER]() - jobs[OURS]()).abs().max() if kind == "forward" else math.nan
        times = interleaved(jobs, repeats=options.repeats, warmup=1, clock=time.process_time)
        line, _ = row(f"{kind} {label}", times, peer=PEER, ours=OURS)
        print(line + (f"   largest difference of the logits {difference:.1e}" if kind == "forward" else ""), flush=True)
    del found, jobs
    for kind in WORK:
        peaks = {name: peak_memory(name, kind, options.layers, options.batch, options.length) for name in (PEER, OURS)}
        print(f"peak memory above the model, {kind}: {PEER} {peaks[PEER]:.0f} MiB, {OURS} {peaks[OURS]:.0f} MiB")


if __name__ == "__main__":
    main()
