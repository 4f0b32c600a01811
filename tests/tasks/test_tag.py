"""`tag`: from words to tags and entities."""

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
from headway.models.config import EncoderConfig, PoolerConfig, TokenHeadConfig
from headway.models.init import initialise
from headway.models.outputs import Output
from headway.tasks import find
from headway.tasks.tag import Tag
from headway.tasks.task import IGNORE

ROWS = [
    Row({"words": ["Ada", "met", "Bob", "Bobson"], "tags": ["B-PER", "O", "B-PER", "I-PER"]}, "ner.conll:1"),
    Row({"words": ["in", "Adabob"], "tags": ["O", "B-LOC"]}, "ner.conll:6"),
]
LONG = Row({"words": ["Ada", "met", "Bob"] * 7, "tags": ["B-PER", "O", "B-PER"] * 7}, "long.conll:3")


def begun(**options) -> Tag:
    return Tag.from_data(Tag.scan(ROWS), tokenizer=None, options={"vocab": 60, **options})


@pytest.fixture(scope="module")
def task() -> Tag:
    return begun()


def untrained(task: Tag, *, seed: int = 0):
    model = build(task.config(SMALL, "classic"))
    initialise(model, "classic", seed=seed)
    return model.eval()


class Reader(torch.nn.Module):
    """Tags a token by what it is alone: `tags` says which label a token id gets."""

    pools_one_token = False

    def __init__(self, task: Tag, tags: dict[str, str], *, sure: float = 9.0) -> None:
        super().__init__()
        table = torch.zeros(len(task.tokenizer), len(task.labels))
        table[:, task.labels.index("O")] = sure
        for word, tag in tags.items():
            first = task.pieces([word])[0][0]
            table[first] = 0.0
            table[first, task.labels.index(tag)] = sure
        self.table = torch.nn.Parameter(table, requires_grad=False)
        self.lengths: list[int] = []

    def forward(self, inputs, *, padding_mask=None):
        self.lengths.append(inputs.shape[1])
        return Output(hidden=self.table, logits=self.table[inputs])


def chosen(sentences: int, *, recipe: str = "modern", **given) -> dict:
    rows = [Row({"words": ["a"] * 20, "tags": ["O"] * 20}, "x.conll:1")] * sentences
    return dict(Tag.choose_settings(Tag.scan(rows), recipe=recipe, given=given).settings)


def test_the_vocabulary_grows_with_the_data():
    found = [chosen(count).get("task.vocab") for count in (10, 3_000, 12_000, 100_000)]
    assert found == [500, 500, 2000, None], "None: the default of 8,000"
    assert not chosen(10, recipe="finetune") and not chosen(10, **{"task.vocab": 3000})


def test_the_labels_hold_both_tags_of_each_type(task):
    assert find("tag") is Tag
    assert task.labels == ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]


def test_the_first_piece_of_a_word_carries_its_tag(task):
    words = ["in", "Bobmet"]  # the second is no token of its own
    [example] = task.examples(Row({"words": words, "tags": ["O", "B-LOC"]}, ""))
    pieces = task.pieces(words)
    assert len(pieces[1]) > 1
    assert example["ids"].tolist() == [task.tokenizer.cls_id, *pieces[0], *pieces[1], task.tokenizer.sep_id]
    wanted = [IGNORE] * len(example["ids"])
    wanted[1], wanted[1 + len(pieces[0])] = task.labels.index("O"), task.labels.index("B-LOC")
    assert example["tags"].tolist() == wanted


def test_a_batch_counts_words_not_tokens(task):
    examples = [example for row in ROWS for example in task.examples(row)]
    batch = task.collate(examples, seeds=[(), ()], where=["a", "b"])
    assert batch.count == 6 and batch.where == ["a", "b"]
    assert batch.inputs["inputs"].shape == batch.targets["tags"].shape == batch.inputs["padding_mask"].shape
    assert int((batch.targets["tags"] != IGNORE).sum()) == 6


