"""`classify`: from a text to a label."""

import math

import numpy as np
import pytest
import torch
from support.task_run import SMALL, losses, started, trained

from headway.data.read import Row
from headway.errors import ConfigError, DataError, InputError
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.positions import LearnedConfig
from headway.models import recipes
from headway.models.build import build
from headway.models.config import ClassifyHeadConfig, EncoderConfig, PoolerConfig
from headway.models.decoder import Decoder
from headway.models.init import initialise
from headway.models.outputs import Output
from headway.preprocess.text import Tokenizer
from headway.tasks import find
from headway.tasks.classify import Classify
from headway.tasks.targets import label_scores

ROWS = [
    Row({"text": "good good film", "label": "pos"}, "films.tsv:1"),
    Row({"text": "bad film", "label": "neg"}, "films.tsv:2"),
    Row({"text": "a film", "label": "neutral"}, "films.tsv:3"),
    Row({"text": "bad bad bad film", "label": "neg"}, "films.tsv:4"),
]
TEXTS = ["Bad film", "good", "", "a good film a good film", "film"]


@pytest.fixture(scope="module")
def task() -> Classify:
    return Classify.from_data(Classify.scan(ROWS), tokenizer=None, options={"vocab": 60})


def untrained(task: Classify, *, seed: int = 0):
    """All weights drawn, none at zero, so that every text gets another answer."""
    model = build(task.config(SMALL, "classic"))
    initialise(model, "classic", seed=seed)
    return model.eval()


class Fixed(torch.nn.Module):
    """A model whose logits are given."""

    pools_one_token = False

    def __init__(self, logits: list[list[float]]) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(logits), requires_grad=False)

    def forward(self, inputs, *, padding_mask=None):
        return Output(hidden=self.logits, logits=self.logits[: len(inputs)])


def test_the_labels_are_sorted_and_counted(task):
    assert find("classify") is Classify
    assert task.labels == ["neg", "neutral", "pos"]
    assert task.counts == [2, 1, 1]


def test_one_label_is_refused():
    with pytest.raises(DataError, match="1 label, 'pos'"):
        Classify.from_data(Classify.scan(ROWS[:1]), tokenizer=None, options={})


def test_an_example_is_ids_and_a_label(task):
    [example] = task.examples(ROWS[0])
    good, film = task.tokenizer.id("good"), task.tokenizer.id("film")
    assert example["ids"].tolist() == [task.tokenizer.cls_id, good, good, film, task.tokenizer.sep_id]
    assert example["label"].tolist() == [2]
    assert task.tokenizer.encode("GOOD") == task.tokenizer.encode("good")


def test_a_batch_is_padded_and_masked(task):
    examples = [example for row in ROWS[:2] for example in task.examples(row)]
    batch = task.collate(examples, seeds=[(), ()], where=["a", "b"])
    assert batch.inputs["inputs"].shape == (2, 5)
    assert batch.inputs["inputs"][1, 4] == task.tokenizer.pad_id
    assert batch.inputs["padding_mask"].tolist() == [[True] * 5, [True] * 4 + [False]]
    assert batch.targets["labels"].tolist() == [2, 0]
    assert (batch.count, batch.where) == (2, ["a", "b"])


def test_the_loss_is_summed_cross_entropy(task):
    examples = [example for row in ROWS[:2] for example in task.examples(row)]
    batch = task.collate(examples, seeds=[(), ()], where=[])
    model = Fixed([[0.0, 0.0, math.log(2.0)], [0.0, 0.0, 0.0]]).eval()  # ½ for pos, ⅓ for neg
    assert float(task.loss(model, batch).total) == pytest.approx(math.log(2) + math.log(3))


def test_smoothing_is_for_training_only():
    task = Classify.from_data(Classify.scan(ROWS), tokenizer=None, options={"vocab": 60, "label_smoothing": 0.3})
    batch = task.collate(task.examples(ROWS[0]), seeds=[()], where=[])
    model = Fixed([[0.0, 0.0, math.log(2.0)]])
    assert float(task.loss(model.eval(), batch).total) == pytest.approx(math.log(2))
    smooth = 0.7 * math.log(2) + 0.1 * (math.log(2) + 2 * math.log(4))  # 0.3 shared out among three labels
    assert float(task.loss(model.train(), batch).total) == pytest.approx(smooth)


def test_predictions_do_not_depend_on_the_batch(task):
    model = untrained(task)
    together = task.predict(model, TEXTS)
    alone = [task.predict(model, [text])[0] for text in TEXTS]
    assert [a["label"] for a in together] == [a["label"] for a in alone]
    for one, other in zip(together, alone, strict=True):
        for label in task.labels:
            assert one["scores"][label] == pytest.approx(other["scores"][label], abs=1e-5)
    assert len({round(a["score"], 5) for a in together}) == len(TEXTS)  # else the check above could pass by accident


