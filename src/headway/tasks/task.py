"""What is asked of a model: row → examples → batch, output → loss, output → answer, answers → score.

A task object is what was decided before training (tokenizer, labels, limits) and is saved beside the model; its fields
other than the tokenizer are its options. One file a task.
"""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.batch import Batch, Loss
from headway.data.builtin.pool import Builtin
from headway.data.dataset import RowReader
from headway.data.read import Row
from headway.data.truncation import TruncationCounter
from headway.errors import ConfigError, InputError
from headway.generation.defaults import GenerationDefaults
from headway.models.config import ModelConfig
from headway.models.recipes import Recipe, Size
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer
from headway.tasks.distributed import distributed_map
from headway.validation import from_dict

Example = dict[str, Any]  # arrays of any rank, and bytes: what a store takes
PREPROCESSING = ("tokenizer", "loaded_processor")  # fields that the model's Processor holds; the others are options
IGNORE = -100  # a target that is not asked for
MAX_OPTION = 10**9  # an option's number is smaller


@dataclass
class Task(ABC):
    name: ClassVar[str]
    builtin: ClassVar[Builtin]  # the data of a command that is given none
    fields: ClassVar[tuple[str, ...]]  # what a raw row must have
    metric: ClassVar[str]  # the figure that decides which weights are best
    higher_is_better: ClassVar[bool] = True
    stacks: ClassVar[int] = 1  # 2: encoder and decoder
    running_text: ClassVar[bool] = False  # a plain text file is one long text and not a list of lines
    stream: ClassVar[bool] = False  # trains on windows over the whole text, `context` tokens long
    generates: ClassVar[bool] = False  # `predict` writes text and takes generation options
    default_size: ClassVar[str] = "tiny"
    input_fields: ClassVar[tuple[str, ...]] = ("text",)  # what `predict` takes
    reads_text: ClassVar[bool] = True  # False: there is no tokenizer
    overflow_choices: ClassVar[tuple[str, ...]] = (
        "truncate",
        "error",
    )  # what it can do with an example that is too long

    generation_defaults = GenerationDefaults()  # of the model's files; not an option

    tokenizer: Tokenizer = field(repr=False)
    overflow: Literal["truncate", "error", "window"] = "truncate"

    def __post_init__(self) -> None:
        if self.overflow not in self.overflow_choices:
            raise ConfigError(f"overflow {self.overflow!r}: {self.name} knows {', '.join(self.overflow_choices)}")
        self.truncation = TruncationCounter(self.overflow)

    # --- before training

    @classmethod
    def train_defaults(cls, recipe: str) -> dict[str, Any]:
        """What this task changes of a recipe's training settings; how long to train must be among them."""
        return {"epochs": 3} if recipe == "finetune" else {"epochs": 10}

    @classmethod
    @abstractmethod
    def from_data(cls, rows: RowReader, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        """Decides everything that depends on the data: the tokenizer (unless one is given), the labels."""

    @abstractmethod
    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        """The model for this task, from scratch."""

    @abstractmethod
    def adapt(self, model: nn.Module) -> nn.Module:
        """A trained model made ready for this task: a new head if it needs one."""

    # --- learning

    @abstractmethod
    def examples(self, row: Row) -> list[Example]:
        """One row as arrays of whole numbers; several when it is cut into windows."""

    def length(self, example: Example) -> int:
        """What padding depends on."""
        return max(
            (len(value) for value in example.values() if isinstance(value, np.ndarray) and value.ndim), default=1
        )

    def example_count(self, examples: list[Example]) -> float:
        """As how many examples training sees these."""
        return len(examples)

    def sample(self, examples: list[Example], most: int) -> list[Example]:
        """A few examples as training would batch them, to time a step with."""
        return examples[:most]

    @abstractmethod
    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        """`seeds` has a key per example, for tasks that draw at random: equal whatever batch it lands in."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Loss: ...

    # --- using

    @abstractmethod
    def predict(self, model: nn.Module, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """What a person gets, one for each input."""

    def model_input(self, row: Row) -> Any:
        """The part of a row that a model is shown."""
        if len(self.input_fields) == 1:
            return row.fields[self.input_fields[0]]
        return {name: row.fields[name] for name in self.input_fields}

    def parse_input(self, text: str) -> Any:
        """An input as it is typed: a text, or a JSON object where a task takes several."""
        if len(self.input_fields) == 1:
            return text
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            wanted = json.dumps(dict.fromkeys(self.input_fields, "…"), ensure_ascii=False)
            raise InputError(f"{self.name} takes a JSON object such as {wanted}, not {text[:60]!r}") from error
        missing = [name for name in self.input_fields if not isinstance(value, dict) or name not in value]
        if missing:
            raise InputError(f"the input has no {missing[0]!r}: {text[:60]!r}")
        return value

    @abstractmethod
    def evaluate(self, model: nn.Module, rows: Iterable[Row]) -> dict[str, float]: ...

    def mean_loss(self, model: nn.Module, examples: Sequence[Example]) -> float:
        """A prediction's, over all of them."""

        def work(chunk: Sequence[Example]) -> tuple[float, int]:
            batch = self.collate(chunk, seeds=[()] * len(chunk), where=[]).to(device_of(model))
            return float(self.loss(model, batch).total), batch.count

        found = [both for _, both in distributed_map(batches(examples, 32), work)]
        return sum(total for total, _ in found) / max(sum(count for _, count in found), 1)

    def signature(self) -> str:
        """What makes the scores comparable: the library and its settings."""
        return ""

    def token_lengths(self, row: Row) -> dict[str, int]:
        """Lengths in tokens, part by part, before anything is cut."""
        return {}

    def length_limits(self) -> dict[str, int]:
        return {}

    # --- keeping

    def to_dict(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in PREPROCESSING}

    def processor(self, base: Processor) -> Processor:
        """`base`, with what this task preprocesses its inputs by."""
        return base.with_tokenizer(self.tokenizer)

    def use_processor(self, processor: Processor) -> None:
        """Preprocess inputs by the files of the model's folder."""
        self.tokenizer = processor.tokenizer  # type: ignore[assignment]

    @classmethod
    def from_dict(cls, data: dict[str, Any], tokenizer: Tokenizer | None) -> Self:
        if tokenizer is None and cls.reads_text:
            raise ConfigError(f"task {cls.name} reads text, but the model folder has no tokenizer")
        if not isinstance(data, dict):
            raise ConfigError(f"headway.json: options of task {cls.name} must be an object, not {data!r:.80}")
        names = {f.name for f in dataclasses.fields(cls)} - set(PREPROCESSING)
        unknown = [name for name in data if name not in names]
        if unknown:
            known = ", ".join(sorted(names))
            raise ConfigError(f"headway.json: task {cls.name} has no option {unknown[0]!r}; known: {known}")
        hints = get_type_hints(cls)
        options = {name: from_dict(hints[name], value, path=f"headway.json: {name}") for name, value in data.items()}
        for name, value in options.items():
            low = 0 if isinstance(value, int) else -MAX_OPTION
            if isinstance(value, int | float) and not low <= value <= MAX_OPTION:
                raise ConfigError(f"headway.json: {name} is {value}: not a number that the option can have")
        return cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def pad(rows: Sequence[Sequence[int] | np.ndarray], value: int) -> Tensor:
    """(row, longest), filled up on the right."""
    out = torch.full((len(rows), max(len(row) for row in rows)), value, dtype=torch.long)
    for index, row in enumerate(rows):
        out[index, : len(row)] = torch.as_tensor(np.asarray(row, dtype=np.int64))
    return out


def padding_mask(rows: Sequence[Sequence[int] | np.ndarray]) -> Tensor | None:
    """(row, longest), True = real; None when nothing is padded, which lets the fast kernel run without a mask."""
    lengths = [len(row) for row in rows]
    if min(lengths) == max(lengths):
        return None
    return torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]


def without_none(**tensors: Tensor | None) -> dict[str, Tensor]:
    """Those that are there."""
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def batches(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def ids_array(ids: Sequence[int]) -> np.ndarray:
    return np.asarray(ids, dtype=np.int32)
