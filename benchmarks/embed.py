"""Sentence embeddings against sentence-transformers: the same MiniLM, 1000 paragraphs of very different length.

    python -m benchmarks.embed [--weights int8]

Both cut at the model's 256 tokens and give vectors of length 1; the least cosine between the two is printed beside the
times.
"""

from __future__ import annotations

import argparse

import torch
from sentence_transformers import SentenceTransformer

import headway
from benchmarks.finetune import minilm
from benchmarks.timing import interleaved, row, use_threads
from headway.data.builtin.manual import DOCUMENTS


def paragraphs(count: int) -> list[str]:
    """Of Python's language reference, as they come."""
    documents = [each.fields["text"] for split in ("train", "test") for each in DOCUMENTS.rows(split=split)]
    found = [" ".join(part.split()) for document in documents for part in document.split("\n\n")]
    found = [text for text in found if any(map(str.isalpha, text))]
    step = max(1, len(found) // count)
    return found[::step][:count]


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--weights", help="int8, bf16, …; default: as published (fp32)")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    use_threads()
    texts = paragraphs(options.texts)
    peer, ours = SentenceTransformer(str(minilm()), device="cpu"), headway.load(minilm(), weights=options.weights)
    found = ours.embed(texts, overflow="truncate")
    wanted = torch.from_numpy(peer.encode(texts, batch_size=32))
    cosine = torch.nn.functional.cosine_similarity(found, wanted).min()
    print(f"{len(texts)} paragraphs, {sum(map(len, texts)):,} characters; least cosine to the peer's {cosine:.6f}")
    times = interleaved(
        {
            "sentence-transformers": lambda: peer.encode(texts, batch_size=32),
            "headway": lambda: ours.embed(texts, overflow="truncate"),
        },
        repeats=options.repeats,
        warmup=1,
    )
    line, ratio = row("MiniLM-L6", times, peer="sentence-transformers", ours="headway")
    print(line)
    print(f"texts a second: {', '.join(f'{name} {len(texts) / min(took):.0f}' for name, took in times.items())}")
    print(f"ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
