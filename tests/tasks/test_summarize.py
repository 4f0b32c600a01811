"""`summarize`: a long text becomes a short one."""

import numpy as np
import pytest
from support.task_run import SMALL, losses, started, trained

from headway.data.read import Row
from headway.errors import ConfigError
from headway.models.build import build
from headway.models.init import initialise
from headway.tasks import find, scores, translate
from headway.tasks.summarize import Summarize, first_sentence

ROWS = [
    Row({"source": "The cat sat. Then it slept all day.", "target": "the cat slept"}, "a.jsonl:1"),
    Row(
        {"source": "A dog ran\nover the hill.", "target": "a dog ran", "targets": ["a dog ran", "dog on hill"]},
        "a.jsonl:2",
    ),
]


@pytest.fixture(scope="module")
def task() -> Summarize:
    return Summarize.from_data(Summarize.scan(ROWS), tokenizer=None, options={"vocab": 300, "target_limit": 12})


@pytest.fixture(scope="module")
def model(task):
    """All weights drawn, none at zero, so that every text gets another answer."""
    made = build(task.config(SMALL, "modern"))
    initialise(made, "classic", seed=0)
    return made.eval()


@pytest.mark.parametrize(
    ("found", "references", "rouge1", "rouge2", "rouge_l"),
    [
        ("the cat sat", ["the cat slept"], 2 / 3, 1 / 2, 2 / 3),
        ("The cat, the CAT", ["the cat"], 2 * 2 / (4 + 2), 2 * 1 / (3 + 1), 2 * 2 / (4 + 2)),
        ("a b c d", ["d c b a"], 1, 0, 1 / 4),  # the same words, no order but one
        ("a x b y c", ["a b c"], 2 * 3 / (5 + 3), 0, 2 * 3 / (5 + 3)),
        ("a b", ["x y", "b a", "a b c"], 1, 2 * 1 / (1 + 2), 2 * 2 / (2 + 3)),  # each score by its best reference
        ("", ["a b"], 0, 0, 0),
        ("straße über", ["Straße über"], 1, 1, 1),  # letters of every alphabet are letters
    ],
)
def test_rouge_by_hand(found, references, rouge1, rouge2, rouge_l):
    assert scores.rouge([found], [references]) == pytest.approx({"rouge1": rouge1, "rouge2": rouge2, "rougeL": rouge_l})


def test_rouge_is_averaged_over_texts():
    found = scores.rouge(["the cat sat", "a dog"], [["the cat slept"], ["a dog"]])
    assert found["rouge1"] == pytest.approx((2 / 3 + 1) / 2)
    assert scores.rouge([], []) == {"rouge1": 0, "rouge2": 0, "rougeL": 0}


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("The cat sat. Then it slept.", "The cat sat."),
        ("Pi is 3.14 or so! Yes.", "Pi is 3.14 or so!"),
        ("\n  a line\nand another.", "a line"),
        ("今日は晴れ。明日は雨。", "今日は晴れ。"),
        ("no end", "no end"),
        ("", ""),
    ],
)
def test_the_first_sentence(text, first):
    assert first_sentence(text) == first


def test_it_is_a_translation_with_other_limits(task):
    assert find("summarize") is Summarize and Summarize.metric == "rouge1"
    assert issubclass(Summarize, translate.Translate)
    given = Summarize(tokenizer=task.tokenizer)
    assert (given.source_limit, given.target_limit, given.beams, given.no_repeat_ngram) == (512, 128, 4, 3)
    [example] = task.examples(ROWS[0])
    assert task.tokenizer.decode(example["target"].tolist()) == "the cat slept"


def test_long_texts_are_cut_and_counted(task):
    short = Summarize(tokenizer=task.tokenizer, source_limit=5)
    [example] = short.examples(ROWS[0])
    assert len(example["source"]) == 5 and short.truncation.to_dict()["source"]["where"] == "a.jsonl:1"


def test_the_lead_is_scored_beside(task):
    found = task.text_scores(["the cat slept", "dog on a hill"], ROWS)
    assert found["rouge1"] == pytest.approx((1 + 2 * 3 / (4 + 3)) / 2)
    assert found["lead_rouge1"] == pytest.approx((2 / 3 + 1) / 2)  # "The cat sat." and "A dog ran"
    assert found["lead_rouge2"] == pytest.approx((1 / 2 + 1) / 2)


def test_answers_search_with_beams_and_without_repeats(task, model, monkeypatch):
    asked = []

    def search(model, prompts, settings, **rest):
        asked.append(settings)
        return real(model, prompts, settings, **rest)

    real = translate.generate_texts
    monkeypatch.setattr(translate, "generate_texts", search)
    task.predict(model, ["The cat sat."])
    task.predict(model, ["The cat sat."], beams=1, no_repeat_ngram=0)
    assert [(one.beams, one.no_repeat_ngram) for one in asked] == [(4, 3), (1, 0)]


def test_predictions_do_not_depend_on_the_batch(task, model):
    texts = [row.fields["source"] for row in ROWS] + ["", "The dog slept on the hill all day. It ran."]
    together = task.predict(model, texts)
    assert together == [task.predict(model, [text])[0] for text in texts]
    assert len(set(together)) > 1


def test_options_survive_a_round_trip(task):
    again = Summarize.from_dict({**task.to_dict(), "no_repeat_ngram": 2}, task.tokenizer)
    assert (again.no_repeat_ngram, again.target_limit, again.start_id) == (2, 12, task.tokenizer.bos_id)
    with pytest.raises(ConfigError, match="no option 'rouge'"):
        Summarize.from_dict({"rouge": 1}, task.tokenizer)


def test_it_learns_to_summarize(tmp_path):
    task, model, data = started("summarize", rows=150, vocab=800, target_limit=40)
    found = losses(trained(task, model, data, folder=tmp_path, steps=25, batch=16))
    assert found[0] > 6 and np.mean(found[-3:]) < 4.5
    told = task.evaluate(model, list(data.valid())[:8])
    assert set(told) >= {"loss", "exact", "rouge1", "rouge2", "rougeL", "lead_rouge1", "lead_rougeL"}
    assert told["lead_rouge1"] > 0.1 and told["rouge1"] > 0


def test_the_signature_is_that_of_rouge(task) -> None:
    assert "rouge_score" in task.signature() and "nrefs" not in task.signature()
