"""`classify`: one label for a text, from the first token of an encoder (BERT) or the last of a decoder (GPT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from headway.data.batch import Batch
from headway.data.builtin.messages import MESSAGES
from headway.data.builtin.pool import Builtin
from headway.data.dataset import RowReader
from headway.data.read import Row
from headway.errors import ConfigError
from headway.models import recipes
from headway.models.config import ClassifyHeadConfig, ModelConfig
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size
from headway.models.rehead import with_head
from headway.preprocess.text import Tokenizer
from headway.tasks.classification import Classification
from headway.tasks.task import Example, ids_array


@dataclass
class Classify(Classification):
    name: ClassVar[str] = "classify"
    builtin: ClassVar[Builtin] = MESSAGES
    fields: ClassVar[tuple[str, ...]] = ("text", "label")

    vocab: int = 8000
    lowercase: bool = True
    limit: int = 256  # tokens

    @classmethod
    def from_data(cls, rows: RowReader, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        task = cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]
        task.count_labels(rows)
        if tokenizer is None:
            texts = (row.fields["text"] for row in rows())
            task.tokenizer = Tokenizer.train(texts, kind="wordpiece", size=task.vocab, lowercase=task.lowercase)
        return task

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        head = ClassifyHeadConfig(len(self.labels), pool=self._pool(), dropout=size.dropout)
        return recipes.encoder(size, recipe, vocab=len(self.tokenizer), head=head)

    def adapt(self, model: Model) -> Model:
        if model.shape not in ("encoder", "decoder") or model.inputs != "text":
            raise ConfigError(
                f"task classify starts from an encoder (BERT, RoBERTa, …) or a decoder (GPT-2, LLaMA, …) of text, "
                f"not from this {model.shape} of {model.inputs}"
            )
        self.limit = min(self.limit, model.max_length or self.limit)
        return with_head(model, self._head(model))

    def _head(self, model: Model) -> ClassifyHeadConfig:
        labels, old = len(self.labels), model.config.head
        if model.head_kind == "classify":
            return replace(old, labels=labels)
        if model.shape == "decoder":
            return ClassifyHeadConfig(labels, pool="last", bias=False)
        dense: Any = old.activation if model.head_kind == "pooler" else "tanh"
        return ClassifyHeadConfig(labels, pool=self._pool(), dense=dense, dropout=0.1, dense_dropout=False)

    def _pool(self) -> Any:
        return "first" if self.tokenizer.cls_id is not None else "mean"

    # --- training

    def read(self, value: Any, *, where: str) -> Example:
        ids = self.tokenizer.encode(self.require_text(value, where=where))
        last = ids[-1] if ids and ids[-1] in self.tokenizer.special_ids else None
        ids = self.truncation.apply(ids, self.limit, part="text", where=where, last=last)
        return {"ids": ids_array(ids or [self._blank()])}

    def _blank(self) -> int:
        """The token of an empty text, where the tokenizer adds no special tokens."""
        return next((i for i in (self.tokenizer.bos_id, self.tokenizer.eos_id) if i is not None), 0)

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        texts = [example["ids"] for example in examples]
        return Batch(self.text_inputs(texts), self.targets(examples), count=len(examples), where=where)

    def encode_ahead(self, rows: Sequence[Row]) -> None:
        self.tokenizer.encode_ahead([row.fields["text"] for row in rows])

    def token_lengths(self, row: Row) -> dict[str, int]:
        return {"text": len(self.tokenizer.encode(row.fields["text"]))}

    def length_limits(self) -> dict[str, int]:
        return {"text": self.limit}
