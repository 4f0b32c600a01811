"""`embed`: texts that mean the same have vectors that are near."""

import math

import numpy as np
import pytest
import torch
from support.task_run import SMALL, losses, started, trained

from headway.data.read import Row
from headway.errors import ConfigError, DataError, InputError
from headway.models import recipes
from headway.models.build import build
from headway.models.config import ClassifyHeadConfig
from headway.models.init import initialise
from headway.models.outputs import Output
from headway.tasks import find
from headway.tasks.embed import Embed

PAIRS = [
    ("red car", "scarlet auto"),
    ("blue sea", "azure ocean deep"),
    ("green tree", "leafy oak"),
    ("old man", "elder"),
]
ROWS = [Row({"a": a, "b": b}, f"pairs.tsv:{line}") for line, (a, b) in enumerate(PAIRS, 1)]


def begun(**options) -> Embed:
    return Embed.from_data(Embed.scan(ROWS), tokenizer=None, options={"vocab": 120, **options})


@pytest.fixture(scope="module")
def task() -> Embed:
    return begun()


def untrained(task: Embed):
    model = build(task.config(SMALL, "classic"))
    initialise(model, "classic", seed=0)
    return model.eval()


class Fixed(torch.nn.Module):
    """A model whose texts have the given vectors, at every token."""

    def __init__(self, vectors: list[list[float]]) -> None:
        super().__init__()
        self.vectors = torch.nn.Parameter(torch.tensor(vectors))

    def forward(self, inputs, *, padding_mask=None):
        return Output(hidden=self.vectors[:, None].expand(-1, inputs.shape[1], -1))


class ByText(torch.nn.Module):
    """A model that knows a vector for each text."""

    def __init__(self, task: Embed, vectors: dict[str, list[float]]) -> None:
        super().__init__()
        self.known = {tuple(task.tokenizer.encode(text)): vector for text, vector in vectors.items()}
        self.pad, self.device = task.tokenizer.pad_id, torch.nn.Parameter(torch.zeros(1))

    def forward(self, inputs, *, padding_mask=None):
        rows = [self.known[tuple(i for i in row if i != self.pad)] for row in inputs.tolist()]
        return Output(hidden=torch.tensor(rows)[:, None].expand(-1, inputs.shape[1], -1))


def collated(task: Embed, pairs):
    rows = [Row({"a": a, "b": b}, "") for a, b in pairs]
    return task.collate([example for row in rows for example in task.examples(row)], seeds=[()] * len(rows), where=[])


def test_a_batch_is_all_first_halves_then_all_second_halves(task):
    assert find("embed") is Embed
    batch = collated(task, PAIRS[:2])
    rows = [[i for i in row if i != task.tokenizer.pad_id] for row in batch.inputs["inputs"].tolist()]
    assert rows == [task.tokenizer.encode(text) for text in ("red car", "blue sea", "scarlet auto", "azure ocean deep")]
    assert batch.count == 2
    assert batch.inputs["padding_mask"].sum(1).tolist() == [len(row) for row in rows]


def test_the_loss_by_hand(task):
    """a = (1, 0), (0, 2); b = (1, 1), (0, 1): cosines 1/√2, 0 and 1/√2, 1."""
    model, batch = Fixed([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [0.0, 1.0]]), collated(task, PAIRS[:2])
    half = 1 / math.sqrt(2)
    cosines = [[half, 0.0], [half, 1.0]]

    def lost(own: float, other: float) -> float:
        return math.log(1 + math.exp((other - own) / task.temperature))

    forth = lost(cosines[0][0], cosines[0][1]) + lost(cosines[1][1], cosines[1][0])
    back = lost(cosines[0][0], cosines[1][0]) + lost(cosines[1][1], cosines[0][1])
    assert float(task.loss(model, batch).total.detach()) == pytest.approx((forth + back) / 2, rel=1e-5)


