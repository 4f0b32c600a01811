"""Constrained decoding with random weights: the answer satisfies the regular expression or the schema, or is marked
as not fitting."""

import json
import re
from dataclasses import replace

import pytest
import torch
from support.writers import tiny_block

from headway.errors import ConfigError, InputError
from headway.generation import GenerationSettings, generate
from headway.generation.constraints import Grammar
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.positions import LearnedConfig
from headway.models.build import build
from headway.models.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig, LanguageHeadConfig, StackConfig
from headway.preprocess.text import Tokenizer

TEXTS = ['{"name": "Ada", "age": 36, "tags": ["a", "b"], "kind": "cat"} naïve €5 yes no true'] * 3
BPE = Tokenizer.train(TEXTS, kind="bpe", size=340)
CHARS = Tokenizer.train(TEXTS, kind="char", size=80)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["cat", "dog"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["name", "age", "kind", "tags"],
    "additionalProperties": False,
}


def valid(text: str) -> bool:
    value = json.loads(text)
    return (
        list(value) == ["name", "age", "kind", "tags"]
        and isinstance(value["name"], str)
        and len(value["name"]) <= 6
        and type(value["age"]) is int
        and 0 <= value["age"] <= 150
        and value["kind"] in ("cat", "dog")
        and all(type(tag) is bool for tag in value["tags"])
        and len(value["tags"]) <= 3
    )


def model_of(tokenizer: Tokenizer, seed: int = 0, *, reads: bool = False):
    """Random weights, with opinions. It has more rows than its tokenizer has tokens, as some models do."""
    embedding = EmbeddingConfig(len(tokenizer) + 5, 16, positions=LearnedConfig(256))
    stack = StackConfig(tiny_block(cross=reads), 1, causal=True, final_norm=True)
    config = DecoderConfig(embedding, stack, LanguageHeadConfig(tied=False), context=256)
    torch.manual_seed(seed)
    if reads:
        config = EncoderDecoderConfig(EncoderConfig(embedding, StackConfig(tiny_block(), 1)), config, start_id=1)
    model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return model


def settings(tokenizer: Tokenizer, **more) -> GenerationSettings:
    return GenerationSettings(**{"max_new_tokens": 150, "eos_ids": (tokenizer.eos_id,), **more})


@pytest.mark.parametrize("tokenizer", [BPE, CHARS], ids=["bpe", "char"])
@pytest.mark.parametrize(
    "more",
    [{}, {"temperature": 1.0}, {"temperature": 3.0, "n": 3}, {"beams": 3, "n": 3}, {"temperature": 1.0, "top_k": 2}],
    ids=["greedy", "samples", "hot", "beams", "few"],
)
def test_random_weights_always_generate_valid_json(tokenizer, more):
    found = set()
    for seed in range(4):
        model = model_of(tokenizer, seed)
        chosen = settings(tokenizer, json_schema=SCHEMA, seed=seed, **more)
        for answers in generate(model, [[5, 6], [7]], chosen, tokenizer=tokenizer):
            for answer in answers:
                assert answer.fits and answer.finished_by in ("complete", "eos"), answer
                assert valid(answer.text), answer.text
                found.add(answer.text)
    assert len(found) > 3, "control: the models differ"


def test_without_the_schema_they_do_not():
    """Control."""
    [[answer]] = generate(model_of(BPE), [[5]], settings(BPE), tokenizer=BPE)
    assert answer.fits is None
    with pytest.raises(json.JSONDecodeError):
        json.loads(answer.text)


@pytest.mark.parametrize("more", [{}, {"beams": 2}, {"temperature": 1.0}])
def test_an_answer_that_was_cut_short_is_marked(more):
    """At any length, `fits` is true exactly for valid answers."""
    for length in (1, 2, 5, 11, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 30):
        chosen = settings(BPE, json_schema=SCHEMA, max_new_tokens=length, seed=0, **more)
        for answer in generate(model_of(BPE), [[5]], chosen, tokenizer=BPE)[0]:
            try:
                whole = valid(answer.text)
            except ValueError:
                whole = False
            assert answer.fits == whole
            assert whole or answer.finished_by == "length"


@pytest.mark.parametrize(
    "pattern",
    [
        "[0-9]{3}-[0-9]{4}",
        "yes|no",
        "(cat|dog)( (cat|dog)){0,2}",
        "[a-z]{2,5}é€",
        r"\d{1,3}/\d{1,3}",
        "x" * 9,
        "[αβ]{4}",
    ],
)
@pytest.mark.parametrize("more", [{}, {"temperature": 2.0}, {"beams": 3, "n": 2}], ids=["greedy", "samples", "beams"])
def test_regular_expressions(pattern, more):
    for seed in range(3):
        chosen = settings(BPE, regex=pattern, seed=seed, **more)
        for answer in generate(model_of(BPE, seed), [[5, 6, 7]], chosen, tokenizer=BPE)[0]:
            assert answer.fits and re.fullmatch(pattern, answer.text), answer.text


