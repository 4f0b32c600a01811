"""`vectors` with `--model elmo`: vectors of words in their context, from language models in both directions (ELMo,
Peters et al. 2018). Trained to predict the next word of running text from each side; a marked word of a text has a
vector that depends on the whole text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.batch import Batch, Loss
from headway.data.builtin.pool import Builtin
from headway.data.builtin.senses import SENSE_SENTENCES
from headway.data.facts import Facts
from headway.data.read import Row
from headway.errors import ConfigError, DataError, InputError
from headway.kinds.inputs import InputKind, MarkedInput
from headway.kinds.predictions import PredictionKind, VectorPrediction
from headway.layers.characters import CharacterConfig, FilterConfig
from headway.layers.projected_lstm import ProjectedLSTMConfig
from headway.models.config import BiLMConfig, LanguageHeadConfig
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size
from headway.preprocess.character_text import CHARACTERS, WORD, CharacterTokenizer
from headway.preprocess.sentences import split_sentences
from headway.preprocess.text import Tokenizer
from headway.tasks.distributed import chunks, distributed_map, map_by_length
from headway.tasks.task import Choice, Example, device_of, ids_array
from headway.tasks.vectors import Vectors

RESERVED = ["<UNK>", "<S>", "</S>"]  # the first words of the vocabulary
MARKED = re.compile(r"\[([^\[\]\s]+)\]")
SYNTAX = "a text with a marked word (the [bank] of the river), or two such texts to compare, with ~ between them"
LONGEST_WORD = 30  # characters
FILTERS = 8  # for each number of a word's vector
SHARES = [1 / 64, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2]  # of the filters of 1, 2, … characters
BATCH = 32
SENTENCE = 20  # words, about
QUICK = 1000  # sentences of an evaluation in training


@dataclass
class ContextVectors(Vectors):
    builtin: ClassVar[Builtin] = SENSE_SENTENCES
    metric: ClassVar[str] = "loss"
    input_kind: ClassVar[InputKind] = MarkedInput(example="the [bank] of the river")
    prediction_kind: ClassVar[PredictionKind] = VectorPrediction()
    own_job: ClassVar[str] = ""

    architecture: Literal["cbow", "skip-gram", "elmo"] = "elmo"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.counts: Counter[str] | None = None  # of the words of a training text that was just read

    @classmethod
    def choose_settings(cls, facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
        return Choice({"train.lr": 3e-3, "train.optimizer": "adamw", "train.batch": 32, "train.batch_unit": "examples"})

    @classmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        if isinstance(tokenizer, CharacterTokenizer):
            return cls(tokenizer=tokenizer, **options)
        texts = (row.fields["text"] for row in facts.rows if "text" in row.fields)
        counts = Counter(word for text in texts for word in WORD.findall(text))
        task = cls(tokenizer=CharacterTokenizer(LONGEST_WORD), **options)
        frequent = [word for word, _ in counts.most_common(task.vocab - len(RESERVED))]
        if not frequent:
            raise DataError("there is no text to learn words from")
        task.tokenizer = CharacterTokenizer(LONGEST_WORD, [*RESERVED, *frequent])
        task.counts = counts
        return task

    def fit_initial(self, model: Model, facts: Facts) -> None:
        """The output begins with the words' frequencies as its bias. A bias of zeros takes thousands of updates to
        learn them; the LSTMs are quicker, by outputs that stay at the limit of their range, and learn little else."""
        bias = getattr(model.output_head, "bias", None)
        if self.counts is None or bias is None:
            return
        found = torch.tensor([float(self.counts[word]) for word in self.text.words])
        found[0] = self.counts.total() - found.sum()  # all other words
        found[1:3] = self.counts.total() / SENTENCE
        with torch.no_grad():
            bias.copy_(((found + 1) / (found + 1).sum()).log())

    @property
    def text(self) -> CharacterTokenizer:
        assert isinstance(self.tokenizer, CharacterTokenizer)
        return self.tokenizer

    def config(self, size: Size, recipe: Recipe) -> BiLMConfig:
        """A small ELMo. As published, its LSTMs are eight times as wide as what they are projected to, and most filters
        read six or seven characters. The published models have four (large) to 16 (small) filters for each number of a
        word's vector."""
        width = size.width // 2
        filters = tuple(FilterConfig(n, max(1, int(FILTERS * width * share))) for n, share in enumerate(SHARES, 1))
        embedding = CharacterConfig(width, CHARACTERS, 16, filters, longest=LONGEST_WORD, dropout=size.dropout)
        stack = ProjectedLSTMConfig(
            8 * width, width, layers=2, cell_clip=3.0, projection_clip=3.0, dropout=size.dropout
        )
        return BiLMConfig(embedding, stack, LanguageHeadConfig(tied=False, bias=True), vocab=len(self.text.words))

    def adapt(self, model: Model) -> Model:
        if model.shape != "bilm" or not model.has_language_head:
            raise ConfigError("task vectors goes on only from an ELMo trained here (--model elmo), with its words")
        return model

    # --- training

    def examples(self, row: Row) -> list[Example]:
        """The sentences of a text; a long one is divided."""
        out = []
        for sentence in split_sentences(row.fields["text"]):
            words = WORD.findall(sentence)
            for start in range(0, len(words), self.limit):
                part = words[start : start + self.limit]
                tokens, _ = self.text.encode_words(part)
                targets = [1, *(self.text.word_id(word) for word in part), 2]
                out.append({"ids": ids_array(tokens), "words": ids_array(targets)})
        return out

    def example_count(self, examples: list[Example]) -> float:
        return len(examples)

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        """Targets: the next word at every place but the last, by the forward layers; then the word before at every
        place but the first, by the backward layers."""
        inputs = self.text_inputs([example["ids"] for example in examples])
        words = [torch.tensor(example["words"]).long() for example in examples]
        width = inputs["inputs"].shape[1]
        places = [row * width + torch.arange(len(each) - 1) for row, each in enumerate(words)]
        forward = torch.cat(places)
        inputs["logit_positions"] = torch.cat([2 * forward, 2 * (forward + 1) + 1])  # (place, direction)
        targets = torch.cat([each[1:] for each in words] + [each[:-1] for each in words])
        return Batch(inputs, {"words": targets}, len(targets), where)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        losses = F.cross_entropy(model(**batch.inputs).logits, batch.targets["words"], reduction="none")
        forward, backward = losses.chunk(2)
        parts = {"forward": forward.sum(), "backward": backward.sum()}
        return Loss(parts["forward"] + parts["backward"], parts)

    def target_line(self) -> str:
        return f"the next and the previous of {len(self.text.words):,} words"

    def token_lengths(self, row: Row) -> dict[str, int]:
        return {"words": len(WORD.findall(row.fields["text"]))}

    def evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """Loss (nats a word, mean of both directions) and perplexity on running text."""
        return self._evaluate(model, self._sentences(rows))

    def quick_evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """Of about QUICK sentences, evenly spaced: a tenth of a long text would take longer than its training."""
        sentences = self._sentences(rows)
        return self._evaluate(model, sentences[:: max(1, len(sentences) // QUICK)])

    def _sentences(self, rows: Iterable[Row]) -> list[Example]:
        return [example for row in rows if "text" in row.fields for example in self.examples(row)]

    @torch.no_grad()
    def _evaluate(self, model: Model, examples: list[Example]) -> dict[str, float]:
        if not model.has_language_head:
            raise InputError("this model has no language head to evaluate; train a task on it (--start)")
        if not examples:
            raise DataError("task vectors with --model elmo is evaluated on running text; there is none")

        def work(chunk: Sequence[Example]) -> tuple[float, int]:
            batch = self.batch(chunk, model)
            return float(self.loss(model, batch).total), batch.count

        found = [each for _, each in distributed_map(chunks(examples, BATCH), work)]
        loss = sum(total for total, _ in found) / max(sum(count for _, count in found), 1)
        return {"loss": loss, "perplexity": math.exp(min(loss, 700))}

    def baseline(self, scores: Mapping[str, float]) -> tuple[str, float] | None:
        return "every word equally likely", math.log(max(len(self.text.words), 2))

    # --- inference

    @torch.no_grad()
    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The vector of the marked word of a text, in its context; of two texts the cosine of both."""
        self.refuse_options(options)
        texts = [
            self.require_text(value, where=f"input {number}").split(" ~ ") for number, value in enumerate(inputs, 1)
        ]
        marked = [self.marked(text, where=f"input {number}") for number, both in enumerate(texts, 1) for text in both]
        vectors = iter(self.word_vectors(model, marked))
        out: list[Any] = []
        for both in texts:
            found = [next(vectors) for _ in both]
            out.append(
                found[0].tolist()
                if len(both) == 1
                else {"cosine": float(F.cosine_similarity(found[0], found[1], dim=0))}
            )
        return out

    def marked(self, text: str, *, where: str) -> tuple[list[str], int]:
        """The words of a text, and which of them is marked."""
        found = list(MARKED.finditer(text))
        if len(found) != 1:
            raise InputError(f"{where}: expected {SYNTAX}; found {len(found)} marked words in {text[:60]!r}")
        before, after = (WORD.findall(part) for part in (text[: found[0].start()], text[found[0].end() :]))
        return [*before, found[0][1], *after], len(before)

    def word_vectors(self, model: Model, marked: Sequence[tuple[list[str], int]]) -> list[Tensor]:
        """(width,) of each marked word."""

        def work(batch: Sequence[tuple[list[str], int]]) -> list[Tensor]:
            inputs = self.text_inputs([np.asarray(self.text.encode_words(words)[0]) for words, _ in batch])
            hidden = model(**{name: tensor.to(device_of(model)) for name, tensor in inputs.items()}).hidden
            return [hidden[row, 1 + at].float().cpu() for row, (_, at) in enumerate(batch)]

        return map_by_length(list(marked), work, length=lambda each: len(each[0]), size=BATCH)

    def about(self) -> str:
        return SYNTAX
