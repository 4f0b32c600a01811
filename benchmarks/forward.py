"""The forward pass of BERT-base and GPT-2 shapes against transformers, same weights, same inputs, interleaved.

    python -m benchmarks.forward

Full batches, and a ragged one (texts of 16 to 128 tokens), where the peer pads and Headway runs without padding.
"""

from __future__ import annotations

import argparse
import tempfile

import torch
import transformers

import headway
from benchmarks.timing import interleaved, row, use_threads
from headway.engine import encode_ragged

SHAPES = [(1, 32), (8, 128), (4, 512)]


def models(layers: int) -> dict[str, transformers.PreTrainedModel]:
    torch.manual_seed(0)
    return {
        "bert": transformers.BertModel(transformers.BertConfig(num_hidden_layers=layers)),
        "gpt2": transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=layers)),
    }


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    use_threads()
    ratios = []
    for name, reference in models(options.layers).items():
        reference.eval()
        with tempfile.TemporaryDirectory() as folder:
            reference.save_pretrained(folder)
            ours = headway.load(folder)
        for batch, length in SHAPES:
            ids = torch.randint(5, 20000, (batch, length))
            times = interleaved(
                {
                    "transformers": lambda m=reference, i=ids: m(input_ids=i),
                    "headway": lambda m=ours, i=ids: m.model(i),
                },
                repeats=options.repeats,
            )
            line, ratio = row(f"{name} {batch}x{length}", times, peer="transformers", ours="headway")
            print(line, flush=True)
            ratios.append(ratio)
        if name == "bert":
            lengths = torch.linspace(16, 128, 8).int().tolist()
            rows = [torch.randint(5, 20000, (n,)).tolist() for n in lengths]
            ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], batch_first=True)
            mask = (torch.arange(ids.shape[1])[None] < torch.tensor(lengths)[:, None]).long()
            times = interleaved(
                {
                    "transformers": lambda m=reference, i=ids, k=mask: m(input_ids=i, attention_mask=k),
                    "headway": lambda m=ours, r=rows: list(encode_ragged(m.model, r)),
                },
                repeats=options.repeats,
            )
            line, ratio = row(f"{name} ragged 8x16..128", times, peer="transformers", ours="headway")
            print(line, flush=True)
            ratios.append(ratio)
    print(f"ratio lowest {min(ratios):.2f} highest {max(ratios):.2f}")


if __name__ == "__main__":
    main()
