"""`embed`: a vector for a text, close to those of texts with the same meaning. Trained on pairs with in-batch negatives
(InfoNCE, van den Oord et al. 2018); mean pooling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.baselines import Baseline
from headway.checkpoints.sentence import Pooling, SentenceSettings
from headway.data.batch import Batch, Loss
from headway.data.builtin.pairs import PAIRS
from headway.data.builtin.pool import Builtin
from headway.data.dataset import RowReader
from headway.data.facts import Facts
from headway.data.read import Row
from headway.data.truncation import TruncationCounter
from headway.errors import DataError, InputError
from headway.kinds.inputs import FieldsInput, InputKind
from headway.kinds.predictions import PredictionKind, VectorPrediction
from headway.models import recipes
from headway.models.config import ModelConfig
from headway.models.heads import pool
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size
from headway.preprocess.text import Tokenizer
from headway.tasks.distributed import map_by_length
from headway.tasks.task import MAX_OPTION, Example, Task, device_of, ids_array
from headway.tasks.text_baselines import retrieval_baseline
from headway.tasks.text_pairs import require_text_encoder, without_head


@dataclass
class Embed(Task):
    name: ClassVar[str] = "embed"
    builtin: ClassVar[Builtin] = PAIRS
    budgeted: ClassVar[bool] = True
    least_batch: ClassVar[int] = 32  # the other pairs of a batch are the negatives
    fields: ClassVar[tuple[str, ...]] = ("a", "b")
    metric: ClassVar[str] = "accuracy"
    input_kind: ClassVar[InputKind] = FieldsInput(("a", "b"), alone=("text",))
    prediction_kind: ClassVar[PredictionKind] = VectorPrediction()
    text_fields: ClassVar[tuple[str, ...]] = ("a", "b")

    vocab: int = 8000
    limit: int = 128  # tokens of a text
    temperature: float = 0.05  # divisor of the cosines in the loss
    pooling: Pooling = "mean"  # of the hidden states
    normalize: bool = True  # vectors of length 1

    @classmethod
    def train_defaults(cls, recipe: str) -> dict[str, Any]:
        return {**super().train_defaults(recipe), "batch": 64}  # the other pairs of a batch are the negatives

    @classmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        task = cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]
        if tokenizer is None:
            texts = (row.fields[side] for row in facts.rows for side in ("a", "b"))
            task.tokenizer = Tokenizer.train(texts, kind="wordpiece", size=task.vocab)
        return task

    @classmethod
    def from_sentence_settings(
        cls, tokenizer: Tokenizer, settings: SentenceSettings, *, max_length: int | None
    ) -> Self:
        """For a published encoder: pooling, normalisation and length as its sentence-transformers files say."""
        limit = min(settings.limit or MAX_OPTION, max_length or MAX_OPTION)
        return cls(tokenizer, limit=limit, pooling=settings.pooling, normalize=settings.normalize)

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        return recipes.encoder(size, recipe, vocab=len(self.tokenizer))

    def adapt(self, model: Model) -> Model:
        require_text_encoder(model, self.name)
        self.limit = min(self.limit, model.max_length or self.limit)
        return without_head(model)

    # --- training

    def ids(self, text: str, *, part: str, where: str) -> list[int]:
        return self._truncated(self.tokenizer.encode(text), self.truncation, part=part, where=where)

    def examples(self, row: Row) -> list[Example]:
        return [{side: ids_array(self.ids(row.fields[side], part=side, where=row.where)) for side in ("a", "b")}]

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        """All `a` texts, then all `b` texts. Pairs with a text in common are not each other's negatives."""
        firsts, seconds = [e["a"] for e in examples], [e["b"] for e in examples]
        texts = [*firsts, *seconds]
        return Batch(
            self.text_inputs(texts), {"same": _equal(firsts) | _equal(seconds)}, count=len(examples), where=where
        )

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Cross-entropy of finding each `b` among those of the batch from its `a`, and the reverse."""
        hidden = model(**batch.inputs).hidden
        first, second = F.normalize(self.pool(hidden, batch.inputs.get("padding_mask")), dim=-1).chunk(2)
        same = batch.targets["same"]
        own = torch.arange(len(same), device=same.device)
        other = same & (own[:, None] != own)
        scores = (first @ second.T / self.temperature).masked_fill(other, -torch.inf)  # (pair, pair)
        forth, back = (F.cross_entropy(side, own, reduction="sum") for side in (scores, scores.T))
        return Loss((forth + back) / 2)

    # --- inference

    def read(self, value: Any, *, where: str) -> Example:
        """Of one text."""
        return {"ids": ids_array(self.ids(self.require_text(value, where=where), part="text", where=where))}

    def pool(self, hidden: Tensor, padding_mask: Tensor | None) -> Tensor:
        return pool(hidden, padding_mask, self.pooling)

    def embedding(self, hidden: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Hidden states (text, length, width) → sentence embeddings (text, width), in float32."""
        vectors = self.pool(hidden, padding_mask).float()
        return F.normalize(vectors, dim=-1) if self.normalize else vectors

    def encode(
        self, texts: Sequence[str], *, part: str = "text", truncation: TruncationCounter | None = None
    ) -> list[list[int]]:
        """The ids of each text, at most `limit` of them. A text without tokens raises."""
        counter = self.truncation if truncation is None else truncation
        out = []
        for number, ids in enumerate(self.tokenizer.encode_batch(texts), 1):
            if not ids:
                raise InputError(f"{part} {number} has no tokens, so it has no embedding")
            out.append(self._truncated(ids, counter, part=part, where=f"{part} {number}"))
        return out

    def _truncated(self, ids: list[int], counter: TruncationCounter, *, part: str, where: str) -> list[int]:
        last = ids[-1] if ids and ids[-1] in self.tokenizer.special_ids else None
        return counter.apply(ids, self.limit, part=part, where=where, last=last)

    @torch.no_grad()
    def vectors(self, model: nn.Module, texts: Sequence[str], *, part: str = "text", size: int = 64) -> Tensor:
        """The sentence embeddings (text, width)"""
        ids = self.encode(texts, part=part)
        device = device_of(model)

        def work(batch: Sequence[list[int]]) -> list[Tensor]:
            inputs = {name: tensor.to(device) for name, tensor in self.text_inputs(batch).items()}
            return list(self.embedding(model(**inputs).hidden, inputs.get("padding_mask")).cpu())

        return torch.stack(map_by_length(ids, work, length=len, size=size)).to(device)

    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The vector of a text; the cosine similarity of a pair of texts."""
        self.refuse_options(options, "size")
        given = [_texts(value, number) for number, value in enumerate(inputs, 1)]
        if not given:
            return []
        found = iter(self.vectors(model, [text for texts in given for text in texts], **options))
        return [next(found).tolist() if len(texts) == 1 else _cosine(next(found), next(found)) for texts in given]

    @torch.no_grad()
    def evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """Retrieval of each `b` from its `a` among all pairs. A tie is a miss, and pairs with a text in common are not
        candidates for each other. `chance` is the accuracy of a random choice, `loss` the cross-entropy of finding `b`.
        """
        rows = list(rows)
        if not rows:
            raise DataError("task embed: there are no pairs to evaluate on")
        first, second = (
            F.normalize(self.vectors(model, [row.fields[side] for row in rows], part=side), dim=-1) for side in "ab"
        )
        return self.retrieval_scores(rows, lambda chunk: first[chunk] @ second.T)

    def retrieval_scores(self, rows: Sequence[Row], cosines_of: Callable[[Tensor], Tensor]) -> dict[str, float]:
        """`cosines_of` some rows: (row, `b` of every row)."""
        groups = [_numbered([row.fields[side] for row in rows]) for side in ("a", "b")]
        ranks, losses, positives = [], [], []
        for chunk in torch.arange(len(rows)).split(1024):
            cosines = cosines_of(chunk)
            same = torch.stack([group[chunk, None] == group for group in groups]).any(0)  # (query, candidate)
            same, own = same.to(cosines.device), chunk.to(cosines.device)
            positive = cosines.gather(1, own[:, None])  # (query, 1)
            ranks.append(1 + ((cosines >= positive) & ~same).sum(1))
            others = (cosines / self.temperature).masked_fill(same, -torch.inf).logsumexp(1)
            scaled = positive[:, 0] / self.temperature
            losses.append(torch.logaddexp(scaled, others) - scaled)
            positives.append(positive[:, 0])
        rank = torch.cat(ranks).double()
        return {
            "accuracy": float((rank == 1).double().mean()),
            "mrr": float((1 / rank).mean()),
            "positive_cosine": float(torch.cat(positives).mean()),
            "chance": 1 / len(rows),
            "loss": float(torch.cat(losses).mean()),
        }

    def classic_baseline(self, train: RowReader, rows: Sequence[Row]) -> Baseline | None:
        return retrieval_baseline(rows, self.retrieval_scores)

    def encode_ahead(self, rows: Sequence[Row]) -> None:
        self.tokenizer.encode_ahead([row.fields[side] for row in rows for side in ("a", "b")])

    def token_lengths(self, row: Row) -> dict[str, int]:
        return {side: len(self.tokenizer.encode(row.fields[side])) for side in ("a", "b")}

    def length_limits(self) -> dict[str, int]:
        return {"a": self.limit, "b": self.limit}


def _equal(texts: Sequence[np.ndarray]) -> Tensor:
    """(text, text), True where two are equal."""
    group = _numbered([text.tobytes() for text in texts])
    return group[:, None] == group


def _numbered(items: Sequence[Any]) -> Tensor:
    """Equal items get equal numbers."""
    numbers: dict[Any, int] = {}
    return torch.tensor([numbers.setdefault(item, len(numbers)) for item in items])


def _texts(value: Any, number: int) -> list[str]:
    if isinstance(value, str):
        return [value]
    pair = [value.get("a"), value.get("b")] if isinstance(value, Mapping) else value
    if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
        raise InputError(f"input {number}: task embed takes a text, or two texts to compare (a and b)")
    return list(pair)


def _cosine(first: Tensor, second: Tensor) -> float:
    return float(F.cosine_similarity(first, second, dim=-1))
