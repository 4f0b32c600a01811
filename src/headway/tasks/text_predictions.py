"""Evaluations of texts: translations, summaries, answers, transcripts, and the pieces of a text that is predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from headway.data.row import Row
from headway.tasks.counts import Counts, ngram_counts, word_lengths
from headway.tasks.evaluated import Evaluated, Judged, input_texts


@dataclass
class Texts(Evaluated):
    """Generated texts. The score of an example is chrF of sacreBLEU."""

    values: dict[str, float]  # the scores
    rows: list[Row]
    found: list[str]
    references: list[list[str]]
    fields: Sequence[str] = ("source",)  # of the input

    metric: str = "bleu"
    example_score: ClassVar[str] = "chrF of the sentence"
    best_example: ClassVar[float] = 100.0

    def scores(self) -> dict[str, float]:
        return self.values

    @cached_property
    def sentence_scores(self) -> list[float]:
        from sacrebleu.metrics.chrf import CHRF

        score = CHRF().sentence_score
        return [score(text, wanted).score for text, wanted in zip(self.found, self.references, strict=True)]

    def judged(self) -> list[Judged]:
        each = zip(self.rows, self.found, self.references, self.sentence_scores, strict=True)
        return [
            Judged(row, input_texts(row, self.fields), " · ".join(wanted), text, score)
            for row, text, wanted, score in each
        ]

    def lengths(self) -> np.ndarray:
        return word_lengths([" ".join(input_texts(row, self.fields).values()) for row in self.rows])

    def counts(self) -> Counts | None:
        return Counts(ngram_counts(self.found, self.references), self.lengths(), "bleu", self.found)


@dataclass
class MeanTexts(Texts):
    """Texts whose score is the mean of the scores of each: ROUGE-1 of summaries, F1 of answers."""

    metric: str = "rouge1"
    score_of: Callable[[str, list[str]], float] = field(kw_only=True)

    best_example: ClassVar[float] = 1.0

    @property
    def example_score(self) -> str:  # type: ignore[override]
        return f"{self.metric} of the text"

    @cached_property
    def sentence_scores(self) -> list[float]:
        return [self.score_of(text, wanted) for text, wanted in zip(self.found, self.references, strict=True)]

    def counts(self) -> Counts | None:
        values = np.array([[score, 1.0] for score in self.sentence_scores])
        return Counts(values, self.lengths(), "mean", self.found)


@dataclass
class Transcripts(Texts):
    """Transcripts of recordings; the score of an example is its word error rate."""

    metric: str = "wer"
    example_score: ClassVar[str] = "word error rate"
    best_example: ClassVar[float] = 0.0

    @cached_property
    def sentence_scores(self) -> list[float]:
        return [edits / max(words, 1) for edits, words in self._edits]

    @cached_property
    def _edits(self) -> list[tuple[int, int]]:
        """(edits, words of the reference) of each text."""
        pairs = zip(self.found, self.references, strict=True)
        return [(edit_distance(text.split(), wanted[0].split()), len(wanted[0].split())) for text, wanted in pairs]

    def lengths(self) -> np.ndarray:
        return word_lengths([wanted[0] for wanted in self.references])

    def counts(self) -> Counts | None:
        return Counts(np.array(self._edits), self.lengths(), "wer", self.found)


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """Insertions, deletions and substitutions (Levenshtein 1966)."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, right in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (left != right))
    return row[-1]


@dataclass
class Pieces(Evaluated):
    """Pieces of a text, each predicted without what is before it. Bits per byte do not depend on the tokenizer, so that
    models with different ones can be compared."""

    values: dict[str, float]
    rows: list[Row]  # a piece each
    bits: list[float]  # of all predictions in a piece

    metric: str = "bits_per_byte"
    example_score: ClassVar[str] = "bits per byte"
    best_example: ClassVar[float] = 0.0

    def scores(self) -> dict[str, float]:
        return self.values

    def _bytes(self) -> list[int]:
        return [len(row.fields["text"].encode()) for row in self.rows]

    def judged(self) -> list[Judged]:
        return [
            Judged(row, {"text": row.fields["text"]}, "the text itself", "–", bits / max(size, 1))
            for row, bits, size in zip(self.rows, self.bits, self._bytes(), strict=True)
        ]

    def counts(self) -> Counts | None:
        values = np.stack([np.array(self.bits), np.array(self._bytes(), np.float64)], axis=1)
        return Counts(values, np.zeros(len(values), np.int64), "bits_per_byte", [])
