"""ELMo from text: a vector for a word in its context; its features serve `tag` and `classify`; explain shows it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from support.commands import headway as command

import headway
from headway.data.builtin.senses import BEFORE, SENSES
from headway.data.row import Row
from headway.errors import InputError
from headway.models.init import initialise
from headway.preprocess.character_text import CharacterTokenizer
from headway.tasks.context_vectors import ContextVectors

RIVER = ["the {adjective} bank of the river was {wet}", "we saw the {adjective} bank of the river , so {wet}"]
MONEY = ["the {adjective} bank lent money to the {people}", "today the {adjective} bank lent money , not the {people}"]
LEARNT, CHANCE = 0.95, 0.75  # of `separation`; a word alone has 0.5
WET, PEOPLE = ["wet", "muddy", "green"], ["company", "family", "town"]
ADJECTIVES = {"river": ["steep", "sandy", "low"], "money": ["rich", "private", "central"]}  # each for one meaning


def lines(templates: list[str]) -> list[str]:
    return [
        template.format(adjective=adjective, wet=wet, people=people)
        for template in templates
        for adjective in ADJECTIVES["river" if templates is RIVER else "money"]
        for wet, people in zip(WET, PEOPLE, strict=True)
    ]


@pytest.fixture(scope="module")
def elmo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elmo")
    (folder / "text.txt").write_text("\n".join((lines(RIVER) + lines(MONEY)) * 8) + "\n")
    trained = headway.train(
        "vectors", folder / "text.txt", out=folder / "elmo", steps=120,
        settings={"architecture": "elmo", "model.width": 32, "model.dropout": 0.0, "lr": 0.01, "batch": 16},
    )  # fmt: skip
    assert trained.scores["loss"] < 2.6 < trained.result.first_loss, trained.scores
    return folder


def marked(texts: list[str]) -> list[str]:
    return [text.replace(" bank ", " [bank] ") for text in texts]


def test_a_word_has_another_vector_in_another_context_and_its_characters_have_not(elmo: Path) -> None:
    model = headway.load(elmo / "elmo")
    river, money = model(["the steep [bank] of the river", "the rich [bank] lent money"])
    assert not np.allclose(river, money, atol=1e-3)
    rows = [model.task.text.encode_words(words)[0] for words in (["a", "bank"], ["bank"])]  # type: ignore[union-attr]
    characters = [model.model.layers(torch.tensor([row]))[0][0][0, -2] for row in rows]  # type: ignore[operator]
    torch.testing.assert_close(*characters)


@dataclass(frozen=True)
class Use:
    """A sentence with a word of two meanings."""

    text: str  # with the word marked
    word: str
    meaning: int
    adjective: str
    ending: str


def uses() -> list[Use]:
    """Every adjective of the built-in sentences with every ending of its meaning."""
    return [
        Use(f"{BEFORE[(a + 3 * e) % len(BEFORE)]} {adjective} [{word}] {ending}", word, meaning, adjective, ending)
        for word, meanings in SENSES.items()
        for meaning, (adjectives, endings) in enumerate(meanings)
        for a, adjective in enumerate(adjectives.split())
        for e, ending in enumerate(endings)
    ]


def separation(vectors: np.ndarray) -> float:
    """The share of uses that are nearer to the uses of the same meaning than to those of the other, by the mean cosine.
    Only uses with another adjective and another ending count as of the same meaning, so no shared word helps."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines, given, right = unit @ unit.T, uses(), 0.0
    for i, a in enumerate(given):
        same, other = (
            np.mean([cosines[i, j] for j, b in enumerate(given) if b.word == a.word and rule(a, b)])
            for rule in (
                lambda a, b: a.meaning == b.meaning and a.adjective != b.adjective and a.ending != b.ending,
                lambda a, b: a.meaning != b.meaning,
            )
        )
        right += 0.5 if np.isclose(same, other, atol=1e-6) else float(same > other)
    return right / len(given)


