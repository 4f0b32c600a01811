"""Prediction kinds: label, labels, number, entities, span, text, transcript, boxes, picture, vector, words.

A prediction is what `predict` of a task gives for one input: a value that JSON can express, except for pictures. Each
kind knows the line that a terminal shows of it, its columns in a table, and what a prediction that ignores its input
scores.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from headway.printable import printable_json

FEW = 6  # numbers of a vector that are shown
PREDICTION, SCORE, CANDIDATES = "prediction", "score", "candidates"  # columns

# the one table of scores with their direction: of all others higher is better
LOWER_IS_BETTER = frozenset({"loss", "perplexity", "bits_per_byte", "mae", "wer", "cer", "wer_normalized"})

Columns = dict[str, Any]


def is_better_higher(score: str) -> bool:
    return score not in LOWER_IS_BETTER


@dataclass(frozen=True)
class PredictionKind:
    options: tuple[str, ...] = ()  # of `headway run`

    keys: ClassVar[tuple[str, ...]] = ()  # what was predicted, of an answer that is a dict: the first that it has
    beside: ClassVar[tuple[str, ...]] = ()  # what is written beside it, in columns of these names
    generates: ClassVar[bool] = False  # text, with the options of generation
    several_passes: ClassVar[bool] = False  # of the model for one prediction
    tabular: ClassVar[bool] = True  # fits a cell of a table
    baseline: ClassVar[tuple[str, str] | None] = None  # a prediction that ignores its input, and the score that it has

    def line(self, answer: Any) -> str:
        """For the terminal."""
        return printable_json(json.dumps(answer, ensure_ascii=False))

    def columns(self, answer: Any) -> Columns:
        """What was predicted and, where there is one, its score."""
        if isinstance(answer, list) and answer and all(isinstance(each, dict) for each in answer):
            return {PREDICTION: [self.columns(each)[PREDICTION] for each in answer]}
        key = next((key for key in self.keys if isinstance(answer, dict) and key in answer), None)
        if key is None:
            return {PREDICTION: answer}
        score = {SCORE: answer[SCORE]} if isinstance(answer.get(SCORE), float) else {}
        return {PREDICTION: answer[key], **score, **{name: answer[name] for name in self.beside if name in answer}}

    def unmatched(self, answer: Any) -> int:
        """How many of the answers to one input do not match the constraint (regex or JSON schema)."""
        return 0


@dataclass(frozen=True)
class LabelPrediction(PredictionKind):
    options: tuple[str, ...] = ("threshold",)

    keys: ClassVar[tuple[str, ...]] = ("label",)
    baseline: ClassVar[tuple[str, str] | None] = ("always the most frequent label", "majority")


@dataclass(frozen=True)
class LabelSetPrediction(PredictionKind):
    options: tuple[str, ...] = ("threshold",)

    keys: ClassVar[tuple[str, ...]] = ("labels",)
    baseline: ClassVar[tuple[str, str] | None] = ("always the same most frequent labels", "majority")


class NumberPrediction(PredictionKind):
    keys: ClassVar[tuple[str, ...]] = ("value", "values")
    baseline: ClassVar[tuple[str, str] | None] = ("always the mean", "mean_mae")


class EntitiesPrediction(PredictionKind):
    """The tag of every word, and the entities that the tags form."""

    keys: ClassVar[tuple[str, ...]] = ("tags",)
    beside: ClassVar[tuple[str, ...]] = ("words", "entities")


@dataclass(frozen=True)
class SpanPrediction(PredictionKind):
    options: tuple[str, ...] = ("n",)

    keys: ClassVar[tuple[str, ...]] = ("answer",)


class TextPrediction(PredictionKind):
    """A generated text: with `details`, an object that says how it ended."""

    keys: ClassVar[tuple[str, ...]] = ("text",)
    generates: ClassVar[bool] = True
    several_passes: ClassVar[bool] = True

    def line(self, answer: Any) -> str:
        if isinstance(answer, str):
            return answer
        if isinstance(answer, dict):
            return str(answer["text"])
        return "\n".join(f"[{number}] {self.line(each)}" for number, each in enumerate(answer, 1))

    def unmatched(self, answer: Any) -> int:
        answers = answer if isinstance(answer, list) else [answer]
        return sum(isinstance(each, dict) and each.get("fits") is False for each in answers)


class ExtractPrediction(TextPrediction):
    """Sentences of the input, which a classifier chooses."""

    generates: ClassVar[bool] = False
    several_passes: ClassVar[bool] = False


@dataclass(frozen=True)
class TranscriptPrediction(TextPrediction):
    """A text with its segments and their times."""

    options: tuple[str, ...] = ("language", "task", "words", "format", "beams", "temperature", "seed")

    generates: ClassVar[bool] = False


@dataclass(frozen=True)
class BoxesPrediction(PredictionKind):
    options: tuple[str, ...] = ("threshold",)

    keys: ClassVar[tuple[str, ...]] = ("objects",)


class PicturePrediction(PredictionKind):
    several_passes: ClassVar[bool] = True
    tabular: ClassVar[bool] = False


class VectorPrediction(PredictionKind):
    """Numbers; of two inputs their cosine."""

    baseline: ClassVar[tuple[str, str] | None] = ("a random choice", "chance")

    def line(self, answer: Any) -> str:
        if not isinstance(answer, list) or len(answer) <= FEW:
            return super().line(answer)
        return f"{len(answer)} numbers: {' '.join(f'{item:.4f}' for item in answer[:FEW])} … (all of them: --json)"


class WordsPrediction(PredictionKind):
    """The words that may stand in the place of a mask, the most probable first; a list for each of several masks."""

    baseline: ClassVar[tuple[str, str] | None] = ("predicting by token frequency alone", "unigram")

    def columns(self, answer: Any) -> Columns:
        """Of several masks, the score is the product of the probabilities of the best tokens."""
        if not answer:
            return {PREDICTION: answer}
        masks = answer if isinstance(answer[0], list) else [answer]
        best = [each[0]["token"] for each in masks]
        candidates = [[{"token": one["token"], SCORE: one[SCORE]} for one in each] for each in masks]
        score = math.prod(each[0][SCORE] for each in masks)
        if masks is answer:
            return {PREDICTION: best, SCORE: score, CANDIDATES: candidates}
        return {PREDICTION: best[0], SCORE: score, CANDIDATES: candidates[0]}


@dataclass(frozen=True)
class NeighboursPrediction(PredictionKind):
    """The words whose vectors are nearest, with their cosine; of two words their cosine."""

    options: tuple[str, ...] = ("n",)

    def line(self, answer: Any) -> str:
        if not isinstance(answer, list):
            return super().line(answer)
        width = max((len(each["word"]) for each in answer), default=0)
        return "\n".join(f"{each['word']:<{width}}  {each['cosine']:.4f}" for each in answer)
