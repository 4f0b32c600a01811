"""From pressing return to the first token: `headway run` against the shortest transformers script, both fresh processes
in turn on the same 134M model of LLaMA's shape, which has a real tokenizer.

    python -m benchmarks.startup [--tokenizer FOLDER]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.models import llama_134m
from benchmarks.timing import row

PROMPT = "Lily and Tom went to the"
SCRIPT = """
import sys, torch
torch.set_num_threads(2)
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, prompt = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
ids = tokenizer(prompt, return_tensors="pt").input_ids
out = model.generate(ids, max_new_tokens=1, do_sample=False)
print(tokenizer.decode(out[0]), flush=True)
"""


def seconds(command: list[str]) -> float:
    """Until the process has ended, which it does after its first token."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    took = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(done.stderr)
    return took


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", type=Path, help="a folder with a tokenizer of at most 32,000 tokens")
    parser.add_argument("--weights", help="of headway: int8, bf16, …")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        llama_134m(folder)
        give_tokenizer(folder, options.tokenizer)
        ours = [sys.executable, "-m", "headway", "run", made, PROMPT, "--max-new-tokens", "1", "--temperature", "0"]
        if options.weights:
            ours += ["--weights", options.weights]
        commands = {"transformers": [sys.executable, "-c", SCRIPT, made, PROMPT], "headway": ours}
        times: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(1 + options.repeats):  # the first reads the disk
            for name, command in commands.items():
                took = seconds(command)
                if turn:
                    times[name].append(took)
    line, ratio = row("first token, 134M", times, peer="transformers", ours="headway")
    print(line)
    print(f"ratio of our time to theirs {1 / ratio:.2f}")


def give_tokenizer(folder: Path, given: Path | None) -> None:
    if given is not None:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(given / name, folder / name)
        return
    from headway.data.builtin.manual import DOCUMENTS
    from headway.preprocess.text import Tokenizer

    texts = [each.fields["text"] for each in DOCUMENTS.rows()]
    Tokenizer.train(texts, kind="bpe", size=8000).save(folder)


if __name__ == "__main__":
    main()
