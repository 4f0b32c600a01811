"""`tag`: token classification: a tag for every word, such as BIO tags of named entities. The first token of a word
carries its tag (Devlin et al. 2019). A sentence over the length limit is split into overlapping windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from headway.baselines import Baseline
from headway.data.batch import Batch, Loss
from headway.data.builtin.entities import ENTITIES
from headway.data.builtin.pool import Builtin
from headway.data.dataset import RowReader
from headway.data.facts import Facts, Label
from headway.data.read import Row
from headway.errors import ConfigError, DataError, InputError
from headway.kinds.inputs import InputKind, TextInput
from headway.kinds.predictions import EntitiesPrediction, PredictionKind
from headway.models import recipes
from headway.models.config import ModelConfig, TokenHeadConfig
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size, TextModel
from headway.models.rehead import with_head
from headway.preprocess.character_text import WORD
from headway.preprocess.text import Tokenizer
from headway.tasks.classification import output_of
from headway.tasks.distributed import map_by_length
from headway.tasks.entities import all_tags, entities, entity_scores, repaired
from headway.tasks.evaluated import Evaluated
from headway.tasks.object_predictions import Tags
from headway.tasks.targets import label_index
from headway.tasks.task import IGNORE, Choice, Example, Task, device_of, ids_array, pad
from headway.tasks.text_baselines import frequent_tag_baseline
from headway.tasks.text_pairs import PairFrame, require_text_encoder
from headway.tasks.windows import WordWindow, windows

BATCH = 64  # windows of one forward pass
LEAST_VOCAB = 500  # tokens …
WORDS_A_TOKEN = 120  # … and how many words of the training data there are for each


class TagReading(NamedTuple):
    """A window of a sentence: its tokens, and the first token of each word that is predicted in it."""

    ids: list[int]
    places: list[tuple[int, int]]  # (index in ids, word)


@dataclass
class Tag(Task):
    name: ClassVar[str] = "tag"
    builtin: ClassVar[Builtin] = ENTITIES
    budgeted: ClassVar[bool] = True
    fields: ClassVar[tuple[str, ...]] = ("words", "tags")
    metric: ClassVar[str] = "f1"
    input_kind: ClassVar[InputKind] = TextInput(("words",))
    prediction_kind: ClassVar[PredictionKind] = EntitiesPrediction()
    overflow_choices: ClassVar[tuple[str, ...]] = ("window", "truncate", "error")

    overflow: Literal["truncate", "error", "window"] = "window"
    labels: list[str] = field(default_factory=list, repr=False)  # in the order of the logits
    vocab: int = 8000
    lowercase: bool = False  # names start with capitals
    limit: int = 256  # tokens of a sentence, or of a window
    architecture: TextModel = "transformer"

    @classmethod
    def labels_in(cls, row: Row) -> Iterable[Label]:
        return row.fields["tags"]

    @classmethod
    def choose_settings(cls, facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
        """A small vocabulary for small data: most names in a new text are new, and are then read by parts that the
        model has seen."""
        if recipe == "finetune":
            return Choice()
        words = facts.total(lambda row: len(row.fields["words"]))
        vocab = min(cls.vocab, max(LEAST_VOCAB, words // WORDS_A_TOKEN))
        if vocab == cls.vocab or "task.vocab" in given:
            return Choice()
        why = f"{vocab:,} tokens: with {words:,} words few names are known, and the others are read by their parts"
        return Choice({"task.vocab": vocab}, {"vocabulary": why})

    @classmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        task = cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]
        task.labels = all_tags(map(str, facts.labels))
        if len(task.labels) < 2:
            raise DataError(f"the data has {len(task.labels)} tags; at least two are needed")
        if tokenizer is None:
            texts = (" ".join(row.fields["words"]) for row in facts.rows)
            task.tokenizer = Tokenizer.train(texts, kind="wordpiece", size=task.vocab, lowercase=task.lowercase)
        return task

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        head = TokenHeadConfig(len(self.labels), dropout=size.dropout)
        if self.architecture != "transformer":
            return recipes.recurrent_encoder(size, vocab=len(self.tokenizer), head=head, cell=self.architecture)
        return recipes.encoder(size, recipe, vocab=len(self.tokenizer), head=head)

    def adapt(self, model: Model) -> Model:
        require_text_encoder(model, self.name)
        self.limit = min(self.limit, model.max_length or self.limit)
        return with_head(model, TokenHeadConfig(len(self.labels), dropout=0.1))

    # --- tokens

    @cached_property
    def frame(self) -> PairFrame:
        return PairFrame.of(self.tokenizer)

    def readings(self, words: Sequence[str], *, where: str) -> list[TagReading]:
        """The windows of a sentence: one, or several if it is too long and `overflow` is "window"."""
        budget, after = self.limit - self.frame.cost[0], len(self.frame.single[1])
        if budget < 1:
            raise ConfigError(f"limit {self.limit} leaves no room for a word")
        pieces = self.pieces(words)
        whole = WordWindow(range(len(words)), range(len(words)))
        if sum(map(len, pieces)) <= budget or self.overflow != "window":
            ids, places = self._reading(pieces, whole)
            ids = self.truncation.apply(ids, self.limit, part="words", where=where, last=ids[-1] if after else None)
            return [TagReading(ids, [(at, word) for at, word in places if at < len(ids) - after])]
        pieces = [self.truncation.apply(piece, budget, part="one word", where=where) for piece in pieces]
        return [self._reading(pieces, window) for window in windows([len(piece) for piece in pieces], budget)]

    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        return word_pieces(self.tokenizer, words)

    def _reading(self, pieces: Sequence[list[int]], window: WordWindow) -> TagReading:
        before, after = self.frame.single
        ids, places = list(before), []
        for word in window.words:
            if word in window.predicted:
                places.append((len(ids), word))
            ids += pieces[word]
        return TagReading([*ids, *after], places)

    # --- training

    def examples(self, row: Row) -> list[Example]:
        tags = self.tag_ids(row)
        out = []
        for ids, places in self.readings(row.fields["words"], where=row.where):
            wanted = np.full(len(ids), IGNORE, dtype=np.int32)
            for at, word in places:
                wanted[at] = tags[word]
            out.append({"ids": ids_array(ids), "tags": wanted})
        return out if tags else []

    def tag_ids(self, row: Row) -> list[int]:
        words, tags = row.fields["words"], row.fields["tags"]
        if len(words) != len(tags):
            raise DataError(f"{row.where}: tags: {len(tags)} tags for {len(words)} words")
        return [label_index(self.labels, tag, where=row.where) for tag in tags]

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        rows, tags = [example["ids"] for example in examples], [example["tags"] for example in examples]
        count = sum(int((tag != IGNORE).sum()) for tag in tags)
        return Batch(self.text_inputs(rows), {"tags": pad(tags, IGNORE)}, count=count, where=where)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        logits = output_of(model, batch).logits.flatten(0, 1)  # (batch · length, label)
        return Loss(F.cross_entropy(logits, batch.targets["tags"].flatten(), ignore_index=IGNORE, reduction="sum"))

    # --- inference

    @torch.no_grad()
    def word_log_probs(
        self, model: nn.Module, sentences: Sequence[Sequence[TagReading]]
    ) -> list[dict[int, torch.Tensor]]:
        """For each sentence, word → log-probabilities (label,). Truncated words are left out."""
        readings = [(index, reading) for index, parts in enumerate(sentences) for reading in parts]

        def work(batch: Sequence[tuple[int, TagReading]]) -> list[torch.Tensor]:
            inputs = self.text_inputs([reading.ids for _, reading in batch])
            logits = output_of(model, Batch(inputs, {}, count=0, where=[]).to(device_of(model))).logits
            return list(logits.float().log_softmax(-1).cpu())  # (token, label) each

        scores = map_by_length(readings, work, length=lambda each: len(each[1].ids), size=BATCH)
        out: list[dict[int, torch.Tensor]] = [{} for _ in sentences]
        for (index, reading), row in zip(readings, scores, strict=True):
            out[index] |= {word: row[at] for at, word in reading.places}
        return out

    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """Words, tags and entities of each sentence, given as a list of words or a text; `start` and `end` count words.
        With overflow=truncate, `unread` is the number of truncated words at the end, whose tag is O."""
        self.refuse_options(options)
        sentences = [_split_words(value, number) for number, value in enumerate(inputs, 1)]
        readings = [self.readings(words, where=f"input {number}") for number, (words, _) in enumerate(sentences, 1)]
        out = []
        for (words, text_of), found in zip(sentences, self.word_log_probs(model, readings), strict=True):
            tags = repaired(self._tags(found, len(words)))
            named = [
                {"type": e.type, "text": text_of(e.start, e.end), "start": e.start, "end": e.end}
                for e in entities(tags)
            ]
            unread = len(words) - len(found)
            out.append({"words": words, "tags": tags, "entities": named} | ({"unread": unread} if unread else {}))
        return out

    def _tags(self, found: dict[int, torch.Tensor], count: int) -> list[str]:
        return [self.labels[int(found[word].argmax())] if word in found else "O" for word in range(count)]

    @torch.no_grad()
    def entity_groups(self, model: Model, texts: Sequence[str]) -> list[list[dict[str, Any]]]:
        """The entities of each text, with their characters and the mean probability of their tags."""
        spans = [[match.span() for match in WORD.finditer(text)] for text in texts]
        words = [[text[a:b] for a, b in own] for text, own in zip(texts, spans, strict=True)]
        readings = [self.readings(own, where=f"input {number}") for number, own in enumerate(words, 1)]
        out = []
        for text, own, found in zip(texts, spans, self.word_log_probs(model, readings), strict=True):
            best = [found[word].max(-1) if word in found else None for word in range(len(own))]
            tags = repaired(["O" if each is None else self.labels[int(each.indices)] for each in best])
            listed = []
            for entity in entities(tags):
                inside = [each.values for each in best[entity.start : entity.end] if each is not None]
                start, end = own[entity.start][0], own[entity.end - 1][1]
                score = float(torch.stack(inside).exp().mean()) if inside else 0.0
                listed.append(
                    {"entity_group": entity.type, "score": score, "word": text[start:end], "start": start, "end": end}
                )
            out.append(listed)
        return out

    def predictions(self, model: Model, rows: Iterable[Row], **options: Any) -> Evaluated:
        """Precision, recall and F1 of entities; accuracy and loss of words; `majority` is the accuracy of the most
        frequent tag. Truncated words count as O, and as `unread`."""
        self.refuse_options(options)
        rows = [row for row in rows if row.fields["words"]]
        if not rows:
            raise DataError("task tag: there are no examples to evaluate on")
        wanted = [self.tag_ids(row) for row in rows]
        found = self.word_log_probs(model, [self.readings(row.fields["words"], where=row.where) for row in rows])
        guessed = [self._tags(one, len(tags)) for one, tags in zip(found, wanted, strict=True)]
        truth = [[self.labels[tag] for tag in tags] for tags in wanted]
        losses = [-one[word][tags[word]] for one, tags in zip(found, wanted, strict=True) for word in one]
        flat = [tag for tags in truth for tag in tags]
        right = sum(a == b for a, b in zip((tag for tags in guessed for tag in tags), flat, strict=True))
        unread = len(flat) - len(losses)
        scores = {
            **entity_scores(guessed, truth),
            "accuracy": right / len(flat),
            "majority": Counter(flat).most_common(1)[0][1] / len(flat),
            "loss": float(torch.stack(losses).mean()),
            **({"unread": float(unread)} if unread else {}),
        }
        return Tags(scores, rows, guessed, truth)

    def classic_baseline(self, train: RowReader, rows: Sequence[Row]) -> Baseline | None:
        return frequent_tag_baseline(train(), [row for row in rows if row.fields["words"]])

    def encode_ahead(self, rows: Sequence[Row]) -> None:
        self.tokenizer.encode_ahead([row.fields["words"] for row in rows], special=False)

    def token_lengths(self, row: Row) -> dict[str, int]:
        return {"words": self.frame.cost[0] + sum(map(len, self.pieces(row.fields["words"])))}

    def length_limits(self) -> dict[str, int]:
        """Nothing is truncated where long sentences are split into windows."""
        return {} if self.overflow == "window" else {"words": self.limit}


def word_pieces(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """The tokens of each word; a word that the tokenizer drops (a lone control character) is the unknown token."""
    ids, owners = tokenizer.encode_words(words, special=False)
    out: list[list[int]] = [[] for _ in words]
    for token, owner in zip(ids, owners, strict=True):
        assert owner is not None
        out[owner].append(token)
    blank = tokenizer.unk_id if tokenizer.unk_id is not None else tokenizer.eos_id or 0
    return [piece or [blank] for piece in out]


def _split_words(value: Any, number: int) -> tuple[list[str], Any]:
    """The words of an input, and a function that gives the text of the words [start, end)."""
    if isinstance(value, str):
        spans = [match.span() for match in WORD.finditer(value)]
        return [value[a:b] for a, b in spans], lambda start, end: value[spans[start][0] : spans[end - 1][1]]
    if isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        return list(value), lambda start, end: " ".join(value[start:end])
    raise InputError(f"input {number}: expected a text or a list of words, found {type(value).__name__}")
