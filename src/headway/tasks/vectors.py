"""`vectors`: a vector for every word, learnt from running text (word2vec, Mikolov et al. 2013). Answers with the
nearest words, sums of words and analogies; scored by analogies and by the similarity of pairs of words.

The model is an encoder without blocks: its token table holds the vectors, so that `tag` and `classify` can start from
it. The training is `lineage/vectors.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.batch import Batch, Loss
from headway.data.builtin.families import FAMILIES
from headway.data.builtin.pool import Builtin
from headway.data.dataset import RowReader
from headway.data.facts import Facts
from headway.data.read import Row
from headway.data.word_questions import read_questions
from headway.errors import ConfigError, DataError, InputError, did_you_mean
from headway.kinds.inputs import InputKind, TextInput
from headway.kinds.predictions import NeighboursPrediction, PredictionKind
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.models.build import build
from headway.models.config import EncoderConfig, ModelConfig, StackConfig
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size
from headway.preprocess.text import Tokenizer
from headway.preprocess.words import split_words, word_tokenizer, words_of
from headway.tasks.task import Choice, Example, Task
from headway.tasks.word_expressions import SYNTAX, parse_expression

NEAREST = 10  # words of an answer
CHUNK = 1024  # questions scored at once
WORD_CHARACTERS = 6  # of text, about, to a word
ENOUGH, MOST_EPOCHS = 20_000_000, 50  # words trained on over all epochs of a small text, and its epochs at most
FEW_WORDS = 1_000_000  # of text, below which words that occur twice are kept
SYNTACTIC = "gram"  # sections of questions-words.txt that begin so are about forms of words


@dataclass
class Vectors(Task):
    name: ClassVar[str] = "vectors"
    builtin: ClassVar[Builtin] = FAMILIES
    fields: ClassVar[tuple[str, ...]] = ("text",)
    input_kind: ClassVar[InputKind] = TextInput(example="word")
    prediction_kind: ClassVar[PredictionKind] = NeighboursPrediction()
    metric: ClassVar[str] = "analogies"
    running_text: ClassVar[bool] = True
    own_job: ClassVar[str] = "lineage.vectors.run_vectors"

    architecture: Literal["cbow", "skip-gram", "elmo"] = "cbow"
    dimensions: int = 100  # numbers of a vector
    window: int = 5  # words on each side, at most
    negatives: int = 5  # words drawn at random for each window; 0: hierarchical softmax
    sample: float = 1e-3  # type: ignore[assignment]  # subsampling: the share of the text above which a word is thinned out; 0: never
    min_count: int = 5  # rarer words are left out
    lowercase: bool = True
    threads: int = 0  # 0: all cores; 1: the same vectors from the same seed
    vocab: int = 8000  # elmo: words that the language models predict
    limit: int = 40  # elmo: words of a sentence; longer ones are divided

    def __post_init__(self) -> None:
        super().__post_init__()
        least = {"dimensions": 1, "window": 1, "negatives": 0, "sample": 0, "min_count": 1, "threads": 0}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must be at least {value}")

    @classmethod
    def variant(cls, options: Mapping[str, Any]) -> type[Task]:
        if options.get("architecture") != "elmo":
            return cls
        from headway.tasks.context_vectors import ContextVectors

        return ContextVectors

    @classmethod
    def train_defaults(cls, recipe: str) -> dict[str, Any]:
        return {"epochs": 5, "lr": 0.05, "batch_unit": "tokens"}

    @classmethod
    def choose_settings(cls, facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
        """A small text is read more often, and its rarer words are kept."""
        if given.get("task.architecture") == "elmo":
            return cls.variant({"architecture": "elmo"}).choose_settings(facts, recipe=recipe, given=given)
        words = facts.total(lambda row: len(row.fields["text"])) // WORD_CHARACTERS
        epochs = max(5, min(MOST_EPOCHS, ENOUGH // max(words, 1)))
        settings: dict[str, Any] = {"train.epochs": epochs}
        settings |= {"task.min_count": 2} if words < FEW_WORDS else {}
        settings |= {"train.lr": 0.035} if given.get("task.architecture") == "skip-gram" else {}
        return Choice(settings, {"epochs": f"{epochs}, for a text of about {words:,} words"})

    @classmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        """The words that occur often enough, most frequent first."""
        if tokenizer is not None:
            raise ConfigError("task vectors learns its words from the text and starts from no other model")
        task = cls.without_words(options)
        counts = Counter(word for sentence in task.sentences(iter(facts.rows)) for word in sentence)
        words = [word for word, count in counts.most_common() if count >= task.min_count]
        task.tokenizer = word_tokenizer(words, lowercase=task.lowercase)
        return task

    @classmethod
    def without_words(cls, options: Mapping[str, Any]) -> Self:
        """The job that trains vectors counts the words as it reads the text."""
        return cls(tokenizer=word_tokenizer([], lowercase=True), **options)

    @classmethod
    def from_words(cls, words: Sequence[str], vectors: np.ndarray | None = None, **options: Any) -> tuple[Self, Model]:
        """The task and the model of these words, with their vectors (word, width)."""
        task = cls(tokenizer=word_tokenizer(words, lowercase=options.get("lowercase", True)), **options)
        if vectors is not None:
            task.dimensions = vectors.shape[1]
        model = build(word_vectors_config(len(task.tokenizer), task.dimensions))
        task.set_vectors(model, np.zeros((len(words), task.dimensions), np.float32) if vectors is None else vectors)
        return task, model.eval()

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        return word_vectors_config(len(self.tokenizer), self.dimensions)

    @torch.no_grad()
    def set_vectors(self, model: Model, vectors: np.ndarray) -> None:
        """Those of padding and of unknown words are zero."""
        table = model.token_table
        assert table is not None
        table.zero_()
        table[: len(vectors)] = torch.from_numpy(vectors)

    def adapt(self, model: Model) -> Model:
        raise ConfigError("task vectors starts from no other model; leave --start out")

    # --- training: of the text only its words; the rest is the job's

    def sentences(self, rows: Iterable[Row]) -> Iterable[list[str]]:
        """The words of every line."""
        for row in rows:
            for line in row.fields["text"].split("\n"):
                yield split_words(line, lowercase=self.lowercase)

    def examples(self, row: Row) -> list[Example]:
        return []

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        raise NotImplementedError("word2vec trains on windows of the corpus (lineage/word2vec_fit.py)")

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        raise NotImplementedError("word2vec trains on windows of the corpus (lineage/word2vec_fit.py)")

    def token_lengths(self, row: Row) -> dict[str, int]:
        return {"words": len(split_words(row.fields["text"]))}

    def target_line(self) -> str:
        return f"{len(self.words):,} different words that occur at least {self.min_count} times"

    # --- inference

    @cached_property
    def words(self) -> list[str]:
        return words_of(self.tokenizer)

    def find_word(self, word: str) -> int | None:
        """The id of a word as it is written, else in lower case."""
        for form in (word, word.lower()):
            index = self.tokenizer.id(form)
            if index is not None and index < len(self.words):
                return index
        return None

    def word_id(self, word: str, *, where: str) -> int:
        if (index := self.find_word(word)) is not None:
            return index
        close = did_you_mean(word.lower(), self.words[:50_000], otherwise="It occurred too rarely, or not at all")
        raise InputError(f"{where}: {word!r} is not among the {len(self.words):,} words with a vector; {close}")

    def unit_vectors(self, model: Model) -> Tensor:
        """(word, width), each of length 1, on the CPU: they are only looked up and compared."""
        table = model.token_table
        assert table is not None
        return F.normalize(table[: len(self.words)].float(), dim=-1).cpu()

    @torch.no_grad()
    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """For a word, a sum or an analogy the `n` nearest words and their cosine; for two words their cosine. The words
        of the input are not among the answers."""
        self.refuse_options(options, "n")
        units, count = self.unit_vectors(model), min(options.get("n", NEAREST), len(self.words))
        return [self._answer(units, text, f"input {number}", count) for number, text in enumerate(inputs, 1)]

    def _answer(self, units: Tensor, text: Any, where: str, count: int) -> Any:
        expression = parse_expression(self.require_text(text, where=where), where=where)
        ids = [self.word_id(word, where=where) for word, _ in expression.terms]
        if expression.kind == "cosine":
            return {"cosine": float(units[ids[0]] @ units[ids[1]])}
        signs = torch.tensor([sign for _, sign in expression.terms], dtype=units.dtype)
        cosines = units @ F.normalize(signs @ units[ids], dim=0)
        cosines[ids] = -torch.inf
        best = cosines.topk(min(count, len(self.words) - len(set(ids))))
        return [
            {"word": self.words[index], "cosine": cosine}
            for index, cosine in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    # --- scores

    @staticmethod
    def question_rows(paths: Sequence[Path], *, encoding: str | None) -> RowReader:
        return lambda: read_questions(paths, encoding=encoding)

    @torch.no_grad()
    def evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """Analogies: the share whose fourth word is the nearest to b - a + c, `semantic` and `syntactic` where the
        sections say which. Pairs: Spearman's rank correlation of cosines and given similarities. Questions with a word
        that has no vector are left out, and counted as `unknown`."""
        rows, units = list(rows), self.unit_vectors(model)
        analogies = [row for row in rows if "d" in row.fields]
        pairs = [row for row in rows if "score" in row.fields]
        if not analogies and not pairs:
            raise DataError("task vectors is evaluated on a file of analogies or of pairs of words with a similarity")
        out = self._analogies(units, analogies) if analogies else {}
        return out | (self._similarities(units, pairs) if pairs else {})

    def _analogies(self, units: Tensor, rows: Sequence[Row]) -> dict[str, float]:
        known, ids = self._known(rows, "abcd")
        if not known:
            raise DataError(f"none of the {len(rows):,} analogies has four words with a vector")
        right = torch.empty(len(known), dtype=torch.bool)
        for at in torch.arange(len(known)).split(CHUNK):
            a, b, c, d = ids[at].T
            cosines = F.normalize(units[b] - units[a] + units[c], dim=-1) @ units.T  # (question, word)
            for given in (a, b, c):
                cosines[torch.arange(len(at)), given] = -torch.inf
            right[at] = cosines.argmax(-1) == d
        out = {"analogies": float(right.double().mean())}
        syntactic = torch.tensor([row.fields.get("section", "").startswith(SYNTACTIC) for row in known])
        if syntactic.any() and not syntactic.all():
            out |= {"semantic": float(right[~syntactic].double().mean())}
            out |= {"syntactic": float(right[syntactic].double().mean())}
        return out | {"questions": float(len(known)), "unknown": float(len(rows) - len(known))}

    def _similarities(self, units: Tensor, rows: Sequence[Row]) -> dict[str, float]:
        known, ids = self._known(rows, "ab")
        if len(known) < 2:
            raise DataError(f"of the {len(rows):,} pairs fewer than two have two words with a vector")
        cosines = (units[ids[:, 0]] * units[ids[:, 1]]).sum(-1)
        wanted = torch.tensor([row.fields["score"] for row in known])
        return {
            "spearman": spearman(cosines.double().numpy(), wanted.double().numpy()),
            "pairs": float(len(known)),
            "unknown_pairs": float(len(rows) - len(known)),
        }

    def _known(self, rows: Sequence[Row], names: str) -> tuple[list[Row], Tensor]:
        """The rows whose words all have a vector, and the ids (row, word)."""
        found = [(row, [self.find_word(row.fields[name]) for name in names]) for row in rows]
        known = [(row, ids) for row, ids in found if None not in ids]
        ids = torch.tensor([ids for _, ids in known], dtype=torch.long).reshape(-1, len(names))
        return [row for row, _ in known], ids

    def about(self) -> str:
        return f"{SYNTAX}: {len(self.words):,} words, {self.dimensions} numbers each"


def word_vectors_config(vocab: int, width: int) -> EncoderConfig:
    """An encoder without blocks: its hidden states are the rows of its token table."""
    block = BlockConfig(
        width=width,
        attention=AttentionConfig(1, width),
        feedforward=FeedForwardConfig(width, activation="relu"),
        norm=NormConfig("layer", eps=1e-5),
    )
    return EncoderConfig(EmbeddingConfig(vocab, width), StackConfig(block, 0))


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """The correlation of ranks; equal values share the mean of theirs."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends - 1) / 2)[inverse]
