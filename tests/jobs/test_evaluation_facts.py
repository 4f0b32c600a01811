"""What an evaluation says beside its scores: signature, baselines, and that the model was trained on the examples."""

import json
import re
from pathlib import Path

import pytest
import torch

from headway.baselines import Baseline, baseline_lines
from headway.data.row import Row
from headway.jobs.inference import Evaluation, training_note
from headway.jobs.report import EvaluationFacts, write_report
from headway.jobs.run_config import make_plan
from headway.tasks.evaluated import Evaluated
from headway.tasks.label_predictions import Labels

TAGGED = {"precision": 0.5, "recall": 0.25, "f1": 0.3333, "accuracy": 0.8}
FREQUENT = Baseline("the most frequent tag of each word", {"precision": 1.0, "recall": 1.0, "f1": 0.9}, note="on <b>")
RIGHT = "never right"


def test_a_baseline_begins_with_the_metric() -> None:
    (line,) = baseline_lines([FREQUENT], TAGGED, metric="f1")
    assert line == "f1 0.9, precision 1: the most frequent tag of each word (on <b>)"
    (other,) = baseline_lines([Baseline("x", {"recall": 0.5})], TAGGED, metric="f1")
    assert other == "recall 0.5: x"


def test_lines_and_json_of_an_evaluation() -> None:
    found = Evaluation(
        TAGGED, 3, 0, "d.tsv", "", [], baselines=[FREQUENT], metric="f1", signature="nrefs:1|case", note="trained on it"
    )
    assert found.lines()[4:] == [
        "signature: nrefs:1|case",
        "baseline: f1 0.9, precision 1: the most frequent tag of each word (on <b>)",
        "on 3 examples of d.tsv",
        "note: trained on it",
    ]
    shown = found.to_dict()
    assert (shown["signature"], shown["note"]) == ("nrefs:1|case", "trained on it")
    assert not {"signature", "note"} & Evaluation(TAGGED, 3, 0, "d.tsv", "", []).to_dict().keys()


def run_on(folder: Path, *data: Path) -> Path:
    plan = make_plan("classify", list(data))
    (folder / "training").mkdir(parents=True)
    (folder / "training" / "plan.json").write_text(json.dumps(vars(plan)))
    return folder


def test_a_note_where_the_model_was_trained_on_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.tsv", "other.tsv"):
        Path(name).write_text("i love it\tfine\n")
    Path("link.tsv").symlink_to("mine.tsv")
    run = run_on(tmp_path / "run", Path("mine.tsv"))
    note = "the model was trained on mine.tsv; without DATA only the held-out part is scored"
    assert training_note(run, [tmp_path / "mine.tsv"]) == training_note(run, "m*.tsv") == note
    assert training_note(run, ["other.tsv", "link.tsv"]) == note.replace("mine", "link")
    assert training_note(run, ["other.tsv"]) == training_note(run, None) == training_note(tmp_path, "mine.tsv") == ""


def test_of_a_folder_with_parts_the_training_part_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("train.tsv", "valid.tsv", "test.tsv"):
        (data / name).write_text("i love it\tfine\n")
    run = run_on(tmp_path / "run", data)
    assert "trained on train.tsv" in training_note(run, data / "train.tsv")
    assert training_note(run, data) == training_note(run, data / "test.tsv") == ""
    pictures = tmp_path / "pictures"
    (pictures / "cat").mkdir(parents=True)
    shown = run_on(tmp_path / "shown", pictures)
    assert "trained on pictures" in training_note(shown, pictures)
    (pictures / "t10k-images-idx3-ubyte.gz").touch()  # the test part of MNIST, which is evaluated
    assert training_note(shown, pictures) == ""
    (data / "train.tsv").unlink()  # the data of the first run is not there any more
    assert training_note(run, data / "test.tsv") == ""


def test_a_report_has_the_signature_and_the_baselines(tmp_path: Path) -> None:
    facts = EvaluationFacts(signature="sig|1", baselines=[FREQUENT, Baseline(RIGHT, {"f1": 0.0})])
    write_report(Evaluated(TAGGED), tmp_path, facts)
    assert json.loads((tmp_path / "scores.json").read_text()) == {**TAGGED, "signature": "sig|1"}
    page = (tmp_path / "report.html").read_text()
    head, rows = re.search(r"<h2>Scores</h2>.*?<thead>(.*?)</thead><tbody>(.*?)</tbody>", page, re.DOTALL).groups()
    assert re.findall("<th>(.*?)</th>", head) == [
        "score", "value", "the most frequent tag of each word (on &lt;b&gt;)", RIGHT,
    ]  # fmt: skip
    assert "<td>f1</td><td>0.3333</td><td>0.9000</td><td>0.0000</td>" in rows
    assert "<td>accuracy</td><td>0.8000</td><td></td><td></td>" in rows


@pytest.mark.parametrize(("scale", "verdict"), [(50.0, ""), (2.0, "less sure than it could be")])
def test_a_calibrated_model_gets_no_verdict(scale: float, verdict: str, tmp_path: Path) -> None:
    labels = ["a", "b"]
    wanted = torch.tensor([0, 1] * 5)
    logits = torch.nn.functional.one_hot(wanted, 2) * scale
    write_report(Labels(labels, [Row({}, "")] * 10, wanted.numpy(), logits), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "100.0% right" in page and ("headway calibrate" in page) == bool(verdict)
    assert f"right: {verdict}" in page if verdict else "100.0% sure and 100.0% right.</p>" in page
