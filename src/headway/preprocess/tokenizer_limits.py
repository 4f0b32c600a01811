"""Refuses tokenizer files whose rules take unbounded time or memory: every rule in a tokenizer.json is someone else's.

A regular expression that repeats a repetition, (a+)+, is tried in exponentially many ways. Replacements that feed each
other multiply a text. A word of WordPiece takes time that grows with the cube of its length.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

from headway.errors import CheckpointError

MAX_STEPS = 256  # of one part: normalizer, pre_tokenizer, post_processor, decoder
MAX_TEXT = 10_000  # characters of a pattern, a replacement, a prefix
MAX_GROWTH = 256  # characters that one character can become
MAX_WORD = 1_000  # characters of a WordPiece word
MAX_TEMPLATE = 1_000  # special tokens and sequences of a template
MANY = 10  # repetitions that count as unbounded

PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
LISTS = ("normalizers", "pretokenizers", "processors", "decoders")  # the key of a Sequence's steps
MODEL_TEXTS = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")
TOKEN = re.compile(  # of a regular expression, as far as repetition is concerned
    r"(?P<atom>\\[pPxuokg]\{[^}]*\}|\\[kg]<[^>]*>|\\.|[^\\()\[\]{}*+?|]|[{}\]])"
    r"|(?P<class>\[)|(?P<open>\((?:\?(?:<?[=!]|<\w+>|[a-zA-Z-]*:|[>~]|#[^)]*)?)?)|(?P<close>\))"
    r"|(?P<repeat>[*+])|(?P<rest>[?|])",
    re.DOTALL,
)
COUNTED = re.compile(r"\{(\d*)(,?)(\d*)\}")


def check_limits(spec: dict[str, Any], where: object) -> None:
    """Raises a CheckpointError that names the rule. What else is wrong with a file is found when it is built."""
    for part in PARTS:
        steps = list(_steps(spec.get(part)))
        if len(steps) > MAX_STEPS:
            raise CheckpointError(f"{where}: {part} has more than {MAX_STEPS} steps")
        for step in steps:
            _check_step(step, f"{where}: {part}")
        if (growth := _growth(steps)) > MAX_GROWTH:
            raise CheckpointError(
                f"{where}: {part} makes {growth:,} characters of one, more than {MAX_GROWTH}; is it damaged?"
            )
    model = spec["model"]
    for key in MODEL_TEXTS:
        if isinstance(model.get(key), str) and len(model[key]) > MAX_TEXT:
            raise CheckpointError(f"{where}: model.{key} has more than {MAX_TEXT:,} characters")
    longest = model.get("max_input_chars_per_word")
    if isinstance(longest, int) and longest > MAX_WORD:
        raise CheckpointError(f"{where}: model.max_input_chars_per_word is {longest}, more than {MAX_WORD:,}")


def _steps(component: Any) -> Iterator[dict[str, Any]]:
    """A component, or the components of a sequence, at any depth; one more than MAX_STEPS at most."""
    waiting, count = [component], 0
    while waiting and count <= MAX_STEPS:
        step = waiting.pop()
        if not isinstance(step, dict):
            continue
        count += 1
        yield step
        inner: list[Any] = next((step[key] for key in LISTS if isinstance(step.get(key), list)), [])
        waiting += reversed(inner[: MAX_STEPS + 1])


def _check_step(step: dict[str, Any], where: str) -> None:
    for text in (_pattern(step), step.get("content"), step.get("prepend"), step.get("replacement")):
        if isinstance(text, str) and len(text) > MAX_TEXT:
            raise CheckpointError(f"{where}: {step.get('type')!r:.40} has a text of more than {MAX_TEXT:,} characters")
    if (longest := _longest_mapping(step)) > MAX_GROWTH:
        raise CheckpointError(f"{where}: precompiled_charsmap makes {longest:,} bytes of one character; is it damaged?")
    if _is_regex(step) and repeats_a_repetition(_pattern(step)):
        raise CheckpointError(
            f"{where}: the pattern {_pattern(step)!a:.80} repeats a repetition, which can take unbounded time"
        )
    lists = [step.get(key) for key in ("single", "pair")]
    special = step.get("special_tokens")
    lists += [token.get("ids") for token in _values(special) if isinstance(token, dict)]
    if sum(len(each) for each in lists if isinstance(each, list)) > MAX_TEMPLATE:
        raise CheckpointError(f"{where}: the template has more than {MAX_TEMPLATE:,} parts")


def _longest_mapping(step: dict[str, Any]) -> int:
    """The most bytes that a table of SentencePiece (base64: the size of an index, the index, then texts that end with a
    zero) replaces a character with."""
    table = step.get("precompiled_charsmap")
    if not isinstance(table, str):
        return 0
    try:
        content = base64.b64decode(table)
    except ValueError:
        return 0  # the library refuses it
    texts = content[4 + int.from_bytes(content[:4], "little") :]
    return max(map(len, texts.split(b"\0")))


def _growth(steps: list[dict[str, Any]]) -> int:
    """The most characters that one character can become by replacements, each of which may feed later ones."""
    found: list[tuple[dict[str, Any], int]] = []  # a step with a pattern, and what one character becomes from it on
    most = 1
    for step in reversed(steps):
        content = step.get("content", step.get("prepend"))
        if mapped := _longest_mapping(step):  # any character may be one of a table, and become any other
            most *= mapped
            found.append(({"pattern": {"Regex": ""}}, most))
        if not isinstance(content, str):
            continue
        letters = set(content)
        fed = max((growth for later, growth in found if _is_regex(later) or letters & set(_pattern(later))), default=1)
        own = len(content) + 1 if _is_regex(step) else -(-len(content) // max(1, len(_pattern(step))))
        growth = max(1, own) * fed
        if _pattern(step):
            found.append((step, growth))
        most = max(most, growth)
    return most


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []


def _is_regex(step: dict[str, Any]) -> bool:
    return isinstance(step.get("pattern"), dict) and isinstance(step["pattern"].get("Regex"), str)


def _pattern(step: dict[str, Any]) -> str:
    """The pattern of a step, a regular expression or a plain text; empty if it has none."""
    pattern = step.get("pattern")
    text = next(iter(_values(pattern)), "")
    return text if isinstance(text, str) else ""


def repeats_a_repetition(pattern: str) -> bool:
    """Whether a group that contains an unbounded repetition is itself repeated without bound."""
    groups, atom, at = [False], False, 0  # of each open group and of the last atom: whether it repeats something
    while at < len(pattern):
        counted = COUNTED.match(pattern, at)
        token = TOKEN.match(pattern, at)
        many = counted is not None and _is_many(*counted.groups())
        if many or (token is not None and token["repeat"]):
            if atom:
                return True
            groups[-1] = True
        if counted is not None:
            at = counted.end()
        elif token is None:
            at += 1
        elif token["class"]:
            atom, at = False, _class_end(pattern, at)
        else:
            if token["open"]:
                groups.append(False)
            elif token["close"] and len(groups) > 1:
                atom = groups.pop()
                groups[-1] |= atom
            elif token["atom"]:
                atom = False
            at = token.end()
    return False


def _is_many(low: str, comma: str, high: str) -> bool:
    return (int(high) if high else int(low or 0) if not comma else MANY) >= MANY


def _class_end(pattern: str, at: int) -> int:
    """The position after a character class, which may contain others."""
    depth = 0
    while at < len(pattern):
        letter = pattern[at]
        depth += (letter == "[") - (letter == "]")
        at += 2 if letter == "\\" else 1
        if not depth:
            return at
    return at
