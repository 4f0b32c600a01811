"""Settings of tasks on text that are known before there is a model: how large one from scratch is, how often a small
data set is repeated, and whether rare labels weigh more. What follows from model and budget is in `jobs/budget.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from headway.data.facts import Facts
from headway.data.row import Row
from headway.data.target_kinds import detect
from headway.distributed import pick_device
from headway.models import recipes
from headway.models.build import build
from headway.models.recipes import SIZES, Size
from headway.tasks.task import Choice

SEEN = 50_000  # examples that a run from scratch without a given length sees, in at least EPOCHS[0] epochs
EPOCHS = (10, 60)
LARGE = 50_000  # examples from which on a larger model is worth its time …
ENOUGH_EPOCHS = 8  # … if it sees each so often
TOKEN = 4  # characters, about
TIMED = (16, 32)  # texts and tokens of a timed step
STEPS = 20  # that are timed; the shortest counts
LENGTHS = {"train.minutes", "train.steps", "train.epochs"}
FILTERS = 100  # of each size of the convolutions beside a transformer
WORDS = 16_000  # tokens of a small data set: most of its words are one of them
BESIDE = {  # parts of a classifier from scratch
    "task.ngrams": "a linear map of tokens and pairs",
    "task.convolutions": "convolutions over tokens",
}
UNBALANCED = 3.0  # examples of the most frequent label for each of the rarest one
MOST_LABELS = 1000


def text_length(row: Row) -> int:
    return len(row.fields["text"])


@dataclass(frozen=True)
class Amount:
    examples: int
    characters: int


def choose_for_examples(amount: Amount, *, recipe: str, given: Mapping[str, Any]) -> Choice:
    """Epochs of a model from scratch for a small data set: enough updates to learn anything at all. With a time limit
    that suffices for it, a larger model for a large one."""
    if recipe == "finetune" or not amount.examples:
        return Choice()
    if minutes := given.get("train.minutes"):
        return _size(amount, minutes * 60, given=given)
    epochs = min(max(round(SEEN / amount.examples), EPOCHS[0]), EPOCHS[1])
    if epochs == EPOCHS[0] or LENGTHS & set(given):
        return Choice()
    return Choice(
        {"train.epochs": epochs}, {"epochs": f"{epochs}, because there are only {amount.examples:,} examples"}
    )


def _size(amount: Amount, seconds: float, *, given: Mapping[str, Any]) -> Choice:
    larger = SIZES["small"]
    if amount.examples < LARGE or any(name.startswith("model.") or name == "task.architecture" for name in given):
        return Choice()
    epochs = seconds / (seconds_per_token(larger) * amount.characters / TOKEN)
    if epochs < ENOUGH_EPOCHS:
        return Choice()
    why = f"{larger.layers} layers of width {larger.width}, which see {amount.examples:,} examples {epochs:.0f} times"
    return Choice({f"model.{name}": value for name, value in vars(larger).items()}, {"size": why})


def plans_by_time(recipe: str, given: Mapping[str, Any]) -> bool:
    """Whether a time limit decides about the size: of a transformer from scratch."""
    from_scratch = recipe != "finetune" and given.get("task.architecture", "transformer") == "transformer"
    return from_scratch and bool(given.get("train.minutes"))


def largest_suited(sizes: Sequence[Size], suits: Callable[[Size], bool], *, given: Mapping[str, Any]) -> Size:
    """The last of the sizes that suits, else the first; the first with what the user gave of it, if anything.
    Dropout is chosen separately."""
    parts = [each.name for each in fields(Size) if each.name != "dropout"]
    named = {name: given[f"model.{name}"] for name in parts if f"model.{name}" in given}
    return replace(sizes[0], **named) if named else [sizes[0], *filter(suits, sizes[1:])][-1]


def dropout_line(dropout: float, data: str, *, often: bool, given: Mapping[str, Any]) -> dict[str, str]:
    """The reason for a chosen dropout; `data` with its verb: "the pairs are"."""
    seen = "so often" if often else "about once or less"
    return {} if "model.dropout" in given else {"dropout": f"{dropout:g}, as {data} seen {seen}"}


def seconds_per_token(size: Size) -> float:
    """A training step of an encoder on random tokens, timed on the device that is trained on."""
    device, vocab = pick_device("auto"), 1000
    with torch.random.fork_rng(devices=[]):
        model = build(recipes.encoder(size, "modern", vocab=vocab)).to(device).train()
        ids = torch.randint(vocab, TIMED, device=device)

        def step() -> float:
            began = time.perf_counter()
            hidden = model(ids).hidden
            hidden.square().mean().backward()
            hidden.sum().item()
            return (time.perf_counter() - began) / ids.numel()

        step()  # what only the first pass does is not timed
        return min(step() for _ in range(STEPS))  # whatever else runs now may have ended soon


def choose_for_labels(facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
    """As `choose_for_examples`; rare labels weigh more where the best weights are chosen by macro F1; and a model from
    scratch of a small data set has parts beside it that overfit less."""
    found, pairs = facts.labels, any("text_pair" in row.fields for row in facts.rows)
    counts = sorted(count for count, _ in found.values())
    choice = choose_for_examples(Amount(facts.count, facts.total(text_length)), recipe=recipe, given=given)
    if not 2 <= len(counts) <= MOST_LABELS:
        return choice
    if (given.get("task.kind") or detect(found, decimal=given.get("task.decimal", "")).kind) != "labels":
        return choice
    settings, why = dict(choice.settings), dict(choice.why)
    if given.get("train.score") == "macro_f1" and counts[-1] >= UNBALANCED * counts[0]:
        settings["task.balance"] = True
        why["balance"] = (
            f"rare labels weigh more: the most frequent one has {counts[-1]:,} examples, the rarest {counts[0]:,}"
        )
    if recipe == "modern" and given.get("task.architecture", "transformer") == "transformer" and not pairs:
        parts = choose_parts_beside(sum(counts), "texts", given=given)
        settings, why = {**settings, **parts.settings}, {**why, **parts.why}
    return Choice(settings, why)


def choose_parts_beside(count: int, what: str, *, given: Mapping[str, Any]) -> Choice:
    """The parts beside a transformer that classifies texts from scratch, if it has so few of them."""
    beside = {name: text for name, text in BESIDE.items() if given.get(name, True)}
    if not beside or count >= LARGE:
        return Choice()
    settings = {"task.ngrams": 2, "task.convolutions": FILTERS, "task.vocab": WORDS}
    why = f"{' and '.join(beside.values())}, next to the transformer, because there are only {count:,} {what}"
    return Choice(settings, {"beside": why})
