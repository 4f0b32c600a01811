"""word2vec (Mikolov et al. 2013): vectors of words such that those of the words around it predict a word (CBOW), or
its own predicts them (skip-gram), by negative sampling or by hierarchical softmax.

A step is one window: SGD on the few rows of two tables that it names. `train_chunk` is the plain form, in numpy; the
compiled one in `word2vec_kernel` draws the same random numbers and gives the same tables. The words that are drawn as
negatives are drawn once for a window and serve all its context words (Ji et al. 2016, pWord2Vec), where the original
draws anew for each pair.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np

from headway.errors import DataError

Method = Literal["cbow", "skip-gram"]
NOISE_POWER = 0.75  # of the counts, in the distribution of negatives
MULTIPLIER, INCREMENT = 6364136223846793005, 1442695040888963407  # of Knuth's MMIX generator
MASK = (1 << 64) - 1
LOSS_EVERY = 16  # the loss of one window in this many is computed


@dataclass(frozen=True)
class Corpus:
    """Sentences of word ids, end to end."""

    ids: np.ndarray  # (word,) int32
    starts: np.ndarray  # (sentence + 1,) int64, ends included

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def read(cls, sentences: Iterable[list[str]], *, min_count: int) -> tuple[list[str], np.ndarray, Corpus]:
        """(words, their counts, corpus) in one pass: the words that occur at least `min_count` times, most frequent
        first and equally frequent ones in the order of their first occurrence. Other words are left out of the
        sentences."""
        known: dict[str, int] = {}
        found, lengths = array("i"), array("q")
        for sentence in sentences:
            found.extend([known.setdefault(word, len(known)) for word in sentence])
            lengths.append(len(sentence))
        ids = np.frombuffer(found, dtype=np.int32) if found else np.empty(0, dtype=np.int32)
        counts = np.bincount(ids, minlength=len(known))
        order = np.argsort(-counts, kind="stable")
        order = order[counts[order] >= min_count]
        if not len(order):
            raise DataError(
                f"no word occurs {min_count} times in the text of {len(ids):,} words; give more text, or a lower "
                "min_count (--set min_count=1)"
            )
        names = list(known)
        index = np.full(len(known), -1, dtype=np.int32)
        index[order] = np.arange(len(order), dtype=np.int32)
        new = index[ids]
        kept = np.concatenate([[0], np.cumsum(new >= 0)])  # words kept before each place
        ends = kept[np.cumsum(np.frombuffer(lengths, dtype=np.int64))]
        starts = np.unique(np.concatenate([[0], ends])).astype(np.int64)
        return [names[i] for i in order], counts[order], cls(new[new >= 0], starts)

    def chunks(self, words: int) -> list[tuple[int, int]]:
        """Ranges of sentences of about so many words each."""
        marks = np.searchsorted(self.starts, np.arange(0, len(self) + words, words))
        marks = np.unique(np.minimum(marks, len(self.starts) - 1))
        return list(zip(marks[:-1].tolist(), marks[1:].tolist(), strict=True))


class Objective(NamedTuple):
    """What the counts of the words decide. Arrays only: compiled code takes it as it is."""

    keep: np.ndarray  # (vocab,) float32: the probability that an occurrence is trained on (subsampling)
    threshold: np.ndarray  # (vocab,) float32, with `alias` the distribution of negatives (Walker's alias method)
    alias: np.ndarray  # (vocab,) int32
    path_starts: np.ndarray  # (vocab + 1,) int64: the path of a word in the Huffman tree is a range of the next two
    path_nodes: np.ndarray  # int32
    path_codes: np.ndarray  # float32: 1 where the path goes left
    negatives: int  # 0: hierarchical softmax
    window: int
    skip_gram: bool


def make_objective(counts: np.ndarray, *, method: Method, window: int, negatives: int, sample: float) -> Objective:
    """`counts` of the words, most frequent first; `sample` is the share of the text above which a word is thinned
    out, 0: never."""
    share = counts / counts.sum()
    keep = np.minimum(1.0, np.sqrt(sample / share) + sample / share) if sample else np.ones(len(counts))
    threshold, alias = alias_table(counts**NOISE_POWER)
    paths: list[list[tuple[int, float]]] = [[]] * len(counts) if negatives else huffman_paths(counts)
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum([len(path) for path in paths], out=starts[1:])
    flat = list(chain.from_iterable(paths))
    nodes, codes = np.array([node for node, _ in flat], np.int32), np.array([code for _, code in flat], np.float32)
    return Objective(
        keep.astype(np.float32), threshold, alias, starts, nodes, codes, negatives, window, method == "skip-gram"
    )


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(threshold, alias): index i drawn evenly stands for itself with probability threshold[i], else for alias[i]."""
    scaled = weights / weights.sum() * len(weights)
    threshold, alias = np.ones(len(weights)), np.arange(len(weights))
    small, large = list(np.nonzero(scaled < 1)[0]), list(np.nonzero(scaled >= 1)[0])
    while small and large:
        low, high = small.pop(), large[-1]
        threshold[low], alias[low] = scaled[low], high
        scaled[high] -= 1 - scaled[low]
        if scaled[high] < 1:
            small.append(large.pop())
    return threshold.astype(np.float32), alias.astype(np.int32)