def test_the_loss_is_the_sum_over_words(task):
    examples = [example for row in ROWS for example in task.examples(row)]
    batch = task.collate(examples, seeds=[(), ()], where=[])
    even = Reader(task, {}, sure=0.0)
    assert float(task.loss(even, batch).total) == pytest.approx(6 * math.log(5), rel=1e-5)


def test_predictions_do_not_depend_on_the_batch(task):
    model = untrained(task)
    sentences = [["Ada"], ["Bob", "met", "Ada"], ["in", "Adabob", "met", "Bobson", "in"], LONG.fields["words"]]
    together = task.word_log_probs(model, [task.readings(words, where="") for words in sentences])
    for words, found in zip(sentences, together, strict=True):
        [alone] = task.word_log_probs(model, [task.readings(words, where="")])
        assert list(alone) == list(range(len(words)))
        for word, scores in alone.items():
            assert torch.allclose(scores, found[word], atol=1e-5)
    assert task.predict(model, sentences) == [task.predict(model, [words])[0] for words in sentences]


def test_an_answer_names_entities_and_repairs_their_beginning(task):
    model = Reader(task, {"Ada": "I-PER", "Bob": "B-PER", "Bobson": "I-PER", "in": "I-LOC"})
    [answer] = task.predict(model, [["Ada", "met", "Bob", "Bobson", "in"]])
    assert answer["tags"] == ["B-PER", "O", "B-PER", "I-PER", "B-LOC"]
    assert answer["entities"] == [
        {"type": "PER", "text": "Ada", "start": 0, "end": 1},
        {"type": "PER", "text": "Bob Bobson", "start": 2, "end": 4},
        {"type": "LOC", "text": "in", "start": 4, "end": 5},
    ]
    assert set(answer) == {"words", "tags", "entities"}


def test_a_text_is_split_into_words_and_entities_keep_its_spelling(task):
    model = Reader(task, {"Bob": "B-PER", "Bobson": "I-PER"})
    [answer] = task.predict(model, ["“Bob  Bobson” owes o'clock 12,000!"])
    assert answer["words"] == ["“", "Bob", "Bobson", "”", "owes", "o'clock", "12,000", "!"]
    assert answer["entities"] == [{"type": "PER", "text": "Bob  Bobson", "start": 1, "end": 3}]


def test_odd_inputs(task):
    model = untrained(task)
    empty, dropped = task.predict(model, ["", ["Ada", "\u200b", ""]])
    assert empty == {"words": [], "tags": [], "entities": []}
    assert len(dropped["tags"]) == 3 and "unread" not in dropped
    for wrong in (7, ["a", 1], None):
        with pytest.raises(InputError, match="input 1: expected a text or a list of words"):
            task.predict(model, [wrong])
    with pytest.raises(InputError, match="no option 'top'"):
        task.predict(model, ["Ada"], top=1)


def test_a_long_sentence_is_read_in_windows_and_every_word_is_learned_once():
    task = begun(limit=8)
    examples = task.examples(LONG)
    assert len(examples) > 2 and max(len(example["ids"]) for example in examples) <= 8
    assert sum(int((example["tags"] != IGNORE).sum()) for example in examples) == 21
    model = Reader(task, {"Ada": "B-PER", "Bob": "B-PER"})
    [answer] = task.predict(model, [LONG.fields["words"]])
    assert answer["tags"] == LONG.fields["tags"] and "unread" not in answer
    assert max(model.lengths) <= 8
    assert not task.truncation.cut and task.length_limits() == {} and task.token_lengths(LONG) == {"words": 23}


def test_a_word_longer_than_a_window_is_truncated_and_counted():
    task = begun(limit=8)
    [answer] = task.predict(Reader(task, {"Ada": "B-PER"}), [["Ada", "in" * 20, "Ada"]])
    assert answer["tags"][0] == answer["tags"][2] == "B-PER"
    assert task.truncation.to_dict()["one word"]["limit"] == 6


