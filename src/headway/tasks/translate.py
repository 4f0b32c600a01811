"""`translate`: a target text from a source text, with an encoder-decoder or a recurrent model (teacher forcing). The
base of `summarize`, which has other limits and scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.baselines import Baseline
from headway.data.batch import Batch, Loss
from headway.data.builtin.dates import DATES
from headway.data.builtin.pool import Builtin
from headway.data.dataset import RowReader
from headway.data.facts import Facts
from headway.data.read import Row
from headway.errors import ConfigError
from headway.generation import GenerationSettings
from headway.generation.forced_terms import term_ids
from headway.kinds.inputs import InputKind, TextInput
from headway.kinds.predictions import PredictionKind, TextPrediction
from headway.models import recipes
from headway.models.config import ModelConfig
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size, TextToText
from headway.preprocess.text import Tokenizer
from headway.tasks import scores
from headway.tasks.distributed import map_by_length
from headway.tasks.evaluated import Evaluated
from headway.tasks.generation import (
    CALL_OPTIONS,
    default_length,
    empty_answer,
    generate_texts,
    search_name,
    settings_from,
)
from headway.tasks.glossary import Glossary
from headway.tasks.task import IGNORE, Choice, Example, Task, ids_array, pad
from headway.tasks.text_predictions import Texts
from headway.tasks.translation_settings import choose_for_pairs, pair_length, vocabulary

TERM_BEAMS = 5  # at least, with a glossary: one beam cannot search for the place of a term
FORCING, DIRECTION = 3, 4  # what further draws of an example are for


@dataclass
class Translate(Task):
    name: ClassVar[str] = "translate"
    builtin: ClassVar[Builtin] = DATES
    budgeted: ClassVar[bool] = True
    fields: ClassVar[tuple[str, ...]] = ("source", "target")
    metric: ClassVar[str] = "bleu"
    stacks: ClassVar[int] = 2
    input_kind: ClassVar[InputKind] = TextInput(("source",))
    prediction_kind: ClassVar[PredictionKind] = TextPrediction(options=("glossary",))
    two_ways: ClassVar[bool] = True  # a target can be translated back

    vocab: int = 0  # 0: one token for 600 characters of text, from 300 to 8000
    source_limit: int = 256  # tokens
    target_limit: int = 256
    label_smoothing: float = 0.1
    prefix: str = ""  # of every source (T5's "translate English to German: ")
    beams: int = 5
    length_penalty: float = 1.0
    start_id: int = 0
    architecture: TextToText = "transformer"
    teacher_forcing: float = 1.0  # share of right tokens among a recurrent decoder's inputs, where the schedule ends
    forcing_epochs: int = 0  # of the linear decay from 1 to there; 0: that share from the beginning
    two_way_epochs: int = 0  # at the beginning, in which half of the pairs are translated from target to source

    @classmethod
    def train_defaults(cls, recipe: str) -> dict[str, Any]:
        if recipe == "finetune":
            return {"epochs": 3, "batch": 16}
        return {"epochs": 10, "batch": 64}

    @classmethod
    def choose_settings(cls, facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
        return choose_for_pairs(facts, recipe=recipe, given=given, two_ways=cls.two_ways)

    @classmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        task = cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]
        if not 0 <= task.teacher_forcing <= 1:
            raise ConfigError(f"teacher_forcing is {task.teacher_forcing}: it must be from 0 to 1")
        if task.teacher_forcing < 1 and task.architecture == "transformer":
            raise ConfigError(
                "teacher_forcing below 1 is for recurrent decoders (--model lstm-bahdanau, …): a transformer predicts "
                "all positions at once, from the right tokens"
            )
        if tokenizer is None:
            size = task.vocab or vocabulary(facts.total(pair_length))
            task.tokenizer = Tokenizer.train(_texts(facts.rows), kind="bpe", size=size)
            assert task.tokenizer.bos_id is not None
            task.start_id = task.tokenizer.bos_id
        return task

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        if self.architecture != "transformer":
            return recipes.recurrent(size, vocab=len(self.tokenizer), start_id=self.start_id, name=self.architecture)
        return recipes.encoder_decoder(
            size, recipe, vocab=len(self.tokenizer), context=1 + self.target_limit, start_id=self.start_id
        )

    def adapt(self, model: Model) -> Model:
        if not model.reads_source or model.start_id is None:
            raise ConfigError(
                f"task {self.name} starts from an encoder-decoder (T5, BART, Marian, …), not from this {model.shape}"
            )
        self.start_id = model.start_id
        if model.max_context is not None:
            self.target_limit = min(self.target_limit, model.max_context - 1)
        return model

    # --- training

    def source_ids(self, text: str, *, where: str) -> list[int]:
        ids = self._ended(self.prefix + self.require_text(text, where=where), self.tokenizer)
        return self.truncation.apply(ids, self.source_limit, part="source", where=where, last=ids[-1])

    def _ended(self, text: str, tokenizer: Tokenizer) -> list[int]:
        """The token ids of a text, with an end token even if the tokenizer adds none."""
        ids, eos = tokenizer.encode(text), tokenizer.eos_id
        if eos is None or eos in ids:  # mBART's is followed by the language
            return ids
        if ids[:1] == [tokenizer.bos_id]:
            ids = ids[1:]  # <s> of a tokenizer trained here: the decoder's start token
        return [*ids, eos]

    def target_ids(self, text: str, *, where: str) -> list[int]:
        ids = self._ended(text, self.tokenizer.target)
        return self.truncation.apply(ids, self.target_limit, part="target", where=where, last=ids[-1])

    def examples(self, row: Row) -> list[Example]:
        target = self.target_ids(row.fields["target"], where=row.where)
        source = self.source_ids(row.fields["source"], where=row.where)
        return [{"source": ids_array(source), "target": ids_array(target)}]

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        fill, examples = self.tokenizer.pad_id or 0, self._directed(examples, seeds)
        sources, targets = [e["source"] for e in examples], [e["target"] for e in examples]
        wanted = pad(targets, IGNORE)  # (batch, target)
        shifted = pad([[self.start_id, *target[:-1]] for target in targets], fill)
        inputs = {**self.text_inputs(sources), "decoder_ids": shifted, **self._forced(seeds, shifted)}
        return Batch(inputs, {"ids": wanted}, count=sum(map(len, targets)), where=where)

    def _directed(self, examples: Sequence[Example], seeds: Sequence[tuple[int, ...]]) -> Sequence[Example]:
        """In the first epochs, half of the pairs the other way round, drawn for each example and epoch: a model of few
        pairs learns more from both (bidirectional training, Ding et al. 2021)."""
        if not any(len(key) > 1 and key[1] < self.two_way_epochs for key in seeds):  # (seed, epoch, example)
            return examples
        out = []
        for example, key in zip(examples, seeds, strict=True):
            source, target = example["source"], example["target"]
            fits = len(source) <= self.target_limit and len(target) <= self.source_limit
            back = fits and np.random.default_rng((*key, DIRECTION)).random() < 0.5
            out.append({"source": target, "target": source} if back else example)
        return out

    def _forced(self, seeds: Sequence[tuple[int, ...]], ids: Tensor) -> dict[str, Tensor]:
        """Which decoder inputs are the right tokens, drawn for each example and epoch; nothing if all are."""
        epochs = [key[1] for key in seeds if len(key) > 1]  # (seed, epoch, example): in training
        if self.teacher_forcing >= 1 or not epochs:
            return {}
        done = 1.0 if self.forcing_epochs == 0 else min(1.0, epochs[0] / self.forcing_epochs)
        share = 1 - (1 - self.teacher_forcing) * done
        draws = [np.random.default_rng((*key, FORCING)).random(ids.shape[1]) for key in seeds]
        return {"forced": torch.from_numpy(np.stack(draws) < share)}

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        logits = model(**batch.inputs).logits.flatten(0, 1)
        wanted = batch.targets["ids"].flatten()
        smoothing = self.label_smoothing if model.training else 0.0
        total = F.cross_entropy(logits, wanted, ignore_index=IGNORE, label_smoothing=smoothing, reduction="sum")
        return Loss(total)

    # --- inference

    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The target of each source by beam search, or by sampling if `temperature` is given."""
        call = {name: options.pop(name) for name in CALL_OPTIONS if name in options}
        glossary = options.pop("glossary", None)
        terms = [()] * len(inputs) if glossary is None else self.forced_terms(inputs, Glossary.read(glossary))
        if glossary is not None:
            options.setdefault("beams", max(self.beams, TERM_BEAMS))
        settings = self.settings(model, options)
        sources = [self.source_ids(text, where=f"input {number}") for number, text in enumerate(inputs, 1)]
        filled = [i for i, text in enumerate(inputs) if text.strip()]

        def work(batch: Sequence[tuple[int, list[int]]]) -> list[Any]:
            seeds = tuple(settings.seed + i for i, _ in batch) if isinstance(settings.seed, int) else settings.seed
            return generate_texts(
                model,
                [[self.start_id]] * len(batch),
                replace(settings, seed=seeds),
                tokenizer=self.tokenizer,
                sources=[source for _, source in batch],
                terms=[terms[i] for i, _ in batch] if any(terms) else None,
                **call,
            )

        size = max(1, 128 // settings.beams)
        found = map_by_length([(i, sources[i]) for i in filled], work, length=lambda each: len(each[1]), size=size)
        answers, empty = (
            dict(zip(filled, found, strict=True)),
            empty_answer(settings, details=call.get("details", False)),
        )
        return [answers.get(i, empty) for i in range(len(sources))]  # that of a blank source is blank

    def forced_terms(self, inputs: Sequence[str], glossary: Glossary) -> list[tuple[tuple[int, ...], ...]]:
        """For each source the tokens of the terms that its target must have."""
        return [tuple(term_ids(term, self.tokenizer) for term in glossary.found(text)) for text in inputs]

    def settings(self, model: Model, options: dict[str, Any]) -> GenerationSettings:
        """The settings of `predict`: its options over those of the model's files over those of the task."""
        own, start = self.generation_options(), [[self.start_id]]
        own["max_new_tokens"] = default_length(
            own["max_new_tokens"], start, options, context=model.max_context, tokenizer=self.tokenizer
        )
        options = self.generation_defaults.resolve(own, options, max_context=model.max_context)
        return settings_from(options, self.tokenizer)

    def generation_options(self) -> dict[str, Any]:
        """The task's own generation options; the model's files and explicit options override them."""
        eos_ids = () if self.tokenizer.eos_id is None else (self.tokenizer.eos_id,)
        return {
            "max_new_tokens": self.target_limit,
            "beams": self.beams,
            "length_penalty": self.length_penalty,
            "eos_ids": eos_ids,
        }

    def to_dict(self) -> dict[str, Any]:
        """Without an option that earlier versions did not have, at its default: the examples of a run are prepared for
        its options."""
        return {name: value for name, value in super().to_dict().items() if name != "two_way_epochs" or value}

    def evaluate(self, model: Model, rows: Iterable[Row], *, beams: int | None = None) -> dict[str, float]:
        return self.predictions(model, rows, **({} if beams is None else {"beams": beams})).scores()

    @torch.no_grad()
    def predictions(self, model: Model, rows: Iterable[Row], **options: Any) -> Evaluated:
        """Loss per token, exact matches, and scores of the text, generated as by `predict`."""
        self.refuse_options(options, "beams")
        rows = list(rows)
        with self.count_truncation():  # the examples below count the same sources
            found = self.predict(model, [self.model_input(row) for row in rows], **options)
        references = [_references(row) for row in rows]
        exact = sum(a.strip() in [r.strip() for r in refs] for a, refs in zip(found, references, strict=True))
        scores = {
            "loss": self.mean_loss(model, [example for row in rows for example in self.examples(row)]),
            "exact": exact / max(len(rows), 1),
            **self.text_scores(found, rows),
        }
        return self.evaluated(scores, rows, found, references)

    def evaluated(
        self, scores: dict[str, float], rows: list[Row], found: list[str], references: list[list[str]]
    ) -> Evaluated:
        return Texts(scores, rows, found, references)

    def quick_evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """With the beams of the model's files, else greedy."""
        return self.evaluate(model, rows, beams=self.quick_beams)

    @property
    def quick_beams(self) -> int:
        return self.generation_defaults.options.get("beams", 1)

    def search(self, model: Model, **options: Any) -> str:
        self.refuse_options(options, "beams")
        return search_name(self.settings(model, options))

    def signature(self) -> str:
        return scores.translation_signature()

    def text_scores(self, found: list[str], rows: list[Row]) -> dict[str, float]:
        return scores.translation(found, [_references(row) for row in rows])

    def classic_baseline(self, train: RowReader, rows: Sequence[Row]) -> Baseline | None:
        """The better of the source itself and the most frequent target."""
        (frequent, _), *_ = Counter(row.fields["target"] for row in train()).most_common(1)
        guesses = {"copying the source": [row.fields["source"] for row in rows]}
        guesses["always the most frequent target"] = [frequent] * len(rows)
        found = [Baseline(name, self.text_scores(texts, list(rows))) for name, texts in guesses.items()]
        return max(found, key=lambda each: each.scores[self.metric])

    def encode_ahead(self, rows: Sequence[Row]) -> None:
        sources, targets = [self.prefix + row.fields["source"] for row in rows], [row.fields["target"] for row in rows]
        if self.tokenizer.target is self.tokenizer:
            self.tokenizer.encode_ahead([*sources, *targets])
        else:
            self.tokenizer.encode_ahead(sources)
            self.tokenizer.target.encode_ahead(targets)

    def token_lengths(self, row: Row) -> dict[str, int]:
        source, target = self.prefix + row.fields["source"], row.fields["target"]
        ends = self._ended(source, self.tokenizer), self._ended(target, self.tokenizer.target)
        return dict(zip(("source", "target"), map(len, ends), strict=True))

    def length_limits(self) -> dict[str, int]:
        return {"source": self.source_limit, "target": self.target_limit}


def _references(row: Row) -> list[str]:
    return row.fields.get("targets") or [row.fields["target"]]


def _texts(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        yield row.fields["source"]
        yield row.fields["target"]
