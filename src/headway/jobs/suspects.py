"""`check --suspect`: labels that are probably wrong.

A linear model is trained on four fifths of the examples and predicts the others, in turn, so that no example is judged
by a model that has seen it. A label is suspect if another one is more probable by at least one half, or by the rule of
confident learning (Northcutt, Jiang & Chuang 2021): if the probability of another one is at least the mean probability
that this other label has where it is given. Those that the model disagrees with most come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from headway import tasks
from headway.baselines.linear import fit
from headway.baselines.tfidf import TextFeatures, TfIdf
from headway.data.row import Row
from headway.data.split import input_hash
from headway.data.tables import Tables
from headway.data.target_kinds import detect
from headway.errors import InputError
from headway.jobs.run_config import Plan, open_data

FOLDS = 5
STRENGTH = 1.0  # of the L2 penalty: ten times that of the baseline, as wrong labels are not to be learnt
ITERATIONS = 50
TEXT = 4_000_000  # characters of texts, and …
WORDS = 150_000  # … words with tags, that a model is trained on at most; all are judged
WEIGHTS = 1_500_000  # features times labels
LONGEST = 160  # characters of a text in the list
AHEAD = 0.5
CONTEXT = 4  # words on each side of a word in the list

Item = TypeVar("Item")


@dataclass(frozen=True)
class Suspect:
    where: str  # file:line
    text: str  # of a word, with its neighbours
    label: str  # as given
    suggested: str
    probability: float  # of the suggested label
    of_label: float  # of the given one
    word: str = ""  # that has the tag


@dataclass(frozen=True)
class Suspects:
    found: list[Suspect]  # most suspect first
    examples: int  # texts, or words with tags
    agreement: float  # share of the examples whose label is the most probable one

    def to_dict(self) -> dict[str, Any]:
        return {"suspects": [asdict(each) for each in self.found], "judged": self.examples, "agreement": self.agreement}

    def lines(self, most: int) -> list[str]:
        """For the terminal."""
        share = f"{len(self.found):,} of {self.examples:,} labels; a linear model trained on the rest agrees with "
        lines = [f"suspect      {share}{self.agreement:.1%}"]
        for each in self.found[:most]:
            what = f"{each.word!r} in: {each.text}" if each.word else each.text
            labels = f"{each.label!r} → {each.suggested!r} {each.probability:.0%}"
            lines.append(f"  {each.where}  {labels}  {what}")
        if len(self.found) > most:
            lines.append(f"  … and {len(self.found) - most:,} more (--json lists all)")
        return lines


def find_suspects(plan: Plan, tables: Tables | None = None) -> Suspects:
    """The suspect labels of the data of a plan, its training and held-out parts."""
    kind = tasks.find(plan.task).variant(plan.options)
    data = open_data(plan, tables).load()
    rows = list(chain(data.train(), data.valid()))
    if {"words", "tags"} <= set(kind.fields):
        return _of_tags(rows)
    if "text" not in kind.fields or "label" not in kind.fields:
        raise InputError(f"--suspect finds wrong labels of texts and tags of words; task {plan.task} has none of these")
    found = {_key(row.fields["label"]): (1, row.where) for row in rows}
    given = plan.options.get("kind") or detect(found, decimal=plan.options.get("decimal", "")).kind
    if given != "labels":
        raise InputError(f"--suspect judges one label a text; here the target is {given} (task.kind=labels overrides)")
    return _of_texts(rows)


def _key(label: Any) -> Any:
    return tuple(label) if isinstance(label, list) else label


def _of_texts(rows: Sequence[Row]) -> Suspects:
    texts = [" ".join(row.fields[name] for name in ("text", "text_pair") if name in row.fields) for row in rows]
    labels, given = np.unique([str(row.fields["label"]) for row in rows], return_inverse=True)
    folds = np.array([input_hash(row) % FOLDS for row in rows])  # equal texts are in one fold
    few = sum(map(len, texts)) <= TEXT // 4

    def features() -> Any:
        return TextFeatures(most=max(1000, WEIGHTS // len(labels)), characters=few)

    most = max(1000, int(TEXT * len(texts) / max(1, sum(map(len, texts)))))
    probabilities = cross_predict(texts, given, folds, features=features, most=most)
    chosen, suggested, agreement = judge(probabilities, given)
    found = [
        Suspect(
            rows[i].where, _short(texts[i]), str(labels[given[i]]), str(labels[suggested[i]]),
            float(probabilities[i, suggested[i]]), float(probabilities[i, given[i]]),
        )
        for i in chosen
    ]  # fmt: skip
    return Suspects(found, len(rows), agreement)


def _of_tags(rows: Sequence[Row]) -> Suspects:
    rows = [row for row in rows if row.fields["words"]]
    places = [(row, at) for row in rows for at in range(len(row.fields["words"]))]
    labels, given = np.unique([row.fields["tags"][at] for row, at in places], return_inverse=True)
    by_row = {id(row): input_hash(row) % FOLDS for row in rows}
    folds = np.array([by_row[id(row)] for row, _ in places])
    items = [word_features(row.fields["words"], at) for row, at in places]

    def features() -> Any:
        return TfIdf(_Numbered(), least=2, most=max(1000, WEIGHTS // len(labels)))

    probabilities = cross_predict(items, given, folds, features=features, most=WORDS)
    chosen, suggested, agreement = judge(probabilities, given)
    found = []
    for i in chosen:
        row, at = places[i]
        words = row.fields["words"]
        text = " ".join(words[max(0, at - CONTEXT) : at + CONTEXT + 1])
        chances = float(probabilities[i, suggested[i]]), float(probabilities[i, given[i]])
        found.append(
            Suspect(row.where, _short(text), str(labels[given[i]]), str(labels[suggested[i]]), *chances, word=words[at])
        )
    return Suspects(found, len(places), agreement)


def word_features(words: Sequence[str], at: int) -> list[str]:
    """What a word's tag follows from: the word, its neighbours, its ends and its shape."""
    word = words[at]
    low = word.lower()
    before = words[at - 1].lower() if at else "<"
    after = words[at + 1].lower() if at + 1 < len(words) else ">"
    shape = "".join("A" if c.isupper() else "a" if c.islower() else "0" if c.isdigit() else c for c in word[:8])
    return [f"w={low}", f"b={before}", f"a={after}", f"bw={before} {low}", f"wa={low} {after}", f"3={low[-3:]}",
            f"2={low[-2:]}", f"p={low[:3]}", f"s={shape}", f"i={at == 0}"]  # fmt: skip