def test_what_truncation_leaves_out_is_counted():
    task = begun(limit=8, overflow="truncate")
    model = Reader(task, {"Ada": "B-PER", "Bob": "B-PER"})
    [answer] = task.predict(model, [LONG.fields["words"]])
    assert answer["unread"] == 15 and answer["tags"] == [*LONG.fields["tags"][:6], *["O"] * 15]
    assert task.truncation.to_dict()["words"] == {"cut": 1, "of": 1, "limit": 8, "longest": 23, "where": "input 1"}
    assert task.length_limits() == {"words": 8}
    scores = task.evaluate(model, [LONG])
    assert scores["unread"] == 15
    assert scores["accuracy"] == pytest.approx((6 + 5) / 21)  # of the words left out, five are O
    assert scores["recall"] == pytest.approx(4 / 14) and scores["precision"] == 1.0
    [example] = task.examples(LONG)
    assert example["ids"][-1] == task.tokenizer.sep_id and int((example["tags"] != IGNORE).sum()) == 6


def test_overflow_can_be_an_error():
    with pytest.raises(DataError, match=r"long.conll:3: words has 23 tokens"):
        begun(limit=8, overflow="error").examples(LONG)
    with pytest.raises(ConfigError, match="overflow 'cut'"):
        begun(overflow="cut")


def test_evaluation_by_hand(task):
    model = Reader(task, {"Ada": "B-PER", "met": "I-PER", "Bob": "B-PER", "Bobson": "I-PER"})
    scores = task.evaluate(model, ROWS[:1])
    # found PER 0-2 and PER 2-4, there are PER 0-1 and PER 2-4
    assert (scores["precision"], scores["recall"], scores["f1"]) == (0.5, 0.5, 0.5)
    assert scores["accuracy"] == 0.75 and scores["majority"] == 0.5
    right, wrong = math.log(1 + 4 * math.exp(-9)), 9 + math.log(1 + 4 * math.exp(-9))
    assert scores["loss"] == pytest.approx((3 * right + wrong) / 4, rel=1e-4)
    assert "unread" not in scores


def test_faults_of_the_data_are_named(task):
    unknown = Row({"words": ["Ada"], "tags": ["B-ORG"]}, "test.conll:4")
    with pytest.raises(DataError, match=r"test.conll:4: label 'B-ORG' is not one of the model's labels"):
        task.evaluate(untrained(task), [unknown])
    with pytest.raises(DataError, match=r"test.conll:5: tags: 1 tags for 2 words"):
        task.examples(Row({"words": ["Ada", "met"], "tags": ["O"]}, "test.conll:5"))
    with pytest.raises(DataError, match="at least two"):
        Tag.from_data(Tag.scan([Row({"words": ["a"], "tags": ["O"]}, "")]), tokenizer=None, options={})
    assert task.examples(Row({"words": [], "tags": []}, "")) == []


def test_options_survive_a_round_trip(task):
    assert Tag.from_dict(task.to_dict(), task.tokenizer) == task


def test_a_start_keeps_its_weights(task):
    embedding = EmbeddingConfig(len(task.tokenizer), 64, positions=LearnedConfig(20))
    start = build(EncoderConfig(embedding, recipes.stack(SMALL, "classic", causal=False), head=PoolerConfig()))
    initialise(start, "classic", seed=1)
    before = {name: tensor.clone() for name, tensor in start.state_dict().items() if not name.startswith("head")}
    fresh = Tag.from_dict(task.to_dict(), task.tokenizer)
    model = fresh.adapt(start)
    after = model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert model.config.head == TokenHeadConfig(5, dropout=0.1) and fresh.limit == 20
    with pytest.raises(ConfigError, match="tag starts from a text encoder"):
        task.adapt(build(recipes.decoder(SMALL, "modern", vocab=9, context=8)))


def test_it_learns(tmp_path):
    task, model, data = started("tag", rows=960)
    fell = losses(trained(task, model, data, folder=tmp_path, steps=30))
    scores = task.evaluate(model, data.test())
    assert np.mean(fell[-5:]) < 0.5 * np.mean(fell[:5])
    assert scores["accuracy"] > scores["majority"] + 0.2
    assert scores["f1"] > 0.4
