"""`complete`: the next words that a language model expects after a text."""

from __future__ import annotations

from pathlib import Path

from headway.bundle import Bundle, as_bundle
from headway.errors import InputError, with_article
from headway.generation.next_words import NextWord, next_words


def complete(model: str | Path | Bundle, text: str, *, top: int = 5, device: str | None = None) -> list[NextWord]:
    """The `top` most probable next words of the text, whole words, with their probabilities; best first. A text that
    ends within a word is continued to the end of that word. `device` is where a model is loaded, as in `load`."""
    bundle = as_bundle(model, device=device)
    if not bundle.model.generates or bundle.model.reads_source:
        raise InputError(
            "completion needs a decoder with a language-model head (GPT-like); this model is "
            f"{with_article(bundle.model.shape)}"
        )
    tokenizer = bundle.processor.require_tokenizer("completion")
    ids = tokenizer.encode(text, special=bundle.find_task().input_kind.special_tokens)
    if ids and ids[-1] == tokenizer.eos_id:
        ids = ids[:-1]
    if not ids:
        ids = [tokenizer.bos_id if tokenizer.bos_id is not None else 0]
    return next_words(bundle.model, ids, tokenizer=tokenizer, top=top)