class _Numbered:
    """Numbers of features; each new one gets the next."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, features: Any) -> np.ndarray:
        return np.array([self.numbers.setdefault(each, len(self.numbers)) for each in features], dtype=np.int64)


def cross_predict(
    items: Sequence[Any], given: np.ndarray, folds: np.ndarray, *, features: Callable[[], Any], most: int
) -> np.ndarray:
    """(item, label) probabilities, each by a model that was trained on the other folds (evenly spread items of them, at
    most `most`)."""
    count = int(given.max()) + 1 if len(given) else 0
    if count < 2:
        raise InputError("--suspect needs data with at least two labels")
    if min((folds != fold).sum() for fold in range(FOLDS)) == 0:
        raise InputError("--suspect needs more examples: some must be left to train on while others are judged")
    out = np.zeros((len(items), count))
    for fold in range(FOLDS):
        others, own = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        if not len(own):
            continue
        others = others[:: max(1, -(-len(others) // most))]
        made = features()
        inputs = made.fit(_taken(items, others))
        model = fit(inputs, np.eye(count)[given[others]], kind="one", strength=STRENGTH, iterations=ITERATIONS)
        logits = model(made.transform(_taken(items, own)))
        exponent = np.exp(logits - logits.max(1, keepdims=True))
        out[own] = exponent / exponent.sum(1, keepdims=True)
    return out


def judge(probabilities: np.ndarray, given: np.ndarray) -> tuple[list[int], np.ndarray, float]:
    """The suspect items, most suspect first; the label suggested for every item; the share of labels that are the most
    probable ones."""
    every = np.arange(len(given))
    own = probabilities[every, given]
    thresholds = np.array([own[given == label].mean() for label in range(probabilities.shape[1])])
    others = np.where(probabilities >= thresholds, probabilities, -1.0)
    others[every, given] = -1.0
    suggested, confident = others.argmax(1), others.max(1) > own
    rivals = np.array(probabilities)
    rivals[every, given] = -1.0
    suggested = np.where(confident, suggested, rivals.argmax(1))
    margin = probabilities[every, suggested] - own
    chosen = np.flatnonzero(confident | (margin >= AHEAD))
    order = chosen[np.argsort(-margin[chosen], kind="stable")]
    return [int(i) for i in order], suggested, float((probabilities.argmax(1) == given).mean())


def _taken(items: Sequence[Item], places: Iterable[int]) -> list[Item]:
    return [items[i] for i in places]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
