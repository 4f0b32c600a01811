"""Numbers and lists of labels from a file to an answer; the folder predicts the same in the reference library."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import headway
from headway import jobs
from headway.cli import app
from headway.data.split import input_hash
from headway.errors import ConfigError, DataError, InputError
from headway.jobs.calibrate import calibrate
from headway.jobs.inference import evaluation
from headway.preprocess.text import Tokenizer

SMALL: dict[str, Any] = {"model.width": 32, "model.layers": 1, "model.heads": 2, "eval_every": 0, "vocab": 200}
WORDS = ("red", "green", "blue", "round", "square")
TEXTS = [" ".join(word for bit, word in enumerate(WORDS) if i >> bit & 1) + f" thing {i}" for i in range(300)]
LABELS = [[word for bit, word in enumerate(WORDS[:3]) if i >> bit & 1] for i in range(300)]
NUMBERS = [1000.0 + 250.5 * (i & 7) for i in range(300)]


def command(*words: str | Path) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("targets")
    rows = list(zip(TEXTS, NUMBERS, LABELS, strict=True))
    (folder / "prices.csv").write_text("text,price\n" + "".join(f"{text},{number}\n" for text, number, _ in rows))
    (folder / "tags.csv").write_text("text,label\n" + "".join(f"{text},{'|'.join(tags)}\n" for text, _, tags in rows))
    lines = (json.dumps({"text": text, "label": tags}) + "\n" for text, _, tags in rows)
    (folder / "tags.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def prices(data: Path) -> jobs.Trained:
    return jobs.train("classify", data / "prices.csv", out=data / "prices", steps=12, settings=SMALL,
                      columns={"label": "price"})  # fmt: skip


@pytest.fixture(scope="module")
def tags(data: Path) -> tuple[jobs.Trained, list[str]]:
    said: list[str] = []
    trained = jobs.train("classify", data / "tags.csv", out=data / "tags", steps=40, settings={**SMALL, "lr": 0.01},
                         say=said.append)  # fmt: skip
    return trained, said


def test_numbers_are_predicted_on_their_own_scale(prices: jobs.Trained) -> None:
    assert set(prices.scores) == {"mae", "mean_mae", "pearson", "spearman", "loss"}
    loaded = headway.load(prices.folder)
    assert set(loaded(TEXTS[0])) == {"value"} and 500 < loaded(TEXTS[0])["value"] < 4000
    assert jobs.evaluate(prices.folder) == pytest.approx(prices.scores, rel=1e-5)
    config = json.loads((prices.folder / "config.json").read_text())
    assert (config["problem_type"], config["id2label"]) == ("regression", {"0": "LABEL_0"})
    saved = json.loads((prices.folder / "headway.json").read_text())["options"]
    assert saved["kind"] == "regression" and saved["scale"]["mean"] == pytest.approx(1880, abs=60)
    assert "a number (mean" in command("info", prices.folder).stdout
    with pytest.raises(InputError, match="top"):
        loaded(TEXTS[0], top=1)
    with pytest.raises(ConfigError, match="predicts numbers"):
        calibrate(prices.folder, prices.folder.parent / "calibrated")


def test_a_label_set_is_saved_with_a_threshold_that_judges_other_rows(tags: Any, data: Path) -> None:
    trained, said = tags
    task = headway.load(trained.folder).task
    assert task.labels == ["blue", "green", "red"] and task.delimiter == "|" and task.threshold is not None
    held = list(headway.jobs.open_data(jobs.saved_plan(trained.folder)).valid())
    judging = [row for row in held if input_hash(row) & 1]
    assert 0 < len(judging) < len(held)
    line = next(line for line in said if line.startswith("threshold"))
    assert f"fitted to {len(held) - len(judging)} held-out examples; the scores are of the other {len(judging)}" in line
    found = evaluation(trained.folder)
    assert found.examples == len(judging) and "the half that the threshold was not fitted to" in found.data
    assert found.scores == pytest.approx(trained.scores, rel=1e-5)
    # a threshold fitted to the judging half too would be another one: the split is not without effect
    everything = task.evaluate(trained.bundle.model, held)
    assert everything["micro_f1"] != trained.scores["micro_f1"] or len(judging) == len(held)
    answer = headway.load(trained.folder)("red blue thing 3")
    assert set(answer) == {"labels", "scores"} and list(answer["scores"].values()) == sorted(
        answer["scores"].values(), reverse=True
    )
    config = json.loads((trained.folder / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    assert jobs.evaluate(trained.folder, data / "tags.jsonl").keys() == trained.scores.keys()


def test_calibration_keeps_the_labels_of_a_label_set(tags: Any, tmp_path: Path) -> None:
    trained, _ = tags
    calibrate(trained.folder, tmp_path / "calibrated")
    before, after = headway.load(trained.folder), headway.load(tmp_path / "calibrated")
    assert before.task.threshold != after.task.threshold  # type: ignore[union-attr]
    assert [one["labels"] for one in before(TEXTS[:40])] == [one["labels"] for one in after(TEXTS[:40])]


def test_check_tells_how_labels_are_read(data: Path) -> None:
    prices = command("check", "classify", data / "prices.csv", "--label", "price").stdout
    assert "target       a number: regression (task.kind=labels" in prices
    assert "baseline     always the mean" in prices and "numbers      1000 to 2754" in prices
    tags = command("check", "classify", data / "tags.csv").stdout
    assert "target       labels separated by '|': multilabel" in tags and "micro F1" in tags
    assert "lists of labels: multilabel" in command("check", "classify", data / "tags.jsonl").stdout
    forced = command("check", "classify", data / "prices.csv", "--label", "price", "--set", "task.kind=labels").stdout
    assert "one of 8 labels, which are numbers (task.kind=regression" in forced


def test_a_missing_number_is_named_with_its_line(data: Path, tmp_path: Path) -> None:
    lines = (data / "prices.csv").read_text().splitlines()
    lines[40] = lines[40].rsplit(",", 1)[0] + ",nan"
    (tmp_path / "bad.csv").write_text("\n".join(lines) + "\n")
    report = jobs.check("classify", tmp_path / "bad.csv", columns={"label": "price"})
    assert report.skipped_places == {"rows without a label": [f"{tmp_path / 'bad.csv'}:41"]}
    lines[40] = lines[40].rsplit(",", 1)[0] + ",much"
    (tmp_path / "bad.csv").write_text("\n".join(lines) + "\n")
    for settings in ({}, {"task.kind": "regression"}):
        with pytest.raises(DataError, match=r"bad.csv:41: label"):
            jobs.check("classify", tmp_path / "bad.csv", columns={"label": "price"}, settings=settings)
    (tmp_path / "same.csv").write_text("text,label\n" + "".join(f"text {i},3.5\n" for i in range(50)))
    with pytest.raises(DataError, match="1 different numbers to predict; at least two"):
        jobs.check("classify", tmp_path / "same.csv", settings={"task.kind": "regression"})


def test_a_label_of_the_held_out_part_alone_does_not_stop_training(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("".join(f"good {i}\ta\nbad {i}\tb\n" for i in range(20)))
    (tmp_path / "valid.tsv").write_text("good\ta\nodd\tc\n")
    options: dict[str, Any] = {"valid": tmp_path / "valid.tsv", "steps": 1, "settings": SMALL}
    trained = jobs.train("classify", tmp_path / "train.tsv", out=tmp_path / "run", **options)
    assert trained.scores["accuracy"] <= 0.5
    with pytest.raises(DataError, match=r"valid.tsv:2: label 'c' is not one of the model's labels"):
        jobs.evaluate(trained.folder, tmp_path / "valid.tsv")


@pytest.mark.parametrize("name", ["prices.csv", "tags.csv"])
def test_a_finished_run_is_extended_to_the_same_weights(name: str, data: Path, tmp_path: Path) -> None:
    """What is put into the weights or fitted at the end is not there when training goes on."""
    settings = {**SMALL, "schedule": "constant", "warmup": 0, "decay": 0, "save_every": 2, "eval_every": 2}
    settings |= {"keep_states": True}
    columns = {"label": "price"} if name == "prices.csv" else None
    options: dict[str, Any] = {"columns": columns, "settings": settings}
    whole = jobs.train("classify", data / name, out=tmp_path / "whole", steps=4, **options)
    jobs.train("classify", data / name, out=tmp_path / "parts", steps=2, **options)
    said: list[str] = []
    parts = jobs.resume(tmp_path / "parts", steps=4, say=said.append)
    assert not any("prepared again" in line for line in said)
    assert parts.scores == pytest.approx(whole.scores, rel=1e-6)
    for one, other in zip(whole.bundle.model.parameters(), parts.bundle.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_explanations_of_a_number_and_of_a_label_set(prices: jobs.Trained, tags: Any) -> None:
    found = headway.explain(prices.folder, TEXTS[5]).story
    assert found.output is not None and found.output.kind == "number" and found.lens is None
    assert float(found.output.answer) == pytest.approx(headway.load(prices.folder)(TEXTS[5])["value"], rel=1e-5)
    assert found.attribution is not None and found.attribution.logit == pytest.approx(
        float(found.output.answer), rel=1e-3
    )
    trained, _ = tags
    answer = headway.load(trained.folder)(TEXTS[5])
    found = headway.explain(trained.folder, TEXTS[5]).story
    assert found.output is not None and found.output.kind == "labels"
    assert found.output.answer == (", ".join(answer["labels"]) or "no label")
    assert [row.label for row in found.output.rows] == list(answer["scores"])
    against = headway.explain(trained.folder, TEXTS[5], against="green").story
    assert against.output is not None and against.output.rows[0].label == "green" and against.attribution is not None
    assert against.attribution.target == "“green”"
    with pytest.raises(InputError, match="against"):
        headway.explain(prices.folder, TEXTS[5], against="red")


def published(folder: Path, kind: str = "BertForSequenceClassification", **keys: Any) -> Path:
    transformers = pytest.importorskip("transformers")
    tokenizer = Tokenizer.train(TEXTS, kind="wordpiece", size=200)
    tokenizer.save(folder)
    torch.manual_seed(0)
    model = getattr(transformers, kind)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 40}
    keys = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_id, "initializer_range": 0.5, **sizes, **keys}
    model(model.config_class(**keys)).save_pretrained(folder)
    return folder


def pipeline(folder: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.pipeline("text-classification", model=str(folder), top_k=None)


@pytest.mark.parametrize(
    ("keys", "read"),
    [
        ({"num_labels": 1, "problem_type": "regression"}, lambda answer: {"LABEL_0": answer["value"]}),
        ({"num_labels": 3, "problem_type": "regression"}, lambda answer: answer["values"]),
        ({"num_labels": 3, "problem_type": "multi_label_classification"}, lambda answer: answer["scores"]),
        ({"num_labels": 3, "problem_type": "single_label_classification"}, lambda answer: answer["scores"]),
        ({"num_labels": 1}, lambda answer: answer["scores"]),
        ({"num_labels": 2}, lambda answer: answer["scores"]),
    ],
)
def test_problem_type_decides_as_in_the_reference_pipeline(keys: Any, read: Any, tmp_path: Path) -> None:
    folder = published(tmp_path / "model", **keys)
    expected = {row["label"]: row["score"] for row in pipeline(folder)([TEXTS[9]])[0]}
    assert read(headway.load(folder)(TEXTS[9])) == pytest.approx(expected, abs=1e-5)


def test_an_unknown_problem_type_is_refused(tmp_path: Path) -> None:
    folder = published(tmp_path / "model", num_labels=2)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "problem_type": "ranking"}))
    with pytest.raises(ConfigError, match="problem_type = 'ranking' is not supported"):
        headway.load(folder)


@pytest.mark.parametrize(("name", "lora"), [("prices.csv", 0), ("prices.csv", 2), ("tags.csv", 0)])
def test_a_fine_tuned_folder_gives_the_same_numbers_in_the_reference_pipeline(
    name: str, lora: int, data: Path, tmp_path: Path
) -> None:
    start = published(tmp_path / "start", kind="BertModel")
    columns = {"label": "price"} if name == "prices.csv" else None
    trained = jobs.train(
        "classify", data / name, columns=columns, start=start, out=tmp_path / "run", steps=2, lora=lora
    )
    answer = headway.load(trained.folder)(TEXTS[9])
    theirs = {row["label"]: row["score"] for row in pipeline(trained.folder)([TEXTS[9]])[0]}
    ours = {"LABEL_0": answer["value"]} if name == "prices.csv" else answer["scores"]
    assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)
    if name == "prices.csv":
        assert 500 < answer["value"] < 4000
    if lora:
        adapters = load_file(trained.folder / "adapter" / "adapter_model.safetensors")
        (bias,) = [tensor for name, tensor in adapters.items() if name.endswith("classifier.bias")]
        assert float(bias) > 500  # the scale is in the adapters' output layer too


def test_a_decoder_without_bias_learns_numbers(data: Path, tmp_path: Path) -> None:
    start = jobs.train(
        "generate", out=tmp_path / "start", steps=1, settings={**SMALL, "vocab": 300, "context": 32}
    ).folder
    trained = jobs.train("classify", data / "prices.csv", columns={"label": "price"}, start=start, out=tmp_path / "run",
                         steps=2)  # fmt: skip
    task: Any = trained.bundle.task
    assert task.scale.mean == 0 and task.scale.std == pytest.approx(1960, abs=80)
    assert headway.load(trained.folder)(TEXTS[3]) == trained.bundle(TEXTS[3])
