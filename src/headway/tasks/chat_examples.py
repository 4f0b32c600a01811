"""Conversations and preferences → token sequences → batches → loss: what `chat` learns from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from headway.data.batch import Batch, Loss
from headway.data.facts import Facts
from headway.data.length_batches import BatchLimits, by_length
from headway.data.read import Row
from headway.data.store import Store
from headway.errors import ConfigError, DataError, HeadwayError, InputError
from headway.models import recipes
from headway.models.config import ModelConfig
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size
from headway.preprocess.chat import Message, Tools
from headway.preprocess.chat_training import DEFAULT_TEMPLATE, Tokens, messages_of, tools_of, training_tokens
from headway.preprocess.text import Tokenizer
from headway.tasks import preferences
from headway.tasks.language_settings import choose_for_time
from headway.tasks.preferences import Objective, kind_of
from headway.tasks.task import Choice, Example, Task, ids_array
from headway.tasks.token_rows import log_probabilities, token_batch

TOGETHER = 16  # examples of which the reference model computes the log-probabilities
ROBUST_SMOOTHING = 0.1  # of the objective `robust` unless given
PREFERENCE_DEFAULTS = {"train.lr": 1e-5, "train.epochs": 3, "train.batch": 8}  # with recipe finetune


@dataclass(frozen=True)
class Reference:
    """The model that preferences are compared with. `check` raises if its weights are no longer those."""

    model: Model
    check: Callable[[], None] | None = None


@dataclass
class ChatExamples(Task):
    """The part of `chat` before inference."""

    vocab: int = 4096
    context: int = 512  # tokens of a conversation
    packing: bool = True  # conversations of a batch are laid end to end in one row, without padding
    objective: Objective | None = None  # None: by the data
    beta: float = 0.1  # preferences: how much the model is held to the reference
    label_smoothing: float = 0.0  # preferences: share of pairs that are taken to be in the wrong order

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.beta > 0 or not 0 <= self.label_smoothing < 0.5:
            raise ConfigError(
                f"task chat: beta must be above 0 and label_smoothing from 0 up to 0.5; they are {self.beta} and "
                f"{self.label_smoothing}"
            )
        if self.objective == "robust" and not self.label_smoothing:
            self.label_smoothing = ROBUST_SMOOTHING
        self._rows: Sequence[Row] = ()  # of `encode_ahead`
        self._ahead: dict[int, list[Tokens] | HeadwayError] = {}  # by `id` of these rows: several may be on one line
        self._reference_values: dict[int, np.ndarray] = {}  # log-probabilities of a row's answers
        self._reference: Reference | None = None
        self._held_out: tuple[Store, dict[tuple[str, int], int]] | None = None  # and the place of each row in it

    @classmethod
    def train_defaults(cls, recipe: str) -> dict[str, Any]:
        return {"epochs": 3, "batch": 16} if recipe == "finetune" else {"epochs": 10, "batch": 32}

    @classmethod
    def choose_settings(cls, facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
        """The objective follows from the fields of the first row."""
        first = facts.rows[0] if facts.rows else None
        kind = "answers" if first is None else kind_of(first)
        objective = given.get("task.objective") or preferences.DEFAULT[kind]
        if kind == "answers":
            return choose_for_time(facts, _texts, vocab=cls.vocab, context=None, recipe=recipe, given=given)
        settings = {"task.objective": objective, **(PREFERENCE_DEFAULTS if recipe == "finetune" else {})}
        return Choice(settings, {"objective": f"{objective}, as the data has {preferences.NEEDED[kind]}"})

    @classmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        task = cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]
        first = facts.rows[0] if facts.rows else None
        kind = "answers" if first is None else kind_of(first)
        task.objective = task.objective or preferences.DEFAULT[kind]
        if first is not None and kind != (wanted := preferences.KIND_OF[task.objective]):
            raise ConfigError(
                f"{first.where}: objective {task.objective} learns from {preferences.NEEDED[wanted]}; this data has "
                f"{preferences.NEEDED[kind]}"
            )
        if tokenizer is None:
            task.require_start()
            texts = (message["content"] or "" for row in facts.rows for message in conversation(row))
            task.tokenizer = Tokenizer.train(texts, kind="bpe", size=task.vocab)
        task.set_template()
        return task

    def require_start(self) -> None:
        if self.uses_reference:
            raise ConfigError(f"objective {self.objective} improves a trained chat model: name it with --start")

    def set_template(self) -> None:
        """A model without a chat template gets the default one, which is saved with it."""
        if self.tokenizer.chat_template is None:
            if self.tokenizer.eos_id is None:
                raise ConfigError("task chat: the tokenizer has no chat template and no token that ends a text (eos)")
            self.tokenizer.chat_template = DEFAULT_TEMPLATE

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        return recipes.decoder(size, recipe, vocab=len(self.tokenizer), context=self.context)

    def adapt(self, model: Model) -> Model:
        if not model.generates or model.reads_source:
            raise ConfigError("task chat starts from a decoder with a language-model head (GPT-2, LLaMA, …)")
        self.context = min(self.context, model.max_context or self.context)
        self.packing = self.packing and model.packs_sequences
        return model

    # --- training

    def encode_ahead(self, rows: Sequence[Row]) -> None:
        """All conversations are rendered by one process; the reference model computes its log-probabilities."""
        before = self._rows[-1:]
        self._rows, self._ahead, self._reference_values = rows, {}, {}
        if not rows:
            return
        by_row = [conversations(row, other=other) for row, other in zip(rows, partners(rows, before), strict=True)]
        given = [each for several in by_row for each in several]
        tools = [tools for row, several in zip(rows, by_row, strict=True) for tools in [row_tools(row)] * len(several)]
        found = iter(training_tokens(self.tokenizer, given, tools=tools, last_only=kind_of(rows[0]) != "answers"))
        for row, several in zip(rows, by_row, strict=True):
            tokens = [next(found) for _ in several]
            wrong = next((each for each in tokens if isinstance(each, HeadwayError)), None)
            self._ahead[id(row)] = wrong or [each for each in tokens if isinstance(each, Tokens)]
        if self._reference is not None and kind_of(rows[0]) != "answers":
            self._compute_reference(rows, self._reference)

    def tokens(self, row: Row) -> list[Tokens]:
        """Of the conversation; of preferences, of both."""
        found = self._ahead.get(id(row))
        if found is None:
            self.encode_ahead([row])
            found = self._ahead[id(row)]
        if isinstance(found, InputError):
            raise DataError(f"{row.where}: messages: {found}")
        if isinstance(found, HeadwayError):
            raise found
        return found

    def examples(self, row: Row) -> list[Example]:
        found = self.tokens(row)
        if kind_of(row) != "answers":
            return self._preference(row, found)
        (tokens,) = found
        ids = self.truncation.apply(tokens.ids.tolist(), self.context, part="conversation", where=row.where)
        learnt = tokens.learnt[: len(ids)]
        return [{"ids": ids_array(ids), "learnt": learnt}] if learnt[1:].any() else []

    def _preference(self, row: Row, found: list[Tokens]) -> list[Example]:
        fitted = self._fitted(found)
        self.truncation.exceeds(fitted.prompt, fitted.prompt_limit, part="prompt", where=row.where)
        self.truncation.exceeds(fitted.answer, fitted.answer_limit, part="answer", where=row.where)
        example = preferences.store_example(fitted.sequences)
        if (values := self._reference_values.get(id(row))) is not None:
            example["reference"] = values
        if kind_of(row) == "labelled":
            example["desirable"] = np.asarray([preferences.judged(row)[2]], dtype=np.int8)
        return [example]

    def _fitted(self, found: list[Tokens]) -> preferences.Fitted:
        return preferences.fit(found, self.context, bos=self.tokenizer.bos_id)

    def token_lengths(self, row: Row) -> dict[str, int]:
        found = self.tokens(row)
        if kind_of(row) == "answers":
            return {"conversation": len(found[0].ids)}
        fitted = self._fitted(found)
        return {"prompt": fitted.prompt, "answer": fitted.answer}

    def length_limits(self) -> dict[str, int]:
        if self.uses_reference:
            return {"answer": self.context - 1}
        return {"conversation": self.context}

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        options: dict[str, Any] = {"packing": self.packing, "pad_id": self.tokenizer.pad_id or 0, "where": where}
        if "ids" in examples[0]:
            return token_batch([Tokens(example["ids"], example["learnt"]) for example in examples], **options)
        batch = token_batch(preferences.in_order(examples), count=len(examples), **options)
        for name, dtype in (("reference", torch.float32), ("desirable", torch.bool)):
            if name in examples[0]:
                values = np.stack([example[name] for example in examples])  # (example, 2) or (example, 1)
                batch.targets[name] = torch.as_tensor(values, dtype=dtype).squeeze(-1)
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        if "reference" not in batch.targets:
            return Loss(-log_probabilities(model, batch).sum())
        labelled = "desirable" in batch.targets
        objective = self.objective if self.uses_reference else "kto" if labelled else "dpo"
        return preferences.preference_loss(
            model, batch, objective=objective or "dpo", beta=self.beta, label_smoothing=self.label_smoothing
        )

    # --- the reference model of preferences

    @property
    def uses_reference(self) -> bool:
        return self.objective is not None and self.objective != "answers"

    def set_reference(self, model: Model | None, *, check: Callable[[], None] | None = None) -> None:
        """The model whose log-probabilities are computed with the examples; None: they are already stored."""
        self._reference = None if model is None else Reference(model, check)

    def use_held_out(self, store: Store) -> None:
        """Evaluate by these examples, with the log-probabilities of the reference model."""
        places = numbered(store.where(index) for index in range(len(store)))
        self._held_out = store, {place: index for index, place in enumerate(places)}

    @torch.no_grad()
    def _compute_reference(self, rows: Sequence[Row], reference: Reference) -> None:
        if reference.check is not None:
            reference.check()
        ready = [row for row in rows if isinstance(self._ahead[id(row)], list)]
        examples = [preferences.store_example(self._fitted(self.tokens(row)).sequences) for row in ready]
        for group in by_length([self.length(example) for example in examples], BatchLimits(rows=TOGETHER)):
            found = preferences.answers(reference.model, self.batch([examples[i] for i in group], reference.model))
            for i, values in zip(group, found.log_probability.cpu().numpy(), strict=True):
                self._reference_values[id(ready[i])] = values.astype(np.float32)


def partners(rows: Sequence[Row], before: Sequence[Row]) -> list[Row]:
    """For each row the one before it, whose answer it is given in KTO's estimate of the divergence."""
    first = before[-1] if before else rows[min(1, len(rows) - 1)]
    return [first, *rows[:-1]]


