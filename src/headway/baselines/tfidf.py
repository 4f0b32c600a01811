"""TF-IDF vectors of texts: words, pairs of words, and n-grams of characters within words (Salton & Buckley 1988), as
sparse matrices. Weights are those of scikit-learn's TfidfVectorizer with `sublinear_tf`: (1 + log tf) · (1 + log((1 +
n) / (1 + df))); rows have length 1 for words and for characters.

An n-gram of words is known by the numbers of its words, one of characters by a 64-bit hash that is computed for a whole
text at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

WORD = re.compile(r"\w+")
SPAN = re.compile(r"\S+")
CHARACTERS = (3, 4, 5)  # of an n-gram
SHIFT = np.int64(2**31)
MULTIPLIERS = np.array(  # odd numbers with many bits set
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xFF51AFD7ED558CCD],
    dtype=np.uint64,
)


@dataclass
class TfIdf:
    """Features of one kind. `fit` decides which n-grams are features; others are left out."""

    keys_of: Callable[[str], np.ndarray]
    least: int = 1  # texts that an n-gram must occur in
    most: int = 200_000  # features: the n-grams that most texts have
    features: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # sorted keys
    idf: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def fit(self, texts: Sequence[str]) -> Any:
        """The matrix (text, feature) of the training texts."""
        rows, keys, counts = self._counted(texts)
        features, columns, found_in = np.unique(keys, return_inverse=True, return_counts=True)
        kept = found_in >= self.least
        if kept.sum() > self.most:
            kept &= found_in >= np.partition(found_in, -self.most)[-self.most]
            kept[np.flatnonzero(kept)[self.most :]] = False
        place = np.cumsum(kept) - 1
        self.features, self.idf = features[kept], 1 + np.log((1 + len(texts)) / (1 + found_in[kept]))
        known = kept[columns]
        return self._matrix(rows[known], place[columns[known]], counts[known], len(texts))

    def transform(self, texts: Sequence[str]) -> Any:
        rows, keys, counts = self._counted(texts)
        columns = np.searchsorted(self.features, keys).clip(max=max(len(self.features) - 1, 0))
        known = self.features[columns] == keys if len(self.features) else np.zeros(len(keys), bool)
        return self._matrix(rows[known], columns[known], counts[known], len(texts))

    def _counted(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row, key and count of each n-gram of each text."""
        each = [np.unique(self.keys_of(text), return_counts=True) for text in texts]
        rows = np.repeat(np.arange(len(texts), dtype=np.int32), [len(keys) for keys, _ in each])
        empty = np.zeros(0, np.int64)
        keys, counts = (np.concatenate([empty, *(one[part] for one in each)]) for part in (0, 1))
        return rows, keys, counts

    def _matrix(self, rows: np.ndarray, columns: np.ndarray, counts: np.ndarray, height: int) -> Any:
        from scipy.sparse import csr_matrix

        values = (1 + np.log(counts)) * self.idf[columns]
        lengths = np.sqrt(np.bincount(rows, values**2, minlength=height)).clip(min=1e-12)
        values = (values / lengths[rows]).astype(np.float32)
        return csr_matrix((values, (rows, columns)), shape=(height, len(self.features)))


class TextFeatures:
    """Words and pairs of words and, with `characters`, n-grams of characters, side by side; `most` features."""

    def __init__(self, *, most: int = 200_000, characters: bool = True) -> None:
        self.words = Words()
        self.kinds = 2 if characters else 1  # the squared length of a row, if no kind of feature is missing in it
        self.parts = [TfIdf(self.words, most=most // self.kinds)]
        if characters:
            self.parts.append(TfIdf(character_keys, least=2, most=most // 2))

    def fit(self, texts: Sequence[str]) -> Any:
        self.words.grows = True
        matrix = self._joined([part.fit(texts) for part in self.parts])
        self.words.grows = False
        return matrix

    def transform(self, texts: Sequence[str]) -> Any:
        return self._joined([part.transform(texts) for part in self.parts])

    def _joined(self, matrices: Iterable[Any]) -> Any:
        from scipy.sparse import hstack

        return hstack(list(matrices), format="csr")


class Words:
    """Keys of words and of pairs of words. While it `grows`, a new word gets a number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.grows = True

    def __call__(self, text: str) -> np.ndarray:
        words, numbers = WORD.findall(text.lower()), self.numbers
        if self.grows:
            for word in words:
                numbers.setdefault(word, len(numbers) + 1)
        found = np.array([numbers.get(word, -1) for word in words], dtype=np.int64)
        pairs = found[:-1] * SHIFT + found[1:]
        pairs = pairs[(found[:-1] > 0) & (found[1:] > 0)]
        return np.concatenate([found[found > 0], pairs])


def character_keys(text: str) -> np.ndarray:
    """n-grams of the characters of each word with a space on both sides; none reaches into the next word."""
    line = " " + " ".join(SPAN.findall(text.lower())) + " "
    codes = np.frombuffer(line.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    space = codes == 32
    out = []
    for size in CHARACTERS:
        count = len(codes) - size + 1
        if count < 1:
            break
        inside = np.zeros(count, bool)
        for offset in range(1, size - 1):
            inside |= space[offset : offset + count]
        at = np.flatnonzero(~inside)
        with np.errstate(over="ignore"):
            key = np.full(len(at), size, np.uint64)
            for offset in range(size):
                key = (key ^ codes[at + offset]) * MULTIPLIERS[offset]
                key ^= key >> np.uint64(29)
        out.append(key.view(np.int64))
    return np.concatenate(out) if out else np.zeros(0, np.int64)
