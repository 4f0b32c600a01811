"""Opening a 500 MB checkpoint against transformers' from_pretrained, interleaved, each until its first forward pass.

python -m benchmarks.load
"""

from __future__ import annotations

import argparse
import tempfile

import torch
import transformers

import headway
from benchmarks.timing import interleaved, row, use_threads


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    use_threads()
    transformers.logging.set_verbosity_error()
    ids = torch.randint(5, 20000, (1, 8))
    ratios = []
    for name, config in {
        "bert": transformers.BertConfig(num_hidden_layers=14),
        "gpt2": transformers.GPT2Config(),
    }.items():
        kind = transformers.BertModel if name == "bert" else transformers.GPT2LMHeadModel
        with tempfile.TemporaryDirectory() as folder:
            kind(config).save_pretrained(folder)
            size = sum(file.stat().st_size for file in __import__("pathlib").Path(folder).glob("*.safetensors"))
            for label, after in {"load": False, "load + first pass": True}.items():
                times = interleaved(
                    {
                        "transformers": lambda f=folder, k=kind, a=after: _first(k.from_pretrained(f), ids, a),
                        "headway": lambda f=folder, a=after: _first(headway.load(f).model, ids, a),
                    },
                    repeats=options.repeats,
                )
                line, ratio = row(f"{name} {size / 1e6:.0f} MB {label}", times, peer="transformers", ours="headway")
                print(line, flush=True)
                ratios.append(1 / ratio)
    print(f"ratio of our time to theirs: highest {max(ratios):.2f} lowest {min(ratios):.2f}")


def _first(model: torch.nn.Module, ids: torch.Tensor, run: bool) -> None:
    if run:
        model(ids)


if __name__ == "__main__":
    main()