def huffman_paths(counts: np.ndarray) -> list[list[tuple[int, float]]]:
    """For each word the inner nodes from the root to it, and 1.0 where the path goes left. A tree of n words has n - 1
    inner nodes, each with a row of the output table."""
    heap = [(int(count), index) for index, count in enumerate(counts)]
    heapq.heapify(heap)
    parent: dict[int, tuple[int, float]] = {}
    for node in range(len(counts), 2 * len(counts) - 1):
        (low, left), (high, right) = heapq.heappop(heap), heapq.heappop(heap)
        parent[left], parent[right] = (node, 1.0), (node, 0.0)
        heapq.heappush(heap, (low + high, node))
    paths = []
    for word in range(len(counts)):
        path, at = [], word
        while at in parent:
            at, code = parent[at]
            path.append((at - len(counts), code))
        paths.append(path[::-1])
    return paths


def initial_tables(vocab: int, width: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(inputs, outputs), each (vocab, width): small uniform numbers, and zeros."""
    chance = np.random.default_rng(seed)
    inputs = (chance.random((vocab, width), dtype=np.float32) - np.float32(0.5)) / np.float32(width)
    return inputs, np.zeros((vocab, width), dtype=np.float32)


def chunk_seed(seed: int, epoch: int, chunk: int) -> np.uint64:
    """Of the random numbers of a chunk, whatever thread trains it."""
    return np.uint64(np.random.SeedSequence([seed, epoch, chunk]).generate_state(1, np.uint64)[0])


class Random:
    """A linear congruential generator; its upper 31 bits are used."""

    def __init__(self, seed: int) -> None:
        self.state = int(seed)

    def draw(self) -> int:
        self.state = (self.state * MULTIPLIER + INCREMENT) & MASK
        return self.state >> 33

    def below(self, count: int) -> int:
        return (self.draw() * count) >> 31

    def uniform(self) -> np.float32:
        return np.float32(self.draw()) * np.float32(2.0**-31)


def train_chunk(
    corpus: Corpus,
    sentences: tuple[int, int],
    tables: tuple[np.ndarray, np.ndarray],
    objective: Objective,
    *,
    lr: float,
    seed: int,
) -> tuple[float, int]:
    """Trains the tables in place on a range of sentences. Returns the summed loss of some outputs, and their number."""
    inputs, outputs = tables
    chance, rate = Random(seed), np.float32(lr)
    loss, measured = 0.0, 0
    for number in range(*sentences):
        whole = corpus.ids[corpus.starts[number] : corpus.starts[number + 1]]
        words = [word for word in whole if chance.uniform() < objective.keep[word]]
        for position, word in enumerate(words):
            reach = 1 + chance.below(objective.window)
            around = [*words[max(0, position - reach) : position], *words[position + 1 : position + 1 + reach]]
            rows, labels = _targets(word, objective, chance)
            if not around or not rows:
                continue
            for contexts in [[each] for each in around] if objective.skip_gram else [around]:
                hidden = inputs[contexts].mean(0)  # (width,)
                error = np.zeros_like(hidden)
                for row, label in zip(rows, labels, strict=True):
                    score = hidden @ outputs[row]
                    step = (label - 1 / (1 + np.exp(-score))) * rate
                    error += step * outputs[row]
                    outputs[row] += step * hidden
                    if position % LOSS_EVERY == 0:
                        loss += float(np.logaddexp(0, -score if label else score))
                        measured += 1
                for context in contexts:
                    inputs[context] += error
    return loss, measured


def _targets(word: int, objective: Objective, chance: Random) -> tuple[list[int], list[np.float32]]:
    """Rows of the output table and whether each is right: the word and some negatives, or its path in the tree."""
    if not objective.negatives:
        path = slice(objective.path_starts[word], objective.path_starts[word + 1])
        return objective.path_nodes[path].tolist(), list(objective.path_codes[path])
    rows, labels = [int(word)], [np.float32(1)]
    for _ in range(objective.negatives):
        drawn = chance.below(len(objective.alias))
        other = int(drawn if chance.uniform() < objective.threshold[drawn] else objective.alias[drawn])
        if other != word:
            rows.append(other)
            labels.append(np.float32(0))
    return rows, labels
