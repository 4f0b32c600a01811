"""A story has the model's own numbers, for every shape of model and every task."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.stories import bundle, check_numbers

import headway
from headway import jobs
from headway.bundle import Bundle
from headway.errors import InputError
from headway.explain import story
from headway.explain.collect import collect
from headway.explain.token_text import tokens
from headway.layers.score_bias import RelativeBiasConfig, RelativeKeyConfig
from headway.models.build import build
from headway.models.config import DecoderConfig, EmbeddingConfig, LanguageHeadConfig, LayerConfig, StackConfig
from headway.models.recipes import Size, block, decoder
from headway.preprocess.text import Tokenizer

TEXTS = {  # task → an input and the kind of its output
    "generate": ("the model reads", "next"),
    "classify": ("a broken screen again", "classes"),
    "tag": ("Ada Lovelace went to Paris", "tags"),
    "answer": ('{"question": "Who came?", "context": "Ada came to Paris in May."}', "span"),
    "fill": ("the [MASK] is red", "fill"),
    "embed": ("a cat on a mat", "vector"),
    "translate": ("the 3rd of May 1998", "next"),
}


@pytest.fixture(scope="module")
def bundles() -> dict[str, Bundle]:
    return {name: bundle(name) for name in TEXTS}


@pytest.mark.parametrize("name", TEXTS)
def test_every_task_has_the_models_own_numbers(name: str, bundles: dict[str, Bundle]) -> None:
    text, kind = TEXTS[name]
    found = collect(bundles[name], text)
    assert found.output is not None and found.output.kind == kind
    assert check_numbers(found) == len(found.attention) > 0
    assert len(found.to_json()) < 4_900_000
    for each in found.embedding:
        assert each.result.shape == each.token.shape
    for row in found.output.rows:
        logits = [one.logit for one in row.candidates]
        assert logits == sorted(logits, reverse=True)
        assert row.chosen in [one.id for one in row.candidates]
        if len(row.candidates) == row.count:
            assert np.isclose(np.logaddexp.reduce(logits), row.logsumexp, atol=1e-5)
    if found.attribution is not None:
        assert np.isclose(sum(value for _, value in found.attribution.parts), found.attribution.logit, atol=1e-4)
        assert any(abs(value) > 1e-3 for _, value in found.attribution.parts)
        assert found.heads and abs(found.heads[0].change) == max(abs(head.change) for head in found.heads) > 0
    assert (found.heads is None) == (found.attribution is None) == (kind == "vector")


def test_the_last_row_is_the_models_next_token(bundles: dict[str, Bundle]) -> None:
    found = collect(bundles["generate"], "the model reads", steps=3)
    task, model = bundles["generate"].task, bundles["generate"].model
    with torch.no_grad():
        logits = model(torch.tensor([task.prompt("the model reads")])).logits[0, -1]
    assert found.output is not None and found.generation is not None
    row = found.output.rows[-1]
    assert np.isclose(row.candidates[0].logit, float(logits.max()), atol=1e-5)
    assert row.chosen == int(logits.argmax()) == found.generation.steps[0].id
    assert len(found.generation.steps) == 3
    assert [each.attention.shape[1] for each in found.generation.steps] == [
        len(found.sequences["text"].tokens) + step for step in range(3)
    ]
    np.testing.assert_allclose(
        found.generation.steps[0].attention, found.attention[-1].weights[:, -1], atol=1e-6
    )  # the cache changes nothing


def test_a_given_continuation(bundles: dict[str, Bundle]) -> None:
    found = collect(bundles["generate"], "the model", against=" reads")
    plain = collect(bundles["generate"], "the model")
    assert found.output is not None and plain.output is not None
    given = [token.id for token in found.sequences["text"].tokens]
    assert [row.chosen for row in found.output.rows[:-1]] == given[1:]
    assert "".join(token.text for token in found.sequences["text"].tokens) == "the model reads"
    assert len(given) > len(plain.sequences["text"].tokens)


def test_a_given_target(bundles: dict[str, Bundle]) -> None:
    found = collect(bundles["translate"], "the 3rd of May 1998", against="1998-05-03")
    task, model = bundles["translate"].task, bundles["translate"].model
    source, target = task.source_ids("the 3rd of May 1998", where=""), task.target_ids("1998-05-03", where="")
    with torch.no_grad():
        logits = model(torch.tensor([source]), decoder_ids=torch.tensor([[task.start_id, *target[:-1]]])).logits[0]
    assert found.output is not None and found.generation is not None
    assert [row.chosen for row in found.output.rows] == target == [step.id for step in found.generation.steps]
    for at, row in enumerate(found.output.rows):
        chosen = next(one for one in row.candidates if one.id == row.chosen)
        assert np.isclose(chosen.logit, float(logits[at, target[at]]), atol=1e-5)
        assert np.isclose(row.logsumexp, float(logits[at].logsumexp(0)), atol=1e-5)
    kinds = {(each.stack, each.kind) for each in found.attention}
    assert kinds == {("encoder", "self"), ("decoder", "self"), ("decoder", "cross")}


def test_a_recurrent_model_has_an_alignment() -> None:
    found = collect(bundle("translate", architecture="bahdanau-gru"), "May 3, 1998", against="1998-05-03")
    (alignment,) = found.attention
    assert alignment.kind == "additive" and found.model.kind == "recurrent"
    assert check_numbers(found) == 0
    assert alignment.weights.shape == (1, *(len(found.sequences[n].tokens) for n in ("target", "source")))
    assert [each.sequence for each in found.embedding] == ["source", "target"]
    assert found.generation is not None
    assert found.generation.steps[0].attention.shape == (1, alignment.weights.shape[2])
    check_tokens(found)


@pytest.mark.parametrize("task", ["generate", "classify", "tag"])
def test_a_recurrent_model_says_what_each_token_adds(task: str) -> None:
    check_tokens(collect(bundle(task, architecture="lstm"), "the import state said no"))


def check_tokens(found: story.Story) -> None:
    """Every token of every sequence has a part, and they sum to the logit."""
    assert found.attribution is not None and found.attribution.method == "integrated"
    parts = found.attribution.parts
    assert len(parts) == 1 + sum(len(sequence.tokens) for sequence in found.sequences.values())
    assert np.isclose(sum(value for _, value in parts), found.attribution.logit, atol=2e-3)
    assert len({value for _, value in parts}) > 2


def test_an_image_becomes_patches() -> None:
    made = bundle("classify-image")
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    found = collect(made, pixels)
    read = found.sequences["text"]
    assert found.model.kind == "vision" and len(read.tokens) == 65
    assert read.picture is not None and (read.picture.rows, read.picture.columns) == (8, 8)
    assert (read.tokens[0].text, read.tokens[9].text) == ("[class]", "2,1")
    assert check_numbers(found) > 0
    np.testing.assert_allclose(
        found.embedding[0].token + found.embedding[0].position.values, found.embedding[0].result, atol=1e-6
    )


@pytest.mark.parametrize("bias", ["alibi", "relative", "relative_key", "window", "grouped"])
def test_biases_windows_and_groups(bias: str) -> None:
    plain = block(Size(width=32, layers=2, heads=4, dropout=0.0), "modern")
    if bias == "grouped":
        plain = replace(plain, attention=replace(plain.attention, kv_heads=2))
    if bias == "relative_key":
        plain = replace(plain, attention=replace(plain.attention, score_bias=RelativeKeyConfig(4), rotary=None))
    stack = StackConfig(
        plain,
        2,
        causal=True,
        score_bias={"alibi": "alibi", "relative": RelativeBiasConfig()}.get(bias),
        per_layer=(LayerConfig(window=3), LayerConfig()) if bias == "window" else (),
    )
    config = DecoderConfig(EmbeddingConfig(20, 32), stack, LanguageHeadConfig())
    model = build(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    found = collect(Bundle(model, "headway"), [3, 1, 4, 1, 5, 9, 2, 6])
    assert check_numbers(found) == 2
    first = found.attention[0]
    assert (first.bias is not None) == (bias in ("alibi", "relative", "relative_key"))
    assert first.mask[7].sum() == (3 if bias == "window" else 8)
    assert first.kv_heads == (2 if bias == "grouped" else 4)


def test_a_model_without_a_tokenizer_takes_ids_and_rejects_others() -> None:
    config = decoder(Size(width=32, layers=1, heads=2, dropout=0.0), "classic", vocab=10, context=8)
    made = Bundle(build(config), "headway")
    found = collect(made, "3, 1 4")
    assert headway.explain(made.model, [3, 1, 4]).story.attention[0].weights.shape == (2, 3, 3)
    assert [token.id for token in found.sequences["text"].tokens] == [3, 1, 4]
    assert found.embedding[0].position.kind == "sinusoidal"
    with pytest.raises(InputError, match="no tokenizer"):
        collect(made, "three")
    with pytest.raises(InputError, match="99 is not an id"):
        collect(made, "3 99")
    with pytest.raises(InputError, match=r"9 tokens, the model takes 8; .*--first N"):
        collect(made, [1] * 9)


def test_a_decoder_generates_until_its_context_is_full() -> None:
    config = decoder(Size(width=32, layers=2, heads=2, dropout=0.0), "classic", vocab=3, context=11)
    made = Bundle(build(config).eval(), "headway")
    found = collect(made, "2 1 0 1 0 2")
    assert found.generation is not None
    steps = found.generation.steps
    assert [step.attention.shape for step in steps] == [
        (2, 6 + step) for step in range(6)
    ]  # the last is never an input
    ids = [2, 1, 0, 1, 0, 2]
    for step in steps:
        with torch.no_grad():
            logits = made.model(torch.tensor([ids])).logits[0, -1]
        assert step.id == int(logits.argmax())
        np.testing.assert_allclose([one.logit for one in step.candidates], logits.sort(descending=True)[0], atol=1e-5)
        ids.append(step.id)
    assert found.generation.text == " ".join(map(str, ids[6:]))
    assert [answer for _, answer in jobs.run(made, ["2 1 0 1 0 2"], temperature=0.0)] == [f" {found.generation.text}"]


@pytest.mark.parametrize("name", ["answer", "tag"])
def test_the_task_of_a_published_model_follows_from_its_head(name: str, bundles: dict[str, Bundle]) -> None:
    own = bundles[name]
    labels = {"id2label": dict(enumerate(getattr(own.task, "labels", ["start", "end"])))}
    found = collect(replace(own, task=None, foreign=labels), TEXTS[name][0])
    assert found.output is not None and found.output.kind == TEXTS[name][1]
    assert found.output.rows == collect(own, TEXTS[name][0]).output.rows


def test_the_model_is_left_as_it_was(bundles: dict[str, Bundle]) -> None:
    model = bundles["classify"].model
    model.train()
    first, second = (collect(bundles["classify"], "a broken screen").to_json() for _ in range(2))
    assert first == second and model.training
    assert not any(module._forward_hooks for module in model.modules())
    model.eval()


def test_requested_layers_are_included(bundles: dict[str, Bundle]) -> None:
    found = collect(bundles["classify"], "a broken screen", layers=[1])
    assert [each.layer for each in found.attention] == [0, 1]
    assert [each.q is None for each in found.attention] == [True, False]
    assert any("--layers" in line for line in found.note)
    with pytest.raises(InputError, match="layers are 0 to 1"):
        collect(bundles["classify"], "a broken screen", layers=[2])


def test_long_inputs_raise_with_advice(bundles: dict[str, Bundle]) -> None:
    long = "the screen is broken again " * 400
    with pytest.raises(InputError, match=r"tokens, the model takes 256; .*--first N or --last N"):
        collect(bundles["classify"], long)
    first = collect(bundles["classify"], long + "at last", first=20)
    last = collect(bundles["classify"], long + "at last", last=20)
    assert "".join(token.text for token in last.sequences["text"].tokens[1:-1]).endswith("at last")
    assert len(first.sequences["text"].tokens) <= 22
    assert any("first 20 tokens" in line for line in first.note)
    with pytest.raises(InputError, match="one of them"):
        collect(bundles["classify"], long, first=2, last=2)
    with pytest.raises(InputError, match="from 1"):
        collect(bundles["classify"], long, first=0)


def test_a_given_label(bundles: dict[str, Bundle]) -> None:
    labels = bundles["classify"].task.labels
    found = collect(bundles["classify"], "a broken screen", against=labels[1])
    assert found.output is not None and found.output.rows[0].chosen == 1
    assert found.attribution is not None and labels[1] in found.attribution.target
    with pytest.raises(InputError, match="not one of the labels"):
        collect(bundles["classify"], "a broken screen", against="nonsense")


HOSTILE = ["<script>alert(1)</script>", "שלום עולם", "\u202eabc", "👩‍👩‍👧 ok", "<s></s>[CLS] [MASK]", "a\0b", "  two  "]


@pytest.mark.parametrize("kind", ["bpe", "char", "wordpiece"])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_exactly(kind: str, text: str) -> None:
    tokenizer = Tokenizer.train(["the cat sat on the mat"] * 5, kind=kind, size=300)  # type: ignore[arg-type]
    ids = tokenizer.encode(text, special=False)
    found = "".join(token.text for token in tokens(tokenizer, ids, [text]))
    if kind == "bpe":  # bytes of one character have their vocabulary strings
        assert all(part in found for part in text.split() if part.isascii())
    else:
        assert found == text.rstrip() or found == text


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(codec="ascii"), min_size=1, max_size=40))
def test_ascii_tokens_join_to_the_text(text: str) -> None:
    tokenizer = Tokenizer.train(["the cat sat on the mat"] * 5, kind="bpe", size=300)
    ids = tokenizer.encode(text)
    pieces = [token.text for token in tokens(tokenizer, ids, [text]) if token.id not in tokenizer.special_ids]
    assert "".join(pieces) == text


def test_a_saved_model_is_explained(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    bundles["classify"].save(tmp_path / "model")
    found = headway.explain(tmp_path / "model", "a broken screen")
    assert found.story.model.name == "model" and found.story.task == "classify"
    assert isinstance(found.story, story.Story)
    page = found.save(tmp_path / "deep" / "page.html")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert found._repr_html_().startswith("<iframe srcdoc=")
    assert headway.explain(bundles["classify"], "a broken screen").story.task == "classify"  # a second call, too


def test_special_tokens_are_marked_and_the_others_join_to_the_text(bundles: dict[str, Bundle]) -> None:
    for name in ("classify", "tag", "fill"):
        read = collect(bundles[name], TEXTS[name][0]).sequences["text"].tokens
        assert "".join(token.text for token in read if not token.special) == TEXTS[name][0]
        assert read[0].special and read[-1].special


def test_the_text_and_the_title(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    text = "a \U0001f469\u200d\U0001f467 screen"
    found = collect(bundles["classify"], text)
    assert (found.title, found.sequences["text"].text) == (text, text)
    given = {"question": "who paid?", "context": "Ann paid."}
    found = collect(bundle("answer"), given)
    assert (found.title, found.sequences["text"].text) == ("who paid?", "who paid?\nAnn paid.")
    picture = tmp_path / "cross.png"
    Image.new("RGB", (32, 32)).save(picture)
    assert collect(bundle("classify-image"), str(picture)).title == "cross.png"
