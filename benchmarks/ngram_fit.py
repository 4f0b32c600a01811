"""The linear map of n-grams beside a classifier (`tasks/ngram_features.py`) alone, with and without what naive Bayes
and the n-grams of characters add, and the baseline of the same texts: cross-validation on a training file.

    python -m benchmarks.ngram_fit DATA-FOLDER [trec sst2 squad] [--folds 5] [--vocab 16000]

`squad` are the questions of SQuAD 2.0's development set with the titles of their articles as labels.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import hstack

from benchmarks.classify import SETS
from headway.baselines.linear import fit
from headway.baselines.tfidf import TextFeatures
from headway.data.read import read
from headway.layers.ngrams import NgramConfig, NgramLinear
from headway.preprocess.text import Tokenizer
from headway.tasks.classify import Classify
from headway.tasks.ngram_features import (
    CLOSE,
    STRENGTH,
    character_matrix,
    count_ratios,
    feature_matrix,
    find_ngrams,
)
from headway.tasks.text_settings import WORDS

SQUAD = "squad2-dev-half/dev-v2.0.json"
ORDER = 2
Inputs = tuple[Any, Any]  # of the training and of the held-out texts


def texts_and_labels(name: str, folder: Path) -> list[tuple[str, str]]:
    if name == "squad":
        articles = json.loads((folder / SQUAD).read_text(encoding="utf-8"))["data"]
        return [(q["question"], a["title"]) for a in articles for p in a["paragraphs"] for q in p["qas"]]
    path, _, encoding = SETS[name]
    rows = read([folder / path], fields=Classify.fields, encoding=encoding)
    return [(row.fields["text"], row.fields["label"]) for row in rows]


def ngram_inputs(training: list[str], held: list[str], *, outputs: int, vocab: int = WORDS) -> dict[str, Inputs]:
    """Those of n-grams of tokens, and these with the n-grams of their characters."""
    tokenizer = Tokenizer.train(training, kind="wordpiece", size=vocab, lowercase=True)
    ids = [[tokenizer.encode(text) for text in texts] for texts in (training, held)]
    found = find_ngrams(ids[0], vocab=len(tokenizer), order=ORDER, outputs=outputs)
    layer = NgramLinear(outputs, NgramConfig(len(found.keys), len(tokenizer), ORDER))
    layer.keys.copy_(found.keys)
    layer.idf.copy_(found.idf)
    characters = character_matrix(layer, tokenizer.token)
    own = [feature_matrix(layer, part) for part in ids]
    shared = [hstack([part, part @ characters]).tocsr() for part in own]
    return {"n-grams": (own[0], own[1]), "n-grams and characters": (shared[0], shared[1])}


def fits(inputs: Inputs, targets: np.ndarray) -> dict[str, np.ndarray]:
    """Logits of the held-out texts by kind of fit."""
    plain, scaled = (
        fit(inputs[0], targets, kind="one", strength=STRENGTH, scales=scales, tolerance=CLOSE)(inputs[1])
        for scales in (1.0, count_ratios(inputs[0], targets))
    )
    return {"": plain, ", scaled by naive Bayes": scaled, ", the mean of both": (plain + scaled) / 2}


def judged(logits: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
    """Accuracy and loss on the held-out texts."""
    log_probs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return float((logits.argmax(1) == wanted).mean()), -float(log_probs[np.arange(len(wanted)), wanted].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="*", help="trec, sst2, squad: all, unless some are named")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--vocab", type=int, default=WORDS)
    given = parser.parse_args()
    names = given.sets or [*SETS, "squad"]
    if unknown := set(names) - {*SETS, "squad"}:
        parser.error(f"{', '.join(sorted(unknown))}: the sets are {', '.join([*SETS, 'squad'])}")
    print("| data | linear map | accuracy | loss |\n|---|---|---|---|")
    for name in names:
        pairs = texts_and_labels(name, given.folder)
        labels = sorted({label for _, label in pairs})
        right = np.array([labels.index(label) for _, label in pairs])
        found: dict[str, list[tuple[float, float]]] = {}
        for held in np.array_split(np.random.default_rng(1).permutation(len(pairs)), given.folds):
            rest = np.setdiff1d(np.arange(len(pairs)), held)
            training, other = ([pairs[index][0] for index in part] for part in (rest, held))
            features, targets = TextFeatures(), np.eye(len(labels))[right[rest]]
            inputs = {"the baseline": (features.fit(training), features.transform(other))}
            inputs |= ngram_inputs(training, other, outputs=len(labels), vocab=given.vocab)
            for kind, each in inputs.items():
                for title, logits in fits(each, targets).items():
                    found.setdefault(kind + title, []).append(judged(logits, right[held]))
        for title, scores in found.items():
            accuracy, loss = np.mean(scores, axis=0)
            print(f"| {name} | {title} | {100 * accuracy:.1f} | {loss:.3f} |", flush=True)


if __name__ == "__main__":
    main()
