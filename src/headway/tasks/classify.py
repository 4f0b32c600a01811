"""`classify`: one label, any number of labels, or a number for a text or a pair of texts, from the first token of an
encoder (BERT) or the last of a decoder (GPT)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor

from headway.baselines import Baseline
from headway.data.batch import Batch
from headway.data.builtin.messages import MESSAGES
from headway.data.builtin.pool import Builtin
from headway.data.dataset import RowReader
from headway.data.facts import Facts
from headway.data.read import Row
from headway.errors import ConfigError
from headway.kinds.inputs import PAIR, InputKind, PairInput, TextInput
from headway.models import recipes
from headway.models.config import ClassifyHeadConfig, ModelConfig
from headway.models.ensemble import members_of, with_members
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size, TextModel
from headway.models.rehead import with_head
from headway.preprocess.text import Tokenizer
from headway.tasks.classify_kinds import KindClassification, judging_half
from headway.tasks.ensemble import Members, cross_fitted, fitted_line
from headway.tasks.ngram_features import STRENGTH, TEXT
from headway.tasks.targets import OneLabel
from headway.tasks.task import Choice, Example, ids_array, pad
from headway.tasks.text_baselines import linear_baseline
from headway.tasks.text_pairs import encode_pair
from headway.tasks.text_settings import choose_for_labels

# options that earlier versions did not have, and their defaults
NEW = {"pair": False, "names": None, "segments": False, "ngrams": 0, "convolutions": 0}


@dataclass
class Classify(KindClassification):
    name: ClassVar[str] = "classify"
    builtin: ClassVar[Builtin] = MESSAGES
    budgeted: ClassVar[bool] = True
    fields: ClassVar[tuple[str, ...]] = ("text", "label")
    optional_fields: ClassVar[tuple[str, ...]] = ("text_pair",)
    text_fields: ClassVar[tuple[str, ...]] = PAIR
    tokens_at_once: ClassVar[int | None] = 8192
    ngram_strength: ClassVar[float] = STRENGTH  # of the L2 penalty of the linear map

    vocab: int = 8000
    lowercase: bool = True
    limit: int = 256  # tokens; of both texts and the special tokens
    pair: bool | None = False  # whether an input is a pair of texts; None: a text or a pair (a published model)
    # of the columns of a pair of texts in the training data
    names: list[str] | None = field(default=None, repr=False)
    segments: bool = False  # whether the model has segment embeddings, which tell the texts of a pair apart
    architecture: TextModel = "transformer"
    ngrams: int = 0  # a linear map of n-grams of up to so many tokens, whose logits are added; 0: none
    convolutions: int = 0  # filters of each size of convolutions over the tokens, whose logits are added; 0: none

    def __post_init__(self) -> None:
        super().__post_init__()
        self.members = Members(self.ngrams, self.convolutions, self.ngram_strength)
        self.fits_weights = False  # of an ensemble, to the held-out rows: while it is trained

    @property
    def input_kind(self) -> InputKind:  # type: ignore[override]
        if self.pair is False:
            return TextInput()
        if self.pair is None:
            return PairInput(("text",), optional=True)
        names = tuple(self.names or PAIR)
        example = dict(zip(names, ("One text", "Another text"), strict=True))
        return PairInput(PAIR, json.dumps(example, ensure_ascii=False), names=names)

    @property
    def row_fields(self) -> tuple[str, ...]:
        return (*self.input_kind.columns, "label")

    @property
    def optional_row_fields(self) -> tuple[str, ...]:
        return ("text_pair",) if self.pair is None else ()

    @classmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        task = cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]
        task.read_labels(facts, given=options.get("kind"))
        task.pair = any("text_pair" in row.fields for row in facts.rows)
        if tokenizer is None:
            texts = (row.fields[name] for row in facts.rows for name in task.input_kind.columns)
            task.tokenizer = Tokenizer.train(texts, kind="wordpiece", size=task.vocab, lowercase=task.lowercase)
        for name in task.members.options:
            if task.kind != "labels" or task.pair:
                raise ConfigError(f"task.{name} applies to one label for one text; leave it out")
        task.find_ngrams(facts)
        return task

    @classmethod
    def choose_settings(cls, facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
        return choose_for_labels(facts, recipe=recipe, given=given)

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        self.segments = bool(self.pair)
        head = ClassifyHeadConfig(self.target.outputs, pool=self._pool(), dropout=size.dropout)
        if self.architecture != "transformer":
            network: Any = recipes.recurrent_encoder(
                size,
                vocab=len(self.tokenizer),
                segments=2 * self.segments,
                head=replace(head, pool="mean"),
                cell=self.architecture,
            )
        else:
            network = recipes.encoder(size, recipe, vocab=len(self.tokenizer), segments=2 * self.segments, head=head)
        return self.members.config(network, vocab=len(self.tokenizer))

    def find_ngrams(self, facts: Facts) -> None:
        if self.ngrams:
            ids = [example["ids"] for example in self._some_examples(facts)]
            self.members.find(ids, vocab=len(self.tokenizer), outputs=self.target.outputs)

    def fit_initial(self, model: Model, facts: Facts) -> None:
        if "ngrams" not in members_of(model):
            return
        examples = self._some_examples(facts)
        ids, wanted = [example["ids"] for example in examples], self._wanted(examples).numpy()
        self.members.fit(model, ids, wanted, spelling=self.tokenizer.token)

    def start_training(self) -> None:
        super().start_training()
        self.fits_weights = bool(self.members.options)

    def finish_training(self, model: Model, rows: Iterable[Row]) -> list[str]:
        """The network and the members beside it get the weights with the lowest loss on all held-out rows."""
        lines = super().finish_training(model, rows)
        if not self.fits_weights or not members_of(model):
            return lines
        logits, examples, _ = self._part_logits(model, list(rows))
        return [*lines, fitted_line(model, logits, self._wanted(examples))]

    def quick_evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """In training, with weights of the parts that are fitted to the half of the rows that is not scored."""
        if not self.fits_weights or not members_of(model):
            return super().quick_evaluate(model, rows)
        logits, examples = self.cross_fitted(model, list(rows))
        return self.target.scores(logits, [example["label"] for example in examples])

    def cross_fitted(self, model: Model, rows: Sequence[Row]) -> tuple[Tensor, list[Example]]:
        """Logits (example, label) of the examples of the rows, with weights fitted to the half that each is not in."""
        logits, examples, half = self._part_logits(model, rows)
        return cross_fitted(logits, self._wanted(examples), half), examples

    def _part_logits(self, model: Model, rows: Sequence[Row]) -> tuple[Tensor, list[Example], Tensor]:
        """The logits of the parts of an ensemble (part, example, label), the examples of the rows, and in which half of
        them each is."""
        found = [(example, judging_half(row)) for row in rows for example in self.examples(row, strict=False)]
        examples, half = [example for example, _ in found], torch.tensor([judges for _, judges in found])
        return self.part_logits(model, examples), examples, half

    def _wanted(self, examples: Sequence[Example]) -> Tensor:
        """(example, label)"""
        return cast(OneLabel, self.target).soft_labels([example["label"] for example in examples])

    def _some_examples(self, facts: Facts) -> list[Example]:
        """Of the training rows; of very many, of evenly spread ones."""
        kept = facts.some(TEXT, size=lambda row: len(row.fields[self.input_kind.columns[0]]))
        with self.count_truncation():
            return [example for row in kept for example in self.examples(row, strict=False)]

    def use_columns(self, columns: Mapping[str, str]) -> None:
        if self.pair:
            found = [columns.get(name, name) for name in PAIR]
            self.names = None if any(map(str.isdecimal, found)) or found == [*PAIR] else found

    def adapt(self, model: Model) -> Model:
        if not (model.encodes or model.shape == "decoder") or model.inputs != "text":
            raise ConfigError(
                f"task classify starts from an encoder (BERT, RoBERTa, …) or a decoder (GPT-2, LLaMA, …) of text, "
                f"not from this {model.shape} of {model.inputs}"
            )
        if self.pair and None not in self.tokenizer.encode_pair("a", "b").parts[1:-1]:
            raise ConfigError(
                "the model's tokenizer puts no special token between the texts of a pair; start from a model that was "
                "made for pairs (BERT, RoBERTa, …)"
            )
        self.use_model(model)
        head = self._head(model)
        if self.scale is not None and not head.bias:
            self.scale = self.scale.without_mean()
        adapted = with_head(model, head)
        config = self.members.config(adapted.config, vocab=len(self.tokenizer))
        return with_members(adapted, config)

    def use_model(self, model: Model) -> None:
        """Sets what depends on the model: its length limit, and whether it has segments."""
        self.limit = min(self.limit, model.max_length or self.limit)
        self.segments = self.pair is not False and model.encodes and model.segments > 1

    def _head(self, model: Model) -> ClassifyHeadConfig:
        labels, old = self.target.outputs, model.config.head
        if model.head_kind == "classify":
            return replace(old, labels=labels)
        if not model.encodes:
            return ClassifyHeadConfig(labels, pool="last", bias=False)
        dense: Any = old.activation if model.head_kind == "pooler" else "tanh"
        return ClassifyHeadConfig(labels, pool=self._pool(), dense=dense, dropout=0.1, dense_dropout=False)

    def _pool(self) -> Any:
        """The classification token: in front of the text, or behind it as in XLNet."""
        cls, ids = self.tokenizer.cls_id, self.tokenizer.encode("a")
        if cls is None:
            return "mean"
        return "last" if ids[-1] == cls else "first"

    def about(self) -> str:
        inputs = {None: "a text or a pair of texts", True: "a pair of texts", False: "a text"}
        return f"{self.predicts()} for {inputs[self.pair]}"

    # --- training

    def read(self, value: Any, *, where: str) -> Example:
        if len(texts := self.input_kind.texts(value, where=where)) == 2:
            return self._read_pair(*texts, where=where)
        ids = self.tokenizer.encode(self.require_text(value, where=where))
        last = ids[-1] if ids and ids[-1] in self.tokenizer.special_ids else None
        ids = self.truncation.apply(ids, self.limit, part="text", where=where, last=last)
        return {"ids": ids_array(ids or [self._blank()])}

    def _read_pair(self, first: str, second: str, *, where: str) -> Example:
        ids, segments = encode_pair(
            self.tokenizer, first, second, limit=self.limit, truncation=self.truncation, where=where
        )
        return {"ids": ids_array(ids), **({"segments": ids_array(segments)} if self.segments else {})}

    def _blank(self) -> int:
        """The token of an empty text, where the tokenizer adds no special tokens."""
        return next((i for i in (self.tokenizer.bos_id, self.tokenizer.eos_id) if i is not None), 0)

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        inputs = self.text_inputs([example["ids"] for example in examples])
        if any("segments" in example for example in examples):
            none = ids_array([])
            inputs["segments"] = pad([example.get("segments", none) for example in examples], 0, like=inputs["inputs"])
        return Batch(inputs, self.targets(examples), count=len(examples), where=where)

    def classic_baseline(self, train: RowReader, rows: Sequence[Row]) -> Baseline | None:
        def text(row: Row) -> str:
            return " ".join(row.fields[name] for name in PAIR if name in row.fields)

        return linear_baseline(self.target, train(), rows, text=text, judges=self.judges)

    def encode_ahead(self, rows: Sequence[Row]) -> None:
        texts: Any = [tuple(row.fields[name] for name in PAIR) if self.pair else row.fields["text"] for row in rows]
        self.tokenizer.encode_ahead(texts)

    def token_lengths(self, row: Row) -> dict[str, int]:
        if not self.pair:
            return {"text": len(self.tokenizer.encode(row.fields["text"]))}
        both = self.tokenizer.encode_pair(row.fields["text"], row.fields["text_pair"])
        return {"text": both.parts.count(0), "text_pair": both.parts.count(1), "pair": len(both.ids)}

    def length_limits(self) -> dict[str, int]:
        return {"pair" if self.pair else "text": self.limit}

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().to_dict().items() if name not in NEW or value != NEW[name]}
