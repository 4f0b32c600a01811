"""Word vectors against gensim on the same sentences: words per second of training on one thread, analogies and word
similarity, for several seeds; the two libraries in turn.

    python -m benchmarks.word2vec enwik8_first25MB.gz questions-words.txt wordsim353.tsv --seeds 3

Both train on words as `headway.preprocess.words` splits them, a sentence a line: 100 numbers a word, window 5, 5
negatives, subsampling 0.001, words that occur 5 times, 5 epochs. Scores of both are computed by `headway evaluate`'s
code. Words per second are words of the text times epochs, before subsampling; reading the text is not timed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from gensim.models import Word2Vec

from headway.data.running_text import text_rows
from headway.data.word_questions import read_questions
from headway.lineage.vectors import kernel
from headway.lineage.word2vec import Corpus, make_objective
from headway.lineage.word2vec_fit import fit_word2vec
from headway.preprocess.words import split_words
from headway.tasks.vectors import Vectors
from headway.training.settings import Settings

WIDTH, WINDOW, NEGATIVES, SAMPLE, MIN_COUNT = 100, 5, 5, 1e-3, 5
RATES = {"cbow": 0.05, "skip-gram": 0.035}  # of `headway train vectors`; gensim's is 0.025 for both


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("questions", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=["cbow", "skip-gram"])
    parser.add_argument("--only", choices=["headway", "gensim"])
    parser.add_argument("--lr", type=float, help="of headway, in place of its defaults")
    given = parser.parse_args()
    torch.set_num_threads(1)
    sentences = [
        split_words(line) for row in text_rows([given.text]) for line in row.fields["text"].split("\n") if line.strip()
    ]
    words, counts, corpus = Corpus.read(sentences, min_count=MIN_COUNT)
    print(f"{len(corpus):,} words, {len(words):,} different", flush=True)
    rows = list(read_questions(given.questions))
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for seed in range(given.seeds):
        for method in given.methods:
            for name in ("gensim", "headway"):
                if given.only not in (None, name):
                    continue
                if name == "gensim":
                    names, table, seconds = train_gensim(sentences, method, epochs=given.epochs, seed=seed)
                else:
                    rate = given.lr or RATES[method]
                    options: dict[str, Any] = {"epochs": given.epochs, "lr": rate, "seed": seed}
                    names, (table, seconds) = words, train_headway(corpus, counts, method, **options)
                task, model = Vectors.from_words(names, table)
                scores = task.evaluate(model, rows)
                speed = len(corpus) * given.epochs / seconds[0]
                result = {"words/s": speed, "words/cpu s": len(corpus) * given.epochs / seconds[1], **scores}
                found.setdefault((name, method), []).append(result)
                print(name, method, seed, json.dumps(result), flush=True)
    for (name, method), results in found.items():
        means = {score: mean(result[score] for result in results) for score in results[0]}
        print(name, method, "mean", json.dumps(means), flush=True)


def train_gensim(
    sentences: list[list[str]], method: str, *, epochs: int, seed: int
) -> tuple[list[str], np.ndarray, tuple[float, float]]:
    model = Word2Vec(
        vector_size=WIDTH, window=WINDOW, negative=NEGATIVES, sample=SAMPLE, min_count=MIN_COUNT, workers=1, seed=seed,
        sg=int(method == "skip-gram"),
    )  # fmt: skip
    model.build_vocab(sentences)
    began = perf_counter(), process_time()
    model.train(sentences, total_examples=model.corpus_count, epochs=epochs)
    seconds = perf_counter() - began[0], process_time() - began[1]
    return list(model.wv.index_to_key), model.wv.vectors, seconds


def train_headway(
    corpus: Corpus, counts: np.ndarray, method: Any, *, epochs: int, lr: float, seed: int
) -> tuple[np.ndarray, tuple[float, float]]:
    train_chunk, _ = kernel()
    objective = make_objective(counts, method=method, window=WINDOW, negatives=NEGATIVES, sample=SAMPLE)
    warm = np.zeros((len(counts), WIDTH), np.float32), np.zeros((len(counts), WIDTH), np.float32)
    train_chunk(corpus, (0, 1), warm, objective, lr=lr, seed=0)  # compiles
    with TemporaryDirectory() as folder:
        began = perf_counter(), process_time()
        table, _ = fit_word2vec(
            torch.nn.Module(), corpus, objective, width=WIDTH, settings=Settings(epochs=epochs, lr=lr, seed=seed),
            folder=Path(folder), fingerprint="", train_chunk=train_chunk,
        )  # fmt: skip
        seconds = perf_counter() - began[0], process_time() - began[1]
    return table, seconds


if __name__ == "__main__":
    main()
