"""Entities of kinds that are named when the model is called, without training for them (GLiNER, Zaratiana et al. 2024).

The input is `[CLS] <<ENT>> person <<ENT>> city <<SEP>> words … [SEP]`. The model scores every span of a few words for
every label; a span whose best score is above the threshold is an entity unless a better one overlaps it. A text over
the length limit is read in overlapping windows, each behind the same labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import torch
from torch import Tensor

from headway.data.builtin.entities import ENTITIES
from headway.data.builtin.pool import Builtin
from headway.data.read import Row
from headway.errors import ConfigError, DataError, InputError
from headway.generation.box_settings import threshold_of
from headway.kinds.inputs import InputKind, TextInput
from headway.kinds.predictions import EntitiesPrediction, PredictionKind
from headway.models.protocol import Model
from headway.preprocess.text import Tokenizer
from headway.tasks.distributed import map_by_length
from headway.tasks.entities import entities, entity_scores
from headway.tasks.evaluated import Evaluated
from headway.tasks.object_predictions import Tags
from headway.tasks.tag import word_pieces
from headway.tasks.task import Task, device_of, pad, padding_mask, without_none
from headway.tasks.text_pairs import PairFrame
from headway.tasks.windows import WordWindow, windows

WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")  # what a published model counts as a word: its spans are of these
BATCH = 8  # windows of one forward pass
THRESHOLD = 0.5
NOT_TRAINED = "entities by name are found by a published model; train one for fixed labels with `headway train tag`"


class EntityReading(NamedTuple):
    """A window of a text behind the labels."""

    ids: list[int]
    word_at: list[int]  # index in ids of the first token of each word
    label_at: list[int]
    window: WordWindow


class FoundEntity(NamedTuple):
    start: int  # words [start, end)
    end: int
    label: str
    score: float


@dataclass
class EntitiesByName(Task):
    name: ClassVar[str] = "entities"
    builtin: ClassVar[Builtin] = ENTITIES
    fields: ClassVar[tuple[str, ...]] = ("words", "tags")
    input_kind: ClassVar[InputKind] = TextInput(("words",))
    prediction_kind: ClassVar[PredictionKind] = EntitiesPrediction(("labels", "threshold", "nested"))
    metric: ClassVar[str] = "f1"

    limit: int | None = None  # tokens of an input, or of a window; None: no limit
    max_words: int = 384
    label_token: str = "<<ENT>>"
    separator: str = "<<SEP>>"
    reads_marker: bool = True

    @classmethod
    def of_model(cls, tokenizer: Tokenizer, model: Model) -> Self:
        limits = [each for each in (tokenizer.max_length, model.max_length) if each is not None]
        config = model.config
        task = cls(
            tokenizer,
            limit=min(limits, default=None),
            max_words=config.max_words,
            label_token=config.label_token,
            separator=config.separator,
            reads_marker=config.reads_marker,
        )
        for token in (config.label_token, config.separator):
            if tokenizer.id(token) is None:
                raise InputError(f"the tokenizer has no token {token!r}, which the model reads before labels and words")
        return task

    # --- tokens

    @cached_property
    def frame(self) -> PairFrame:
        return PairFrame.of(self.tokenizer)

    def readings(self, words: Sequence[str], labels: Sequence[str], *, where: str) -> list[EntityReading]:
        """The windows of a text: one, or several if it is too long."""
        pieces = word_pieces(self.tokenizer, [*labels, *words])
        marker, separator = self.tokenizer.id(self.label_token), self.tokenizer.id(self.separator)
        assert marker is not None and separator is not None
        (before, after), label_at = self.frame.single, []
        prompt = list(before)
        for piece in pieces[: len(labels)]:
            label_at.append(len(prompt) + (not self.reads_marker))
            prompt += [marker, *piece]
        prompt.append(separator)
        pieces = pieces[len(labels) :]
        budget = sum(map(len, pieces)) if self.limit is None else self.limit - len(prompt) - len(after)
        if words and budget < 1:
            raise InputError(
                f"labels: {len(labels)} of them take {len(prompt) + len(after)} of the model's {self.limit} tokens, "
                "which leaves none for words; give fewer or shorter ones"
            )
        pieces = [self.truncation.apply(piece, budget, part="one word", where=where) for piece in pieces]
        found = [WordWindow(range(len(words)), range(len(words)))]
        if sum(map(len, pieces)) > budget or len(words) > self.max_words:
            found = windows([len(piece) for piece in pieces], min(budget, self.max_words))
        return [self._reading(prompt, pieces, window, label_at) for window in found if window.words]

    def _reading(
        self, prompt: list[int], pieces: list[list[int]], window: WordWindow, label_at: list[int]
    ) -> EntityReading:
        ids, word_at = list(prompt), []
        for word in window.words:
            word_at.append(len(ids))
            ids += pieces[word]
        return EntityReading([*ids, *self.frame.single[1]], word_at, label_at, window)

    # --- inference

    @torch.no_grad()
    def find(
        self,
        model: Model,
        readings: Sequence[Sequence[EntityReading]],
        labels: Sequence[str],
        *,
        threshold: float,
        nested: bool,
    ) -> list[list[FoundEntity]]:
        """The entities of each text, in order of their first words."""

        def work(batch: Sequence[EntityReading]) -> list[Tensor]:
            rows = [each.word_at for each in batch]
            more = without_none(word_at=pad(rows, 0), word_mask=padding_mask(rows))
            inputs = self.text_inputs([each.ids for each in batch]) | more
            inputs["label_at"] = torch.tensor([each.label_at for each in batch])
            logits = model(**{name: tensor.to(device_of(model)) for name, tensor in inputs.items()}).logits
            return list(logits.float().sigmoid().cpu())  # (word, span, label) each

        flat = [(index, each) for index, parts in enumerate(readings) for each in parts]
        scores = map_by_length([each for _, each in flat], work, length=lambda each: len(each.ids), size=BATCH)
        out: list[list[FoundEntity]] = [[] for _ in readings]
        for (index, each), found in zip(flat, scores, strict=True):
            best, which = found.max(-1)  # (word, span); a span has one label
            for word, more in (best > threshold).nonzero().tolist():
                start = each.window.words.start + word
                if start in each.window.predicted:
                    label, score = labels[int(which[word, more])], float(best[word, more])
                    out[index].append(FoundEntity(start, start + more + 1, label, score))
        return [without_overlaps(each, nested=nested) for each in out]

    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The entities of each text, with the characters [start, end) of it; a list of words is joined by spaces. With
        `nested`, an entity may lie inside another. `windows` is the number of windows of a text over the limit."""
        self.refuse_options(options, *self.prediction_kind.options)
        labels = self.label_names(options.get("labels"))
        threshold = threshold_of(options, THRESHOLD)
        texts = [split_words(value, number) for number, value in enumerate(inputs, 1)]
        readings = [
            self.readings([text[a:b] for a, b in spans], labels, where=f"input {number}")
            for number, (text, spans) in enumerate(texts, 1)
        ]
        found = self.find(model, readings, labels, threshold=threshold, nested=bool(options.get("nested")))
        out: list[Any] = []
        for (text, spans), parts, own in zip(texts, readings, found, strict=True):
            listed = []
            for each in own:
                start, end = spans[each.start][0], spans[each.end - 1][1]
                listed.append(
                    {"start": start, "end": end, "text": text[start:end], "label": each.label, "score": each.score}
                )
            out.append({"entities": listed} | ({"windows": len(parts)} if len(parts) > 1 else {}))
        return out

    def label_names(self, given: Any) -> list[str]:
        """Each name once, from a list of them or a text with commas between them."""
        if not given:
            raise InputError("labels: name the kinds of entities to find, such as --labels person,city")
        names = given.split(",") if isinstance(given, str) else given
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name.strip() for name in names):
            raise InputError(f"labels: expected names, none of them empty, found {given!r:.80}")
        return list(dict.fromkeys(name.strip() for name in names))

    def predictions(self, model: Model, rows: Iterable[Row], **options: Any) -> Evaluated:
        """Precision, recall and F1 of entities; the types in the data's tags are the labels."""
        self.refuse_options(options)
        rows = [row for row in rows if row.fields["words"]]
        truth = [list(row.fields["tags"]) for row in rows]
        labels = sorted({entity.type for tags in truth for entity in entities(tags)} - {""})
        if not labels:
            raise DataError("the data has no tags of entities (B-PER, …) to evaluate on")
        readings = [self.readings(row.fields["words"], labels, where=row.where) for row in rows]
        guessed = []
        for own, tags in zip(self.find(model, readings, labels, threshold=THRESHOLD, nested=False), truth, strict=True):
            guess = ["O"] * len(tags)
            for each in own:
                guess[each.start : each.end] = [f"B-{each.label}"] + [f"I-{each.label}"] * (each.end - each.start - 1)
            guessed.append(guess)
        return Tags(entity_scores(guessed, truth), rows, guessed, truth)

    # --- training: there is none

    @classmethod
    def from_data(cls, *unused: Any, **also: Any) -> NoReturn:
        raise ConfigError(NOT_TRAINED)

    def config(self, *unused: Any) -> NoReturn:
        raise ConfigError(NOT_TRAINED)

    adapt = examples = collate = loss = config  # type: ignore[assignment]


def split_words(value: Any, number: int) -> tuple[str, list[tuple[int, int]]]:
    """A text, and the characters [start, end) of its words."""
    if isinstance(value, str):
        return value, [match.span() for match in WORD.finditer(value)]
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise InputError(f"input {number}: expected a text or a list of words, found {type(value).__name__}")
    spans, at = [], 0
    for word in value:
        spans.append((at, at + len(word)))
        at += len(word) + 1
    return " ".join(value), spans


def without_overlaps(found: Sequence[FoundEntity], *, nested: bool) -> list[FoundEntity]:
    """Greedily by score: of two that overlap the better one. With `nested`, one may lie inside the other."""
    longest = max((each.end - each.start for each in found), default=0)
    ends: dict[int, list[int]] = {}  # of those kept, by their first word
    kept = []
    for each in sorted(found, key=lambda each: -each.score):
        near = range(each.start - longest + 1, each.end)
        others = [(start, end) for start in near for end in ends.get(start, ()) if end > each.start]
        if nested:
            others = [(start, end) for start, end in others if (start - each.start) * (end - each.end) > 0]
        if not others:
            kept.append(each)
            ends.setdefault(each.start, []).append(each.end)
    return sorted(kept, key=lambda each: each.start)