def test_an_end_is_allowed_only_where_the_text_matches():
    """A model that prefers to end may not before, and an answer ends where nothing more may follow."""
    model = model_of(CHARS)
    with torch.no_grad():
        model.head.project.weight.zero_()  # every token is as good as any other, and </s> is among the first
    for eos in ((CHARS.eos_id,), ()):
        [[answer]] = generate(model, [[5]], settings(CHARS, regex="[ab]{6}", eos_ids=eos), tokenizer=CHARS)
        assert answer.finished_by == "complete" and len(answer.text) == 6 and CHARS.eos_id not in answer.ids
    [[answer]] = generate(model, [[5]], settings(CHARS, regex="a*", eos_ids=()), tokenizer=CHARS)
    assert answer.finished_by == "length" and answer.text == "a" * 150 and answer.fits


def test_constrained_answers_in_a_batch_equal_single_ones():
    model, prompts = model_of(BPE), [[5], [6, 7, 8], [9, 10]]
    for more in ({}, {"beams": 2}, {"temperature": 1.0}):
        chosen = settings(BPE, json_schema=SCHEMA, seed=3, **more)
        together = generate(model, prompts, chosen, tokenizer=BPE)
        for i, prompt in enumerate(prompts):
            assert generate(model, [prompt], replace(chosen, seed=3 + i), tokenizer=BPE)[0][0].ids == together[i][0].ids


def metaspace() -> Tokenizer:
    """As LLaMA's: a space is ▁, and the one a text begins with is dropped when it is decoded."""
    from tokenizers import AddedToken, decoders, models, normalizers
    from tokenizers import Tokenizer as Backend

    from headway.preprocess.text_files import Description

    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁cat", "cat", "▁dog", '{"']
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    backend = Backend(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken(name) for name in ("<unk>", "<s>", "</s>")])
    return Tokenizer(Description(json.loads(backend.to_str()), {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}))


@pytest.mark.parametrize("prompt", [[1], [259, 260], [1, 261, 262]])
@pytest.mark.parametrize("more", [{}, {"temperature": 2.0}, {"beams": 3, "n": 3}], ids=["greedy", "samples", "beams"])
@pytest.mark.parametrize("pattern", ["(cat|dog){1,3}", " cat( dog){0,2}", " {3}x"])
def test_a_tokenizer_that_drops_the_first_space(prompt, more, pattern):
    tokenizer = metaspace()
    for seed in range(3):
        chosen = settings(tokenizer, regex=pattern, seed=seed, **more)
        for answer in generate(model_of(tokenizer, seed), [prompt], chosen, tokenizer=tokenizer)[0]:
            assert answer.fits and re.fullmatch(pattern, answer.text), answer
            whole = tokenizer.decode([*prompt, *answer.ids])
            assert whole == tokenizer.decode(prompt) + answer.text


def test_encoder_decoders():
    tokenizer = metaspace()
    for more in ({}, {"beams": 2}, {"temperature": 1.5}):
        for seed in range(2):
            model = model_of(tokenizer, seed, reads=True)
            chosen = settings(tokenizer, json_schema=SCHEMA, seed=seed, **more)
            for [answer] in generate(model, [[1]] * 2, chosen, tokenizer=tokenizer, sources=[[4, 5], [6]]):
                assert answer.fits and valid(answer.text)


def test_a_forced_prefix_is_part_of_the_answer():
    prefix = tuple(BPE.encode('{"name": "A', special=False))
    chosen = settings(BPE, json_schema=SCHEMA, prefix=prefix)
    [[answer]] = generate(model_of(BPE), [[5]], chosen, tokenizer=BPE)
    assert answer.fits and valid(answer.text) and answer.text.startswith('{"name": "A')
    wrong = replace(chosen, prefix=tuple(BPE.encode('{"nime', special=False)))
    with pytest.raises(InputError, match="prefix does not fit"):
        generate(model_of(BPE), [[5]], wrong, tokenizer=BPE)


def test_stop_strings_still_stop_and_the_answer_does_not_fit():
    chosen = settings(BPE, regex="[a-z]{5}STOP[a-z]{5}", stop=("STOP",))
    [[answer]] = generate(model_of(BPE), [[5]], chosen, tokenizer=BPE)
    assert answer.finished_by == "stop" and len(answer.text) == 5 and answer.fits is False


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"regex": "("}, r"regex cannot be used.*unclosed group"),
        ({"regex": "(?=a)b"}, r"regex cannot be used.*look-around"),
        ({"json_schema": {"type": "strin"}}, r"json_schema cannot be used.*strin"),
        ({"json_schema": {"type": "object", "not": {}}}, r"json_schema cannot be used.*not"),
        ({"json_schema": {"$ref": "https://example.com/schema.json"}}, r"json_schema cannot be used"),
    ],
)
def test_grammars_that_cannot_be_used_are_named(more, says):
    with pytest.raises(ConfigError, match=f"^{says}"):
        generate(model_of(BPE), [[5]], settings(BPE, **more), tokenizer=BPE)


def test_other_refusals():
    with pytest.raises(InputError, match="needs a tokenizer"):
        generate(model_of(BPE), [[5]], settings(BPE, regex="a"))
    words = Tokenizer.train(["a few words to glue"] * 3, kind="wordpiece", size=60)
    with pytest.raises(InputError, match="concatenate"):
        Grammar(GenerationSettings(regex="a"), words)
