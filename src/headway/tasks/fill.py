"""`fill`: masked language modelling and next sentence prediction (BERT, Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.baselines import Baseline
from headway.data.batch import Batch, Loss
from headway.data.builtin.manual import SENTENCES
from headway.data.builtin.pool import Builtin
from headway.data.dataset import RowReader
from headway.data.facts import Facts
from headway.data.length_batches import BatchLimits, by_length
from headway.data.read import Row
from headway.data.split import digest
from headway.errors import ConfigError, DataError, InputError
from headway.kinds.inputs import InputKind, TextInput
from headway.kinds.predictions import PredictionKind, WordsPrediction
from headway.models import recipes
from headway.models.config import (
    EncoderConfig,
    HeadConfig,
    LanguageHeadConfig,
    ModelConfig,
    PoolerConfig,
    TransformConfig,
)
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size
from headway.models.rehead import with_head
from headway.preprocess.sentences import split_sentences
from headway.preprocess.text import Tokenizer
from headway.tasks.distributed import distributed_map, map_by_length
from headway.tasks.language_settings import choose_for_time, text_of
from headway.tasks.masking import Masking
from headway.tasks.task import IGNORE, Choice, Example, Task, device_of, ids_array, pad
from headway.tasks.text_baselines import ngram_model
from headway.tasks.text_pairs import PairFrame, require_text_encoder

IS_NEXT, NOT_NEXT = 0, 1


@dataclass
class Fill(Task):
    name: ClassVar[str] = "fill"
    builtin: ClassVar[Builtin] = SENTENCES
    fields: ClassVar[tuple[str, ...]] = ("text",)
    metric: ClassVar[str] = "loss"
    prediction_kind: ClassVar[PredictionKind] = WordsPrediction()
    running_text: ClassVar[bool] = True
    timed: ClassVar[bool] = True

    vocab: int = 8000
    lowercase: bool = False
    limit: int = 128  # tokens of an input: both sentences and the special tokens
    next_sentence: bool = True
    whole_words: bool = False  # whole word masking

    def __post_init__(self) -> None:
        super().__post_init__()
        self._previous: list[list[int]] = []  # spans of the previous document
        if self.tokenizer is not None:
            self._use_tokenizer(self.tokenizer)

    @property
    def input_kind(self) -> InputKind:  # type: ignore[override]
        mask = self.tokenizer.mask_id
        assert mask is not None
        return TextInput(example=f"Some {self.tokenizer.token(mask)} text")

    def _use_tokenizer(self, tokenizer: Tokenizer) -> None:
        if tokenizer.mask_id is None:
            raise ConfigError(
                "task fill: the tokenizer has no mask token; start from a model that has one (BERT, RoBERTa, …)"
            )
        self.tokenizer, self.frame = tokenizer, PairFrame.of(tokenizer)
        self.masking = Masking.of(tokenizer, whole_words=self.whole_words)

    @classmethod
    def choose_settings(cls, facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
        return choose_for_time(facts, text_of, vocab=cls.vocab, context=None, recipe=recipe, given=given)

    def start_training(self) -> None:
        self._previous = []  # of rows that were only looked at

    @classmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        task = cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]
        if tokenizer is None:
            texts = (row.fields["text"] for row in facts.rows)
            task._use_tokenizer(Tokenizer.train(texts, kind="wordpiece", size=task.vocab, lowercase=task.lowercase))
        return task

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        bare = recipes.encoder(size, recipe, vocab=len(self.tokenizer), segments=2 if self.next_sentence else 0)
        return replace(bare, head=self._head(bare))

    def adapt(self, model: Model) -> Model:
        """A model that was pre-trained without next sentence prediction continues without it."""
        require_text_encoder(model, self.name)
        if model.predicts_any_order:
            raise ConfigError("task fill does not train XLNet, which predicts no mask tokens; use task generate")
        self.limit = min(self.limit, model.max_length or self.limit)
        if not model.has_language_head:
            return with_head(model, self._head(model.config))
        self.next_sentence = self.next_sentence and model.head_kind == "pooler" and model.config.head.next_sentence
        return model

    def _head(self, config: EncoderConfig) -> HeadConfig:
        language = LanguageHeadConfig(tied=True, bias=True, transform=TransformConfig("gelu", config.stack.block.norm))
        return PoolerConfig(next_sentence=True, language=language) if self.next_sentence else language

    # --- training

    def examples(self, row: Row) -> list[Example]:
        """A span of the document (as many whole sentences as fit), the next span, and a random one of the previous
        document (of this one, if it is the first)."""
        spans = self.spans(row)
        none = ids_array([])
        if not self.next_sentence:
            return [{"first": ids_array(span), "next": none, "other": none} for span in spans]
        rng = np.random.default_rng(digest(row, fields=["text"]))
        out = []
        for number, span in enumerate(spans):
            near = (number, number + 1)
            others = self._previous or [other for i, other in enumerate(spans) if i not in near]
            example = {"first": ids_array(span), "next": none, "other": none}
            if number + 1 < len(spans) and others:
                example["next"] = ids_array(spans[number + 1])
                example["other"] = ids_array(others[rng.integers(len(others))])
            out.append(example)
        self._previous = spans or self._previous
        return out

    def spans(self, row: Row) -> list[list[int]]:
        """The document's tokens in spans of whole sentences, two of which fit an input (one without next sentence
        prediction). Only a sentence over the limit is divided, and nothing is dropped."""
        one, two = self.frame.cost
        most = (self.limit - two) // 2 if self.next_sentence else self.limit - one
        out: list[list[int]] = []
        for sentence in self.tokenizer.encode_batch(list(_sentences(row)), special=False):
            if out and len(out[-1]) + len(sentence) <= most:
                out[-1] = out[-1] + sentence
            else:
                out += [sentence[start : start + most] for start in range(0, len(sentence), most)]
        return out

    def length(self, example: Example) -> int:
        return len(example["first"]) + max(len(example["next"]), len(example["other"]))

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        """Which tokens are masked, and whether the second span is the next one, is drawn for every seed."""
        shown, wanted, segments, follows = [], [], [], []
        for example, seed in zip(examples, seeds, strict=True):
            rng = np.random.default_rng(seed)
            label = int(rng.integers(2))
            second = example["next"] if label == IS_NEXT else example["other"]
            joined, kinds = self.frame.join(example["first"], second)
            ids = np.asarray(joined)
            chosen = self.masking.choose(ids, rng)
            shown.append(self.masking.apply(ids, chosen, rng))
            wanted.append(np.where(chosen, ids, IGNORE))
            segments.append(kinds)
            follows.append(label if len(second) else IGNORE)
        targets = {"ids": pad(wanted, IGNORE)}  # (batch, length)
        inputs = self.text_inputs(shown)
        if self.next_sentence:
            inputs["segments"] = pad(segments, 0)
            targets["next_sentence"] = torch.tensor(follows)
        masked = (targets["ids"].flatten() != IGNORE).nonzero()[:, 0]
        inputs["logit_positions"] = masked  # logits are computed for the masked tokens only
        return Batch(inputs, targets, count=len(masked), where=where)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Mean over masked tokens, plus mean over pairs. A pair is weighted by its masked tokens, so that the sum does
        not depend on how the batch is split."""
        output, wanted = model(**batch.inputs), masked_tokens(batch)
        masked = F.cross_entropy(output.logits, wanted, reduction="sum")
        if "next_sentence" not in batch.targets:
            return Loss(masked)
        label = batch.targets["next_sentence"]
        each = F.cross_entropy(output.next_sentence, label, ignore_index=IGNORE, reduction="none")  # (batch,)
        follows = (each * (batch.targets["ids"] != IGNORE).sum(1)).sum()
        return Loss(masked + follows, {"masked": masked, "next_sentence": follows})

    # --- inference

    @torch.no_grad()
    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The `top` most probable tokens for the mask of the text; a list for each mask where there are several."""
        self.refuse_options(options, "top")
        special = torch.from_numpy(self.masking.special).to(device_of(model))
        count = min(options.get("top", 5), int((~special).sum()))
        pairs = [(text, self.masked_ids(text, number)) for number, text in enumerate(inputs, 1)]

        def work(batch: Sequence[tuple[str, list[int]]]) -> list[Any]:
            inputs = {
                name: tensor.to(special.device) for name, tensor in self.text_inputs([ids for _, ids in batch]).items()
            }
            out = []
            for (text, ids), logits in zip(batch, model(**inputs).logits, strict=True):
                at = np.flatnonzero(np.asarray(ids) == self.tokenizer.mask_id)
                probabilities = logits[at].float().masked_fill(special, -torch.inf).softmax(-1)  # (mask, vocabulary)
                best = probabilities.topk(count, dim=-1)
                lists = [self._filled(text, i, best.indices[i], best.values[i]) for i in range(len(at))]
                out.append(lists[0] if len(lists) == 1 else lists)
            return out

        return map_by_length(pairs, work, length=lambda pair: len(pair[1]), size=32)

    @property
    def mask(self) -> str:
        return self.tokenizer.roles["mask"]

    def masked_ids(self, text: Any, number: int) -> list[int]:
        """The token ids of a text with masks; other special tokens in it are read as plain text."""
        if not isinstance(text, str) or self.mask not in text:
            raise InputError(f"input {number}: task fill takes a text with {self.mask} where a word is to be predicted")
        *before, last = text.split(self.mask)
        ids: list[int] = []
        for part in before:
            ids += [*self.tokenizer.encode(part.rstrip(), special=False), self.masking.mask_id]
        out, _ = self.frame.join([*ids, *self.tokenizer.encode(last, special=False)])
        if len(out) > self.limit:
            raise InputError(f"input {number}: {len(out)} tokens; the model takes {self.limit}: shorten the text")
        return out

    def _filled(self, text: str, number: int, ids: Tensor, scores: Tensor) -> list[dict[str, Any]]:
        """The text with each token in place of its mask `number`."""
        parts = text.split(self.mask)
        before, after = self.mask.join(parts[: number + 1]), self.mask.join(parts[number + 1 :])
        out = []
        for index, score in zip(ids.tolist(), scores.tolist(), strict=True):
            (token,) = self.tokenizer.tokens([index])
            glued = bool(self.masking.continues[index]) or token[:1].isspace()
            filled = (before.rstrip() if glued else before) + token.removeprefix("##") + after
            out.append({"token": token.strip(), "id": index, "score": score, "text": filled})
        return out

    @torch.no_grad()
    def evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """The same tokens are masked in every call. `unigram` is the loss of predicting by token frequency alone."""
        fresh = replace(self)  # without the spans of a previous document
        examples = [example for row in rows for example in fresh.examples(row)]
        if not examples:
            raise DataError("task fill: there is no text to evaluate on")
        batches = by_length([self.length(example) for example in examples], BatchLimits(rows=32))

        def work(chunk: Sequence[int]) -> tuple[list[float], np.ndarray]:
            batch = self.collate([examples[i] for i in chunk], seeds=[(0, i) for i in chunk], where=[])
            batch = batch.to(device_of(model))
            output, wanted = model(**batch.inputs), masked_tokens(batch)
            logits = output.logits.float()  # (masked token, vocabulary)
            lost = float(F.cross_entropy(logits, wanted, reduction="sum"))
            numbers = [lost, int((logits.argmax(-1) == wanted).sum()), 0, 0]
            if self.next_sentence:
                label = batch.targets["next_sentence"]
                numbers[2:] = [int((label != IGNORE).sum()), int((output.next_sentence.argmax(-1) == label).sum())]
            return numbers, np.bincount(wanted.cpu().numpy(), minlength=len(self.tokenizer))

        sums, counts = np.zeros(4), np.zeros(len(self.tokenizer), dtype=np.int64)
        for _, (numbers, seen) in distributed_map(batches, work):
            sums += numbers
            counts += seen
        lost, right, pairs, followed = sums.tolist()
        share = counts[counts > 0] / counts.sum()
        total, unigram = int(counts.sum()), float(-(share * np.log(share)).sum())
        found = {"loss": lost / total, "accuracy": right / total, "unigram": unigram, "gain": unigram - lost / total}
        return found | ({"next_sentence": followed / pairs} if pairs else {})

    def classic_baseline(self, train: RowReader, rows: Sequence[Row]) -> Baseline | None:
        """A masked token by the token before it, as it is shown; the same tokens are masked as in `evaluate`."""
        texts = (span for row in train() for span in self.spans(row))
        model, note = ngram_model(texts, vocab=len(self.tokenizer), order=2)
        pairs = list[np.ndarray]()  # (masked token: token before, token)
        fresh = replace(self)  # without the spans of a previous document
        examples = [example for row in rows for example in fresh.examples(row)]
        for number, example in enumerate(examples):
            batch = self.collate([example], seeds=[(0, number)], where=[])
            ids, at = batch.inputs["inputs"][0].numpy(), batch.inputs["logit_positions"].numpy()
            pairs.append(np.stack([ids[np.maximum(at - 1, 0)], masked_tokens(batch).numpy()], axis=1))
        flat = np.concatenate(pairs).ravel() if pairs else np.zeros(0, np.int64)
        if not len(flat):
            return None
        return Baseline("a bigram model", {"loss": float(model.losses(flat)[::2].mean())}, note=note)

    def encode_ahead(self, rows: Sequence[Row]) -> None:
        self.tokenizer.encode_ahead([sentence for row in rows for sentence in _sentences(row)], special=False)

    def token_lengths(self, row: Row) -> dict[str, int]:
        return {"text": sum(map(len, self.tokenizer.encode_batch(list(_sentences(row)), special=False)))}


def _sentences(row: Row) -> Iterator[str]:
    """Those given, or those of the text."""
    for sentence in row.fields.get("sentences") or split_sentences(row.fields["text"]):
        if sentence.strip():
            yield sentence


def masked_tokens(batch: Batch) -> Tensor:
    """The right token at each of the batch's logit positions, (n)."""
    return batch.targets["ids"].flatten().index_select(0, batch.inputs["logit_positions"])
