"""n-grams of tokens beside a classifier: the features, the fit, and a run with them up to its explanation."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import headway
from headway.bundle import Bundle
from headway.checkpoints import TensorFiles
from headway.data.read import Row
from headway.errors import ConfigError
from headway.explain.collect import collect
from headway.families import find
from headway.families.family import Keys
from headway.inspect.attribution import attribute
from headway.inspect.lens import logit_lens
from headway.jobs.training import resume, train
from headway.layers.ngrams import NgramConfig, NgramLinear
from headway.models.build import build
from headway.models.config_checks import validate
from headway.models.ensemble import members_of
from headway.models.rehead import apply_temperature
from headway.preprocess.processor import Processor
from headway.tasks.classify import Classify
from headway.tasks.ngram_features import (
    character_matrix,
    feature_matrix,
    find_ngrams,
    fit_ngrams,
    fit_weights,
    weighted_sum,
)
from headway.tasks.targets import UNKNOWN, OneLabel
from headway.training.state import load_latest

VOCAB = 30
TINY = {"model.width": 16, "model.layers": 1, "model.heads": 2, "task.vocab": 120, "log_every": 100}


def random_texts(count: int, *, seed: int = 0) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    return [generator.integers(0, VOCAB, generator.integers(1, 15)).tolist() for _ in range(count)]


def layer_for(texts: list[list[int]], *, order: int, outputs: int = 2) -> NgramLinear:
    found = find_ngrams(texts, vocab=VOCAB, order=order, outputs=outputs)
    layer = NgramLinear(outputs, NgramConfig(len(found.keys), VOCAB, order))
    layer.keys.copy_(found.keys)
    layer.idf.copy_(found.idf)
    return layer


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_features_are_those_of_scikit_learn(order: int) -> None:
    texts, others = random_texts(200), random_texts(50, seed=1)
    reference = TfidfVectorizer(analyzer="word", token_pattern=r"\S+", ngram_range=(1, order), sublinear_tf=True)
    words = [[" ".join(map(str, ids)) for ids in part] for part in (texts, others)]
    fitted = reference.fit_transform(words[0])
    layer = layer_for(texts, order=order)
    assert layer.config.features == fitted.shape[1]

    def key(ngram: str) -> int:
        value = 0
        for token in ngram.split():
            value = value * (VOCAB + 1) + int(token) + 1
        return value

    columns = np.argsort([key(name) for name in reference.get_feature_names_out()])
    for ids, expected in ((texts, fitted), (others, reference.transform(words[1]))):
        found = feature_matrix(layer, ids).toarray()
        np.testing.assert_allclose(found, expected.toarray()[:, columns], atol=1e-6)


def spelling(token: int) -> str:
    return f"{'even' if token % 2 == 0 else 'odd'}{token}"


def test_the_fit_is_that_of_scikit_learn() -> None:
    """The mean of two, of inputs that are multiplied by the ratios of naive Bayes and of inputs as they are, with
    n-grams of characters beside those of tokens."""
    texts = random_texts(300)
    labels = [0 if 3 in ids or 4 in ids else 1 for ids in texts]
    layer = fitted_layer(texts, labels, spelling=spelling)
    features, wanted = feature_matrix(layer, texts).toarray(), np.array(labels)
    shared = character_matrix(layer, spelling).toarray()
    inputs = np.concatenate([features, features @ shared], axis=1)
    inside, outside = (1 + (inputs[wanted == label] > 0).sum(0) for label in (1, 0))
    scaled = inputs * np.log(inside / inside.sum() / (outside / outside.sum()))
    fits = [(each, LogisticRegression(C=20.0, tol=1e-8, max_iter=1000).fit(each, wanted)) for each in (scaled, inputs)]
    expected = np.mean([model.decision_function(each) for each, model in fits], axis=0)  # of one output, not of two
    logits = torch.cat([layer(torch.tensor([ids]), None) for ids in texts])
    np.testing.assert_allclose(logits.softmax(-1)[:, 1].numpy(), 1 / (1 + np.exp(-expected)), atol=0.02)
    np.testing.assert_allclose(logits.numpy(), features @ layer.weight.numpy() + layer.bias.numpy(), atol=1e-5)


def fitted_layer(texts: list[list[int]], labels: list[int], *, spelling: Callable[[int], str]) -> NgramLinear:
    layer = layer_for(texts, order=2)
    wanted = np.eye(2)[labels]
    fit_ngrams(layer, find_ngrams(texts, vocab=VOCAB, order=2, outputs=2), texts, wanted, spelling=spelling)
    return layer


def test_tokens_have_the_ngrams_of_their_characters() -> None:
    layer = layer_for([[1, 2], [5]], order=2)
    words = {1: "king", 2: "kings", 5: "sea"}
    found = character_matrix(layer, words.__getitem__)
    assert layer.keys.tolist()[:3] == [2, 3, 6] and found.shape[0] == len(layer.keys)
    once = found.toarray() > 0
    assert (once[0] & once[1]).sum() == 6  # " ki", " kin", " king", "kin", "king", "ing"
    assert not (once[2] & (once[0] | once[1])).any() and not once[3:].any()
    np.testing.assert_allclose(np.linalg.norm(found.toarray()[:3], axis=1), 1, atol=1e-6)


def test_a_rare_token_is_like_those_that_are_spelled_alike() -> None:
    texts = [[token] for token in (1, 2, 3, 11, 12, 13) for _ in range(5)] + [[4], [4], [14], [14]]
    labels = [int(ids[0] > 10) for ids in texts]
    labels[-4:] = [0, 1, 0, 1]  # of themselves they say nothing
    words = {**dict.fromkeys((1, 2, 3, 4), "good"), **dict.fromkeys((11, 12, 13, 14), "awful")}
    alike = fitted_layer(texts, labels, spelling=lambda token: f"{words[token]}{token}")
    other = fitted_layer(texts, labels, spelling=lambda token: chr(ord("a") + token) * 5)

    def leaning(layer: NgramLinear, token: int) -> float:
        first, second = layer(torch.tensor([[token]]), None)[0].tolist()
        return first - second

    assert leaning(alike, 4) - leaning(alike, 14) > 0.2
    assert abs(leaning(other, 4) - leaning(other, 14)) < 0.02


def test_the_weights_of_the_parts_have_the_lowest_loss() -> None:
    chance = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (400,), generator=chance)
    wanted = torch.nn.functional.one_hot(labels, 3)
    right = 4.0 * wanted
    useful, useless = (
        scale * right + 3 * torch.randn(400, 3, generator=chance) for scale in (1.0, 0.0)
    )  # fmt: skip

    parts = torch.stack([useless, useful, useful.flip(0)])

    def loss(weights: list[float]) -> float:
        return float(torch.nn.functional.cross_entropy(weighted_sum(parts, weights), labels))

    found = fit_weights(parts, wanted)
    assert max(found[0], found[2]) < 0.1 < found[1]
    for place in range(3):
        for change in (-0.05, 0.05):
            other = [max(0.0, weight + change * (place == at)) for at, weight in enumerate(found)]
            assert loss(found) <= loss(other)
    unknown = torch.cat([wanted, torch.zeros(5, 3, dtype=torch.long)])  # labels that the model does not have
    again = fit_weights(torch.cat([parts, parts[:, :5]], dim=1), unknown)
    assert again == pytest.approx(found, abs=1e-4)
    assert fit_weights(parts[:, :5], unknown[-5:]) == [1.0, 1.0, 1.0]


def test_an_unknown_label_has_no_share() -> None:
    labels = [np.array([index]) for index in (1, UNKNOWN, 0)]
    assert OneLabel(["a", "b"]).soft_labels(labels).tolist() == [[0, 1], [0, 0], [1, 0]]


def test_padding_on_either_side_changes_nothing() -> None:
    texts = random_texts(40)
    layer = layer_for(texts, order=2, outputs=3)
    layer.weight.normal_(generator=torch.Generator().manual_seed(0))
    alone = torch.cat([layer(torch.tensor([ids]), None) for ids in texts])
    longest = max(map(len, texts))
    for left in (False, True):
        ids, mask = torch.full((len(texts), longest), 7), torch.zeros(len(texts), longest)
        for row, text in enumerate(texts):
            part = slice(longest - len(text), None) if left else slice(0, len(text))
            ids[row, part], mask[row, part] = torch.tensor(text), 1
        torch.testing.assert_close(layer(ids, mask), alone)
    assert not torch.allclose(layer(ids, None), alone)  # the padding has features of its own


def test_a_text_of_unknown_ngrams_has_the_bias() -> None:
    layer = layer_for([[1, 2], [1, 2]], order=2)
    layer.weight.fill_(1.0)
    layer.bias.fill_(0.5)
    assert layer(torch.tensor([[20, 21, 22]]), None).tolist() == [[0.5, 0.5]]


def test_configs_that_cannot_be() -> None:
    for config in (NgramConfig(5, 100, order=4), NgramConfig(5, 99_000_000, order=3)):
        with pytest.raises(ConfigError, match="must be"):
            validate(config)
    with pytest.raises(ConfigError, match="ngrams is 4"):
        Classify(tokenizer=None, ngrams=4)
    with pytest.raises(ConfigError, match="convolutions is 2000"):
        Classify(tokenizer=None, convolutions=2000)


ROWS = [
    {"text": f"{word} {thing} number {number % 7}", "label": label}
    for number in range(40)
    for word, label in (("buy the", "order"), ("return the", "refund"), ("where is the", "track"))
    for thing in ("shoes", "hat")
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ngrams") / "run"
    train("classify", ROWS, out=folder, steps=6, settings={**TINY, "ngrams": 2})
    return folder


def test_a_run_is_saved_with_its_ngrams_and_each_part_counts(run: Path) -> None:
    bundle = headway.load(run)
    layer, weight = bundle.model.ngrams, bundle.model.weights["ngrams"]
    assert layer.config.order == 2 and layer.weight.abs().sum() > 0
    assert not any("ngrams" in name for name, _ in bundle.model.named_parameters())
    text = "return the hat number 3"
    assert bundle(text)["label"] == "refund"
    ids = torch.tensor([bundle.find_task().read(text, where="here")["ids"].tolist()])
    both, alone = bundle.model(ids).logits, layer(ids, None)
    layer.weight.zero_()
    layer.bias.zero_()
    torch.testing.assert_close(both - bundle.model(ids).logits, weight * alone)


def test_one_text_and_many_are_predicted_alike(run: Path) -> None:
    bundle, texts = headway.load(run), [row["text"] for row in ROWS[:7]] + ["hat", ""]
    for one, many in zip([bundle(text) for text in texts], bundle(texts), strict=True):
        assert one["label"] == many["label"]
        assert one["scores"] == pytest.approx(many["scores"], abs=1e-5)


def test_saved_and_loaded_it_is_the_same(run: Path, tmp_path: Path) -> None:
    first = headway.load(run)
    first.save(tmp_path / "copy")
    second = headway.load(tmp_path / "copy")
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, second.model.state_dict()[name]), name
    assert first.model.config == second.model.config and len(first.model.config.weights) == 3
    names = TensorFiles(run).names  # the network's as those of a model alone
    assert "embedding.tokens.weight" in names and "head.ngrams.weight" in names


def test_a_resumed_run_is_the_run(run: Path, tmp_path: Path) -> None:
    settings = {**TINY, "ngrams": 2, "schedule": "constant", "keep_states": True}
    train("classify", ROWS, out=tmp_path / "run", steps=3, settings=settings)
    resume(tmp_path / "run", steps=6)
    train("classify", ROWS, out=tmp_path / "whole", steps=6, settings=settings)
    # the states, in which no weights are fitted yet: of equally good evaluations a run keeps its first
    whole, resumed = (load_latest(tmp_path / name / "training").state["model"] for name in ("whole", "run"))
    assert whole["ngrams.weight"].any()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_attribution_adds_up_and_names_the_ngrams(run: Path) -> None:
    bundle = headway.load(run)
    ids = torch.tensor([bundle.find_task().read("buy the hat", where="here")["ids"].tolist()])
    found = attribute(bundle.model, {"inputs": ids}, 0)
    assert found.total == pytest.approx(found.logit, abs=1e-4)
    for name, weight in list(bundle.model.weights.items())[1:]:
        (part,) = [part for part in found.parts if part.name == name]
        alone = bundle.model.members[name](ids, None)[0, 0].item()
        assert part.value == pytest.approx(weight * alone, abs=1e-5)
    last = logit_lens(bundle.model, {"inputs": ids}, top=1)[-1]
    assert last.ids[0, 0] == bundle.model(ids).logits.argmax()


def test_explain_shows_what_the_ngrams_add(run: Path) -> None:
    found = collect(headway.load(run), "buy the hat").attribution
    assert found is not None and sum(value for _, value in found.parts) == pytest.approx(found.logit, abs=1e-4)
    for part in ("n-grams of tokens (linear)", "convolutions over tokens"):
        (value,) = [value for name, value in found.parts if name == part]
        assert value != 0


def test_a_temperature_reaches_both_parts(run: Path) -> None:
    bundle = headway.load(run)
    ids = torch.tensor([[5, 6, 7]])
    before = bundle.model(ids).logits
    apply_temperature(bundle.model, 2.0)
    torch.testing.assert_close(bundle.model(ids).logits, before / 2)


def test_scores_of_a_run_are_of_rows_that_the_weights_were_not_fitted_to(run: Path) -> None:
    bundle = headway.load(run)
    rows = [Row(row, "here") for row in ROWS]
    task = bundle.find_task()
    assert task.fits_weights is False  # a saved model is evaluated as it is
    saved = task.quick_evaluate(bundle.model, rows)
    assert saved == task.evaluate(bundle.model, rows)
    task.start_training()
    assert task.quick_evaluate(bundle.model, rows)["loss"] != saved["loss"]


@pytest.mark.parametrize(
    "change", [{"recipe": "published"}, {"settings": {"architecture": "gru"}}, {"settings": {"kind": "multilabel"}}]
)
def test_what_is_chosen_without_settings(change: dict[str, Any], tmp_path: Path) -> None:
    options = {"steps": 1, **change, "settings": {**TINY, **change.get("settings", {})}}
    assert not members_of(train("classify", ROWS, out=tmp_path / "other", **options).bundle.model)
    plain = train("classify", ROWS, out=tmp_path / "plain", steps=1, settings=TINY)
    assert list(members_of(plain.bundle.model)) == ["ngrams", "convolution"]


def test_where_ngrams_do_not_apply(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one label for one text"):
        train("classify", ROWS, out=tmp_path / "several", steps=1, settings={"ngrams": 2, "kind": "multilabel"})


@pytest.mark.parametrize("start", ["ensemble", "bert"])
def test_a_classifier_that_is_fine_tuned_has_members_too(start: str, run: Path, tmp_path: Path) -> None:
    """Around any network, one of a published family too; without the option it is that network alone."""
    folder = run if start == "ensemble" else small_bert(tmp_path / "bert", headway.load(run).processor)
    plain = train("classify", ROWS, out=tmp_path / "plain", start=folder, steps=1).bundle
    assert not members_of(plain.model)
    settings = {"ngrams": 1, "convolutions": 2}
    tuned = train("classify", ROWS, out=tmp_path / "tuned", start=folder, steps=4, settings=settings)
    assert list(members_of(tuned.bundle.model)) == ["ngrams", "convolution"]
    again = headway.load(tuned.folder)
    assert again("return the hat number 3")["label"] == "refund"
    ids = torch.arange(5, 15).view(2, 5)
    torch.testing.assert_close(again.logits(input_ids=ids), tuned.bundle.logits(input_ids=ids))


def small_bert(folder: Path, processor: Processor) -> Path:
    vocab = len(processor.require_tokenizer("a test"))
    keys = {"vocab_size": vocab, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = find("bert").read(Keys({**keys, "intermediate_size": 32}), "BertModel")
    return Bundle(build(config), "bert", processor).save(folder)


def test_the_run_says_what_each_part_is_worth(tmp_path: Path) -> None:
    lines: list[str] = []
    train("classify", ROWS, out=tmp_path / "run", steps=4, settings={**TINY, "ngrams": 2}, say=lines.append)
    (line,) = [line for line in lines if line.startswith("weights")]
    found = [float(each) for each in re.findall(r"loss ([0-9.]+)", line)]
    assert len(found) == 4 and found[-1] <= min(found[:-1]) + 1e-3, "together they are not worse than each alone"
    assert all(name in line for name in ("network", "n-grams", "convolutions"))


def test_adapters_of_a_classifier_open_without_the_parts_that_their_base_has_beside(run: Path, tmp_path: Path) -> None:
    tuned = train("classify", ROWS, out=tmp_path / "tuned", start=run, steps=3, lora=2)
    ids = torch.arange(5, 15).view(2, 5)
    expected = headway.load(tuned.folder).logits(input_ids=ids)
    opened = headway.load(tuned.folder / "adapter")
    torch.testing.assert_close(opened.logits(input_ids=ids), expected, atol=1e-5, rtol=0)
    opened.save(tmp_path / "merged")
    torch.testing.assert_close(headway.load(tmp_path / "merged").logits(input_ids=ids), expected, atol=1e-5, rtol=0)


def test_another_task_starts_from_the_network_alone(run: Path, tmp_path: Path) -> None:
    rows = [
        {"words": row["text"].split(), "tags": ["O"] * 4 + ["B-N"]} for row in ROWS if len(row["text"].split()) == 5
    ]
    tagger = train("tag", rows, out=tmp_path / "tag", start=run, steps=1).bundle
    assert not members_of(tagger.model) and tagger.model.head_kind == "token"
