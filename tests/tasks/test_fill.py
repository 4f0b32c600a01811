"""`fill`: masked tokens and next sentences."""

import math

import numpy as np
import pytest
import torch
from support.task_run import SMALL, losses, started, trained

from headway.data.read import Row
from headway.errors import ConfigError, DataError, InputError
from headway.models import recipes
from headway.models.build import build
from headway.models.config import ClassifyHeadConfig, LanguageHeadConfig, PoolerConfig
from headway.models.init import initialise
from headway.models.outputs import Output
from headway.models.recipes import Size
from headway.preprocess.text import Tokenizer
from headway.tasks import find
from headway.tasks.fill import IS_NEXT, NOT_NEXT, Fill
from headway.tasks.masking import Masking
from headway.tasks.task import IGNORE
from headway.tasks.text_pairs import PairFrame

ROWS = [
    Row({"text": "red one. red two. red three. red four."}, "colours.txt:1"),
    Row({"text": "blue one. blue two. blue three."}, "colours.txt:2"),
    Row({"text": "green one."}, "colours.txt:3"),
]


def begun(**options) -> Fill:
    return Fill.from_data(Fill.scan(ROWS), tokenizer=None, options={"vocab": 80, "limit": 9, **options})


@pytest.fixture(scope="module")
def task() -> Fill:
    return begun()


def untrained(task: Fill):
    """All weights drawn, none at zero, so that every token gets another answer."""
    model = build(task.config(SMALL, "classic"))
    initialise(model, "classic", seed=0)
    return model.eval()


def text(task: Fill, ids) -> str:
    return task.tokenizer.decode(list(ids))


# --- masking


@pytest.fixture(scope="module")
def sample(task) -> tuple[Masking, np.ndarray, np.ndarray, np.ndarray]:
    """2,000 texts of 100 tokens, with [CLS], [SEP] and an unknown token in each."""
    masking, tokenizer = Masking.of(task.tokenizer, whole_words=False), task.tokenizer
    chance = np.random.default_rng(0)
    ids = chance.choice(np.flatnonzero(~masking.special), size=(2000, 100))
    ids[:, 0], ids[:, 50], ids[:, -1] = tokenizer.cls_id, tokenizer.unk_id, tokenizer.sep_id
    chosen = np.stack([masking.choose(row, chance) for row in ids])
    return masking, ids, chosen, np.stack([masking.apply(*row, chance) for row in zip(ids, chosen, strict=True)])


def test_fifteen_percent_are_chosen_and_of_those_80_10_10(sample):
    masking, ids, chosen, shown = sample
    free = 97  # of 100
    assert chosen.mean() == pytest.approx(0.15 * free / 100, abs=0.001)  # 0.15 · 97 = 14.55 a text
    count = int(chosen.sum())
    hidden = ((shown == masking.mask_id) & chosen).sum()
    kept = ((shown == ids) & chosen).sum()
    other = count - hidden - kept
    same = 1 / int((~masking.special).sum())  # a random token is sometimes the very one
    expected = np.array([0.8, 0.1 + 0.1 * same, 0.1 - 0.1 * same]) * count
    chi_square = (((np.array([hidden, kept, other]) - expected) ** 2) / expected).sum()
    assert count > 28_000 and chi_square < 9.2  # 99% of fair draws, 2 degrees of freedom
    wrong = np.array([0.78, 0.11, 0.11]) * count  # the sample is large enough to tell
    assert (((np.array([hidden, kept, other]) - wrong) ** 2) / wrong).sum() > 9.2


def test_special_tokens_are_never_chosen_nor_drawn(sample):
    masking, ids, chosen, shown = sample
    assert not chosen[:, [0, 50, 99]].any()
    assert (shown[~chosen] == ids[~chosen]).all()
    drawn = shown[chosen & (shown != masking.mask_id)]
    assert not masking.special[drawn].any()
    places = chosen[:, 1:50].mean(0)
    assert places.min() > 0.10 and places.max() < 0.20  # no place is favoured


def test_a_text_of_special_tokens_has_nothing_to_choose(task):
    chosen = Masking.of(task.tokenizer, whole_words=False).choose(np.array([2, 3]), np.random.default_rng(0))
    assert not chosen.any()


def test_whole_words_are_chosen_whole():
    tokenizer = Tokenizer.train(["abc abd xyz abcxyz"] * 3, kind="wordpiece", size=24)
    ids = np.asarray(tokenizer.encode("zzzz aaaa xyz bbbb cccc yyyy", special=False))
    pieces = [tokenizer.token(i) for i in ids]
    word = np.cumsum([not piece.startswith("##") for piece in pieces])
    assert len(set(word)) == 6 < len(ids)

    def split(whole: bool) -> int:
        masking = Masking.of(tokenizer, whole_words=whole)
        draws = [masking.choose(ids, np.random.default_rng(seed)) for seed in range(200)]
        assert all(drawn.any() for drawn in draws)
        return sum(len({bool(drawn[i]) for i in np.flatnonzero(word == w)}) > 1 for drawn in draws for w in set(word))

    assert split(whole=True) == 0 < split(whole=False)


