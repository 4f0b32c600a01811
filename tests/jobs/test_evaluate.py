"""`evaluate` and `run` on a run folder: which data, which search, and what was truncated."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headway import jobs
from headway.cli import app
from headway.errors import HeadwayError, InputError
from headway.jobs.inference import evaluation, held_out
from headway.tasks import scores

SMALL = {"model.width": 16, "model.layers": 1, "model.heads": 2, "eval_every": 0}


def headway(*args: str | Path) -> Result:
    result = CliRunner().invoke(app, [*map(str, args)])
    if isinstance(result.exception, HeadwayError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> jobs.Trained:
    folder = tmp_path_factory.mktemp("classifier")
    rows = [f"i {'love' if i % 2 else 'hate'} number {i}\t{'fine' if i % 2 else 'awful'}" for i in range(200)]
    (folder / "mine.tsv").write_text("\n".join(rows) + "\n")
    settings: dict[str, Any] = {**SMALL, "vocab": 200, "limit": 12}
    return jobs.train("classify", folder / "mine.tsv", out=folder / "run", steps=2, settings=settings)


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> jobs.Trained:
    folder = tmp_path_factory.mktemp("translator")
    rows = [f"{i} one two {i + 1}\t{i + 1} eins zwei {i}" for i in range(60)]
    (folder / "pairs.tsv").write_text("source\ttarget\n" + "\n".join(rows) + "\n")
    settings: dict[str, Any] = {**SMALL, "vocab": 300, "target_limit": 12}
    return jobs.train("translate", folder / "pairs.tsv", out=folder / "run", steps=2, settings=settings)


def test_a_run_is_evaluated_on_its_own_held_out_part(classifier: jobs.Trained) -> None:
    data = held_out(classifier.folder)
    assert data is not None
    count = len(list(data.valid()))
    shown = headway("evaluate", classifier.folder).stdout
    assert f"on {count} examples of the held-out part of mine.tsv" in shown
    found = json.loads(headway("evaluate", classifier.folder, "--json").stdout)
    # the run's loss is of weights of the n-grams that were fitted to the other half of the examples
    assert {name: found[name] for name in classifier.scores} == pytest.approx(classifier.scores, abs=1e-4)
    assert found["examples"] == count and found["data"] == "the held-out part of mine.tsv" and "search" not in found


def test_a_note_on_the_training_file(classifier: jobs.Trained, tmp_path: Path) -> None:
    file = classifier.folder.parent / "mine.tsv"
    note = "the model was trained on mine.tsv; without DATA only the held-out part is scored"
    assert headway("evaluate", classifier.folder, file, "--report", tmp_path).stdout.count(f"note: {note}") == 1
    assert note in (tmp_path / "report.html").read_text()
    assert "TF-IDF" in (tmp_path / "report.html").read_text()
    assert json.loads(headway("evaluate", classifier.folder, file, "--json").stdout)["note"] == note


def test_given_data_are_named_and_counted(classifier: jobs.Trained, tmp_path: Path) -> None:
    (tmp_path / "other.tsv").write_text("i love it\tfine\ni hate it\tawful\nlove\tfine\n")
    assert "on 3 examples of other.tsv" in headway("evaluate", classifier.folder, tmp_path / "other.tsv").stdout


def test_evaluate_and_run_search_alike(translator: jobs.Trained) -> None:
    data = held_out(translator.folder)
    assert data is not None
    rows = list(data.valid())
    found = evaluation(translator.folder)
    assert found.search == "beam search, 5 beams" and found.examples == len(rows)
    assert found.signature == scores.translation_signature() and found.metric == "bleu" and not found.note
    answers = [answer for _, answer in jobs.run(translator.folder, [row.fields["source"] for row in rows])]
    expected = scores.translation(answers, [[row.fields["target"]] for row in rows])
    assert {name: found.scores[name] for name in expected} == expected
    greedy = headway("evaluate", translator.folder, "--beams", "1").stdout
    assert greedy.splitlines()[-1] == f"on {len(rows)} examples of the held-out part of pairs.tsv, greedy search"


def test_a_search_option_of_a_task_that_does_not_search_is_refused(classifier: jobs.Trained) -> None:
    with pytest.raises(InputError, match="task classify has no option 'beams'"):
        headway("evaluate", classifier.folder, "--beams", "3")


def test_run_and_evaluate_say_what_they_truncate(
    classifier: jobs.Trained, translator: jobs.Trained, tmp_path: Path
) -> None:
    long = "i love number 7 " * 30
    told = headway("run", classifier.folder, long, "short").stderr
    assert "note: text: 1 of 2 cut to 12 tokens (50.0%)" in told
    assert headway("run", classifier.folder, "short").stderr == ""
    (tmp_path / "long.tsv").write_text(f"{long}\tfine\nshort\tawful\n")
    told = headway("evaluate", classifier.folder, tmp_path / "long.tsv").stderr
    assert "note: text: 1 of 2 cut to 12 tokens" in told and "long.tsv:1" in told
    (tmp_path / "pairs.tsv").write_text(f"source\ttarget\n1 one\t{'1 eins ' * 30}\n")
    told = headway("evaluate", translator.folder, tmp_path / "pairs.tsv").stderr
    assert "note: target: 1 of 1 cut to 12 tokens" in told
    with pytest.warns(UserWarning, match="text: 1 of 2 cut"):
        jobs.evaluate(classifier.folder, tmp_path / "long.tsv")
    with pytest.warns(UserWarning, match="text: 1 of 1 cut"):
        classifier.bundle(long)
    assert not classifier.bundle.find_task().truncation.cut, "what a command truncates is not counted as training data"
