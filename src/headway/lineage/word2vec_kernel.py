"""`word2vec.train_chunk`, compiled: one function for both methods and both objectives, fused so that the rows of a
window stay in the first-level cache. It releases the interpreter's lock; several threads train the same tables at once
without locks (Hogwild, Recht et al. 2011)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from headway.lineage.word2vec import INCREMENT, LOSS_EVERY, MULTIPLIER, Corpus, Objective

njit: Any = numba.njit  # untyped: compiled functions take numpy scalars
FAST = {"reassoc", "contract", "nsz", "arcp"}
TIMES, PLUS = np.uint64(MULTIPLIER), np.uint64(INCREMENT)
SHIFT, BITS = np.uint64(33), np.uint64(31)
UNIT = np.float32(2.0**-31)
ONE, ZERO = np.float32(1), np.float32(0)


def train_chunk(
    corpus: Corpus,
    sentences: tuple[int, int],
    tables: tuple[np.ndarray, np.ndarray],
    objective: Objective,
    *,
    lr: float,
    seed: int,
) -> tuple[float, int]:
    """As `word2vec.train_chunk`."""
    return _train_chunk(corpus.ids, corpus.starts, *sentences, *tables, objective, np.float32(lr), np.uint64(seed))


@njit(nogil=True, fastmath=FAST, cache=True)
def _train_chunk(
    ids: Any, starts: Any, first: int, last: int, inputs: Any, outputs: Any, objective: Any, lr: Any, state: Any
) -> tuple[float, int]:
    width, vocab = inputs.shape[1], np.uint64(len(objective.alias))
    window, negatives = np.uint64(objective.window), objective.negatives
    longest = 0
    for number in range(first, last):
        longest = max(longest, starts[number + 1] - starts[number])
    words = np.empty(longest, np.int32)
    rows, labels = np.empty(max(negatives + 1, 64), np.int32), np.empty(max(negatives + 1, 64), np.float32)
    hidden, error = np.empty(width, np.float32), np.empty(width, np.float32)
    loss, measured = 0.0, 0
    for number in range(first, last):
        count = 0
        for at in range(starts[number], starts[number + 1]):
            word = ids[at]
            state = state * TIMES + PLUS
            if np.float32(state >> SHIFT) * UNIT < objective.keep[word]:
                words[count] = word
                count += 1
        for position in range(count):
            word = words[position]
            state = state * TIMES + PLUS
            reach: Any = 1 + np.int64(((state >> SHIFT) * window) >> BITS)
            low, high = max(0, position - reach), min(count, position + reach + 1)
            if negatives > 0:
                rows[0], labels[0], chosen = word, ONE, 1
                for _ in range(negatives):
                    state = state * TIMES + PLUS
                    drawn = np.int64(((state >> SHIFT) * vocab) >> BITS)
                    state = state * TIMES + PLUS
                    if not np.float32(state >> SHIFT) * UNIT < objective.threshold[drawn]:
                        drawn = np.int64(objective.alias[drawn])
                    if drawn != word:
                        rows[chosen], labels[chosen] = drawn, ZERO
                        chosen += 1
            else:
                start = objective.path_starts[word]
                chosen = min(objective.path_starts[word + 1] - start, len(rows))
                for index in range(chosen):
                    rows[index], labels[index] = (
                        objective.path_nodes[start + index],
                        objective.path_codes[start + index],
                    )
            if high - low < 2 or chosen == 0:
                continue
            measure = position % LOSS_EVERY == 0
            if objective.skip_gram:
                for at in range(low, high):
                    if at == position:
                        continue
                    context = words[at]
                    for k in range(width):
                        hidden[k] = inputs[context, k]
                    loss += _window(hidden, error, outputs, rows, labels, chosen, lr, measure)
                    measured += chosen if measure else 0
                    for k in range(width):
                        inputs[context, k] += error[k]
                continue
            for k in range(width):
                hidden[k] = ZERO
            for at in range(low, high):
                if at != position:
                    context = words[at]
                    for k in range(width):
                        hidden[k] += inputs[context, k]
            share = ONE / np.float32(high - low - 1)
            for k in range(width):
                hidden[k] *= share
            loss += _window(hidden, error, outputs, rows, labels, chosen, lr, measure)
            measured += chosen if measure else 0
            for at in range(low, high):
                if at != position:
                    context = words[at]
                    for k in range(width):
                        inputs[context, k] += error[k]
    return loss, measured


@njit(nogil=True, fastmath=FAST, cache=True, inline="always")
def _window(hidden: Any, error: Any, outputs: Any, rows: Any, labels: Any, count: int, lr: Any, measure: bool) -> float:
    """Updates the output rows and sets the `error` of the hidden vector; returns the loss, if measured."""
    width, loss = len(hidden), 0.0
    for k in range(width):
        error[k] = ZERO
    for index in range(count):
        row, score = rows[index], ZERO
        for k in range(width):
            score += hidden[k] * outputs[row, k]
        step = (labels[index] - ONE / (ONE + np.exp(-score))) * lr
        for k in range(width):
            value = outputs[row, k]
            error[k] += step * value
            outputs[row, k] = value + step * hidden[k]
        if measure:
            wrong = -score if labels[index] > ZERO else score
            loss += max(wrong, ZERO) + np.log1p(np.exp(-abs(wrong)))
    return loss
