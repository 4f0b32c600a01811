"""DeBERTa-v3-base's shape against transformers: forward and forward + backward at 128 tokens, same weights and inputs,
in turn, by processor time, and the peak memory. Each is a process of its own, so that neither shares the allocator of
the other; Headway's is set as its training loop sets it.

    python -m benchmarks.deberta

Training has the dropout of the published config (0.1). The optimiser's step is not part of the training step: it is the
same work in both.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers
from torch import Tensor, nn

import headway
from benchmarks.timing import interleaved, row, use_threads
from headway import engine
from headway.memory import keep_freed_memory

PEER, OURS = "transformers", "headway"
KINDS = "forward", "training step"
V3 = dict(
    hidden_size=768, num_attention_heads=12, num_hidden_layers=12, intermediate_size=3072, vocab_size=128100,
    max_position_embeddings=512, type_vocab_size=0, layer_norm_eps=1e-7, relative_attention=True, position_buckets=256,
    max_relative_positions=-1, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"],
    position_biased_input=False,
)  # fmt: skip


def load(name: str, folder: Path) -> nn.Module:
    if name == OURS:
        keep_freed_memory()
        return headway.load(folder).model
    return transformers.DebertaV2ForSequenceClassification.from_pretrained(folder)


def forward(model: nn.Module, ids: Tensor) -> Tensor:
    model.eval()
    with torch.no_grad():
        return model(ids).logits


def training_step(model: nn.Module, ids: Tensor) -> Tensor:
    model.train()
    model.zero_grad(set_to_none=True)
    options = {"pooled_only": True} if getattr(model, "pools_one_token", False) else {}  # as the task classify does
    logits = model(ids, **options).logits
    nn.functional.cross_entropy(logits, torch.zeros(len(ids), dtype=torch.long)).backward()
    return logits.detach()


def resident(key: str) -> float:
    """VmRSS, or VmHWM: its peak since the last reset. MiB."""
    found = re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def serve(name: str, folder: Path) -> None:
    """Runs a kind of work for each line read; writes its seconds, and MiB of its peak above the model."""
    model, ids = load(name, folder), torch.from_numpy(np.load(folder / "ids.npy"))
    work = {"forward": forward, "training step": training_step}
    model.zero_grad(set_to_none=True)
    empty, prepared = resident("VmRSS"), False
    for line in sys.stdin:
        kind = line.strip()
        if name == OURS and prepared != (kind == "forward"):
            prepared = not prepared
            (engine.prepare if prepared else engine.release)(model)
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        start = time.process_time()
        logits = work[kind](model, ids)
        seconds = time.process_time() - start
        peak = resident("VmHWM") - empty
        np.save(folder / f"{name}.npy", logits.numpy())
        print(seconds, peak, flush=True)


class Peer:
    def __init__(self, name: str, folder: Path):
        command = [sys.executable, "-m", "benchmarks.deberta", "--serve", name, str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.seconds, self.peak = 0.0, 0.0

    def run(self, kind: str) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(kind, file=self.process.stdin, flush=True)
        seconds, peak = map(float, self.process.stdout.readline().split())
        self.seconds, self.peak = self.seconds + seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    use_threads()
    if options.serve:
        serve(options.serve[0], Path(options.serve[1]))
        return
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        config = transformers.DebertaV2Config(**V3 | dict(num_hidden_layers=options.layers))
        transformers.DebertaV2ForSequenceClassification(config).save_pretrained(folder)
        ids = torch.randint(5, 100_000, (options.batch, options.length))
        np.save(Path(folder, "ids.npy"), ids.numpy())
        peers = {name: Peer(name, Path(folder)) for name in (PEER, OURS)}
        for kind in KINDS:
            measure(
                kind, peers, folder=Path(folder), label=f"{options.batch}x{options.length}", repeats=options.repeats
            )
        for peer in peers.values():
            peer.process.communicate()


def measure(kind: str, peers: dict[str, Peer], *, folder: Path, label: str, repeats: int) -> None:
    clock: dict[str, Callable[[], None]] = {name: lambda peer=peer: peer.run(kind) for name, peer in peers.items()}  # type: ignore[misc]
    times = interleaved(clock, repeats=repeats, warmup=1, clock=lambda: sum(peer.seconds for peer in peers.values()))
    print(row(f"{kind} {label}", times, peer=PEER, ours=OURS)[0])
    if kind == "forward":
        logits = [np.load(folder / f"{name}.npy") for name in peers]
        print(f"largest difference of the logits: {np.abs(logits[0] - logits[1]).max():.1e}")
    peaks = ", ".join(f"{name} {peer.peak:.0f} MiB" for name, peer in peers.items())
    print(f"peak memory above the model, {kind}: {peaks}", flush=True)


if __name__ == "__main__":
    main()
