"""word2vec: the compiled kernel is the plain algorithm; what its samplers and trees are; resumed runs are exact."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headway
from headway.errors import DataError, TrainingError
from headway.lineage import word2vec as plain
from headway.lineage import word2vec_fit
from headway.lineage.word2vec import Corpus, Random, alias_table, chunk_seed, huffman_paths, make_objective
from headway.training.settings import Settings

fast = pytest.importorskip("headway.lineage.word2vec_kernel", reason="numba is not installed")


def small_corpus(sentences: int = 60, *, seed: int = 0) -> tuple[list[str], np.ndarray, Corpus]:
    chance = np.random.default_rng(seed)
    drawn = np.minimum(chance.zipf(1.3, size=(sentences, 12)), 60)
    return Corpus.read(([f"w{word}" for word in row] for row in drawn.tolist()), min_count=2)


@pytest.mark.parametrize("method", ["cbow", "skip-gram"])
@pytest.mark.parametrize("negatives", [5, 0])
def test_the_kernel_gives_the_tables_of_the_plain_algorithm(method: Any, negatives: int) -> None:
    words, counts, corpus = small_corpus()
    objective = make_objective(counts, method=method, window=3, negatives=negatives, sample=1e-2)
    found = []
    for train_chunk in (plain.train_chunk, fast.train_chunk):
        tables = plain.initial_tables(len(words), 20, seed=1)
        loss = train_chunk(corpus, (0, 60), tables, objective, lr=0.05, seed=int(chunk_seed(0, 0, 0)))
        found.append((tables, loss))
    (plain_tables, plain_loss), (fast_tables, fast_loss) = found
    assert np.abs(plain_tables[1]).max() > 0.01, "nothing was learnt"
    for ours, theirs in zip(plain_tables, fast_tables, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert plain_loss == pytest.approx(fast_loss, rel=1e-5)


def test_words_are_ordered_by_frequency_and_rare_ones_are_left_out() -> None:
    sentences = [["b", "a", "b", "x"], [], ["y"], ["c", "a", "b", "c"]]
    words, counts, corpus = Corpus.read(sentences, min_count=2)
    assert words == ["b", "a", "c"] and counts.tolist() == [3, 2, 2]
    assert [corpus.ids[a:b].tolist() for a, b in zip(corpus.starts, corpus.starts[1:], strict=False)] == [
        [0, 1, 0],
        [2, 1, 0, 2],
    ]
    with pytest.raises(DataError, match="no word occurs 9 times in the text of 9 words"):
        Corpus.read(sentences, min_count=9)


def test_chunks_cover_every_sentence_once() -> None:
    _, _, corpus = small_corpus()
    chunks = corpus.chunks(50)
    assert chunks[0][0] == 0 and chunks[-1][1] == len(corpus.starts) - 1
    assert all(a[1] == b[0] for a, b in pairwise(chunks)) and len(chunks) > 5


def test_the_alias_table_draws_by_the_weights() -> None:
    weights = np.array([8.0, 4.0, 2.0, 1.0, 1.0])
    threshold, alias = alias_table(weights)
    mass = np.zeros(5)
    for index in range(5):
        mass[index] += threshold[index] / 5
        mass[alias[index]] += (1 - threshold[index]) / 5
    np.testing.assert_allclose(mass, weights / weights.sum(), atol=1e-6)


def test_huffman_paths_are_short_for_frequent_words_and_a_prefix_code() -> None:
    counts = np.array([50, 20, 10, 5, 2, 1])
    paths = huffman_paths(counts)
    codes = ["".join(str(int(code)) for _, code in path) for path in paths]
    assert len(codes[0]) == 1 and len(codes[-1]) == max(map(len, codes))
    assert sum(2.0 ** -len(code) for code in codes) == 1.0  # Kraft: a complete code
    assert not any(a != b and b.startswith(a) for a in codes for b in codes)
    assert {node for path in paths for node, _ in path} == set(range(len(counts) - 1))


def test_subsampling_thins_out_frequent_words_only() -> None:
    counts = np.array([100_000, 1_000, 10])
    keep = make_objective(counts, method="cbow", window=5, negatives=5, sample=1e-3).keep
    assert keep[0] < 0.05 and keep[2] == 1.0
    assert (make_objective(counts, method="cbow", window=5, negatives=5, sample=0).keep == 1).all()


def test_random_numbers_are_even() -> None:
    chance = Random(7)
    drawn = np.array([chance.below(10) for _ in range(5000)])
    assert (np.abs(np.bincount(drawn, minlength=10) / 500 - 1) < 0.2).all()
    assert 0.45 < np.mean([chance.uniform() for _ in range(2000)]) < 0.55


# --- runs


def fit(folder: Path, *, epochs: int = 3, resume: bool = False, callbacks: Any = (), fingerprint: str = "x") -> Any:
    _, counts, corpus = small_corpus(400)
    objective = make_objective(counts, method="cbow", window=3, negatives=3, sample=1e-2)
    settings = Settings(epochs=epochs, lr=0.05, save_every=1)
    return word2vec_fit.fit_word2vec(
        torch.nn.Module(), corpus, objective, width=16, settings=settings, folder=folder, fingerprint=fingerprint,
        train_chunk=fast.train_chunk, callbacks=callbacks, resume=resume,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word2vec_fit, "CHUNK", 300)
    monkeypatch.setattr(word2vec_fit, "ROUND", 4)


class StopAt:
    def __init__(self, step: int) -> None:
        self.step = step

    def on_save(self, status: Any, path: Path) -> None:
        if status.step == self.step:
            raise KeyboardInterrupt


def test_one_thread_gives_the_same_vectors_stopped_and_resumed_or_not(tmp_path: Path) -> None:
    whole, result = fit(tmp_path / "whole")
    again, _ = fit(tmp_path / "again")
    assert np.array_equal(whole, again) and result.stopped_by == "epochs"
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "parts", callbacks=[StopAt(4)])
    resumed, second = fit(tmp_path / "parts", resume=True)
    assert second.steps == result.steps > 4
    assert np.array_equal(whole, resumed)
    lines = [(tmp_path / name / "training" / "metrics.jsonl").read_text().count("\n") for name in ("whole", "parts")]
    assert lines[0] == lines[1] == result.steps


def test_a_run_with_another_text_is_not_resumed(tmp_path: Path) -> None:
    fit(tmp_path, epochs=1)
    with pytest.raises(TrainingError, match="the text has changed"):
        fit(tmp_path, resume=True, fingerprint="another")
    with pytest.raises(TrainingError, match="earlier run"):
        fit(tmp_path)


def test_the_loss_falls_and_two_threads_learn_as_well(tmp_path: Path) -> None:
    _, result = fit(tmp_path / "run", epochs=20)
    losses = [entry["loss"] for entry in result.history]
    assert np.mean(losses[-3:]) < 0.9 * losses[0]


def test_without_numba_the_plain_algorithm_trains_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("headway.engine.compiler.can_compile", lambda: False)
    monkeypatch.setattr("headway.data.builtin.families.ROWS", 2)
    trained = headway.train("vectors", epochs=1, out=tmp_path / "run", settings={"dimensions": 8}, say=print)
    assert "numba is not installed" in capsys.readouterr().out and trained.result.epochs == 1
