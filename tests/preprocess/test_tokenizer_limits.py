"""TRUST 52: the rules of a tokenizer file are checked before they are built; published ones pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.timing import processor_seconds

from headway.errors import CheckpointError
from headway.preprocess.text import Tokenizer
from headway.preprocess.tokenizer_limits import MAX_STEPS, check_limits, repeats_a_repetition

PUBLISHED = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{M}]*[\p{Ll}\p{Lm}\p{M}]+(?i:'s|'t)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+",
    r"[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",  # possessive
    r" ?[^(\s|[.,!?…。，、।۔،])]+",  # a class within a class
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r" {2,}", r"\s{2,}|[\n\r\t]", r"(?:\r?\n)+(?!\r?\n)",
]  # fmt: skip
HARMLESS = [r"\[(a+)\]", "(a+)(b+)", "(a+)?b", "(?:'s)*", r"\(a+\)+", "[(a+)]+", "(a{2}){3}", "(?<word>a+)b+", "(", ")"]
NESTED = [
    "(a+)+$", "((a+)b?)*", "(x+x+)+y", "(?:a*b)*", "(a{2,})+", "([a-z]+)*", "(a+|b)*", "(?<n>a+)+", "((a*))+",
    r"(\w+\s?)*", "(a{5,100}){3,}", "(a+){20}", r"(\p{L}+)+", r"([\]a]*)*",
]  # fmt: skip


def test_a_repetition_of_a_repetition_is_recognised() -> None:
    assert not [pattern for pattern in PUBLISHED + HARMLESS if repeats_a_repetition(pattern)]
    assert not [pattern for pattern in NESTED if not repeats_a_repetition(pattern)]


def replace(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(steps)}


SINGLE = [{"SpecialToken": {"id": "a", "type_id": 0}}] * 2_000
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "exponential pattern": (
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}},
        r"pre_tokenizer: the pattern '\(a\+\)\+\$' repeats a repetition",
    ),
    "in a normalizer": ({"normalizer": replace("", Regex="(x+x+)+y")}, "repeats a repetition"),
    "in a sequence": ({"normalizer": sequence(sequence(replace("", Regex="(x+x+)+y")))}, "repeats a repetition"),
    "doubling": ({"normalizer": sequence(*[replace("aa", String="a")] * 40)}, "characters of one"),
    "a thousandfold": ({"normalizer": sequence(*[replace("a" * 1000, String="a")] * 4)}, "characters of one"),
    "by a pattern": ({"normalizer": sequence(*[replace("x" * 20, Regex=".")] * 3)}, "characters of one"),
    "between all letters": ({"normalizer": replace("x" * 1000, Regex="")}, "characters of one"),
    "prepended": ({"normalizer": {"type": "Prepend", "prepend": "a" * 10**6}}, "more than 10,000 characters"),
    "when decoding": (
        {"decoder": {"type": "Sequence", "decoders": [replace("a" * 1000, String="a")] * 4}}, "decoder makes",
    ),
    "many steps": ({"normalizer": sequence(*[{"type": "NFKD"}] * 100_000)}, f"more than {MAX_STEPS} steps"),
    "a long template": (
        {"post_processor": {"type": "TemplateProcessing", "single": SINGLE, "pair": [], "special_tokens": {}}},
        "more than 1,000 parts",
    ),
    "a long pattern": ({"normalizer": replace("", Regex="a" * 100_000)}, "more than 10,000 characters"),
}  # fmt: skip


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("tokenizer")
    Tokenizer.train(["Ada met Charles in Leeds."], kind="bpe", size=280).save(folder)
    return json.loads((folder / "tokenizer.json").read_text())


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_rules_are_refused_at_once(name: str, spec: dict[str, Any], tmp_path: Path) -> None:
    parts, words = HOSTILE[name]
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec | parts))

    def load() -> None:
        with pytest.raises(CheckpointError, match=words):
            Tokenizer.load(tmp_path)

    assert processor_seconds(load, limit=1) < 1


def test_a_long_word_limit_is_refused(tmp_path: Path) -> None:
    Tokenizer.train(["Ada met Charles."], kind="wordpiece", size=60).save(tmp_path)
    spec = json.loads((tmp_path / "tokenizer.json").read_text())
    for key, value in {"max_input_chars_per_word": 10**9, "continuing_subword_prefix": "#" * 20_000}.items():
        (tmp_path / "tokenizer.json").write_text(json.dumps(spec | {"model": spec["model"] | {key: value}}))
        with pytest.raises(CheckpointError, match=key):
            Tokenizer.load(tmp_path)


def test_replacements_that_do_not_feed_each_other_pass(spec: dict[str, Any], tmp_path: Path) -> None:
    letters = {chr(0x2460 + n): f"({n + 1})" for n in range(20)}  # ① → (1), …: each triples, none feeds another
    normalizer = sequence(
        *(replace(content, String=letter) for letter, content in letters.items()), replace(" ", Regex=" {2,}")
    )
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec | {"normalizer": normalizer}))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.decode(tokenizer.encode("Ada  met ③")) == "Ada met (3)"


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "post_processor", "decoder"])
@pytest.mark.parametrize(
    "value", [5, [], "x", {"type": 3}, {"type": "Sequence", "normalizers": [None, 5]}, {"pattern": {"Regex": 5}},
              {"special_tokens": [], "single": 3}, {"special_tokens": {"a": 5}}, {"content": 5, "pattern": {}}],
)  # fmt: skip
def test_malformed_rules_are_left_to_the_library(part: str, value: Any) -> None:
    check_limits({part: value, "model": {}}, "x")