@pytest.mark.slow
def test_two_meanings_of_a_word_come_out_apart(tmp_path: Path) -> None:
    settings = {"architecture": "elmo", "model.width": 64, "model.dropout": 0.0, "lr": 0.01, "eval_every": 0}
    headway.train("vectors", out=tmp_path / "elmo", steps=400, settings=settings)
    model = headway.load(tmp_path / "elmo")
    texts = [use.text for use in uses()]
    assert separation(np.asarray(model(texts))) > LEARNT
    initialise(model.model, "classic", seed=1)
    assert separation(np.asarray(model(texts))) < CHANCE  # it is learnt, not given by the words around
    words = {use.word for use in uses()}
    alone = {word: np.random.default_rng(i).normal(size=50) for i, word in enumerate(sorted(words))}  # as word2vec
    assert separation(np.asarray([alone[use.word] for use in uses()])) == 0.5


def test_the_commands(elmo: Path) -> None:
    pair = command("run", "elmo", "the old [bank] of the river ~ the old [bank] lent money", cwd=elmo)
    assert pair.returncode == 0 and "cosine" in pair.stdout, pair.stderr
    drawn = command("run", "elmo", *marked(lines(RIVER)[:3] + lines(MONEY)[:3]), "--picture", "bank.png", cwd=elmo)
    assert drawn.returncode == 0 and (elmo / "bank.png").read_bytes().startswith(b"\x89PNG"), drawn.stderr
    page = command("explain", "elmo", "the old [bank] of the river", "-o", "page.html", cwd=elmo)
    assert page.returncode == 0 and "bank" in (elmo / "page.html").read_text(), page.stderr
    scores = command("evaluate", "elmo", "text.txt", "--json", cwd=elmo)
    assert scores.returncode == 0 and "perplexity" in scores.stdout, scores.stderr
    wrong = command("run", "elmo", "no mark here", cwd=elmo)
    assert wrong.returncode == 2 and "[bank]" in wrong.stderr
    refused = command("convert", "elmo", "out.bin", "--to", "word2vec", cwd=elmo)
    assert refused.returncode == 2 and "in its context" in refused.stderr


