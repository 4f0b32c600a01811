"""`classify` of pairs: two texts in one input, by the tokenizer's own template."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.task_run import SMALL
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors, trainers

from headway.data.read import Row
from headway.errors import ConfigError, DataError, InputError
from headway.models import recipes
from headway.models.build import build
from headway.models.init import initialise
from headway.preprocess.text import Tokenizer
from headway.preprocess.text_train import train
from headway.serving.inference_shapes import LabelShape
from headway.tasks.classify import Classify
from headway.tasks.text_pairs import longest_first

ROWS = [
    Row({"text": "a cat sleeps", "text_pair": "an animal sleeps", "label": "yes"}, "nli.csv:2"),
    Row({"text": "a dog runs", "text_pair": "a dog sleeps", "label": "no"}, "nli.csv:3"),
]
LONG = "a cat sleeps a dog runs an animal runs"


@pytest.fixture(scope="module")
def task() -> Classify:
    return Classify.from_data(Classify.scan(ROWS), tokenizer=None, options={"vocab": 80})


def roberta_tokenizer(folder: Path) -> Tokenizer:
    """Byte-level BPE with RoBERTa's template: <s> A </s></s> B </s>, all of segment 0."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    backend.train_from_iterator([LONG] * 5, trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>",'
        '"sep_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>", "unk_token": "<unk>"}'
    )
    return Tokenizer.load(folder)


def untrained(task: Classify) -> Any:
    model = build(task.config(SMALL, "classic"))
    initialise(model, "classic", seed=0)
    with torch.no_grad():
        model.embedding.segments.weight.normal_()
    return model.eval()


def test_a_pair_has_the_separators_and_segments_of_bert(task: Classify) -> None:
    assert task.pair is True and task.input_kind.columns == ("text", "text_pair")
    model = untrained(task)
    assert task.segments and model.config.embedding.segments == 2
    [example] = task.examples(ROWS[1])
    names = [task.tokenizer.token(i) for i in example["ids"].tolist()]
    assert names == ["[CLS]", "a", "dog", "runs", "[SEP]", "a", "dog", "sleeps", "[SEP]"]
    assert example["segments"].tolist() == [0] * 5 + [1] * 4
    batch = task.collate([example, *task.examples(ROWS[0])], seeds=[(), ()], where=[])
    assert batch.inputs["segments"].shape == batch.inputs["inputs"].shape


def test_the_order_of_the_texts_and_their_segments_matter(task: Classify) -> None:
    model = untrained(task)
    forth, back = task.predict(model, [("a cat", "a dog"), ("a dog", "a cat")])
    assert forth["score"] != pytest.approx(back["score"], abs=1e-6)
    example = task.read(("a cat", "a dog"), where="")
    plain = {"ids": example["ids"]}
    with torch.no_grad():
        with_segments, without = (task.logits(model, [one]) for one in (example, plain))
    assert not torch.allclose(with_segments, without)


def test_forms_of_a_pair(task: Classify) -> None:
    model = untrained(task)
    forms = [
        ("a cat", "a dog"),
        ["a cat", "a dog"],
        {"text": "a cat", "text_pair": "a dog"},
        {"hypothesis": "a dog", "premise": "a cat"},
        task.input_kind.parse('{"sentence1": "a cat", "sentence2": "a dog"}'),
        task.input_kind.parse('["a cat", "a dog"]'),
    ]
    answers = task.predict(model, forms)
    assert all(answer["scores"] == pytest.approx(answers[0]["scores"]) for answer in answers)
    for wrong in ("a cat", ("a cat",), {"text": "a cat"}, ("a cat", 7), {"text": "a", "text_pair": None}):
        with pytest.raises(InputError, match=r"input 1: task classify takes a pair of texts here: \{"):
            task.predict(model, [wrong])
    for wrong in ("a cat", '{"text": "a cat"}', "[" * 100_000):
        with pytest.raises(InputError, match="takes a pair of texts"):
            task.input_kind.parse(wrong)


def test_a_pair_has_the_names_of_the_training_data(task: Classify) -> None:
    own = replace(task)
    own.use_columns({"text": "Frage", "text_pair": "Antwort", "label": "passt"})
    kind = own.input_kind
    found = [kind.both(each, where="x") for each in ({"Antwort": "b", "Frage": "a"}, {"text": "a", "text_pair": "b"})]
    assert found == [("a", "b")] * 2 and json.loads(kind.example) == {"Frage": "One text", "Antwort": "Another text"}
    again = Classify.from_dict(own.to_dict(), own.tokenizer)
    assert again.input_kind.parse('{"Frage": "a", "Antwort": "b"}') == ("a", "b")
    assert LabelShape().read({"Antwort": "b", "Frage": "a"}, "inputs") == {
        "Antwort": "b",
        "Frage": "a",
    }  # over HTTP too
    with pytest.raises(InputError, match="takes a pair of texts"):  # the control
        task.input_kind.both({"Antwort": "b", "Frage": "a"}, where="x")
    own.use_columns({"text": "1", "text_pair": "2", "label": "3"})
    assert own.names is None and "names" not in own.to_dict()


