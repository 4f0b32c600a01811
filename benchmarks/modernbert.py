"""ModernBERT-base's shape on texts of different length against transformers, same weights: the peer pads a batch to its
longest text, Headway computes no padding (`encode_ragged`).

    python -m benchmarks.modernbert
"""

from __future__ import annotations

import argparse
import tempfile

import torch
import transformers

import headway
from benchmarks.timing import interleaved, row, use_threads
from headway import engine
from headway.engine import encode_ragged


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--texts", type=int, default=16)
    parser.add_argument("--longest", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    use_threads()
    torch.manual_seed(0)
    reference = transformers.ModernBertModel(transformers.ModernBertConfig(num_hidden_layers=options.layers)).eval()
    with tempfile.TemporaryDirectory() as folder:
        reference.save_pretrained(folder)
        ours = headway.load(folder).model
    engine.prepare(ours)
    lengths = torch.linspace(16, options.longest, options.texts).int()
    rows = [torch.randint(5, 50000, (int(length),)) for length in lengths]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = (torch.arange(ids.shape[1])[None] < lengths[:, None]).long()
    expected, texts = reference(input_ids=ids, attention_mask=mask).last_hidden_state, [row.tolist() for row in rows]
    worst = max(float((hidden - expected[i, : len(rows[i])]).abs().max()) for i, hidden in encode_ragged(ours, texts))
    jobs = {
        "transformers": lambda: reference(input_ids=ids, attention_mask=mask),
        "headway": lambda: list(encode_ragged(ours, texts)),
    }
    label = f"{len(rows)} texts, 16 to {options.longest}"
    times = interleaved(jobs, repeats=options.repeats, warmup=1)
    line, _ = row(label, times, peer="transformers", ours="headway")
    share = 1 - int(lengths.sum()) / ids.numel()
    print(f"{line}   {share:.0%} of the peer's tokens are padding; largest difference of the hidden states {worst:.1e}")


if __name__ == "__main__":
    main()