def test_tag_and_classify_start_from_it_frozen_or_tuned(elmo: Path) -> None:
    rows = [text.split() for text in lines(RIVER)[::3] + lines(MONEY)[::3]]
    kinds = ["B-RIVER"] * (len(rows) // 2) + ["B-MONEY"] * (len(rows) // 2)
    conll = ["\n".join(f"{word}\t{kind if word == 'bank' else 'O'}" for word in row)
             for row, kind in zip(rows, kinds, strict=True)]  # fmt: skip
    (elmo / "tags.conll").write_text("\n\n".join(conll) + "\n")
    frozen = ["--freeze", "embedding", "--freeze", "stack.forwards", "--freeze", "stack.backwards"]
    shared = ["--start", "elmo", "--steps", "80", "--set", "eval_every=0", "--set", "warmup=0"]
    done = command(
        "train",
        "tag",
        "tags.conll",
        "--valid",
        "tags.conll",
        *shared,
        *frozen,
        "--set",
        "lr=0.1",
        "--out",
        "tag",
        cwd=elmo,
    )
    assert done.returncode == 0, done.stderr
    before, after = (headway.load(elmo / name).model.state_dict() for name in ("elmo", "tag"))
    frozen_name = "stack.forwards.0.input.weight"
    assert torch.equal(before[frozen_name], after[frozen_name]), "a frozen weight was trained"
    assert not torch.equal(before["stack.mix.weights"], after["stack.mix.weights"]), "the mix was not trained"
    found = command("run", "tag", "the private bank lent money to the town", cwd=elmo)
    assert '"type": "MONEY"' in found.stdout, found.stdout
    page = command("explain", "tag", "the private bank lent money to the town", "-o", "tag.html", cwd=elmo)
    assert page.returncode == 0, page.stderr
    texts = [f"{' '.join(row)}\t{kind}" for row, kind in zip(rows, kinds, strict=True)]
    (elmo / "texts.tsv").write_text("\n".join(texts) + "\n")
    classified = command(
        "train",
        "classify",
        "texts.tsv",
        "--valid",
        "texts.tsv",
        *shared,
        "--set",
        "lr=0.01",
        "--out",
        "classify",
        cwd=elmo,
    )
    assert classified.returncode == 0, classified.stderr
    answer = command("run", "classify", "we saw the steep bank of the river , so muddy", cwd=elmo)
    assert "B-RIVER" in answer.stdout, answer.stdout


def test_batch_and_single_agree_and_the_loss_counts_real_words_only(elmo: Path) -> None:
    model = headway.load(elmo / "elmo")
    texts = ["a [bank]", "the old [bank] of the river was wet", "money from the [bank]"]
    together, alone = model(texts), [model(text) for text in texts]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    task = model.task
    assert isinstance(task, ContextVectors)
    examples = [task.examples(Row({"text": text}, ""))[0] for text in ("the bank", "the old bank of the river was wet")]
    batch = task.collate(examples, seeds=[(), ()], where=[])
    assert batch.count == len(batch.targets["words"]) == len(batch.inputs["logit_positions"]) == 2 * (3 + 9)
    total = task.loss(model.model, batch).total
    parts = [task.loss(model.model, task.collate([one], seeds=[()], where=[])).total for one in examples]
    assert total.item() == pytest.approx(sum(part.item() for part in parts), rel=1e-5)


def test_forward_layers_predict_the_next_word_and_backward_layers_the_one_before(elmo: Path) -> None:
    bundle = headway.load(elmo / "elmo")
    task = bundle.task
    assert isinstance(task, ContextVectors)
    examples = [task.examples(Row({"text": text}, ""))[0] for text in ("the bank", "the old bank of the river was wet")]
    batch = task.collate(examples, seeds=[(), ()], where=[])
    logits = bundle.model(batch.inputs["inputs"], padding_mask=batch.inputs["padding_mask"]).logits.detach()
    expected = {"forward": 0.0, "backward": 0.0}
    for row, example in enumerate(examples):
        words = torch.tensor(example["words"]).long()
        chances = logits[row, : len(words)].log_softmax(-1)  # (word, 2, vocabulary)
        expected["forward"] -= float(chances[:-1, 0].gather(1, words[1:, None]).sum())
        expected["backward"] -= float(chances[1:, 1].gather(1, words[:-1, None]).sum())
    found = {name: float(value) for name, value in task.loss(bundle.model, batch).parts.items()}
    assert found == pytest.approx(expected, rel=1e-5)


def test_an_evaluation_in_training_reads_some_sentences_of_the_whole_text(
    elmo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.tasks.context_vectors.QUICK", 4)
    bundle = headway.load(elmo / "elmo")
    task, texts = bundle.find_task(), lines(RIVER)[:4] + lines(MONEY)[:4]
    rows = [Row({"text": text, "running": True}, "") for text in texts]
    assert task.quick_evaluate(bundle.model, rows) == task.evaluate(bundle.model, rows[::2])
    assert task.quick_evaluate(bundle.model, rows) != task.evaluate(bundle.model, rows)
    assert task.quick_evaluate(bundle.model, rows[:3]) == task.evaluate(bundle.model, rows[:3])


def test_the_spelling_of_words() -> None:
    tokenizer = CharacterTokenizer(8)
    assert tokenizer.word("ab") == (259, 98, 99, 260, 261, 261, 261, 261)
    assert tokenizer.word("abcdefghij") == (259, 98, 99, 100, 101, 102, 103, 260)  # what does not fit is left out
    assert tokenizer.text_of(tokenizer.word("né")) == "né"
    ids, owners = tokenizer.encode_words(["a", "b"])
    assert owners == [None, 0, 1, None] and tokenizer.tokens(ids) == ["<S>", "a", "b", "</S>"]
    assert tokenizer.decode(tokenizer.encode("He said: 12,000!")) == "He said : 12,000 !"
    assert tokenizer.encode_pair("a b", "c").parts == [None, 0, 0, None, 1, None]
    with pytest.raises(InputError, match="surrogate"):
        tokenizer.word("\ud800")