def test_words_of_a_tokenizer_with_spaces_in_its_pieces():
    tokenizer = Tokenizer.train(["one two three"] * 3, kind="bpe", size=280, special=["<mask>"])
    tokenizer.mask_id = tokenizer.id("<mask>")
    masking = Masking.of(tokenizer, whole_words=True)
    ids = tokenizer.encode("two three twothree", special=False)
    starts = [not masking.continues[i] for i in ids]
    assert [token[:1] == " " for token in tokenizer.tokens(ids)] == starts


# --- examples


def test_the_frame_is_what_the_tokenizer_writes(task):
    frame, tokenizer = PairFrame.of(task.tokenizer), task.tokenizer
    first, second = (tokenizer.encode(part, special=False) for part in ("red one.", "blue two three."))
    pair = tokenizer.encode_pair("red one.", "blue two three.")
    assert frame.join(first, second) == (pair.ids, pair.segments)
    assert frame.join(first)[0] == tokenizer.encode("red one.")
    assert frame.cost == (2, 3)


def test_an_example_has_the_next_piece_and_one_of_the_document_before():
    task = begun()
    first = task.examples(ROWS[0])  # pieces of (9 - 3) / 2 tokens: a sentence each
    assert [text(task, example["first"]) for example in first] == ["red one.", "red two.", "red three.", "red four."]
    assert [text(task, example["next"]) for example in first] == ["red two.", "red three.", "red four.", ""]
    for number, example in enumerate(first[:3]):  # no document before: elsewhere in this one
        assert text(task, example["other"]) not in (text(task, first[number]["first"]), text(task, example["next"]))
        assert text(task, example["other"]).startswith("red")
    second = task.examples(ROWS[1])
    assert all(text(task, example["other"]).startswith("red") for example in second[:2])
    [alone] = task.examples(ROWS[2])
    assert not len(alone["next"]) and not len(alone["other"])


def test_pieces_are_whole_sentences_and_nothing_is_lost():
    task = begun(limit=17)  # pieces of 7
    pieces = task.spans(ROWS[0])
    assert [text(task, piece) for piece in pieces] == ["red one. red two.", "red three. red four."]
    long = Row({"text": "red one two three four red one two three four."}, "")
    whole = task.tokenizer.encode(long.fields["text"], special=False)
    assert [len(piece) for piece in task.spans(long)] == [7, 4]
    assert [i for piece in task.spans(long) for i in piece] == whole
    given = Row({"text": "a b", "sentences": ["red one", "blue two"]}, "")
    assert text(task, task.spans(given)[0]) == "red one blue two"


def test_next_or_not_and_the_hidden_tokens_are_drawn_from_the_seed():
    task = begun()
    [example, *_] = task.examples(ROWS[1])
    [other] = begun().examples(ROWS[2])

    def draw(seed, *beside):
        batch = task.collate([example, *beside], seeds=[seed, *[(9,)] * len(beside)], where=[])
        shown, wanted, label = (
            batch.inputs["inputs"][0],
            batch.targets["ids"][0],
            int(batch.targets["next_sentence"][0]),
        )
        return shown.tolist()[:9], wanted.tolist()[:9], label, batch

    assert draw((0, 1, 2))[:3] == draw((0, 1, 2), other)[:3]  # whatever batch it lands in
    draws = [draw((0, epoch, 5)) for epoch in range(400)]
    assert len({tuple(shown) for shown, *_ in draws}) > 20
    labels = [label for *_, label, _ in draws]
    assert 0.42 < np.mean(np.array(labels) == IS_NEXT) < 0.58
    cls, sep = task.tokenizer.cls_id, task.tokenizer.sep_id
    for shown, wanted, label, batch in draws[:50]:
        original = [w if w != IGNORE else s for s, w in zip(shown, wanted, strict=True)]
        second = example["next"] if label == IS_NEXT else example["other"]
        assert original == [cls, *example["first"], sep, *second, sep]
        assert batch.inputs["segments"][0].tolist() == [0] * 5 + [1] * 4
        assert batch.count == sum(w != IGNORE for w in wanted) >= 1


def test_a_lone_span_has_no_next_sentence_target():
    task = begun()
    batch = task.collate(task.examples(ROWS[2]), seeds=[(0,)], where=[])
    assert batch.targets["next_sentence"].tolist() == [IGNORE]
    assert batch.inputs["inputs"].shape == (1, 5)


# --- loss


