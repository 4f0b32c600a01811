"""`compare`: its scores and measures on known cases, and one small comparison from the command to the report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sacrebleu.metrics import BLEU
from support.commands import headway

from headway.data.builtin.pool import Builtin
from headway.data.row import Row
from headway.errors import ConfigError
from headway.jobs.compare_scores import standings
from headway.lineage import compare as job
from headway.lineage import compare_measures
from headway.lineage.compare import check_models
from headway.lineage.compare_measures import cost_by_length, gradient_by_distance, inputs_of_length, kept_bytes
from headway.lineage.compare_page import comparison_page
from headway.loading import load
from headway.models.build import build
from headway.models.init import initialise
from headway.models.recipes import Size, decoder, recurrent_decoder
from headway.tasks.counts import Counts, bleu, by_length, ngram_counts

SIZE = Size(width=16, layers=2, heads=2, dropout=0.0)
FOUND = ["the cat sat on the mat", "a dog", "it rains in the old town", "no"]
WANTED = ["the cat sat on a mat", "the dog barked", "it rains in the town", "yes"]


def test_bleu_of_sums_is_that_of_the_corpus() -> None:
    values = ngram_counts(FOUND, [[text] for text in WANTED])
    wanted = BLEU().corpus_score(FOUND, [WANTED]).score
    assert bleu(values.sum(0)[None].astype(float))[0] == pytest.approx(wanted, abs=1e-9)
    poor = ngram_counts(["x y", "z"], [[text] for text in WANTED[:2]])
    assert bleu(poor.sum(0)[None].astype(float))[0] == pytest.approx(
        BLEU().corpus_score(["x y", "z"], [WANTED[:2]]).score
    )


def accuracy(right: list[int]) -> Counts:
    return Counts(np.array([[value, 1] for value in right]), np.arange(len(right)), "accuracy", [])


def test_a_winner_is_named_only_where_it_is_clear() -> None:
    random = np.random.default_rng(0)
    good, poor = (random.random(400) < 0.9).astype(int).tolist(), (random.random(400) < 0.5).astype(int).tolist()
    ranked, verdict = standings({"poor": [accuracy(poor)], "good": [accuracy(good)]})
    assert [one.name for one in ranked] == ["good", "poor"] and verdict.startswith("good is better")
    assert ranked[0].low < ranked[0].score < ranked[0].high
    near = [*good[1:], 0]
    assert standings({"a": [accuracy(good)], "b": [accuracy(near)]})[1].startswith("No clear winner")
    losses = Counts(np.array([[1.0, 1]] * 20), np.ones(20), "loss", [])
    other = Counts(np.array([[2.0, 1]] * 20), np.ones(20), "loss", [])
    assert standings({"high": [other], "low": [losses]})[0][0].name == "low"


def test_scores_by_length_cover_every_example_once() -> None:
    found = by_length([accuracy([1] * 10 + [0] * 10)])
    assert sum(count for _, _, count in found) == 20
    assert found[0][1] == 1.0 and found[-1][1] == 0.0


def test_gradients_of_an_rnn_vanish_and_those_of_attention_do_not() -> None:
    rnn = build(recurrent_decoder(SIZE, vocab=30, cell="rnn"))
    attention = build(decoder(SIZE, "classic", vocab=30, context=64))
    for model in (rnn, attention):
        initialise(model, "classic", seed=0)
    vanishing, reaching = gradient_by_distance(rnn), gradient_by_distance(attention)
    assert vanishing[0] == 1.0 and vanishing[40] < 1e-6
    assert np.mean(reaching[30:]) > 1e-3


def test_kept_values_grow_with_the_length_and_weights_do_not_count() -> None:
    model = build(decoder(SIZE, "modern", vocab=30, context=512))
    sizes = [kept_bytes(model, inputs_of_length(model, length)) for length in (64, 128)]
    assert 1.8 < sizes[1] / sizes[0] < 2.3  # fused attention: linear
    assert [point["length"] for point in cost_by_length(model)] == [32, 64, 128, 256, 512]
    with torch.no_grad():
        weights = sum(parameter.numel() * 4 for parameter in model.parameters())
    assert sizes[0] < weights + 10**6


def test_every_picture_says_in_words_what_it_shows() -> None:
    aligned = {"weights": [[0.9, 0.1], [0.2, 0.8]], "source": ["der", "Hund"], "target": ["the", "dog"]}
    run = {"seed": 0, "curve": [[1.0, 64, 4.0], [2.0, 128, 0.5]], "steps": 2, "speed": 64.0, "memory": None}
    model = {
        "score": 0.5, "low": 0.4, "high": 0.6, "parameters": 10, "runs": [run], "speed": {}, "seen": [], "gradient": [],
        "by_length": [("1–3", 0.25, 2)], "cost": [{"length": 32, "ms": 1.5, "mib": 2.0}], "alignment": aligned,
    }  # fmt: skip
    report = {
        "task": "translate", "score": "bleu", "order": ["<b>"], "models": {"<b>": model}, "verdict": "", "sample": "",
        "reference": "", "examples": 2, "minutes": 1.0,
    }  # fmt: skip
    texts = re.findall(r'<img alt="([^"]*)"', comparison_page(report))
    assert texts[0] == "training loss against seconds, a line a model. Last values: &lt;b&gt; 0.5 at 2."
    assert texts[4] == "bleu against words of the input, a line a model. Last values: &lt;b&gt; 0.25 at 1–3."
    assert len(texts) == 6 and texts[-1].endswith("the largest weight of each row: the ← der, dog ← Hund.")


def test_models_are_checked_before_anything_is_trained() -> None:
    with pytest.raises(ConfigError, match="lstm-bahdanau"):
        check_models("translate", ["lstm-bahdanaus"])
    with pytest.raises(ConfigError, match="classify"):
        check_models("fill", None)


SMALL = ("--each", "0.02s", "--set", "width=16", "--set", "layers=1", "--set", "heads=2", "--set", "vocab=300")


def often(cases: Iterable[str], *names: str) -> list[Any]:
    """Cases of which all but the named ones are slow."""
    return [pytest.param(case, marks=[pytest.mark.slow] * (case not in names)) for case in cases]


class InThisProcess:
    """In place of a process of its own for every model."""

    exitcode = 0

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        target(*arguments)

    def join(self) -> None: ...


@pytest.fixture
def quick_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model is trained in this process, built-in data are few rows, and costs are measured at one length."""
    rows = Builtin.rows

    def few(self: Builtin, *, split: Any = "train", size: int | None = None, seed: int = 0) -> list[Row]:
        return rows(self, split=split, size=size or (40 if split == "train" else 4), seed=seed)

    monkeypatch.setattr(Builtin, "rows", few)
    monkeypatch.setattr(job, "start_process", InThisProcess)
    monkeypatch.setattr(compare_measures, "LENGTHS", (32,))


