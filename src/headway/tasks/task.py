"""The interface of a task: row → examples → batch, output → loss, output → prediction, predictions → scores.

A task object holds what is decided before training (tokenizer, labels, length limits) and is saved with the model; its
fields other than the tokenizer are its options.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, cast, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn

from headway.baselines import Baseline
from headway.data.batch import Batch, Loss
from headway.data.builtin.pool import Builtin
from headway.data.check import Checker
from headway.data.dataset import RowReader
from headway.data.facts import Facts, Label, scan
from headway.data.read import Row
from headway.data.store import Store
from headway.data.truncation import TruncationCounter
from headway.errors import ConfigError, InputError, did_you_mean
from headway.generation.defaults import GenerationDefaults
from headway.kinds.inputs import InputKind, TextInput
from headway.kinds.predictions import PredictionKind, is_better_higher
from headway.models.config import ModelConfig
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer
from headway.tasks.distributed import chunks, distributed_map
from headway.tasks.evaluated import Evaluated
from headway.validation import from_dict

Example = dict[str, Any]  # arrays of any rank, and bytes: what a store takes
PREPROCESSING = ("tokenizer", "loaded_processor")  # fields that the model's Processor holds; the others are options
IGNORE = -100  # a target that is left out of the loss
MAX_OPTION = 10**9  # largest number an option may have in headway.json


@dataclass(frozen=True)
class Choice:
    """Settings chosen for a data set by their names on the command line ("train.batch", "model.width", "task.patch"),
    and what was chosen in words, for a report."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Task(ABC):
    name: ClassVar[str]
    input_kind: ClassVar[InputKind] = TextInput()
    prediction_kind: ClassVar[PredictionKind]
    builtin: ClassVar[Builtin]  # the data of commands without DATA
    fields: ClassVar[tuple[str, ...]]  # fields that a data row must have
    optional_fields: ClassVar[tuple[str, ...]] = ()  # fields that a data row may have
    text_fields: ClassVar[tuple[str, ...]] = ("text",)  # that `--text`, given once for each, names the columns of
    metric: ClassVar[str]  # the score by which the best weights are kept
    stacks: ClassVar[int] = 1  # stacks of blocks that a size is divided among: 2 for an encoder-decoder
    running_text: ClassVar[bool] = False  # a plain text file is one document, not a list of lines
    stream: ClassVar[bool] = False  # trains on windows of `context` tokens over the concatenated text
    default_size: ClassVar[str] = "tiny"
    packages: ClassVar[Mapping[str, str]] = {}  # that training needs -> the extra of headway that has them
    reads_text: ClassVar[bool] = True  # False: the task has no tokenizer
    overflow_choices: ClassVar[tuple[str, ...]] = ("truncate", "error")  # for examples over the length limit
    budgeted: ClassVar[bool] = False  # batch, rate, limit and evaluations follow from the budget (jobs/budget.py)
    timed: ClassVar[bool] = False  # the same of runs with a time limit only, and from scratch too
    least_batch: ClassVar[int] = 4  # that they may choose
    own_job: ClassVar[str] = ""  # module.function in `headway` that trains it in place of the one loop
    generation_defaults = GenerationDefaults()  # of the model's files; not an option

    tokenizer: Tokenizer = field(repr=False)
    overflow: Literal["truncate", "error", "window"] = "truncate"

    def __post_init__(self) -> None:
        if self.overflow not in self.overflow_choices:
            raise ConfigError(
                f"overflow {self.overflow!r}: task {self.name} supports {', '.join(self.overflow_choices)}"
            )
        self.truncation = TruncationCounter(self.overflow)

    # --- before training

    @property
    def stream_in_order(self) -> bool:
        """Whether the windows of a stream follow one another in training, for a model that carries a state."""
        return False

    @property
    def row_fields(self) -> tuple[str, ...]:
        """The fields that a row must have for this task as it was trained."""
        return self.fields

    @property
    def optional_row_fields(self) -> tuple[str, ...]:
        return ()

    @classmethod
    def train_defaults(cls, recipe: str) -> dict[str, Any]:
        """Training settings that replace those of the recipe; steps, epochs or minutes must be among them."""
        return {"epochs": 3} if recipe == "finetune" else {"epochs": 10}

    @classmethod
    def variant(cls, options: Mapping[str, Any]) -> type[Task]:
        """The class of the task with these options, where several share a name."""
        return cls

    @classmethod
    def labels_in(cls, row: Row) -> Iterable[Label]:
        """The labels of a row, which `scan` counts."""
        return ()

    @classmethod
    def scan(cls, rows: Iterable[Row]) -> Facts:
        """The one pass over the training rows before they are tokenised."""
        return scan(rows, labels=cls.labels_in)

    @classmethod
    def choose_settings(cls, facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
        """Settings that follow from the data, in place of `train_defaults` and the default size. `given` are the user's
        own, which are kept whatever is chosen."""
        return Choice()

    @classmethod
    @abstractmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        """The task for this data: trains a tokenizer unless one is given, collects the labels."""

    @abstractmethod
    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        """Config of a model for this task, trained from scratch."""

    @abstractmethod
    def adapt(self, model: Model) -> Model:
        """A trained model prepared for this task: with a new head if it needs one."""

    # --- training

    def fit_initial(self, model: Model, facts: Facts) -> None:  # noqa: B027 - optional
        """Sets what is fitted to the training rows before the first step of a new run, rather than trained."""

    def start_training(self) -> None:  # noqa: B027 - optional
        """Before the first step of a run, new or resumed."""

    def finish_training(self, model: Model, rows: Iterable[Row]) -> list[str]:
        """After the last step: fits what is not trained to the held-out rows; returns lines to report."""
        return []

    def judges(self, row: Row) -> bool:
        """Whether a held-out row of the run may judge the model: False where something was fitted to it."""
        return True

    @property
    def judging_note(self) -> str:
        """Which of the held-out rows judge, in words; empty: all."""
        return ""

    @abstractmethod
    def examples(self, row: Row) -> list[Example]:
        """A row as arrays of integers; several examples if it is cut into windows."""

    def training_examples(self, row: Row) -> list[Example]:
        """`examples` of a row that is trained on, as they are stored: what every epoch would repeat is done here."""
        return self.examples(row)

    def encode_ahead(self, rows: Sequence[Row]) -> None:  # noqa: B027 - optional
        """Encodes the texts of some rows on all cores, before `examples` and `token_lengths` of each."""

    def length(self, example: Example) -> int:
        """Tokens of the example: batches are formed by it."""
        return max(
            (len(value) for value in example.values() if isinstance(value, np.ndarray) and value.ndim), default=1
        )

    def example_count(self, examples: list[Example]) -> float:
        """The number of examples that these are in training."""
        return len(examples)

    def sample(self, examples: list[Example], count: int) -> list[Example]:
        """A few examples in the form that training batches them, to time a step."""
        return examples[:count]

    @abstractmethod
    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        """The examples as one batch. `seeds` has a key for each example, for random draws that do not depend on the
        other examples."""

    def partners(self, key: tuple[int, ...], count: int) -> Sequence[int]:
        """Indices, below `count`, of the training examples that `collate` mixes into the example of this key; it finds
        them as the entry "partners" of the example."""
        return ()

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Loss: ...

    @property
    def uses_reference(self) -> bool:
        """Whether the loss compares with the model that training starts from (DPO): what that model computes is stored
        with the examples, also with the held-out ones."""
        return False

    def set_reference(self, model: Model | None, *, check: Callable[[], None] | None = None) -> None:
        raise InputError(f"task {self.name} is not compared with a reference model; leave it out")

    def use_held_out(self, store: Store) -> None:  # noqa: B027 - optional
        """Evaluate by these examples, where rows of them are evaluated."""

    # --- inference

    def read(self, value: Any, *, where: str) -> Example:
        """The arrays of an input, without its target."""
        raise InputError(f"task {self.name} has no method `read`, so its inputs cannot be shown")

    @abstractmethod
    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """One prediction for each input."""

    def batch(self, examples: Sequence[Example], model: nn.Module) -> Batch:
        """The examples collated for inference, on the device of the model."""
        return self.collate(examples, seeds=[()] * len(examples), where=[]).to(device_of(model))

    def text_inputs(self, rows: Sequence[Sequence[int] | np.ndarray]) -> dict[str, Tensor]:
        """Token ids as the model's `inputs` and `padding_mask`."""
        return without_none(inputs=pad(rows, self.tokenizer.pad_id or 0), padding_mask=padding_mask(rows))

    def refuse_options(self, options: Mapping[str, Any], *known: str) -> None:
        """Raises unless every option of `predict` is known."""
        for name in options:
            if name not in known:
                hint = did_you_mean(name, known, otherwise=f"known: {', '.join(known)}" if known else "it takes none")
                raise InputError(f"task {self.name} has no option {name!r}; {hint}")

    def require_text(self, value: Any, *, where: str) -> str:
        if not isinstance(value, str):
            raise InputError(f"{where}: task {self.name} takes a text, not {type(value).__name__} ({value!r:.60})")
        return value

    def model_input(self, row: Row) -> Any:
        """The input of `predict` in a data row."""
        return self.input_kind.of_row(row)

    def use_columns(self, columns: Mapping[str, str]) -> None:  # noqa: B027 - optional
        """Takes the names that the columns of the training data have: field -> column."""

    def evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """The scores. A task defines this or `predictions`, which give each other."""
        return self.predictions(model, rows).scores()

    def predictions(self, model: Model, rows: Iterable[Row], **options: Any) -> Evaluated:
        """What a report is written from and two models are compared by: scores, and a prediction for every row where
        the task judges single rows. Takes the options of `evaluate`."""
        return Evaluated(cast(Any, self).evaluate(model, rows, **options))

    def quick_evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """The scores of a training run: as `evaluate`, by a fast search where text is generated."""
        return self.evaluate(model, rows)

    def baseline(self, scores: Mapping[str, float]) -> tuple[str, float] | None:
        """What a prediction that ignores its input is, in words, and its value of `metric` where `scores` were found;
        None if it has none."""
        if (known := self.prediction_kind.baseline) is not None:
            words, score = known
            return (words, scores[score]) if score in scores else None
        return ("no correct answer", 0.0) if is_better_higher(self.metric) else None

    def classic_baseline(self, train: RowReader, rows: Sequence[Row]) -> Baseline | None:
        """A cheap classic model that is fitted to the training rows within seconds, and its scores on the held-out
        `rows`; None if the task has none."""
        return None

    def search(self, model: Model, **options: Any) -> str:
        """How `evaluate` generates text under these options, in words; empty for a task that generates none."""
        self.refuse_options(options)
        return ""

    @contextmanager
    def count_truncation(self) -> Iterator[TruncationCounter]:
        """While inside, truncated inputs are counted by the given counter, apart from those of the training data."""
        kept, self.truncation = self.truncation, TruncationCounter(self.overflow)
        try:
            yield self.truncation
        finally:
            self.truncation = kept

    def mean_loss(self, model: nn.Module, examples: Sequence[Example]) -> float:
        """Mean loss of a target."""

        def work(chunk: Sequence[Example]) -> tuple[float, int]:
            batch = self.batch(chunk, model)
            return float(self.loss(model, batch).total), batch.count

        found = [each for _, each in distributed_map(chunks(examples, 32), work)]
        return sum(total for total, _ in found) / max(sum(count for _, count in found), 1)

    def signature(self) -> str:
        """Identifies how the scores were computed: the library and its settings."""
        return ""

    def apply_temperature(self, temperature: float) -> None:  # noqa: B027 - optional
        """Adapts the task to a model whose logits were divided by a number."""

    def about(self) -> str:
        """What the task reads and predicts as it was trained, in a few words."""
        return ""

    def target_line(self) -> str:
        """How the labels of the data are read, where another way would be possible."""
        return ""

    def checker(self) -> Checker:
        """Collects the report on data for this task."""
        return Checker(limits=self.length_limits())

    def token_lengths(self, row: Row) -> dict[str, int]:
        """Length of each part in tokens, before truncation."""
        return {}

    def length_limits(self) -> dict[str, int]:
        """Tokens that each part may have; parts that are never cut are left out."""
        return {}

    # --- saving

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
                raise ConfigError(f"headway.json: {name} is {value}: out of range")
        return cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def pad(rows: Sequence[Sequence[int] | np.ndarray], value: int, *, like: Tensor | None = None) -> Tensor:
    """(row, longest), padded with `value` on the right; of the shape of `like`, if given. Tokens that are rows of
    characters add a dimension."""
    token = np.shape(rows[0])[1:]
    shape = (len(rows), max(len(row) for row in rows), *token) if like is None else like.shape
    out = torch.full(shape, value, dtype=torch.long)
    for index, row in enumerate(rows):
        out[index, : len(row)] = torch.as_tensor(np.asarray(row, dtype=np.int64))
    return out


def padding_mask(rows: Sequence[Sequence[int] | np.ndarray]) -> Tensor | None:
    """(row, longest), True = a real token; None when no row is padded, so that attention runs without a mask."""
    lengths = [len(row) for row in rows]
    if min(lengths) == max(lengths):
        return None
    return torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]


def without_none(**tensors: Tensor | None) -> dict[str, Tensor]:
    """The tensors that are not None."""
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def ids_array(ids: Sequence[int]) -> np.ndarray:
    return np.asarray(ids, dtype=np.int32)
