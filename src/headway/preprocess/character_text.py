"""Text → words → the characters of each word, for models that read words by their spelling (ELMo).

A token is one word: a tuple of `longest` numbers, the bytes of its UTF-8 form between a mark of its beginning and of
its end, then padding; 0 is left for padded words. The numbers are those of bilm-tf.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from headway.checkpoints import save_json
from headway.checkpoints.header import parse_json, read_bounded
from headway.errors import CheckpointError, InputError
from headway.preprocess.text import Encoding, Tokenizer
from headway.preprocess.text_files import CHARACTER_FILE as FILE

MAX_BYTES = 64 << 20
WORD = re.compile(r"\w+(?:[.,'’-]\w+)*|[^\w\s]")  # 12,000 and o'clock are words; so is a punctuation mark
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = (index + 1 for index in range(256, 261))
CHARACTERS = PADDING + 1  # with 0
LONGEST = 50

Token = tuple[int, ...]


class CharacterTokenizer(Tokenizer):
    """The part of a tokenizer that tasks use; `words` is the vocabulary that a language model predicts, if any."""

    def __init__(self, longest: int = LONGEST, words: Sequence[str] = ()) -> None:
        self.longest, self.words = longest, list(words)
        self.index = {word: number for number, word in enumerate(self.words)}
        self.roles: dict[str, str] = {}
        self.chat_template, self.max_length = None, None
        self.controls: frozenset[str] = frozenset()
        self.first, self.last = self._mark(BEGIN_SENTENCE), self._mark(END_SENTENCE)
        self.special_ids: Any = frozenset([self.first, self.last])
        self.pad_id: Any = 0
        self.bos_id = self.eos_id = self.unk_id = self.cls_id = self.sep_id = self.mask_id = None
        self._ahead: dict[Any, Any] = {}

    def _mark(self, character: int) -> Token:
        return self._padded([BEGIN_WORD, character, END_WORD])

    def _padded(self, characters: list[int]) -> Token:
        return tuple(characters + [PADDING] * (self.longest - len(characters)))

    def word(self, word: str) -> Token:
        """The characters of a word; those that do not fit are left out, as published."""
        try:
            content = word.encode("utf-8")[: self.longest - 2]
        except UnicodeEncodeError as error:
            raise InputError(f"{ascii(word)[:80]}: half a surrogate pair in it ({error})") from error
        return self._padded([BEGIN_WORD, *(byte + 1 for byte in content), END_WORD])

    def text_of(self, token: Sequence[int]) -> str:
        """The word of a token."""
        if tuple(token) in self.special_ids:
            return "<S>" if tuple(token) == self.first else "</S>"
        return bytes(number - 1 for number in token if 0 < number <= 256).decode("utf-8", errors="backslashreplace")

    def word_id(self, word: str) -> int:
        """The number of a word in the vocabulary of a language model; 0 if it is not there."""
        return self.index.get(word, 0)

    # --- the interface of Tokenizer

    def encode(self, text: str, *, special: bool = True, special_in_text: bool = False) -> Any:
        if not isinstance(text, str):
            raise InputError(f"{ascii(text)[:80]}: not a text")
        return self.encode_words(WORD.findall(text), special=special)[0]

    def encode_words(self, words: Sequence[str], *, special: bool = True) -> tuple[Any, list[int | None]]:
        ids, owners = [self.word(word) for word in words], list[int | None](range(len(words)))
        return ([self.first, *ids, self.last], [None, *owners, None]) if special else (ids, owners)

    def encode_batch(self, texts: Sequence[str], *, special: bool = True) -> Any:
        return [self.encode(text, special=special) for text in texts]

    def encode_ahead(self, texts: Any, *, special: bool = True) -> None:
        """Spelling needs no preparation."""

    def encode_offsets(self, text: str, *, special: bool = True) -> tuple[Any, list[tuple[int, int]]]:
        spans = [match.span() for match in WORD.finditer(text)]
        ids = [self.word(text[a:b]) for a, b in spans]
        return ([self.first, *ids, self.last], [(0, 0), *spans, (0, 0)]) if special else (ids, spans)

    def encode_pair(self, first: str, second: str) -> Encoding:
        one, two = (self.encode_offsets(text, special=False) for text in (first, second))
        ids: Any = [self.first, *one[0], self.last, *two[0], self.last]
        parts = [None, *[0] * len(one[0]), None, *[1] * len(two[0]), None]
        offsets = [(0, 0), *one[1], (0, 0), *two[1], (0, 0)]
        return Encoding(ids, [0] * len(ids), offsets, parts)

    def decode(self, ids: Sequence[Any], *, skip_special: bool = True) -> str:
        return " ".join(self.text_of(each) for each in ids if not skip_special or tuple(each) not in self.special_ids)

    def tokens(self, ids: Iterable[Any]) -> list[str]:
        return [self.text_of(token) for token in ids]

    @property
    def digest(self) -> str:
        return f"characters {self.longest} {' '.join(self.words)}"

    def __len__(self) -> int:
        return len(self.words)

    def save(self, folder: str | Path) -> None:
        save_json(Path(folder) / FILE, {"longest": self.longest, "words": self.words})


def load_character_tokenizer(folder: Path) -> CharacterTokenizer:
    data = parse_json(read_bounded(folder / FILE, limit=MAX_BYTES), folder / FILE)
    longest, words = data.get("longest"), data.get("words", [])
    if type(longest) is not int or not 4 <= longest <= 10_000:
        raise CheckpointError(f"{folder / FILE}: longest is {longest!r}; a whole number from 4 to 10,000 is needed")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise CheckpointError(f"{folder / FILE}: words must be a list of texts")
    return CharacterTokenizer(longest, words)