def compared(folder: Path, *command: str | Path) -> tuple[dict[str, Any], str]:
    """The report and the lines of a comparison of small models, of which every one has the same settings and the
    number of parameters that is reported."""
    short = ("--set", "target_limit=8") if command[0] in ("translate", "summarize") else ()
    shown = headway("compare", *command, *SMALL, *short, "--out", folder, "--json", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    report = json.loads(shown.stdout)
    options = []
    for name, model in report["models"].items():
        trained = load(folder / f"{name}-0")
        assert sum(parameter.numel() for parameter in trained.model.parameters()) == model["parameters"]
        assert re.search(rf"^  {name} +{model['parameters']:,} parameters", shown.stderr, re.MULTILINE)
        options.append({**trained.find_task().to_dict(), "architecture": ""})
    assert all(each == options[0] for each in options)
    assert "nan" not in shown.stderr and "object at" not in shown.stderr
    return report, shown.stderr


@pytest.mark.parametrize("task", often(job.DEFAULT_MODELS, "classify"))
def test_every_task_is_compared_on_its_built_in_data(task: str, quick_comparisons: None, tmp_path: Path) -> None:
    report, _ = compared(tmp_path, task)
    assert report["models"].keys() == set(job.DEFAULT_MODELS[task])
    assert "<img" in (tmp_path / "report.html").read_text()


def rows_of(label: Callable[[int], str]) -> str:
    return "text,label\n" + "\n".join(f"a thing of number {n} here,{label(n)}" for n in range(60))


FILES = {
    "classify": ("data.csv", rows_of(lambda n: "even" if n % 2 else "odd"), "accuracy"),
    "numbers": ("data.csv", rows_of(lambda n: f"{n / 8}"), "mae"),
    "tag": ("data.jsonl", "".join(f'{{"words": ["Ann", "{n}"], "tags": ["B-PER", "O"]}}\n' for n in range(60)), "f1"),
    "generate": ("data.txt", "The sea is calm tonight, and the moon is fair.\n" * 90, "bits_per_byte"),
    "translate": ("data.tsv", "".join(f"word {n}\tWort {n}\n" for n in range(60)), "bleu"),
    "summarize": ("data.jsonl", "".join(f'{{"source": "It is {n}.", "target": "{n}"}}\n' for n in range(60)), "rouge1"),
}  # fmt: skip


@pytest.mark.parametrize("case", often(FILES, "generate"))
def test_every_task_is_compared_on_a_file(case: str, quick_comparisons: None, tmp_path: Path) -> None:
    name, text, metric = FILES[case]
    (tmp_path / name).write_text(text)
    task = "classify" if case == "numbers" else case
    report, lines = compared(tmp_path, task, tmp_path / name)
    assert report["score"] == metric and f": {'loss' if case == 'generate' else metric} " in lines


def test_a_label_that_no_training_example_has_is_not_scored(quick_comparisons: None, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(rows_of(lambda n: "even" if n % 2 else "odd"))
    (tmp_path / "held.csv").write_text("text,label\none thing,even\ntwo things,new\n")
    given = (tmp_path / "data.csv", "--valid", tmp_path / "held.csv", "--models", "gru,modern")
    assert compared(tmp_path, "classify", *given)[0]["examples"] == 1
    (tmp_path / "held.csv").write_text("text,label\ntwo things,new\n")
    shown = headway("compare", "classify", *given, *SMALL, "--out", tmp_path / "new", cwd=tmp_path)
    assert shown.returncode == 2 and "give more examples" in shown.stderr


@pytest.mark.slow
def test_a_comparison_from_the_command_to_the_report(tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    lines = [f"{'good' if n % 2 else 'bad'} thing number {n},{'pos' if n % 2 else 'neg'}" for n in range(120)]
    data.write_text("text,label\n" + "\n".join(lines))
    out = tmp_path / "out"
    command = ["compare", "classify", str(data), "--models", "gru,modern", "--each", "1s", "--out", str(out)]
    shown = headway(*command, "--set", "vocab=200", cwd=tmp_path).stdout
    assert "gru" in shown and "modern" in shown and "held-out examples" in shown
    report = json.loads((out / "report.json").read_text())
    counts = [report["models"][name]["parameters"] for name in ("gru", "modern")]
    assert abs(counts[0] - counts[1]) < 0.1 * counts[1]
    text = (out / "report.html").read_text()
    assert "<img" in text and 'alt=""' not in text and "http" not in text.replace("http-equiv", "")
    again = headway(*command, "--set", "vocab=200", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["order"] == report["order"] and "trained already" in again.stderr
