"""Text → words, for models with one vector a word (word2vec): runs of letters, digits and underscores. Punctuation is
left out."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from headway.preprocess.text import Tokenizer
from headway.preprocess.text_files import Description

PATTERN = r"\w+"
WORD = re.compile(PATTERN)
ROLES = {"pad": "[padding word]", "unk": "[unknown word]"}  # no word has a space, so these are none


def split_words(text: str, *, lowercase: bool = True) -> list[str]:
    return WORD.findall(text.lower() if lowercase else text)


def word_tokenizer(words: Sequence[str], *, lowercase: bool) -> Tokenizer:
    """A tokenizer whose id i is word i; behind the words, the ids of padding and of every other word."""
    vocabulary = {word: index for index, word in enumerate([*words, *ROLES.values()])}
    backend = Backend(models.WordLevel(vocabulary, unk_token=ROLES["unk"]))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(PATTERN), "removed", invert=True)
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    backend.add_special_tokens(list(ROLES.values()))
    return Tokenizer(Description(json.loads(backend.to_str()), dict(ROLES)))


def words_of(tokenizer: Tokenizer) -> list[str]:
    """The words of such a tokenizer, in the order of their ids."""
    return [tokenizer.token(index) for index in range(len(tokenizer) - len(ROLES))]
