"""`summarize` with `method=extract`: a summary consists of sentences of the text. Few examples do not suffice to learn
to write, but to learn which sentence says what a summary says (Kupiec et al. 1995; BertSumExt, Liu & Lapata 2019).

The model is a classifier of sentences, with the parts beside the transformer that `classify` has. It learns from soft
labels: the softmax of the ROUGE-1 of a text's sentences with its summary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from headway.baselines import Baseline
from headway.data.builtin.pool import Builtin
from headway.data.builtin.reports import REPORTS
from headway.data.check import Checker
from headway.data.dataset import RowReader
from headway.data.facts import Facts, Label
from headway.data.read import Row
from headway.errors import ConfigError, DataError
from headway.kinds.inputs import InputKind, TextInput
from headway.kinds.predictions import ExtractPrediction, PredictionKind
from headway.models.protocol import Model
from headway.preprocess.sentences import split_sentences
from headway.preprocess.text import Tokenizer
from headway.tasks import summarize
from headway.tasks.classify import Classify
from headway.tasks.evaluated import Evaluated
from headway.tasks.scores import rouge_signature, rouge_words
from headway.tasks.targets import SoftLabel, Target
from headway.tasks.task import Choice, Example
from headway.tasks.text_settings import Amount, choose_for_examples, choose_parts_beside

LABELS = ["other", "summary"]
OPTIONS = ("method", "sentences", "vocab", "lowercase", "limit", "overflow", "ngrams", "convolutions")
TEMPERATURE = 0.1  # of the softmax of ROUGE-1
MOST_SENTENCES = 10  # of a summary
RARE = 3  # a word that occurs so often at most is rare
RARE_SHARE = 0.04  # of the words of the summaries, from which on writing them cannot be learnt
LEAST_ROUGE = 0.2  # ROUGE-1 of the best sentence: below, sentences of the text are no summaries
SAMPLE = 2_000_000  # characters of the texts that this is found with


@dataclass
class ExtractSummary(Classify):
    name: ClassVar[str] = "summarize"
    builtin: ClassVar[Builtin] = REPORTS
    fields: ClassVar[tuple[str, ...]] = ("source", "target")
    optional_fields: ClassVar[tuple[str, ...]] = ()
    text_fields: ClassVar[tuple[str, ...]] = ("text",)
    metric: ClassVar[str] = "rouge1"
    input_kind: ClassVar[InputKind] = TextInput(("source",))
    prediction_kind: ClassVar[PredictionKind] = ExtractPrediction()
    row_fields: ClassVar[tuple[str, ...]] = ("source", "target")
    ngram_strength: ClassVar[float] = 3.0  # soft labels of sentences are far noisier than labels

    method: Literal["extract"] = "extract"
    sentences: int = 0  # of a summary; 0: as many as the summaries of the training data have words for

    def __post_init__(self) -> None:
        super().__post_init__()
        self.labels = list(LABELS)
        if not 0 <= self.sentences <= MOST_SENTENCES:
            raise ConfigError(f"sentences is {self.sentences}: it must be from 0 to {MOST_SENTENCES}")

    @classmethod
    def labels_in(cls, row: Row) -> Iterable[Label]:
        return ()

    @classmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        if tokenizer is not None:
            raise ConfigError("task.method=extract trains from scratch; leave --start or task.method out")
        if others := [name for name in options if name not in OPTIONS]:
            raise ConfigError(f"task.{others[0]} does not apply to task.method=extract; leave it out")
        task = cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]
        task.sentences = task.sentences or usual_sentences(facts.rows)
        texts = (row.fields["source"] for row in facts.rows)
        task.tokenizer = Tokenizer.train(texts, kind="wordpiece", size=task.vocab, lowercase=task.lowercase)
        task.find_ngrams(facts)
        return task

    @property
    def target(self) -> Target:
        return SoftLabel(self.labels)

    def checker(self) -> Checker:
        return Checker(limits=self.length_limits())

    def about(self) -> str:
        return f"{self.sentences} sentence{'s' * (self.sentences > 1)} of a text"

    def adapt(self, model: Model) -> Model:
        raise ConfigError("task.method=extract trains from scratch; leave --start or task.method out")

    # --- training

    def examples(self, row: Row, *, strict: bool = True) -> list[Example]:
        """A sentence each."""
        sentences = split_sentences(row.fields["source"])
        wanted = self._soft_labels(sentences, summarize.references([row])[0])
        each = zip(sentences, wanted, strict=True)
        return [
            {**self.read(text, where=row.where), "label": self.target.encode(label, where=row.where)}
            for text, label in each
        ]

    def _soft_labels(self, sentences: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """(sentence): the probability that each is in the summary."""
        if not sentences:
            return np.zeros(0)
        scores = np.array([overlap(text, references) for text in sentences])
        powers = np.exp((scores - scores.max()) / TEMPERATURE)
        return np.minimum(1, self.sentences * powers / powers.sum())

    def encode_ahead(self, rows: Sequence[Row]) -> None:
        self.tokenizer.encode_ahead([text for row in rows for text in split_sentences(row.fields["source"])])

    def token_lengths(self, row: Row) -> dict[str, int]:
        sentences = split_sentences(row.fields["source"])
        return {"text": max((len(self.tokenizer.encode(text)) for text in sentences), default=0)}

    # --- inference

    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The sentences of each text that are most probably in its summary, in their order."""
        self.refuse_options(options)
        texts = [
            split_sentences(self.require_text(value, where=f"input {number}")) for number, value in enumerate(inputs, 1)
        ]
        examples = [self.read(text, where=f"input {i}") for i, sentences in enumerate(texts, 1) for text in sentences]
        return self._chosen(texts, self.logits(model, examples))

    def _chosen(self, texts: Sequence[Sequence[str]], logits: Tensor) -> list[str]:
        """The summaries of texts, each given as its sentences; `logits` (sentence, label) are of all of them."""
        scores, out, begin = (logits[:, 1] - logits[:, 0]).tolist(), [], 0
        for sentences in texts:
            own = scores[begin : begin + len(sentences)]
            best = sorted(range(len(own)), key=lambda index: -own[index])[: max(1, self.sentences)]
            out.append(" ".join(sentences[index] for index in sorted(best)))
            begin += len(sentences)
        return out

    @torch.no_grad()
    def predictions(self, model: Model, rows: Iterable[Row], **options: Any) -> Evaluated:
        """The scores of written summaries; the loss is that of a sentence."""
        self.refuse_options(options)
        kept = list(rows)
        examples = [example for row in kept for example in self.examples(row)]
        return self._evaluated(kept, self.logits(model, examples), examples)

    def quick_evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        kept = list(rows)
        if not self.fits_weights:
            return self.evaluate(model, kept)
        return self._evaluated(kept, *self.cross_fitted(model, kept)).scores()

    def _evaluated(self, rows: list[Row], logits: Tensor, examples: Sequence[Example]) -> Evaluated:
        if not examples:
            raise DataError("task summarize: there are no examples to evaluate on")
        wanted = self.target.collate([example["label"] for example in examples])
        loss = float(self.target.loss(logits, wanted, training=False)) / len(examples)
        found = self._chosen([split_sentences(row.fields["source"]) for row in rows], logits)
        return summarize.evaluated_summaries(found, rows, loss=loss)

    def classic_baseline(self, train: RowReader, rows: Sequence[Row]) -> Baseline | None:
        return summarize.lead_baseline(rows)

    def signature(self) -> str:
        return rouge_signature()

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().to_dict().items() if name not in ("labels", "counts")}