class Fixed(torch.nn.Module):
    def __init__(self, logits: torch.Tensor, follows: torch.Tensor | None = None) -> None:
        super().__init__()
        self.logits, self.follows = torch.nn.Parameter(logits), follows

    def forward(self, inputs, *, padding_mask=None, segments=None, logit_positions=None):
        logits = self.logits if logit_positions is None else self.logits.flatten(0, 1)[logit_positions]
        return Output(hidden=self.logits, logits=logits, next_sentence=self.follows)


def test_the_loss_is_the_mean_over_hidden_tokens_plus_the_mean_over_pairs():
    task = begun()
    examples = [task.examples(ROWS[0])[0], task.examples(ROWS[1])[0]]
    batch = task.collate(examples, seeds=[(0,), (1,)], where=[])
    hidden = (batch.targets["ids"] != IGNORE).sum(1)
    assert hidden.tolist() == [1, 1]
    batch.targets["next_sentence"][:] = torch.tensor([IS_NEXT, NOT_NEXT])
    model = Fixed(torch.zeros(2, 9, len(task.tokenizer)), torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
    found = task.loss(model, batch)
    masked = math.log(len(task.tokenizer))
    follows = (math.log(1 + math.exp(-1)) + math.log(1 + math.exp(2))) / 2
    assert float(found.total.detach()) / batch.count == pytest.approx(masked + follows, rel=1e-5)
    assert float(found.parts["masked"].detach()) / batch.count == pytest.approx(masked, rel=1e-5)
    found.total.backward()
    touched = model.logits.grad.abs().sum(-1) > 0
    assert torch.equal(touched, batch.targets["ids"] != IGNORE)  # unchosen tokens play no part


def test_the_loss_does_not_depend_on_how_a_batch_is_split():
    task = begun(limit=40)
    examples = [example for row in ROWS for example in task.examples(row)]
    seeds = [(0, i) for i in range(len(examples))]
    model = untrained(task)
    with torch.no_grad():
        whole = task.loss(model, task.collate(examples, seeds=seeds, where=[])).total
        pairs = zip(examples, seeds, strict=True)
        apart = sum(task.loss(model, task.collate([e], seeds=[seed], where=[])).total for e, seed in pairs)
    assert float(whole) == pytest.approx(float(apart), rel=1e-5)


# --- using


def test_fillings_are_put_into_the_text(task):
    tokenizer = task.tokenizer
    model = Fixed(torch.zeros(1, 6, len(tokenizer)))
    with torch.no_grad():
        model.logits[0, 2, [tokenizer.id("one"), tokenizer.id("blue"), tokenizer.mask_id]] = torch.tensor([9.0, 8, 99])
    [found] = task.predict(model, ["Red  [MASK] , two"], top=2)
    assert [(one["token"], one["text"]) for one in found] == [("one", "Red  one , two"), ("blue", "Red  blue , two")]
    free = len(tokenizer) - 5  # special tokens are no fillings
    assert found[0]["score"] == pytest.approx(math.exp(9) / (math.exp(9) + math.exp(8) + free - 2))


def test_each_mask_gets_its_list_and_a_piece_is_glued(task):
    model = Fixed(torch.zeros(1, 5, len(task.tokenizer)))
    piece = next(i for i in range(len(task.tokenizer)) if task.tokenizer.token(i).startswith("##"))
    with torch.no_grad():
        model.logits[0, 2, task.tokenizer.id("one")] = 9.0
        model.logits[0, 3, piece] = 9.0
    [lists] = task.predict(model, ["red [MASK] [MASK]"], top=1)
    assert [one["text"] for [one] in lists] == ["red one [MASK]", "red [MASK]" + task.tokenizer.token(piece)[2:]]


def test_only_the_mask_is_read_in_a_text():
    task = begun(limit=40)
    asked = task.masked_ids("[CLS] red [MASK] [SEP]", 1)
    assert asked.count(task.tokenizer.mask_id) == 1
    assert asked.count(task.tokenizer.cls_id) == asked.count(task.tokenizer.sep_id) == 1
    assert asked == [
        task.tokenizer.cls_id, *task.tokenizer.encode("[CLS] red", special=False), task.tokenizer.mask_id,
        *task.tokenizer.encode("[SEP]", special=False), task.tokenizer.sep_id,
    ]  # fmt: skip


def test_predictions_do_not_depend_on_the_batch():
    task = begun(limit=40)
    model = untrained(task)
    texts = ["red [MASK] .", "[MASK]", "blue one . blue two . red [MASK] . green four .", "one [MASK] [MASK]"]
    together = task.predict(model, texts)
    for single, found in zip(texts, together, strict=True):
        [alone] = task.predict(model, [single])
        flat, flat_alone = np.ravel(found), np.ravel(alone)
        assert [one["text"] for one in flat] == [one["text"] for one in flat_alone]
        assert [one["score"] for one in flat] == pytest.approx([one["score"] for one in flat_alone], abs=1e-5)
    assert together[0][0]["token"] != together[1][0]["token"] or together[0][1]["token"] != together[1][1]["token"]


def test_wrong_inputs_are_named(task):
    model = untrained(task)
    with pytest.raises(InputError, match=r"input 2: task fill takes a text with \[MASK\]"):
        task.predict(model, ["red [MASK]", "red"])
    with pytest.raises(InputError, match="input 1: 12 tokens; the model takes 9"):
        task.predict(model, ["[MASK]" + " red" * 9])
    with pytest.raises(InputError, match="no option 'n'"):
        task.predict(model, ["[MASK]"], n=2)
    with pytest.raises(ConfigError, match="no mask token"):
        Fill(tokenizer=Tokenizer.train(["a b"], kind="char", size=20))
    with pytest.raises(DataError, match="no text to evaluate"):
        task.evaluate(model, [])


def test_evaluation_is_repeatable_and_knows_its_baseline():
    task = begun(limit=40)
    rows = [Row({"text": "red one. blue two. green three. " * 5}, "x")] * 20
    model = Fixed(torch.nn.Parameter(torch.zeros(1)))

    def forward(inputs, *, padding_mask=None, segments=None, logit_positions=None):
        logits = torch.zeros(*inputs.shape, len(task.tokenizer))
        logits[..., task.tokenizer.id(".")] = 1.0
        follows = torch.tensor([[1.0, 0.0]]).expand(len(inputs), 2)
        return Output(hidden=logits, logits=logits.flatten(0, 1)[logit_positions], next_sentence=follows)

    model.forward = forward
    task.examples(ROWS[0])  # what was read before plays no part
    first, again = task.evaluate(model, rows), task.evaluate(model, rows)
    assert first == again
    assert 0.2 < first["accuracy"] < 0.5  # every third token is a point
    size, share = len(task.tokenizer), first["accuracy"]
    assert first["loss"] == pytest.approx(math.log(math.e + size - 1) - share, rel=1e-5)
    assert first["unigram"] == pytest.approx(
        math.log(3) + 2 / 3 * math.log(3), abs=0.15
    )  # 1/3 points, six words of 1/9
    assert first["gain"] == pytest.approx(first["unigram"] - first["loss"])
    assert 0.3 < first["next_sentence"] < 0.7


def test_heads_and_starting_points(task):
    head = task.config(SMALL, "modern").head
    assert isinstance(head, PoolerConfig) and head.next_sentence and head.language.transform is not None
    alone = begun(next_sentence=False)
    config = alone.config(SMALL, "modern")
    assert isinstance(config.head, LanguageHeadConfig) and config.embedding.segments == 0
    batch = alone.collate(alone.examples(ROWS[1]), seeds=[(0,), (1,)], where=[])
    assert set(batch.inputs) == {"inputs", "padding_mask", "logit_positions"} and set(batch.targets) == {"ids"}
    asked = begun()
    model = build(config)
    assert asked.adapt(model) is model and not asked.next_sentence
    other = build(recipes.encoder(SMALL, "classic", vocab=len(task.tokenizer), segments=2, head=ClassifyHeadConfig(3)))
    assert begun().adapt(other).config.head.next_sentence


def test_options_survive_a_round_trip(task):
    again = Fill.from_dict(begun(whole_words=True).to_dict(), task.tokenizer)
    assert find("fill") is Fill
    assert again.whole_words and again.masking.whole_words and again.limit == 9


def test_it_learns_to_fill(tmp_path):
    task, model, data = started("fill", rows=8, vocab=1000, limit=64)
    before = task.evaluate(model, list(data.valid()))
    result = trained(task, model, data, folder=tmp_path, steps=25, batch=16, lr=0.005)
    found = losses(result)
    assert found[0] > 7 and np.mean(found[-3:]) < found[0] - 1.2
    assert task.evaluate(model, list(data.valid()))["loss"] < before["loss"] - 1


@pytest.mark.parametrize("next_sentence", [True, False])
def test_logits_at_some_positions_are_those_of_the_whole(next_sentence):
    task = begun(limit=40, next_sentence=next_sentence)
    model = build(task.config(Size(16, 1, 2), "modern")).eval()
    initialise(model, "modern", seed=0)
    batch = task.collate([example for row in ROWS for example in task.examples(row)][:3], seeds=[(1,)] * 3, where=[])
    inputs = dict(batch.inputs)
    positions = inputs.pop("logit_positions")
    whole = model(**inputs).logits.flatten(0, 1)
    torch.testing.assert_close(model(**batch.inputs).logits, whole[positions])
    assert 0 < len(positions) < len(whole)