def test_an_answer_ranks_the_labels(task):
    [answer] = task.predict(Fixed([[0.0, math.log(2.0), math.log(5.0)]]), ["film"])
    assert answer["label"] == "pos" and answer["score"] == pytest.approx(5 / 8)
    assert list(answer["scores"]) == ["pos", "neutral", "neg"]
    assert answer["scores"]["neg"] == pytest.approx(1 / 8)
    assert list(task.predict(Fixed([[0.0, 1.0, 2.0]]), ["film"], top=1)[0]["scores"]) == ["pos"]
    assert task.predict(untrained(task), []) == []
    for wrong in ({"top": 0}, {"tops": 1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            task.predict(untrained(task), ["film"], **wrong)
    with pytest.raises(InputError):
        task.predict(untrained(task), [7])


def test_truncation_is_counted_and_keeps_the_end_token():
    task = Classify.from_data(Classify.scan(ROWS), tokenizer=None, options={"vocab": 60, "limit": 4})
    [example] = task.examples(ROWS[3])
    assert len(example["ids"]) == 4 and example["ids"][-1] == task.tokenizer.sep_id
    assert task.truncation.to_dict()["text"] == {"cut": 1, "of": 1, "limit": 4, "longest": 6, "where": "films.tsv:4"}
    assert task.token_lengths(ROWS[3]) == {"text": 6} and task.length_limits() == {"text": 4}
    strict = Classify.from_dict({**task.to_dict(), "overflow": "error"}, task.tokenizer)
    with pytest.raises(DataError, match=r"films.tsv:4: text has 6 tokens"):
        strict.examples(ROWS[3])
    with pytest.raises(ConfigError, match="overflow 'window'"):
        Classify.from_dict({**task.to_dict(), "overflow": "window"}, task.tokenizer)


def test_an_unknown_label_is_named_with_its_place(task):
    rows = [*ROWS, Row({"text": "hm", "label": "mixed"}, "test.tsv:9")]
    with pytest.raises(DataError, match=r"test.tsv:9: label 'mixed' is not one of the model's labels \('neg', "):
        task.evaluate(untrained(task), rows)


def test_scores_by_hand():
    found, wanted = np.array([0, 0, 1, 1, 3]), np.array([0, 1, 1, 1, 0])
    scores = label_scores(found, wanted)
    assert scores["accuracy"] == pytest.approx(3 / 5)
    # label 0: 2·1/(2+2); label 1: 2·2/(2+3); label 3, found but never right: 0; label 2 does not occur
    assert scores["macro_f1"] == pytest.approx((1 / 2 + 4 / 5 + 0) / 3)
    assert scores["majority"] == pytest.approx(3 / 5)


def test_evaluation_is_over_all_rows_in_any_order(task):
    model = untrained(task)
    scores = task.evaluate(model, ROWS)
    assert set(scores) == {"accuracy", "macro_f1", "majority", "loss"}
    assert scores["majority"] == 0.5
    batch = task.collate([e for row in ROWS for e in task.examples(row)], seeds=[()] * 4, where=[])
    assert scores["loss"] == pytest.approx(task.loss(model, batch).total.item() / 4, rel=1e-5)
    assert task.evaluate(model, ROWS[::-1]) == pytest.approx(scores)
    with pytest.raises(DataError, match="no examples"):
        task.evaluate(model, [])


def test_options_survive_a_round_trip(task):
    again = Classify.from_dict(task.to_dict(), task.tokenizer)
    assert again == task and again.labels == task.labels
    with pytest.raises(ConfigError, match="no tokenizer"):
        Classify.from_dict(task.to_dict(), None)


def test_a_bert_like_start_keeps_its_weights_and_sets_the_limit(task):
    embedding = EmbeddingConfig(len(task.tokenizer), 64, positions=LearnedConfig(20))
    start = build(EncoderConfig(embedding, recipes.stack(SMALL, "classic", causal=False), head=PoolerConfig()))
    initialise(start, "classic", seed=1)
    before = {name: tensor.clone() for name, tensor in start.state_dict().items()}
    fresh = Classify.from_dict(task.to_dict(), task.tokenizer)
    model = fresh.adapt(start)
    assert fresh.limit == 20
    after = model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items()) and "head.dense.weight" in before
    assert model.config.head == ClassifyHeadConfig(3, dense="tanh", dropout=0.1, dense_dropout=False)
    assert fresh.predict(model.eval(), ["film"])[0]["label"] in fresh.labels


def test_a_gpt_like_start_reads_the_last_token():
    tokenizer = Tokenizer.train((row.fields["text"] for row in ROWS), kind="bpe", size=300)
    task = Classify.from_data(Classify.scan(ROWS), tokenizer=tokenizer, options={})
    start = build(recipes.decoder(SMALL, "classic", vocab=len(tokenizer), context=32))
    initialise(start, "classic", seed=0)
    model = task.adapt(start).eval()
    assert isinstance(model, Decoder) and task.limit == 32
    together = task.predict(model, TEXTS)
    for text, answer in zip(TEXTS, together, strict=True):
        assert task.predict(model, [text])[0]["scores"] == pytest.approx(answer["scores"], abs=1e-5)


def test_an_image_model_is_no_start_for_text(task):
    vision = recipes.vision(SMALL, "modern", image=(8, 8), patch=4, channels=3, head=ClassifyHeadConfig(3))
    pairs = recipes.encoder_decoder(SMALL, "modern", vocab=20, context=8, start_id=1)
    for model in (build(vision), build(pairs)):
        with pytest.raises(ConfigError, match="starts from an encoder"):
            task.adapt(model)


def test_it_learns(tmp_path):
    task, model, data = started("classify", rows=960)
    before = task.evaluate(model, data.test())
    fell = losses(trained(task, model, data, folder=tmp_path, steps=30))
    after = task.evaluate(model, data.test())
    assert np.mean(fell[-5:]) < 0.75 * np.mean(fell[:5])
    assert after["accuracy"] > after["majority"] + 0.2 and after["accuracy"] > before["accuracy"] + 0.2
    assert after["loss"] < before["loss"]
