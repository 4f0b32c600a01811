"""Rows with preferences: a prompt with a chosen and a rejected answer (DPO), or with an answer and whether it is a good
one (KTO). How they become token sequences, and what is computed from the log-probabilities of their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.batch import Batch, Loss
from headway.data.row import Row, kind
from headway.errors import DataError, InputError
from headway.preprocess.chat import Message
from headway.preprocess.chat_training import Tokens, messages_of
from headway.tasks.preference_losses import Pairs, kto_losses, pair_losses
from headway.tasks.task import Example
from headway.tasks.token_rows import log_probabilities, sums_by_sequence

Kind = Literal["answers", "pairs", "labelled"]  # of a row
Objective = Literal["answers", "dpo", "ipo", "robust", "kto"]
KIND_OF: dict[Objective, Kind] = {
    "answers": "answers", "dpo": "pairs", "ipo": "pairs", "robust": "pairs", "kto": "labelled"
}  # fmt: skip
DEFAULT: dict[Kind, Objective] = {"answers": "answers", "pairs": "dpo", "labelled": "kto"}
NEEDED = {"answers": "messages, or instruction and response", "pairs": "prompt, chosen and rejected",
          "labelled": "prompt, completion and label"}  # fmt: skip
TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
SEQUENCES = 2  # of an example: the chosen and the rejected answer, or an answer and that of another prompt
NAMES = ("first", "second")  # their fields in a store


def kind_of(row: Row) -> Kind:
    if "chosen" in row.fields:
        return "pairs"
    return "labelled" if "desirable" in row.fields else "answers"


# --- rows → conversations


def pair(row: Row) -> tuple[list[Message], list[Message]]:
    """The conversations that end with the chosen and with the rejected answer."""
    prompt = _prompt(row)
    chosen, rejected = (_answer(row, name) for name in ("chosen", "rejected"))
    if not prompt and (len(chosen) < 2 or chosen[:-1] != rejected[:-1]):
        raise DataError(
            f"{row.where}: no prompt: give a column prompt (or conversations), or the whole conversation as chosen and "
            "as rejected, which then differ in the last message only"
        )
    return [*prompt, *chosen], [*prompt, *rejected]


def judged(row: Row) -> tuple[list[Message], list[Message], bool]:
    """Prompt, answer, and whether the answer is a good one."""
    prompt = _prompt(row)
    if not prompt:
        raise DataError(f"{row.where}: no prompt: give a column prompt")
    value = row.fields["desirable"]
    found = value if isinstance(value, bool) else TRUTH.get(str(value).strip().lower())
    if found is None:
        raise DataError(
            f"{row.where}: label: expected true or false, whether the answer is a good one, found {value!r:.60}; "
            "without such a column, leave it out to learn all answers"
        )
    return prompt, _answer(row, "completion"), found


def prompt_of(row: Row) -> list[Message]:
    """What comes before the answers."""
    return list(pair(row)[0][:-1]) if kind_of(row) == "pairs" else judged(row)[0]


def _prompt(row: Row) -> list[Message]:
    fields, out = row.fields, list[Message]()
    if fields.get("system"):
        out.append({"role": "system", "content": fields["system"]})
    for name in ("messages", "prompt"):
        value = fields.get(name)
        if isinstance(value, str) and not value.lstrip().startswith("[{"):
            out.append({"role": "user", "content": value})
        elif value is not None:
            out += _messages(value, row, name)
    return out


def _answer(row: Row, name: str) -> list[Message]:
    value = row.fields[name]
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, str) and not value.lstrip().startswith("[{"):
        return [{"role": "assistant", "content": value}]
    found = _messages(value, row, name)
    if found[-1]["role"] != "assistant":
        raise DataError(f"{row.where}: {name}: its last message is not one of the assistant")
    return found


def _messages(value: Any, row: Row, name: str) -> list[Message]:
    try:
        return list(messages_of(value))
    except InputError as error:
        raise DataError(f"{row.where}: {name}: expected text or messages, found {kind(value)}: {error}") from error


# --- tokens → examples


@dataclass(frozen=True)
class Fitted:
    """The sequences within the context, and the lengths before they were cut."""

    sequences: list[Tokens]
    prompt: int
    answer: int
    prompt_limit: int
    answer_limit: int


def fit(found: Sequence[Tokens], context: int, *, bos: int | None) -> Fitted:
    """Cuts prompts at their beginning, to half of the context unless the answers leave more, and answers at their end.
    All sequences have the same prompt."""
    starts = [int(each.learnt.argmax()) for each in found]
    prompt, answer = starts[0], max(len(each.ids) - start for each, start in zip(found, starts, strict=True))
    prompt_limit = max(context // 2, context - answer)
    kept = min(prompt, prompt_limit)
    out = []
    for each, start in zip(found, starts, strict=True):
        cut = max(0, start - kept)
        ids, learnt = each.ids[cut:][:context], each.learnt[cut:][:context]
        if cut and each.ids[0] == bos:
            ids = np.concatenate([each.ids[:1], ids[1:]])
        out.append(Tokens(ids, learnt))
    return Fitted(out, prompt, answer, prompt_limit, context - kept)


def store_example(sequences: Sequence[Tokens]) -> Example:
    out: Example = {}
    for name, each in zip(NAMES, sequences, strict=True):
        out |= {f"{name}_ids": each.ids, f"{name}_learnt": each.learnt}
    return out


def stored_sequences(example: Example) -> list[Tokens]:
    return [Tokens(example[f"{name}_ids"], example[f"{name}_learnt"]) for name in NAMES]


def in_order(examples: Sequence[Example]) -> list[Tokens]:
    """The sequences of a batch: the first of every example, then the second of every example."""
    both = [stored_sequences(example) for example in examples]
    return [each[number] for number in range(SEQUENCES) for each in both]


# --- log-probabilities → loss and scores


@dataclass(frozen=True)
class AnswerBatch:
    """Of the answers of a batch of N examples: log-probabilities and tokens, each (N, 2)."""

    log_probability: Tensor
    tokens: Tensor


def answers(model: nn.Module, batch: Batch) -> AnswerBatch:
    count = SEQUENCES * batch.count
    each = log_probabilities(model, batch)  # (prediction)
    sums = sums_by_sequence(each, batch, sequences=count)
    tokens = sums_by_sequence(torch.ones_like(each), batch, sequences=count)
    return AnswerBatch(sums.view(SEQUENCES, -1).T, tokens.view(SEQUENCES, -1).T)


def preference_loss(
    model: nn.Module, batch: Batch, *, objective: Objective, beta: float, label_smoothing: float
) -> Loss:
    """The loss and its parts, summed over the examples of the batch."""
    reference = batch.targets["reference"]  # (example, 2)
    found = answers(model, batch)
    if objective in ("dpo", "ipo", "robust"):
        pairs = Pairs(found.log_probability, reference, found.tokens)
        losses = pair_losses(pairs, kind=objective, beta=beta, label_smoothing=label_smoothing)
        rewards = pairs.rewards(objective, beta)
        return Loss(losses.sum(), {name: value.sum() for name, value in reward_parts(rewards).items()})
    ratios, good = found.log_probability - reference, batch.targets["desirable"]
    losses = kto_losses(ratios[:, 0], good, kl=ratios[:, 1].mean(), beta=beta)
    rewards = beta * ratios[:, 0].detach()
    parts = {"good_reward": good, "bad_reward": ~good}
    return Loss(losses.sum(), {name: len(good) * masked_mean(rewards, mask) for name, mask in parts.items()})


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum().clamp(min=1)


def reward_parts(rewards: Tensor) -> dict[str, Tensor]:
    """Of rewards (N, 2): each (N)."""
    chosen, rejected = rewards.unbind(1)
    return {
        "reward_accuracy": (chosen > rejected).to(chosen.dtype),
        "margin": chosen - rejected,
        "chosen_reward": chosen,
        "rejected_reward": rejected,
    }


def likelihood_parts(found: AnswerBatch) -> dict[str, Tensor]:
    """Whether the chosen answer is the more likely one, as a whole and by the mean of its tokens; each (N)."""
    means = found.log_probability / found.tokens
    return {
        "likelihood_accuracy": (found.log_probability[:, 0] > found.log_probability[:, 1]).float(),
        "token_likelihood_accuracy": (means[:, 0] > means[:, 1]).float(),
    }
