"""A model, its processor (tokenizer, image processor) and its task, as one object that is loaded, called and saved."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from headway.checkpoints import save_json, save_tensors
from headway.checkpoints.rules import AnyRule, expand, to_theirs
from headway.checkpoints.saved import save_folder
from headway.checkpoints.sentence import SentenceSettings, copy_sentence_files, sentence_settings
from headway.data.truncation import TruncationCounter
from headway.engine import encode_ragged
from headway.engine import weights as storage
from headway.engine.prefix import PrefixCache
from headway.engine.training import install
from headway.errors import CheckpointError, ConfigError, InputError, with_article
from headway.families import FROM_SCRATCH
from headway.families import find as family_named
from headway.families.dialect import rules_of
from headway.families.family import Family, Keys
from headway.generation.defaults import FILE as GENERATION_FILE
from headway.generation.defaults import GenerationDefaults, read_defaults
from headway.kinds.predictions import VectorPrediction
from headway.models.build import Model, tensor_names
from headway.models.config import ModelConfig
from headway.models.dropout_rates import dropout_rates, with_dropout
from headway.preprocess.processor import Processor
from headway.printable import printable

if TYPE_CHECKING:
    from headway.tasks.task import Task

TASK_FILE = "headway.json"
LOGITS_OF = {"text": "input_ids", "image": "pixel_values", "audio": "input_features"}  # the reference library's names


@dataclass
class Bundle:
    model: Model
    family: str
    processor: Processor = field(default_factory=Processor)
    folder: Path | None = None
    foreign: dict[str, Any] = field(default_factory=dict)  # the config.json it was loaded with
    task: Task | None = None  # what it was trained for here
    generation: GenerationDefaults = field(default_factory=GenerationDefaults)  # of the model's files
    sentence: SentenceSettings = field(default_factory=SentenceSettings)  # of the model's files
    prefixes: PrefixCache = field(default_factory=PrefixCache, repr=False)  # caches of past prompts
    _default_task: Task | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        install()

    def __repr__(self) -> str:
        count = sum(parameter.numel() for parameter in self.model.parameters())
        facts = [f"{self.family} {self.model.shape}", f"{count:,} parameters"]
        facts += [f"task {self.task.name}"] if self.task is not None else []
        facts += [str(self.folder)] if self.folder is not None else []
        return f"<Bundle: {', '.join(facts)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle, joblib and multiprocessing: what `save` writes, which `load` reads again."""
        from headway.pickling import saved_files, unpickled

        return unpickled, (saved_files(self), self.folder, str(self.device))

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    @property
    def weights(self) -> str:
        """The data type of the weights: fp32, bf16, fp16 or int8."""
        return storage.short_name(storage.weights_of(self.model))

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def labels(self) -> list[str]:
        """The labels in its answers, in the order of the logits: LABEL_0 … where the model's files do not name them."""
        head, names = self.model.head_config, self.foreign.get("id2label") or {}
        count = 0 if getattr(head, "answer", False) else getattr(head, "labels", 0)
        labels = getattr(self.task, "labels", None) or [names[key] for key in sorted(names, key=int)]
        return list(labels) if len(labels) == count else [f"LABEL_{index}" for index in range(count)]

    @torch.no_grad()
    def logits(
        self,
        *,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        input_features: Tensor | None = None,
        pixel_mask: Tensor | None = None,
    ) -> Tensor:
        """The reference library's arguments → its logits (the hidden states of a model without a head). Positions are
        that library's too: unless position_ids are given, they count from the row's start, padding included."""
        frames = None if input_features is None else input_features.transpose(1, 2)  # (batch, frame, bin)
        given = {"text": input_ids, "image": pixel_values, "audio": frames}
        inputs = given[self.model.inputs]
        if inputs is None:
            raise InputError(f"logits: give {LOGITS_OF[self.model.inputs]}, as the model reads {self.model.inputs}")
        args: dict[str, Any] = {"padding_mask": attention_mask if pixel_values is None else pixel_mask}
        if input_ids is not None and self.model.parts:  # a recurrent model has no positions
            args["positions"] = self._positions(inputs, position_ids)
        if self.model.reads_source:
            if decoder_input_ids is None:
                raise InputError("logits: an encoder-decoder also needs decoder_input_ids")
            args |= {"decoder_ids": decoder_input_ids, "decoder_padding_mask": decoder_attention_mask}
            if self.model.parts:
                args["decoder_positions"] = self._positions(decoder_input_ids, None)
        elif self.model.encodes and input_ids is not None:
            args["segments"] = token_type_ids
        output = self.model.reference_output(inputs, **args)
        return output.hidden if output.logits is None else output.logits

    @torch.no_grad()
    def boxes(self, *, pixel_values: Tensor, pixel_mask: Tensor | None = None) -> Tensor:
        """The reference library's pred_boxes (batch, query, 4): centre, width and height as shares of the picture."""
        output = self.model(pixel_values, padding_mask=pixel_mask)
        if getattr(output, "boxes", None) is None:
            raise InputError(f"boxes: {self.family} is {with_article(self.model.shape)} that finds no objects")
        return output.boxes

    def _positions(self, ids: Tensor, given: Tensor | None) -> Tensor:
        if given is not None:
            return given
        if family_named(self.family).positions_skip_pad:  # row offset - 1 of the table is padding's; its id is the same
            pad = self.config.embedding.positions.offset - 1  # type: ignore[union-attr]
            real = (ids != pad).long()
            return real.cumsum(1) * real - 1
        return torch.arange(ids.shape[1], device=ids.device)[None]

    @torch.no_grad()
    def embed(self, texts: Sequence[str], *, overflow: str = "error") -> Tensor:
        """The sentence embeddings (text, width) of the embed task: as that task was trained, or as the model's
        sentence-transformers files say, else the mean of the hidden states. A text over the limit is an error, or with
        `overflow="truncate"` truncated and counted in a warning."""
        if self.model.shape != "encoder":
            raise InputError(f"embed needs an encoder; {self.family} is {with_article(self.model.shape)}")
        tokenizer = self.processor.require_tokenizer("embed")
        from headway.tasks.embed import Embed

        task: Any = self.task
        if task is None or not isinstance(task.prediction_kind, VectorPrediction):
            task = Embed.from_sentence_settings(tokenizer, self.sentence, max_length=self.model.max_length)
        truncation = TruncationCounter(overflow, InputError)
        ids = task.encode(texts, truncation=truncation)
        for line in truncation.summary():
            warnings.warn(printable(line), stacklevel=2)
        found = {i: task.embedding(hidden[None]) for i, hidden in encode_ragged(cast(Any, self.model), ids)}
        return torch.cat([found[i] for i in range(len(ids))]) if ids else torch.empty(0, 0)

    def save(self, folder: str | Path) -> Path:
        """Writes the Hugging Face layout: config.json, model.safetensors, and the processor's files. A model that its
        family's config.json cannot express (with a new kind of head, say) is written in Headway's own dialect; dropout
        rates that it cannot express are written to headway.json. The folder has all of it, or nothing of it."""
        with save_folder(folder) as work:
            self.write_files(work)
        return Path(folder)

    def write_files(self, folder: Path) -> None:
        """Writes the files that `save` saves to a new folder."""
        state = self.model.state_dict()
        own = {name: state[name].detach().cpu() for name in tensor_names(self.model)}
        kind = self._saved_family()
        own = storage.to_file(own, storage.weights_of(self.model))
        save_tensors(folder, to_theirs(own, rules_of(kind, self.config)))
        save_json(folder / kind.config_file, self.config_json(kind))
        copy_sentence_files(self.folder, folder)
        self.processor.save(folder)
        if self.generation.stored:
            save_json(folder / GENERATION_FILE, dict(self.generation.stored))
        if self.task is not None:
            rates = self._unwritten_rates(kind)
            save_json(
                folder / TASK_FILE,
                {"task": self.task.name, "options": self.task.to_dict(), **({"dropout": rates} if rates else {})},
            )

    def set_folder(self, folder: Path, foreign: dict[str, Any]) -> None:
        """Sets what depends on the folder's files other than weights and processor: those of a loaded or saved bundle.
        `foreign` is the content of config.json."""
        self.folder, self.foreign, self.sentence = folder, foreign, sentence_settings(folder)
        self.family, self.generation = foreign.get("model_type", self.family), GenerationDefaults()
        if self.model.generates and self.model.vocab_size is not None:
            self.generation = read_defaults(
                folder,
                foreign,
                reads_source=self.model.reads_source,
                vocab=self.model.vocab_size,
                speech=self.model.inputs == "audio",
            )
        if self.task is not None:
            self.task.generation_defaults = self.generation

    def __call__(self, inputs: Any, **options: Any) -> Any:
        """The task's prediction for one input, or for each of a list. Truncated inputs give a warning."""
        task = self.find_task()
        several = task.input_kind.is_several(inputs)
        if task.prediction_kind.generates:
            options = {"prefixes": self.prefixes, **options}
        with task.count_truncation() as truncated:
            found = task.predict(self.model, inputs if several else [inputs], **options)
        for line in truncated.summary():
            warnings.warn(printable(line), stacklevel=2)
        return found if several else found[0]

    def find_task(self) -> Task:
        """The task it was trained for; for a published model, the one its shape and head are made for."""
        if self.task is not None:
            return self.task
        if self._default_task is None:
            from headway.tasks.default import default_task

            self._default_task = default_task(
                self.model,
                self.processor,
                labels=self.labels,
                problem_type=self.foreign.get("problem_type"),
                generation=self.generation,
                sentence=self.sentence,
            )
        if self._default_task is None:
            reason = self.processor.tokenizer_error or "no task fits it; use logits() or embed(), or train it for one"
            raise InputError(f"{self.folder or self.family}: not trained for a task here: {reason}")
        return self._default_task

    def config_json(self, kind: Family) -> dict[str, Any]:
        labels = self.labels
        problem_type = getattr(self.task, "problem_type", None)
        named = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
        out = {
            **(self.foreign if kind.name == self.foreign.get("model_type", kind.name) else {}),
            **(named if labels else {}),
            **({"problem_type": problem_type} if problem_type else {}),
            **(self._special_ids() if kind.name in FROM_SCRATCH.values() and not self.foreign else {}),
            **kind.write(self.config),
            "model_type": kind.name,
            "architectures": [kind.architecture(self.config)],
        }
        out.pop("quantization_config", None)
        return out | storage.weights_to_config(storage.weights_of(self.model))

    def tensor_rules(self) -> list[AnyRule]:
        """The rules between the model's tensor names and those that `save` writes."""
        return rules_of(self._saved_family(), self.config)

    def _special_ids(self) -> dict[str, int | None]:
        """The ids of special tokens, null where there is none; a config.json without them means those of the published
        models."""
        tokenizer = self.processor.tokenizer
        if tokenizer is None:
            return {}
        marks = {"cls_token_id": tokenizer.cls_id, "sep_token_id": tokenizer.sep_id}  # of encoders
        ids = {"bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id, "pad_token_id": tokenizer.pad_id}
        return ids | {key: value for key, value in marks.items() if value is not None}

    def _saved_family(self) -> Family:
        """Its own family, or that of a model from scratch, if that can express the model; otherwise Headway's."""
        name = self.family
        if name == "headway" and self.model.inputs == "text":
            name = FROM_SCRATCH.get("any order" if self.model.predicts_any_order else self.model.shape, name)
        kind = family_named(name)
        return kind if self._read_back(kind) is not None else family_named("headway")

    def _read_back(self, kind: Family) -> ModelConfig | None:
        """The config that the family's config.json and tensor names would load as; None if it is another model. The
        dropout rates may differ if a task is saved too, whose file keeps them."""
        try:
            names = [rule.theirs for rule in expand(rules_of(kind, self.config), tensor_names(self.model))]
            keys = Keys(json.loads(json.dumps(self.config_json(kind))))
            read = kind.infer_from_tensors(kind.read(keys, kind.architecture(self.config)), names)
            same = with_dropout(read, dropout_rates(self.config)) if self.task is not None else read
            return read if same == self.config else None
        except (ConfigError, CheckpointError, KeyError):
            return None

    def _unwritten_rates(self, kind: Family) -> dict[str, float]:
        """The dropout rates that the family's config.json does not express."""
        read, rates = self._read_back(kind), dropout_rates(self.config)
        written = {} if read is None else dropout_rates(read)
        return {path: rate for path, rate in rates.items() if read is not None and written[path] != rate}
