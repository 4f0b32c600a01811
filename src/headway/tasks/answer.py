"""`answer`: extractive question answering (BERT on SQuAD 2): the span of a context that answers a question, or none.

Every token gets a score as the start and as the end of the answer. A long context is split into overlapping windows;
in a window without the answer the target is the first token, [CLS].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.batch import Batch, Loss
from headway.data.builtin.passages import PASSAGES
from headway.data.builtin.pool import Builtin
from headway.data.facts import Facts
from headway.data.read import Row
from headway.errors import ConfigError, DataError, InputError
from headway.kinds.inputs import FieldsInput, InputKind
from headway.kinds.predictions import PredictionKind, SpanPrediction
from headway.models import recipes
from headway.models.config import ModelConfig, TokenHeadConfig
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size
from headway.models.rehead import with_head
from headway.preprocess.text import Tokenizer
from headway.tasks import squad
from headway.tasks.distributed import map_by_length
from headway.tasks.evaluated import Evaluated
from headway.tasks.spans import NOWHERE, QuestionWindow, SpanReading, Spans, best_spans
from headway.tasks.task import Example, Task, pad
from headway.tasks.text_pairs import require_text_encoder
from headway.tasks.text_predictions import MeanTexts

MARKS = ("context", "span")  # of a window: [first, end) of the context's tokens; first and last token of the answer


@dataclass
class Answer(Task):
    name: ClassVar[str] = "answer"
    builtin: ClassVar[Builtin] = PASSAGES
    budgeted: ClassVar[bool] = True
    fields: ClassVar[tuple[str, ...]] = ("question", "context", "answers")
    metric: ClassVar[str] = "f1"
    input_kind: ClassVar[InputKind] = FieldsInput(
        ("question", "context"), '{"question": "How many?", "context": "There are two."}'
    )
    prediction_kind: ClassVar[PredictionKind] = SpanPrediction()
    overflow_choices: ClassVar[tuple[str, ...]] = ("window", "truncate", "error")

    overflow: Literal["truncate", "error", "window"] = "window"  # of a context; "window" truncates only the question
    vocab: int = 8000
    lowercase: bool = True
    limit: int = 384  # tokens of a window, with the question and special tokens
    question_limit: int = 64
    stride: int = 128  # tokens from the start of a window to the start of the next
    max_answer: int = 30  # tokens
    null_threshold: float = 0.0  # score margin over the best span at which there is no answer

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("limit", "question_limit", "stride", "max_answer"):
            if getattr(self, option) < 1:
                raise ConfigError(f"task answer: {option} is {getattr(self, option)}: it must be positive")

    @classmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        task = cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]
        if tokenizer is None:
            texts = (row.fields[part] for row in facts.rows for part in cls.input_kind.columns)
            task.tokenizer = Tokenizer.train(texts, kind="wordpiece", size=task.vocab, lowercase=task.lowercase)
        return task

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        head = TokenHeadConfig(2, answer=True)
        return recipes.encoder(size, recipe, vocab=len(self.tokenizer), segments=2, head=head)

    def adapt(self, model: Model) -> Model:
        require_text_encoder(model, self.name)
        self.limit = min(self.limit, model.max_length or self.limit)
        if model.head_kind == "token" and model.config.head.answer:
            return model
        return with_head(model, TokenHeadConfig(2, answer=True))

    # --- training

    def windows(self, question: str, context: str, *, where: str) -> list[QuestionWindow]:
        """The question with each window of the context."""
        both = self.tokenizer.encode_pair(question, context)
        question_at = [i for i, part in enumerate(both.parts) if part == 0]
        inside = [i for i, part in enumerate(both.parts) if part == 1]
        first, last = (inside[0], inside[-1] + 1) if inside else (len(both.ids), len(both.ids))
        kept = set(self.truncation.apply(question_at, self.question_limit, part="question", where=where))
        before = [i for i in range(first) if both.parts[i] is None or i in kept]
        after = list(range(last, len(both.ids)))
        budget = self.limit - len(before) - len(after)
        if budget < 1:
            raise ConfigError(
                f"{where}: a question of {len(kept)} tokens leaves no room for the context in a window of {self.limit}"
            )
        if self.overflow != "window":
            last = first + len(self.truncation.apply(inside, budget, part="context", where=where))
        out = []
        for start in range(first, max(last - budget, first) + self.stride, min(self.stride, budget)):
            middle = range(start, min(start + budget, last))
            taken = [*before, *middle, *after]
            out.append(
                QuestionWindow(
                    [both.ids[i] for i in taken],
                    [both.segments[i] for i in taken],
                    (len(before), len(before) + len(middle)),
                    [both.offsets[i] for i in middle],
                )
            )
            if start + budget >= last:
                break
        return out

    def examples(self, row: Row) -> list[Example]:
        windows = self.windows(row.fields["question"], row.fields["context"], where=row.where)
        answer = _first_answer(row)
        return [window.example(window.span(*answer) if answer else NOWHERE) for window in windows]

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        ids = [example["ids"] for example in examples]
        inputs = {**self.text_inputs(ids), "segments": pad([example["segments"] for example in examples], 0)}
        targets = {name: torch.from_numpy(np.stack([e[name] for e in examples]).astype(np.int64)) for name in MARKS}
        return Batch(inputs, targets, count=len(examples), where=where)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Cross-entropy of the start and of the end, each over [CLS] and the tokens of the context."""
        logits = _scores(model, batch)  # (window, length, start or end)
        return Loss(F.cross_entropy(logits, batch.targets["span"], reduction="sum") / 2)

    # --- inference

    @torch.no_grad()
    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The best span over all windows, with its probability in that window; `n` above 1 gives the n best as a list.
        No answer is "" from 0 to 0."""
        self.refuse_options(options, "n", "null_threshold")
        n, threshold = options.get("n", 1), options.get("null_threshold", self.null_threshold)
        pairs = [_question_and_context(value, number) for number, value in enumerate(inputs, 1)]
        readings = [SpanReading(context) for _, context in pairs]
        windows = [
            (reading, window)
            for number, (pair, reading) in enumerate(zip(pairs, readings, strict=True), 1)
            for window in self.windows(*pair, where=f"input {number}")
        ]

        def work(chunk: Sequence[tuple[SpanReading, QuestionWindow]]) -> list[Spans]:
            batch = self.batch([window.example() for _, window in chunk], model)
            spans = best_spans(_scores(model, batch).float(), longest=self.max_answer, n=n).cpu()
            return [spans.row(row) for row in range(len(chunk))]

        found = map_by_length(windows, work, length=lambda each: len(each[1].ids), size=32)
        for (reading, window), spans in zip(windows, found, strict=True):
            reading.add(window, spans)
        ranked = [reading.answers(null_threshold=threshold)[:n] for reading in readings]
        return ranked if n > 1 else [answers[0] for answers in ranked]

    @torch.no_grad()
    def predictions(self, model: Model, rows: Iterable[Row], **options: Any) -> Evaluated:
        """Exact match and F1 as in SQuAD, from 0 to 1, and the mean loss of a window."""
        self.refuse_options(options)
        rows = list(rows)
        if not rows:
            raise DataError("task answer: there are no questions to evaluate on")
        with self.count_truncation():  # the examples below count the same inputs
            found = [one["answer"] for one in self.predict(model, [self.model_input(row) for row in rows])]
        references = [[text for text, _ in row.fields["answers"]] for row in rows]
        examples = sorted((example for row in rows for example in self.examples(row)), key=self.length)
        scores = {**squad.report(found, references), "loss": self.mean_loss(model, examples)}
        return MeanTexts(
            scores, rows, found, references, self.input_kind.columns, "f1", score_of=partial(squad.best, squad.f1)
        )

    def encode_ahead(self, rows: Sequence[Row]) -> None:
        self.tokenizer.encode_ahead([(row.fields["question"], row.fields["context"]) for row in rows])

    def token_lengths(self, row: Row) -> dict[str, int]:
        parts = Counter(self.tokenizer.encode_pair(row.fields["question"], row.fields["context"]).parts)
        return {"question": parts[0], "context": parts[1]}

    def length_limits(self) -> dict[str, int]:
        """A context that is split into windows has no limit."""
        context = {} if self.overflow == "window" else {"context": self.limit - self.question_limit}
        return {"question": self.question_limit, **context}


def _scores(model: nn.Module, batch: Batch) -> Tensor:
    """(window, length, start or end); −∞ where no answer can start or end."""
    logits = model(**batch.inputs).logits
    at = torch.arange(logits.shape[1], device=logits.device)
    first, last = batch.targets["context"].T[:, :, None]
    allowed = ((at >= first) & (at < last)) | (at == 0)
    return logits.masked_fill(~allowed[:, :, None], -torch.inf)


def _first_answer(row: Row) -> tuple[int, int] | None:
    """[start, end) of the first answer in characters; None where there is no answer."""
    answers = [(text, start) for text, start in row.fields["answers"] if text.strip()]
    if not answers:
        return None
    text, start = answers[0]
    there = row.fields["context"][start : start + len(text)] if start >= 0 else ""
    if there != text:
        raise DataError(
            f"{row.where}: answers: {text!r} is not at character {start} of the context, where {there!r} is; fix it"
        )
    return start + len(text) - len(text.lstrip()), start + len(text.rstrip())


def _question_and_context(value: Any, number: int) -> tuple[str, str]:
    question, context = (value.get(part) if isinstance(value, Mapping) else None for part in Answer.input_kind.columns)
    if not isinstance(question, str) or not isinstance(context, str):
        raise InputError(f'input {number}: task answer takes {{"question": text, "context": text}}')
    return question, context