def numbered(places: Iterable[str]) -> list[tuple[str, int]]:
    """Each place with the number of its occurrence: rows of a JSON array may be on one line."""
    counts: Counter[str] = Counter()
    out = []
    for place in places:
        out.append((place, counts[place]))
        counts[place] += 1
    return out


def conversations(row: Row, *, other: Row) -> list[list[Message]]:
    """What is computed of a row: the conversation; that with the chosen and that with the rejected answer; or that with
    the answer that is good or bad, and that with the answer of another row."""
    match kind_of(row):
        case "pairs":
            return list(preferences.pair(row))
        case "labelled":
            prompt, answer, _ = preferences.judged(row)
            return [[*prompt, *answer], [*prompt, *preferences.judged(other)[1]]]
        case _:
            return [conversation(row)]


def row_tools(row: Row) -> Tools | None:
    """The functions that the conversation of a row may call."""
    try:
        return tools_of(row.fields.get("tools"))
    except InputError as error:
        raise DataError(f"{row.where}: tools: {error}") from error


def conversation(row: Row) -> list[Message]:
    """The messages of a row: as given, or an instruction with its response."""
    fields = row.fields
    try:
        if "messages" in fields:
            return list(messages_of(fields["messages"]))
    except InputError as error:
        raise DataError(f"{row.where}: messages: {error}") from error
    question = "\n\n".join(text for name in ("instruction", "input") if (text := fields.get(name)))
    system = [{"role": "system", "content": fields["system"]}] if fields.get("system") else []
    return [
        *system,
        {"role": "user", "content": question},
        {"role": "assistant", "content": fields["response"]},
    ]


def _texts(row: Row) -> Iterable[str]:
    return (message["content"] or "" for message in conversation(row))
