"""`generate`: language modelling with a decoder (GPT). Trained on running text; predicts the continuation of a text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from headway.baselines import Baseline
from headway.data.batch import Batch, Loss
from headway.data.builtin.manual import DOCUMENTS
from headway.data.builtin.pool import Builtin
from headway.data.dataset import RowReader
from headway.data.facts import Facts
from headway.data.read import Row
from headway.errors import ConfigError
from headway.kinds.inputs import InputKind, TextInput
from headway.kinds.predictions import PredictionKind, TextPrediction
from headway.models import recipes
from headway.models.config import ModelConfig
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size, TextModel
from headway.preprocess.text import Tokenizer
from headway.tasks.distributed import distributed_map
from headway.tasks.evaluated import Evaluated
from headway.tasks.generation import CALL_OPTIONS, default_length, generate_texts, settings_from
from headway.tasks.language_settings import choose_for_time, text_of
from headway.tasks.permutation import permutation_loss, permuted
from headway.tasks.task import IGNORE, Choice, Example, Task, device_of, ids_array
from headway.tasks.text_baselines import ngram_model
from headway.tasks.text_predictions import Pieces

ORDER = 5  # tokens of the n-grams of the baseline
PIECES, LEAST = 100, 200  # of a text in a report, and characters of a piece at least


@dataclass
class Generate(Task):
    name: ClassVar[str] = "generate"
    builtin: ClassVar[Builtin] = DOCUMENTS
    fields: ClassVar[tuple[str, ...]] = ("text",)
    metric: ClassVar[str] = "loss"
    running_text: ClassVar[bool] = True
    stream: ClassVar[bool] = True
    timed: ClassVar[bool] = True
    prediction_kind: ClassVar[PredictionKind] = TextPrediction()

    kind: Literal["char", "bpe"] = "bpe"
    vocab: int = 4096
    context: int = 256
    wrapped: bool = False  # prompts get the tokenizer's special tokens (<s>); the training text does not
    architecture: TextModel | Literal["xlnet"] = "transformer"
    carry: bool = True  # a recurrent model reads the windows of a text in order and keeps its state between them

    @property
    def input_kind(self) -> InputKind:  # type: ignore[override]
        return TextInput(special_tokens=self.wrapped)

    @classmethod
    def train_defaults(cls, recipe: str) -> dict[str, Any]:
        decay = 1.0 if recipe in ("modern", "published") else 0.2
        return {"steps": 1000, "batch": 16, "eval_every": 250, "decay": decay}

    @classmethod
    def choose_settings(cls, facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
        return choose_for_time(facts, text_of, vocab=cls.vocab, context=cls.context, recipe=recipe, given=given)

    @classmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        task = cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]
        if tokenizer is None:
            texts = (row.fields["text"] for row in facts.rows)
            task.tokenizer = Tokenizer.train(texts, kind=task.kind, size=task.vocab)
        return task

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        if self.architecture == "xlnet":
            return recipes.two_stream(size, vocab=len(self.tokenizer), memory=self.context)
        if self.architecture != "transformer":
            return recipes.recurrent_decoder(size, vocab=len(self.tokenizer), cell=self.architecture)
        return recipes.decoder(size, recipe, vocab=len(self.tokenizer), context=self.context)

    def adapt(self, model: Model) -> Model:
        if not model.generates or model.reads_source:
            raise ConfigError("task generate starts from a decoder with a language-model head (GPT-2, LLaMA, …)")
        self.context = min(self.context, model.max_context or self.context)
        if model.predicts_any_order:
            self.architecture = "xlnet"
        return model

    def examples(self, row: Row) -> list[Example]:
        """Parts of running text are concatenated; a row of a table is a document and ends with </s>."""
        ids = self.ids_of(row)
        return [{"ids": ids_array(ids)}] if ids else []

    def encode_ahead(self, rows: Sequence[Row]) -> None:
        self.tokenizer.encode_ahead([row.fields["text"] for row in rows], special=False)

    def ids_of(self, row: Row) -> list[int]:
        ids, eos = self.tokenizer.encode(row.fields["text"], special=False), self.tokenizer.eos_id
        return ids if row.fields.get("running") or eos is None or not ids else [*ids, eos]

    @property
    def stream_in_order(self) -> bool:
        return self.architecture in recipes.CELLS and self.carry

    def example_count(self, examples: list[Example]) -> float:
        return sum(len(example["ids"]) for example in examples) / self.context

    def sample(self, examples: list[Example], count: int) -> list[Example]:
        ids = np.concatenate([example["ids"] for example in examples])
        return [{"ids": window} for window in np.resize(ids, (count, self.context + 1))]

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        windows = torch.stack([torch.from_numpy(example["ids"].astype("int64")) for example in examples])
        if self.architecture == "xlnet":
            return permuted(windows, seeds=seeds, where=where)
        inputs, targets = windows[:, :-1], windows[:, 1:]  # (batch, context)
        return Batch({"inputs": inputs}, {"ids": targets}, count=targets.numel(), where=where)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        if self.architecture == "xlnet":
            return permutation_loss(model, batch)
        logits = model(**batch.inputs).logits
        return Loss(F.cross_entropy(logits.flatten(0, 1), batch.targets["ids"].flatten(), reduction="sum"))

    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The continuation of each text, sampled unless `beams` is given. max_new_tokens is by default what fits the
        context, up to 100 tokens (500 under a constraint)."""
        call = {name: options.pop(name) for name in CALL_OPTIONS if name in options}
        texts = [self.require_text(text, where=f"input {number}") for number, text in enumerate(inputs, 1)]
        prompts = [self.prompt(text) for text in texts]
        limit = 500 if options.get("regex") is not None or options.get("json_schema") is not None else 100
        if options.get("overflow") != "window" and not model.carries_state:
            limit = default_length(limit, prompts, options, context=self.context, tokenizer=self.tokenizer)
        own: dict[str, Any] = {"max_new_tokens": limit, "temperature": 0.8, "top_p": 0.95}
        if self.tokenizer.eos_id is not None:
            own["eos_ids"] = (self.tokenizer.eos_id,)
        options = self.generation_defaults.resolve(own, options, max_context=model.max_context)
        settings = settings_from(options, self.tokenizer)
        return generate_texts(model, prompts, settings, tokenizer=self.tokenizer, **call)

    def prompt(self, text: str, *, where: str = "") -> list[int]:
        ids = self.tokenizer.encode(text, special=self.wrapped)
        bos = self.tokenizer.bos_id
        return ids or [bos if bos is not None else 0]

    @torch.no_grad()
    def evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """Over the whole text in windows of the context length: loss (nats per token), perplexity, bits per byte."""
        ids: list[int] = []
        size = 0
        for row in rows:
            ids += self.ids_of(row)
            size += len(row.fields["text"].encode())
        total, count = self.text_loss(model, ids)
        loss = total / max(count, 1)
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700)),
            "bits_per_byte": total / math.log(2) / max(size, 1),
            "tokens": float(count),
        }

    def predictions(self, model: Model, rows: Iterable[Row], **options: Any) -> Evaluated:
        """With the loss of about PIECES pieces of the text."""
        self.refuse_options(options)
        rows = list(rows)
        size = max(LEAST, sum(len(row.fields["text"]) for row in rows) // PIECES)
        parts = [Row({**row.fields, "text": row.fields["text"][at : at + size]}, f"{row.where}, character {at + 1:,}")
                 for row in rows for at in range(0, len(row.fields["text"]), size)]  # fmt: skip
        bits = [self.text_loss(model, self.ids_of(part))[0] / math.log(2) for part in parts]
        return Pieces(self.evaluate(model, rows), parts, bits)

    def baseline(self, scores: Mapping[str, float]) -> tuple[str, float] | None:
        return "every token equally likely", math.log(len(self.tokenizer))

    def classic_baseline(self, train: RowReader, rows: Sequence[Row]) -> Baseline | None:
        texts = (self.ids_of(row) for row in train())
        model, note = ngram_model(texts, vocab=len(self.tokenizer), order=ORDER)
        ids = np.concatenate([np.zeros(0, np.int64), *(np.asarray(self.ids_of(row), np.int64) for row in rows)])
        losses = model.losses(ids)
        size = sum(len(row.fields["text"].encode()) for row in rows)
        scores = {"loss": float(losses.mean()), "bits_per_byte": float(losses.sum()) / math.log(2) / max(size, 1)}
        return Baseline(f"an interpolated {ORDER}-gram model", scores, note=note) if len(losses) else None

    @torch.no_grad()
    def text_loss(self, model: Model, ids: Sequence[int], *, rows: int = 16) -> tuple[float, int]:
        """(summed loss, number of predictions): every token but the first is predicted once, within its window."""

        if model.carries_state:
            return self._carried_loss(model, ids, rows=rows)

        def work(block: Tensor) -> float:
            logits = model(block[:, :-1]).logits
            return float(F.cross_entropy(logits.flatten(0, 1), block[:, 1:].flatten(), reduction="sum"))

        stream = torch.tensor(ids, dtype=torch.long, device=device_of(model))
        full = max(0, (len(ids) - 1) // self.context)
        # (window, context + 1) each
        blocks = list(stream.unfold(0, self.context + 1, self.context).split(rows)) if full else []
        rest = stream[full * self.context :]
        if len(rest) > 1:
            blocks.append(rest[None])
        return sum(total for _, total in distributed_map(blocks, work)), max(len(ids) - 1, 0)

    def _carried_loss(self, model: Any, ids: Sequence[int], *, rows: int) -> tuple[float, int]:
        """As `text_loss`, with the state carried from window to window: the text in `rows` parts, read side by side."""
        stream = torch.tensor(ids, dtype=torch.long, device=device_of(model))
        length = max(1, -(-(len(ids) - 1) // rows))  # predictions of a part
        parts = [stream[start : start + length + 1] for start in range(0, len(ids) - 1, length)]
        cache, total = model.new_cache(len(parts)), 0.0
        for at in range(0, length, self.context):
            blocks = [block for part in parts if len(block := part[at : at + self.context + 1]) > 1]
            if len(blocks) < len(cache):  # the last part is shorter
                cache.select(range(len(blocks)))
            lengths = [len(block) - 1 for block in blocks]
            inputs = pad_sequence([block[:-1] for block in blocks], batch_first=True)
            wanted = pad_sequence([block[1:] for block in blocks], batch_first=True, padding_value=IGNORE)
            logits = model.step(inputs, cache, lengths=lengths if len(set(lengths)) > 1 else None, every=True)
            total += float(F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum"))
        return total, max(len(ids) - 1, 0)
