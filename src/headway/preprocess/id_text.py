"""Token ids as text, for a model that has no tokenizer: "2 1 0" ⇄ [2, 1, 0]."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tokenizers import Encoding as BackendEncoding
from tokenizers import Tokenizer as Backend

from headway.errors import InputError
from headway.preprocess.text import Tokenizer
from headway.preprocess.text_files import Description

NUMBER = re.compile(r"-?(0|[1-9][0-9]*)")


class IdTokenizer(Tokenizer):
    """A tokenizer whose text is the ids themselves, separated by spaces or commas."""

    def __init__(self, vocab: int) -> None:
        names = {str(index): index for index in range(vocab)}
        separator = {"type": "Split", "pattern": {"Regex": r"[\s,]+"}, "behavior": "Removed", "invert": False}
        spec: dict[str, Any] = {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": separator,
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": names, "unk_token": "0"},  # never used: _encode checks first
        }
        super().__init__(Description(spec, {}))

    def encode_batch(self, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
        return [self.encode(text, special=special) for text in texts]

    def _encode(
        self, text: str | list[str], pair: str | None = None, *, special: bool, backend: Backend | None = None
    ) -> BackendEncoding:
        for given in (text, pair):
            if isinstance(given, str):
                self._check(given)
        return super()._encode(text, pair, special=special, backend=backend)

    def _check(self, text: str) -> None:
        parts = text.replace(",", " ").split()
        if not parts or not all(NUMBER.fullmatch(part) for part in parts):
            raise InputError(f"this model has no tokenizer: give the ids of its tokens, such as '0 2 1', not {text!r}")
        wrong = next((part for part in parts if not 0 <= int(part) < len(self)), None)
        if wrong is not None:
            raise InputError(f"{wrong} is not an id of this model, whose vocabulary has {len(self)} tokens")
