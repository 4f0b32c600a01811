"""`fill`: the words behind [MASK], and whether one sentence follows another: BERT's pre-training."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.batch import Batch, Loss
from headway.data.builtin.manual import SENTENCES
from headway.data.builtin.pool import Builtin
from headway.data.dataset import RowReader
from headway.data.read import Row
from headway.data.split import digest
from headway.errors import ConfigError, DataError, InputError
from headway.models import recipes
from headway.models.config import (
    EncoderConfig,
    HeadConfig,
    LanguageHeadConfig,
    ModelConfig,
    PoolerConfig,
    TransformConfig,
)
from headway.models.recipes import Recipe, Size
from headway.models.rehead import with_head
from headway.preprocess.text import Tokenizer
from headway.tasks.distributed import distributed_map
from headway.tasks.masking import Masking
from headway.tasks.task import IGNORE, Example, Task, batches, device_of, ids_array, pad, padding_mask, without_none
from headway.tasks.text_pairs import Frame, text_encoder

IS_NEXT, NOT_NEXT = 0, 1
SENTENCE_END = re.compile(r"\n+|(?<=[.?!…])\s+|(?<=[。？！])")


@dataclass
class Fill(Task):
    name: ClassVar[str] = "fill"
    builtin: ClassVar[Builtin] = SENTENCES
    fields: ClassVar[tuple[str, ...]] = ("text",)
    metric: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False
    running_text: ClassVar[bool] = True

    vocab: int = 8000
    lowercase: bool = False
    limit: int = 128  # tokens of an input, both sentences and what is around them
    next_sentence: bool = True
    whole_words: bool = False  # choose words, not pieces of them

    def __post_init__(self) -> None:
        super().__post_init__()
        self._elsewhere: list[list[int]] = []  # the pieces of the document before
        if self.tokenizer is not None:
            self._know(self.tokenizer)

    def _know(self, tokenizer: Tokenizer) -> None:
        if tokenizer.mask_id is None:
            raise ConfigError(
                "fill: the tokenizer has no mask token; start from a model that has one (BERT, RoBERTa, …)"
            )
        self.tokenizer, self.frame = tokenizer, Frame.of(tokenizer)
        self.masking = Masking.of(tokenizer, whole_words=self.whole_words)

    @classmethod
    def from_data(cls, rows: RowReader, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        task = cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]
        if tokenizer is None:
            texts = (row.fields["text"] for row in rows())
            task._know(Tokenizer.train(texts, kind="wordpiece", size=task.vocab, lowercase=task.lowercase))
        return task

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        bare = recipes.encoder(size, recipe, vocab=len(self.tokenizer), segments=2 if self.next_sentence else 0)
        return replace(bare, head=self._head(bare))

    def adapt(self, model: nn.Module) -> nn.Module:
        """A model that was pre-trained without next sentences goes on without them."""
        encoder = text_encoder(model, self.name)
        self.limit = min(self.limit, encoder.max_length or self.limit)
        head = encoder.config.head
        if isinstance(head, LanguageHeadConfig):
            self.next_sentence = False
            return encoder
        if isinstance(head, PoolerConfig) and head.language is not None:
            self.next_sentence = self.next_sentence and head.next_sentence
            return encoder
        return with_head(encoder, self._head(encoder.config))

    def _head(self, config: EncoderConfig) -> HeadConfig:
        language = LanguageHeadConfig(tied=True, bias=True, transform=TransformConfig("gelu", config.stack.block.norm))
        return PoolerConfig(next_sentence=True, language=language) if self.next_sentence else language

    # --- learning

    def examples(self, row: Row) -> list[Example]:
        """A piece of the document (as many whole sentences as fit), the piece after it and one from elsewhere: a random
        one of the document before, or of this one if it is the first."""
        pieces = self.pieces(row)
        none = ids_array([])
        if not self.next_sentence:
            return [{"first": ids_array(piece), "next": none, "other": none} for piece in pieces]
        chance = np.random.default_rng(digest(row, fields=["text"]))
        out = []
        for number, piece in enumerate(pieces):
            near = (number, number + 1)
            others = self._elsewhere or [other for i, other in enumerate(pieces) if i not in near]
            example = {"first": ids_array(piece), "next": none, "other": none}
            if number + 1 < len(pieces) and others:
                example["next"] = ids_array(pieces[number + 1])
                example["other"] = ids_array(others[chance.integers(len(others))])
            out.append(example)
        self._elsewhere = pieces or self._elsewhere
        return out

    def pieces(self, row: Row) -> list[list[int]]:
        """The document's tokens in runs of whole sentences, two of which fit an input (one without next sentences).
        Only a sentence that is too long for itself is cut in two, and nothing is lost."""
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
        """Which tokens are hidden, and whether the second piece is the next one, is drawn anew for every seed."""
        shown, wanted, segments, follows = [], [], [], []
        for example, seed in zip(examples, seeds, strict=True):
            chance = np.random.default_rng(seed)
            label = int(chance.integers(2))
            second = example["next"] if label == IS_NEXT else example["other"]
            joined, kinds = self.frame.join(example["first"], second)
            ids = np.asarray(joined)
            chosen = self.masking.choose(ids, chance)
            shown.append(self.masking.hide(ids, chosen, chance))
            wanted.append(np.where(chosen, ids, IGNORE))
            segments.append(kinds)
            follows.append(label if len(second) else IGNORE)
        targets = {"ids": pad(wanted, IGNORE)}  # (batch, length)
        inputs = without_none(inputs=pad(shown, self.tokenizer.pad_id or 0), padding_mask=padding_mask(shown))
        if self.next_sentence:
            inputs["segments"] = pad(segments, 0)
            targets["next_sentence"] = torch.tensor(follows)
        hidden = (targets["ids"].flatten() != IGNORE).nonzero()[:, 0]
        inputs["logit_positions"] = hidden  # logits are computed for the hidden tokens only
        return Batch(inputs, targets, count=len(hidden), where=where)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Mean over hidden tokens, plus mean over pairs. A pair weighs as many as it has hidden tokens, so that the sum
        is the same however the batch is split."""
        output, wanted = model(**batch.inputs), hidden_tokens(batch)
        masked = F.cross_entropy(output.logits, wanted, reduction="sum")
        if "next_sentence" not in batch.targets:
            return Loss(masked)
        label = batch.targets["next_sentence"]
        each = F.cross_entropy(output.next_sentence, label, ignore_index=IGNORE, reduction="none")  # (batch,)
        follows = (each * (batch.targets["ids"] != IGNORE).sum(1)).sum()
        return Loss(masked + follows, {"masked": masked, "next_sentence": follows})

    # --- using

    @torch.no_grad()
    def predict(self, model: nn.Module, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The likeliest tokens behind the text's mask, `top` of them; a list for each mask where there are several."""
        top = options.pop("top", 5)
        if options:
            raise InputError(f"fill has no option {next(iter(options))!r}; known: top")
        asked = [self.asked(text, number) for number, text in enumerate(inputs, 1)]
        special = torch.from_numpy(self.masking.special).to(device_of(model))
        order = sorted(range(len(asked)), key=lambda i: len(asked[i]))
        out: list[Any] = [None] * len(asked)
        for chunk in batches(order, 32):
            rows = [asked[i] for i in chunk]
            batch = Batch(
                without_none(inputs=pad(rows, self.tokenizer.pad_id or 0), padding_mask=padding_mask(rows)),
                {},
                count=0,
                where=[],
            )
            logits = model(**batch.to(special.device).inputs).logits
            for row, index in enumerate(chunk):
                at = np.flatnonzero(np.asarray(asked[index]) == self.tokenizer.mask_id)
                odds = logits[row, at].float().masked_fill(special, -torch.inf).softmax(-1)  # (mask, vocabulary)
                found = odds.topk(min(top, int((~special).sum())), dim=-1)
                lists = [
                    self._fillings(inputs[index], number, found.indices[number], found.values[number])
                    for number in range(len(at))
                ]
                out[index] = lists[0] if len(lists) == 1 else lists
        return out

    @property
    def mask(self) -> str:
        return self.tokenizer.roles["mask"]

    def asked(self, text: Any, number: int) -> list[int]:
        """Only the mask is read as a token; others that are typed are plain text."""
        if not isinstance(text, str) or self.mask not in text:
            raise InputError(f"input {number}: fill takes a text with {self.mask} in it, where a word is to be found")
        *before, last = text.split(self.mask)
        ids: list[int] = []
        for part in before:
            ids += [*self.tokenizer.encode(part.rstrip(), special=False), self.masking.mask_id]
        asked, _ = self.frame.join([*ids, *self.tokenizer.encode(last, special=False)])
        if len(asked) > self.limit:
            raise InputError(f"input {number}: {len(asked)} tokens; the model takes {self.limit}: shorten the text")
        return asked

    def _fillings(self, text: str, number: int, ids: Tensor, scores: Tensor) -> list[dict[str, Any]]:
        """The text with its mask `number` filled."""
        parts = text.split(self.mask)
        before, after = self.mask.join(parts[: number + 1]), self.mask.join(parts[number + 1 :])
        out = []
        for index, score in zip(ids.tolist(), scores.tolist(), strict=True):
            (token,) = self.tokenizer.tokens([index])
            glued = bool(self.masking.continues[index]) or token[:1].isspace()
            filled = (before.rstrip() if glued else before) + token.removeprefix("##") + after
            out.append({"token": token.strip(), "score": score, "text": filled})
        return out

    @torch.no_grad()
    def evaluate(self, model: nn.Module, rows: Iterable[Row]) -> dict[str, float]:
        """Always the same tokens hidden. `unigram` is what the best guess from their frequencies alone would lose."""
        fresh = replace(self)  # what came before plays no part
        examples = [example for row in rows for example in fresh.examples(row)]
        if not examples:
            raise DataError("fill: there is no text to evaluate on")
        order = sorted(range(len(examples)), key=lambda i: self.length(examples[i]))

        def work(chunk: Sequence[int]) -> tuple[list[float], np.ndarray]:
            batch = self.collate([examples[i] for i in chunk], seeds=[(0, i) for i in chunk], where=[])
            batch = batch.to(device_of(model))
            output, wanted = model(**batch.inputs), hidden_tokens(batch)
            logits = output.logits.float()  # (hidden token, vocabulary)
            lost = float(F.cross_entropy(logits, wanted, reduction="sum"))
            numbers = [lost, int((logits.argmax(-1) == wanted).sum()), 0, 0]
            if self.next_sentence:
                label = batch.targets["next_sentence"]
                numbers[2:] = [int((label != IGNORE).sum()), int((output.next_sentence.argmax(-1) == label).sum())]
            return numbers, np.bincount(wanted.cpu().numpy(), minlength=len(self.tokenizer))

        sums, counts = np.zeros(4), np.zeros(len(self.tokenizer), dtype=np.int64)
        for _, (numbers, seen) in distributed_map(batches(order, 32), work):
            sums += numbers
            counts += seen
        lost, right, pairs, followed = sums.tolist()
        share = counts[counts > 0] / counts.sum()
        total, unigram = int(counts.sum()), float(-(share * np.log(share)).sum())
        found = {"loss": lost / total, "accuracy": right / total, "unigram": unigram, "gain": unigram - lost / total}
        return found | ({"next_sentence": followed / pairs} if pairs else {})

    def token_lengths(self, row: Row) -> dict[str, int]:
        return {"text": len(self.tokenizer.encode(row.fields["text"], special=False))}


def _sentences(row: Row) -> Iterator[str]:
    """Given ones, or the text's: a line's end ends a sentence, as do a point and a space."""
    for sentence in row.fields.get("sentences") or SENTENCE_END.split(row.fields["text"]):
        if sentence.strip():
            yield sentence


def hidden_tokens(batch: Batch) -> Tensor:
    """The right token at each of the batch's logit positions, (n)."""
    return batch.targets["ids"].flatten().index_select(0, batch.inputs["logit_positions"])