def overlap(text: str, references: Sequence[str]) -> float:
    """ROUGE-1 of a text: F1 of the words, the best of the references."""
    own, best = Counter(words(text)), 0.0
    for reference in references:
        other = Counter(words(reference))
        best = max(best, 2 * (own & other).total() / max(own.total() + other.total(), 1))
    return best


def words(text: str) -> list[str]:
    return rouge_words(text).split()


def usual_sentences(rows: Sequence[Row]) -> int:
    """Sentences of a text that have as many words as a summary, on average."""
    summaries, usual = 0, 0.0  # words
    for row in rows:
        summaries += len(words(row.fields["target"]))
        parts = split_sentences(row.fields["source"])
        usual += sum(len(words(part)) for part in parts) / max(len(parts), 1)
    return min(MOST_SENTENCES, max(1, round(summaries / max(usual, 1))))


def choose_method(facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
    """Whether summaries are sentences of the text, and then the settings of their classifier; nothing where they are
    written."""
    if "task.method" in given:
        if given["task.method"] != "extract":
            return Choice()
        return _classifier(facts, recipe=recipe, given=given)
    settable = {"task.vocab", "task.limit"}
    if recipe != "modern" or any(name.startswith("task.") and name not in settable for name in given):
        return Choice()
    counted = Counter(word for row in facts.rows for word in words(row.fields["target"]))
    rare = sum(count for count in counted.values() if count <= RARE) / max(counted.total(), 1)
    if rare < RARE_SHARE:
        return Choice()
    some = facts.some(SAMPLE, size=lambda row: len(row.fields["source"]))
    best = [_best(row) for row in some]
    if not best or sum(best) / len(best) < LEAST_ROUGE:
        return Choice()
    choice = _classifier(facts, recipe=recipe, given=given)
    why = (
        f"extract: sentences of the text are chosen. {rare:.0%} of the words of the summaries occur {RARE} times at "
        "most, too seldom to learn to write them (task.method=write writes)"
    )
    return Choice({**choice.settings, "task.method": "extract"}, {"method": why, **choice.why})


def _best(row: Row) -> float:
    """ROUGE-1 of the best of several sentences; 0 of a text of one, where there is nothing to choose."""
    sentences, references = split_sentences(row.fields["source"]), summarize.references([row])[0]
    return max(overlap(text, references) for text in sentences) if len(sentences) > 1 else 0.0


def _classifier(facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
    texts: Iterator[str] = (text for row in facts.rows for text in split_sentences(row.fields["source"]))
    sizes = [len(text) for text in texts]
    choice = choose_for_examples(Amount(len(sizes), sum(sizes)), recipe=recipe, given=given)
    parts = choose_parts_beside(len(sizes), "sentences", given=given) if recipe == "modern" else Choice()
    return Choice({"train.batch": 32, **choice.settings, **parts.settings}, {**choice.why, **parts.why})