@pytest.mark.parametrize("pairs", [[PAIRS[0], ("red car", "auto")], [PAIRS[0], ("car", "scarlet auto")]])
def test_pairs_that_share_a_text_are_not_negatives(task, pairs):
    vectors = [[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [1.0, 0.3], [0.0, 1.0], [0.1, 1.0]]
    model, batch = Fixed(vectors), collated(task, [*pairs, PAIRS[1]])
    assert batch.targets["same"].int().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    loss = task.loss(model, batch).total
    assert torch.isfinite(loss)
    loss.backward()
    assert torch.isfinite(model.vectors.grad).all()
    alone = collated(task, pairs)  # with no other negatives there is nothing to lose
    assert float(task.loss(Fixed(vectors[:2] + vectors[3:5]), alone).total.detach()) == 0
    apart = collated(task, [PAIRS[0], PAIRS[2]])
    assert float(task.loss(Fixed(vectors[:2] + vectors[3:5]), apart).total.detach()) > 0.1


def test_padding_changes_no_vector(task):
    model = untrained(task)
    texts = [text for pair in PAIRS for text in pair]
    together, alone = task.vectors(model, texts), torch.cat([task.vectors(model, [text]) for text in texts])
    assert torch.allclose(together, alone, atol=1e-5)
    assert torch.allclose(together.norm(dim=1), torch.ones(len(texts)))
    assert not torch.allclose(together[0], together[1], atol=0.01)
    hidden = model.encode(torch.tensor([task.tokenizer.encode("red car")]))[0]
    mean = hidden.mean(0) / hidden.mean(0).norm()
    assert torch.allclose(together[0], mean, atol=1e-5)


def test_a_text_gives_a_vector_and_a_pair_its_cosine(task):
    model = untrained(task)
    first, cosine, listed, second = task.predict(
        model, ["red car", {"a": "red car", "b": "old man"}, ["old man", "red car"], "old man"]
    )
    assert len(first) == SMALL.width and isinstance(first[0], float)
    assert cosine == pytest.approx(np.dot(first, second), abs=1e-5) == listed
    assert task.predict(model, [task.model_input(ROWS[0])])[0] < 1
    assert task.predict(model, []) == []
    for wrong in (3, {"a": "x"}, ["x"], ["x", 3]):
        with pytest.raises(InputError, match="input 2: task embed takes a text, or two"):
            task.predict(model, ["x", wrong])


def test_retrieval_scores_by_hand(task):
    near = {"red car": [1.0, 0.0], "scarlet auto": [1.0, 0.1], "blue sea": [0.0, 1.0], "azure ocean deep": [1.0, 0.2]}
    found = task.evaluate(ByText(task, near), ROWS[:2])
    # red car finds its own first; blue sea's own (0.196) beats scarlet auto (0.0995)
    assert found["accuracy"] == 1 and found["chance"] == 0.5
    assert found["positive_cosine"] == pytest.approx((1 / math.hypot(1, 0.1) + 0.2 / math.hypot(1, 0.2)) / 2)
    own, other = 0.2 / math.hypot(1, 0.2), 0.1 / math.hypot(1, 0.1)  # of blue sea
    red = math.log1p(math.exp((1 / math.hypot(1, 0.2) - 1 / math.hypot(1, 0.1)) / task.temperature))
    blue = math.log1p(math.exp((other - own) / task.temperature))
    assert found["loss"] == pytest.approx((red + blue) / 2, rel=1e-4)
    near["blue sea"] = [1.0, 0.1]
    found = task.evaluate(ByText(task, near), ROWS[:2])
    assert (found["accuracy"], found["mrr"]) == (0.5, pytest.approx((1 + 1 / 2) / 2))


def test_a_collapsed_model_finds_nothing(task):
    texts = {text: [1.0, 1.0] for pair in PAIRS for text in pair}
    found = task.evaluate(ByText(task, texts), ROWS)
    assert (found["accuracy"], found["mrr"], found["positive_cosine"]) == (0, 0.25, pytest.approx(1))
    with pytest.raises(DataError, match="no pairs"):
        task.evaluate(ByText(task, texts), [])


def test_pairs_with_a_text_in_common_are_not_candidates(task):
    rows = [*ROWS[:2], Row({"a": "red car", "b": "old man"}, "")]
    vectors = {"red car": [1.0, 0.0], "old man": [1.0, 0.0], "scarlet auto": [1.0, 0.5], "blue sea": [0.0, 1.0]}
    assert task.evaluate(ByText(task, vectors | {"azure ocean deep": [0.0, 1.0]}), rows)["accuracy"] == 1


def test_long_texts_are_cut_and_counted():
    task = begun(limit=4)
    [example] = task.examples(ROWS[1])
    assert len(example["b"]) == 4 and example["b"][-1] == task.tokenizer.sep_id
    assert task.truncation.to_dict()["b"]["where"] == "pairs.tsv:2"
    assert task.length_limits() == {"a": 4, "b": 4} and task.token_lengths(ROWS[1])["b"] > 4


def test_a_trained_encoder_loses_its_head_and_keeps_its_tensors(task):
    other = build(recipes.encoder(SMALL, "classic", vocab=len(task.tokenizer), head=ClassifyHeadConfig(3)))
    bare = task.adapt(other)
    assert bare.head is None and bare.config.head is None
    assert bare.stack is other.stack and bare.embedding is other.embedding
    with pytest.raises(ConfigError, match="text encoder"):
        task.adapt(build(recipes.decoder(SMALL, "classic", vocab=9, context=9)))


def test_options_survive_a_round_trip(task):
    again = Embed.from_dict(begun(temperature=0.1, limit=9).to_dict(), task.tokenizer)
    assert (again.temperature, again.limit) == (0.1, 9)


def test_it_learns_to_embed(tmp_path):
    task, model, data = started("embed", rows=300, vocab=1500)
    before = task.evaluate(model, list(data.valid()))
    found = losses(trained(task, model, data, folder=tmp_path, steps=30))
    assert found[0] > 2.5 and np.mean(found[-3:]) < 1.2
    assert task.evaluate(model, list(data.valid()))["mrr"] > before["mrr"]
