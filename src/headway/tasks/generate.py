"""`generate`: the next token, again and again (GPT-like). Trains on running text; answers by going on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.batch import Batch, Loss
from headway.data.builtin.manual import DOCUMENTS
from headway.data.builtin.pool import Builtin
from headway.data.dataset import RowReader
from headway.data.read import Row
from headway.errors import ConfigError
from headway.generation import tokens_left
from headway.models import recipes
from headway.models.config import LanguageHeadConfig, ModelConfig
from headway.models.decoder import Decoder
from headway.models.recipes import Recipe, Size
from headway.preprocess.text import Tokenizer
from headway.tasks.distributed import distributed_map
from headway.tasks.generation import APART, settings_of, write
from headway.tasks.task import Example, Task, device_of, ids_array


@dataclass
class Generate(Task):
    name: ClassVar[str] = "generate"
    builtin: ClassVar[Builtin] = DOCUMENTS
    fields: ClassVar[tuple[str, ...]] = ("text",)
    metric: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False
    running_text: ClassVar[bool] = True
    stream: ClassVar[bool] = True
    generates: ClassVar[bool] = True

    kind: Literal["char", "bpe"] = "bpe"
    vocab: int = 4096
    context: int = 256
    wrapped: bool = False  # prompts begin as the tokenizer begins a text (with <s>); text trained on here does not

    @classmethod
    def train_defaults(cls, recipe: str) -> dict[str, Any]:
        return {"steps": 1000, "batch": 16, "eval_every": 250, "decay": 1.0 if recipe == "modern" else 0.2}

    @classmethod
    def from_data(cls, rows: RowReader, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        settings = cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]
        if tokenizer is None:
            texts = (row.fields["text"] for row in rows())
            settings.tokenizer = Tokenizer.train(texts, kind=settings.kind, size=settings.vocab)
        return settings

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        return recipes.decoder(size, recipe, vocab=len(self.tokenizer), context=self.context)

    def adapt(self, model: nn.Module) -> nn.Module:
        if not isinstance(model, Decoder) or not isinstance(model.config.head, LanguageHeadConfig):
            raise ConfigError("generate starts from a decoder with a language-model head (GPT-2, LLaMA, …)")
        if model.config.context is not None:
            self.context = min(self.context, model.config.context)
        return model

    def examples(self, row: Row) -> list[Example]:
        """Pieces of running text follow each other; a row of a table is a document of its own and ends with </s>."""
        ids = self.ids_of(row)
        return [{"ids": ids_array(ids)}] if ids else []

    def ids_of(self, row: Row) -> list[int]:
        ids, eos = self.tokenizer.encode(row.fields["text"], special=False), self.tokenizer.eos_id
        return ids if row.fields.get("running") or eos is None or not ids else [*ids, eos]

    def example_count(self, examples: list[Example]) -> float:
        return sum(len(example["ids"]) for example in examples) / self.context

    def sample(self, examples: list[Example], most: int) -> list[Example]:
        ids = np.concatenate([example["ids"] for example in examples])
        return [{"ids": window} for window in np.resize(ids, (min(most, 8), self.context + 1))]

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        windows = torch.stack([torch.from_numpy(example["ids"].astype("int64")) for example in examples])
        inputs, targets = windows[:, :-1], windows[:, 1:]  # (batch, context)
        return Batch({"inputs": inputs}, {"ids": targets}, count=targets.numel(), where=where)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        logits = model(**batch.inputs).logits
        return Loss(F.cross_entropy(logits.flatten(0, 1), batch.targets["ids"].flatten(), reduction="sum"))

    def predict(self, model: nn.Module, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The continuation of each text, sampled unless beams are asked for. Unless told how much to write, as much as
        still fits, up to 100 tokens (500 where a constraint says when it is enough)."""
        assert isinstance(model, Decoder)
        apart = {name: options.pop(name) for name in APART if name in options}
        prompts = [self.prompt(text) for text in inputs]
        most = 500 if options.get("regex") is not None or options.get("json_schema") is not None else 100
        if options.get("overflow") != "window":
            most = max(1, min(most, tokens_left(self.context, max(map(len, prompts), default=0))))
        own: dict[str, Any] = {"max_new_tokens": most, "temperature": 0.8, "top_p": 0.95}
        if self.tokenizer.eos_id is not None:
            own["eos_ids"] = (self.tokenizer.eos_id,)
        options = self.generation_defaults.resolve(own, options, max_context=model.max_context)
        settings = settings_of(options, self.tokenizer)
        return write(model, prompts, settings, tokenizer=self.tokenizer, **apart)

    def prompt(self, text: str) -> list[int]:
        ids = self.tokenizer.encode(text, special=self.wrapped)
        bos = self.tokenizer.bos_id
        return ids or [bos if bos is not None else 0]

    @torch.no_grad()
    def evaluate(self, model: nn.Module, rows: Iterable[Row]) -> dict[str, float]:
        """Over the whole text, in windows of the context length: nats a token, perplexity, bits a byte."""
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

    @torch.no_grad()
    def text_loss(self, model: nn.Module, ids: Sequence[int], *, rows: int = 16) -> tuple[float, int]:
        """(summed loss, predictions): every token but the first is predicted once, from its own window."""

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
