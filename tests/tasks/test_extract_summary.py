"""`summarize` by choosing sentences of the text."""

import json
import shutil
from multiprocessing import Pipe
from random import Random

import numpy as np
import pytest
import torch
from support.commands import headway as command
from support.task_run import SMALL

import headway
from headway.data.builtin.reports import REPORTS
from headway.data.dataset import open_builtin
from headway.data.read import Row
from headway.errors import ConfigError
from headway.jobs import make_plan
from headway.jobs.verify import train_or_resume
from headway.models.build import build
from headway.models.init import initialise
from headway.tasks import find
from headway.tasks.extract_summary import ExtractSummary, choose_method, overlap, usual_sentences
from headway.tasks.summarize import Summarize
from headway.tasks.targets import SoftLabel

SYLLABLES = ["ka", "lo", "mi", "ter", "vun", "sha", "pel", "dri", "zo", "gat"]


def word(chance: Random) -> str:
    return "".join(chance.choice(SYLLABLES) for _ in range(3))


def paper(chance: Random) -> dict[str, str]:
    """An abstract of many rare words; one sentence, anywhere but first, says what the summary says."""
    topic, tool, gain = word(chance), word(chance), word(chance)
    others = [f"Earlier {word(chance)} of {word(chance)} did {word(chance)} the {word(chance)}." for _ in range(4)]
    at = chance.randint(1, 4)
    sentences = [*others[:at], f"We propose {tool} {gain} for {topic}.", *others[at:]]
    return {"text": " ".join(sentences), "summary": f"A way to {tool} {gain} for {topic}."}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    chance, folder = Random(0), tmp_path_factory.mktemp("papers")
    for name, count in (("train", 150), ("test", 40)):
        lines = [json.dumps(paper(chance)) for _ in range(count)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    return headway.train(
        "summarize",
        data / "train.jsonl",
        out=out,
        steps=30,
        settings={"model.width": 32, "model.layers": 1, "keep_states": True},
    )


def rows(count: int = 60) -> list[Row]:
    chance, out = Random(1), []
    for index in range(count):
        made = paper(chance)
        out.append(Row({"source": made["text"], "target": made["summary"]}, f"a:{index}"))
    return out


def test_few_examples_of_rare_words_choose_sentences(data):
    choice = choose_method(ExtractSummary.scan(rows()), recipe="modern", given={})
    assert choice.settings["task.method"] == "extract" and choice.settings["task.ngrams"] == 2
    assert "too seldom" in choice.why["method"] and "task.method=write" in choice.why["method"]


def test_texts_that_can_be_learnt_are_written():
    builtin = open_builtin(REPORTS, size=600)
    assert choose_method(ExtractSummary.scan(builtin.train()), recipe="modern", given={}).settings == {}
    one = [Row({"source": "One sentence alone.", "target": f"{i} rare"}, "a:1") for i in range(50)]
    assert choose_method(ExtractSummary.scan(one), recipe="modern", given={}).settings == {}, "nothing to choose"
    other = [Row({"source": row.fields["source"], "target": f"unlike {i}"}, "a:1") for i, row in enumerate(rows())]
    assert choose_method(ExtractSummary.scan(other), recipe="modern", given={}).settings == {}, "of other words"


@pytest.mark.parametrize(
    ("recipe", "given"),
    [
        ("finetune", {}),
        ("classic", {}),
        ("published", {}),
        ("modern", {"task.method": "write"}),
        ("modern", {"task.target_limit": 30}),
        ("modern", {"task.architecture": "lstm-bahdanau"}),
    ],
)
def test_what_the_user_wants_is_written(recipe, given):
    assert "task.method" not in choose_method(ExtractSummary.scan(rows()), recipe=recipe, given=given).settings


def test_a_run_says_what_it_chose(data, trained):
    kept = json.loads((trained.folder / "headway.json").read_text())
    assert (kept["task"], kept["options"]["method"], kept["options"]["sentences"]) == ("summarize", "extract", 1)
    plan = json.loads((trained.folder / "training" / "plan.json").read_text())
    assert plan["why"]["method"].startswith("extract: ")


def test_it_is_better_than_the_first_sentence(data, trained):
    scores = headway.evaluate(trained.folder, data / "test.jsonl")
    assert scores["rouge1"] > scores["lead_rouge1"] + 0.3
    made = [json.loads(line) for line in (data / "test.jsonl").read_text().splitlines()]
    best = np.mean([max(overlap(part, [one["summary"]]) for part in one["text"].split(".")) for one in made])
    assert scores["rouge1"] == pytest.approx(best, abs=0.05), "nearly always the best sentence"


def test_predictions_are_sentences_of_the_text(data, trained):
    model = headway.load(trained.folder)
    texts = [json.loads(line)["text"] for line in (data / "test.jsonl").read_text().splitlines()]
    found = model(texts)
    assert all(one in text and one.count(".") == 1 for one, text in zip(found, texts, strict=True))
    assert found == [model(text) for text in texts], "the same alone as in a batch"
    assert model("") == "" and model("Only this.") == "Only this."


def test_commands(data, trained, tmp_path):
    text = "Earlier nets did well. We propose kalomi for terpel. It ends."
    assert command("run", trained.folder, text, cwd=tmp_path).stdout == "We propose kalomi for terpel.\n"
    shown = command("evaluate", trained.folder, data / "test.jsonl", "--report", tmp_path / "r", cwd=tmp_path)
    assert "rouge1" in shown.stdout and "lead-1" in shown.stdout and (tmp_path / "r" / "report.html").exists()
    assert command("info", trained.folder, cwd=tmp_path).returncode == 0
    page = command("explain", trained.folder, "We propose kalomi for terpel.", "-o", "page.html", cwd=tmp_path)
    assert page.returncode == 0 and (tmp_path / "page.html").exists()
    refused = command("evaluate", trained.folder, data / "test.jsonl", "--beams", "5", cwd=tmp_path)
    assert refused.returncode != 0 and "beams" in refused.stderr


def test_verify_resume_goes_on_with_the_settings_that_were_chosen(data, trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained.folder, folder)
    receiver, sender = Pipe()
    train_or_resume(make_plan("summarize", data / "train.jsonl", steps=30), folder, sender)  # chosen: the batch, …
    assert receiver.recv() == 30 and not receiver.poll(), "it had trained its steps already"


def test_several_sentences_keep_their_order(trained):
    model = headway.load(trained.folder)
    task = model.find_task()
    logits = torch.tensor([[0.0, 3.0], [0.0, 1.0], [0.0, 2.0], [0.0, 9.0]])
    task.sentences = 2
    assert task._chosen([["a.", "b.", "c."], ["d."], []], logits) == ["a. c.", "d.", ""]


def test_summaries_of_several_sentences():
    long = [Row({"source": "One two three. Four five six.", "target": "one two three four five six"}, "a:1")]
    assert usual_sentences(long) == 2


def test_the_share_of_a_sentence(trained):
    task = headway.load(trained.folder).find_task()
    task.sentences = 1
    shares = task._soft_labels(["we propose a", "other words", "we b"], ["we propose a"])
    assert shares.sum() == pytest.approx(1) and shares[0] > 0.99 and shares[2] > shares[1]
    task.sentences = 2
    assert task._soft_labels(["a", "a", "b"], ["a"])[:2] == pytest.approx([1, 1], abs=1e-3)


def test_the_target_is_a_share_of_two_labels():
    target = SoftLabel(["other", "summary"])
    labels = [target.encode(value, where="a:1") for value in (0.25, 1.0)]
    logits = torch.tensor([[0.5, -0.5], [2.0, 1.0]])
    log = logits.log_softmax(-1)
    by_hand = -(0.75 * log[0, 0] + 0.25 * log[0, 1]) - log[1, 1]
    assert torch.allclose(target.loss(logits, target.collate(labels), training=True), by_hand)
    assert target.soft_labels(labels).tolist() == [[0.75, 0.25], [0.0, 1.0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_limit": 9}, "target_limit does not apply to task.method=extract"),
        ({"sentences": 11}, "sentences is 11"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        ExtractSummary.from_data(ExtractSummary.scan(rows(3)), tokenizer=None, options={"method": "extract", **options})


def test_options_of_the_method_are_settings(data):
    plan = make_plan("summarize", data, settings={"method": "extract", "sentences": 2, "task.ngrams": 0})
    assert plan.options == {"method": "extract", "sentences": 2, "ngrams": 0}
    with pytest.raises(ConfigError, match="'sentences' is not known"):
        make_plan("summarize", data, settings={"sentences": 2})


def test_the_method_decides_the_class():
    assert find("summarize").variant({"method": "extract"}) is ExtractSummary
    assert find("summarize").variant({}) is Summarize


def test_the_order_of_the_sentences_does_not_matter(data):
    task = ExtractSummary.from_data(ExtractSummary.scan(rows()), tokenizer=None, options={"method": "extract"})
    model = build(task.config(SMALL, "modern"))
    initialise(model, "classic", seed=0)
    text = rows(1)[0].fields["source"]
    sentences = text.split(". ")
    backwards = ". ".join([s.rstrip(".") for s in reversed(sentences)]) + "."
    assert task.predict(model.eval(), [text])[0].rstrip(".") == task.predict(model, [backwards])[0].rstrip(".")