def test_a_single_text_task_refuses_a_pair() -> None:
    rows = [Row({"text": row.fields["text"], "label": row.fields["label"]}, row.where) for row in ROWS]
    single = Classify.from_data(Classify.scan(rows), tokenizer=None, options={"vocab": 60})
    model = build(single.config(SMALL, "classic"))
    assert single.pair is False and model.config.embedding.segments == 0
    assert not {"pair", "segments"} & single.to_dict().keys()  # so that the examples of old runs are still theirs
    with pytest.raises(InputError, match="takes a text, not tuple"):
        single.predict(model, [("a", "b")])
    assert single.input_kind.parse('{"text": "a", "text_pair": "b"}') == '{"text": "a", "text_pair": "b"}'


@pytest.mark.parametrize("style", ["bert", "roberta"])
def test_tokens_and_truncation_equal_the_reference(style: str, task: Classify, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = task.tokenizer if style == "bert" else roberta_tokenizer(tmp_path)
    tokenizer.save(tmp_path)
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
    pairs = [
        ("a cat", "a dog"),
        (LONG, "a dog"),
        ("a dog", LONG),
        (LONG, LONG),
        ("", "a dog"),
    ]  # it drops an empty second
    cut = 0
    for limit in (64, 13, 12, 9, 6, 5):
        ours = Classify.from_dict({**task.to_dict(), "limit": limit, "segments": True}, tokenizer)
        for first, second in pairs:
            expected = reference(
                first, second, truncation="longest_first", max_length=limit, return_token_type_ids=True
            )
            example = ours.read((first, second), where="x:1")
            assert example["ids"].tolist() == expected["input_ids"], (limit, first, second)
            assert example["segments"].tolist() == expected["token_type_ids"], (limit, first, second)
        cut += ours.truncation.cut.get("pair", 0)
    assert cut > 10
    assert (style == "roberta") == (ours.read(("a", "b"), where="")["segments"].max() == 0)


def test_truncation_is_counted_for_the_pair(task: Classify) -> None:
    short = Classify.from_dict({**task.to_dict(), "limit": 8}, task.tokenizer)
    for row in ROWS:
        assert len(short.examples(row)[0]["ids"]) <= 8
    assert short.truncation.to_dict() == {"pair": {"cut": 2, "of": 2, "limit": 8, "longest": 9, "where": "nli.csv:2"}}
    assert short.token_lengths(ROWS[0]) == {"text": 3, "text_pair": 3, "pair": 9} and short.length_limits() == {
        "pair": 8
    }
    strict = Classify.from_dict({**short.to_dict(), "overflow": "error"}, task.tokenizer)
    with pytest.raises(DataError, match=r"nli.csv:2: pair has 9 tokens, the model takes 8"):
        strict.examples(ROWS[0])
    with pytest.raises(ConfigError, match="limit of 2 tokens is less than the special tokens of a pair"):
        Classify.from_dict({**short.to_dict(), "limit": 2}, task.tokenizer).examples(ROWS[0])


def test_longest_first() -> None:
    assert longest_first(10, 3, budget=8) == (5, 3)
    assert longest_first(3, 10, budget=8) == (3, 5)
    assert longest_first(10, 10, budget=7) == (3, 4)
    assert longest_first(11, 10, budget=7) == (4, 3)


def test_options_of_a_pair_survive_a_round_trip(task: Classify) -> None:
    again = Classify.from_dict(task.to_dict(), task.tokenizer)
    assert (again.pair, again.segments) == (True, True) and again == task


def test_a_tokenizer_without_separator_is_refused() -> None:
    description = train([LONG], kind="bpe", size=300, lowercase=False, special=())
    tokenizer = Tokenizer(replace(description, spec={**description.spec, "post_processor": None}))
    pairs = Classify.from_data(Classify.scan(ROWS), tokenizer=tokenizer, options={})
    start = build(recipes.decoder(SMALL, "classic", vocab=len(tokenizer), context=32))
    with pytest.raises(ConfigError, match="no special token between the texts of a pair"):
        pairs.adapt(start)
