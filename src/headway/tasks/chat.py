"""`chat`: answers in a conversation. The format is the model's own chat template, or a plain one.

From conversations (instruction tuning, Ouyang et al. 2022) the loss is on the assistant's answers alone, each with the
token that ends it. From preferences it is that of DPO or KTO (preferences.py)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headway.data.batch import Batch
from headway.data.builtin.dialogues import DIALOGUES
from headway.data.builtin.pool import Builtin
from headway.data.length_batches import BatchLimits, by_length
from headway.data.read import Row
from headway.data.split import drawn_rows
from headway.errors import DataError, InputError
from headway.kinds.inputs import ConversationInput, InputKind
from headway.kinds.predictions import PredictionKind, TextPrediction
from headway.models.protocol import Model
from headway.preprocess.chat import chat_ids, turn_ends
from headway.preprocess.chat_training import messages_of, tools_of
from headway.tasks import preferences
from headway.tasks.chat_examples import TOGETHER, ChatExamples, conversation, numbered, row_tools
from headway.tasks.distributed import distributed_map
from headway.tasks.generation import CALL_OPTIONS, default_length, generate_texts, settings_from
from headway.tasks.preferences import kind_of
from headway.tasks.task import Example

SAMPLED = 64  # conversations of which `evaluate` generates the last answer
LONGEST = 256  # tokens of such an answer
TOKENISED_TOGETHER = 1000  # rows


@dataclass
class Chat(ChatExamples):
    name: ClassVar[str] = "chat"
    builtin: ClassVar[Builtin] = DIALOGUES
    fields: ClassVar[tuple[str, ...]] = ("messages",)
    input_kind: ClassVar[InputKind] = ConversationInput()
    prediction_kind: ClassVar[PredictionKind] = TextPrediction()
    metric: ClassVar[str] = "loss"
    timed: ClassVar[bool] = True

    def model_input(self, row: Row) -> Any:
        """The conversation without the answer at its end, with the functions that it may call; an instruction may lack
        its response."""
        if kind_of(row) != "answers":
            messages = preferences.prompt_of(row)
        else:
            messages = conversation(Row({"response": "", **row.fields}, row.where))
            end = max((i for i, message in enumerate(messages, 1) if message["role"] != "assistant"), default=0)
            messages = messages[:end]
        if not messages:
            raise DataError(f"{row.where}: messages: there is nothing to answer; give a message of the user")
        tools = row_tools(row)
        return messages if tools is None else {"messages": messages, "tools": tools}

    def prompt(self, value: Any, *, where: str) -> list[int]:
        try:
            if isinstance(value, str):
                return chat_ids(self.tokenizer, [{"role": "user", "content": value}])
            given = value if isinstance(value, Mapping) else {"messages": value}
            tools = tools_of(given.get("tools"))
            return chat_ids(self.tokenizer, messages_of(given.get("messages")), tools=tools)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error

    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The answer to each message or conversation, sampled unless temperature is 0 or `beams` is given."""
        call = {name: options.pop(name) for name in CALL_OPTIONS if name in options}
        prompts = [self.prompt(value, where=f"input {number}") for number, value in enumerate(inputs, 1)]
        limit = default_length(500, prompts, options, context=self.context, tokenizer=self.tokenizer)
        ends = {*turn_ends(self.tokenizer), self.tokenizer.eos_id} - {None}
        own: dict[str, Any] = {
            "max_new_tokens": limit,
            "temperature": 0.8,
            "top_p": 0.95,
            "eos_ids": tuple(sorted(ends)),
        }
        options = self.generation_defaults.resolve(own, options, max_context=model.max_context)
        options["eos_ids"] = tuple(dict.fromkeys([*options.get("eos_ids", ()), *own["eos_ids"]]))
        settings = settings_from(options, self.tokenizer)
        return generate_texts(model, prompts, settings, tokenizer=self.tokenizer, **call)

    @torch.no_grad()
    def quick_evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """Of answers: their loss, in nats per token, and perplexity. Of preferences: how often the chosen answer is the
        more likely one and, where the reference is known, the loss and the rewards."""
        rows = list(rows)
        examples = self._evaluated(rows)
        if not examples:
            raise DataError("task chat: there is no answer to evaluate on")
        groups = by_length([self.length(example) for example in examples], BatchLimits(rows=TOGETHER))
        judging = kind_of(rows[0]) != "answers"

        def work(group: Sequence[int]) -> tuple[dict[str, float], int]:
            batch = self.batch([examples[i] for i in group], model)
            parts = self._pair_scores(model, batch) if judging else {"loss": self.loss(model, batch).total}
            return {name: float(value) for name, value in parts.items()}, batch.count

        found = [each for _, each in distributed_map(list(groups), work)]
        count = sum(number for _, number in found)
        scores = {name: sum(parts[name] for parts, _ in found) / max(count, 1) for name in found[0][0]}
        if judging:
            return {**scores, "examples": float(count)}
        return {**scores, "perplexity": math.exp(min(scores["loss"], 700)), "tokens": float(count)}

    def _evaluated(self, rows: Sequence[Row]) -> list[Example]:
        """The examples of the rows, from the run's store where they are there."""
        store, places = self._held_out or (None, {})
        wanted = numbered(row.where for row in rows)
        if store is not None and rows and all(place in places for place in wanted):
            return [store[places[place]] for place in wanted]
        out: list[Example] = []
        for start in range(0, len(rows), TOKENISED_TOGETHER):
            part = rows[start : start + TOKENISED_TOGETHER]
            self.encode_ahead(part)
            out += [example for row in part for example in self.examples(row)]
        self.encode_ahead([])
        return out

    def _pair_scores(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Sums over the examples of a batch."""
        loss = self.loss(model, batch) if "reference" in batch.targets else None
        parts = {} if loss is None else {"loss": loss.total, **loss.parts}
        if "desirable" in batch.targets:
            return parts
        likelihood = preferences.likelihood_parts(preferences.answers(model, batch))
        return {**parts, **{name: value.sum() for name, value in likelihood.items()}}

    def evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """As `quick_evaluate`, and the share of answers that end by themselves, of SAMPLED conversations."""
        rows = list(rows)
        scores = self.quick_evaluate(model, rows)
        if scores.keys() == {"examples"}:
            raise InputError("answers that are marked as good or bad are evaluated with a reference model: --reference")
        prompts = [self.model_input(row) for row in drawn_rows(rows, SAMPLED)]
        fits = [each for each in prompts if len(self.prompt(each, where="")) < self.context]
        if fits:
            found = self.predict(
                model, fits, details=True, temperature=0.0, max_new_tokens=min(LONGEST, self.context), overflow="window"
            )
            scores["ended"] = sum(answer["finished_by"] == "eos" for answer in found) / len(found)
        return scores

    def baseline(self, scores: Mapping[str, float]) -> tuple[str, float] | None:
        if self.uses_reference:
            loss = {"ipo": 1 / (4 * self.beta**2), "kto": 0.5}.get(self.objective or "", math.log(2))
            return "the model it started from", loss
        return "every token equally likely", math.log(len(self.tokenizer))
