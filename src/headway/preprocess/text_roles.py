"""The special tokens of a tokenizer: which token has which role (bos, eos, pad, …), and where they stand around a text.

Files that were published early name no roles; their readers knew them by the family. A convention is what such a family
does. It is found by the tokens that a vocabulary has, the same way for every layout, and only where no file of the
tokenizer names a role: what a file says counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

ROLES = ("bos", "eos", "pad", "unk", "cls", "sep", "mask")

BERT_ROLES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_ROLES = {
    "bos": "<s>", "eos": "</s>", "pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>",
}  # fmt: skip
GPT2_ROLES = {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"}


@dataclass(frozen=True)
class Convention:
    """Templates are lists of a role, or A and B for the texts, each with a segment. `optional` roles may be missing."""

    roles: Mapping[str, str]
    single: str = "A:0"
    pair: str = "A:0 B:0"
    optional: Collection[str] = ()

    @property
    def has_switches(self) -> bool:
        """Whether the settings add_bos_token and add_eos_token say what is put around a text."""
        return self.single == LLAMA.single

    def fits(self, tokens: Collection[str]) -> bool:
        return all(token in tokens for role, token in self.roles.items() if role not in self.optional)


BERT = Convention(BERT_ROLES, "cls:0 A:0 sep:0", "cls:0 A:0 sep:0 B:1 sep:1", optional=("pad", "mask"))
T5 = Convention({"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}, "A:0 eos:0", "A:0 eos:0 B:0 eos:0")
MARIAN = Convention(T5.roles, "A:0 eos:0", "A:0 B:0 eos:0")
LLAMA = Convention({"unk": "<unk>", "bos": "<s>", "eos": "</s>"}, "bos:0 A:0 eos:0", "bos:0 A:0 eos:0 bos:0 B:0 eos:0")
CONVENTIONS = (  # those with more tokens first
    BERT,
    Convention(  # ALBERT
        BERT_ROLES | {"unk": "<unk>", "pad": "<pad>", "bos": "[CLS]", "eos": "[SEP]"},
        BERT.single, BERT.pair, optional=("mask",),
    ),
    Convention(  # XLNet
        ROBERTA_ROLES | {"cls": "<cls>", "sep": "<sep>"}, "A:0 sep:0 cls:2", "A:0 sep:0 B:1 sep:1 cls:2",
    ),
    Convention(ROBERTA_ROLES, "cls:0 A:0 sep:0", "cls:0 A:0 sep:0 sep:0 B:0 sep:0"),
    Convention({"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>"}, LLAMA.single, LLAMA.pair),  # Gemma
    LLAMA,
    T5,
    Convention(GPT2_ROLES),
)  # fmt: skip
UNKNOWN = Convention({})


def convention_of(tokens: Collection[str]) -> Convention:
    """The first convention whose tokens are all there; without one, roles come from the files alone."""
    return next((each for each in CONVENTIONS if each.fits(tokens)), UNKNOWN)


def roles_in_files(
    config: Mapping[str, Any], sources: Collection[Mapping[str, Any]], vocabulary: Mapping[str, int]
) -> tuple[dict[str, str], set[str]]:
    """(role → token, the roles that the sources mention): from config.json's ids, then from the sources
    (special_tokens_map.json, tokenizer_config.json); the last one that has the role counts."""
    token_of = {i: token for token, i in vocabulary.items()}
    found: dict[str, str] = {}
    for role in ROLES:
        stored_id = config.get(f"{role}_token_id")
        first_id = stored_id[0] if isinstance(stored_id, list) and stored_id else stored_id
        if isinstance(first_id, int) and first_id in token_of:
            found[role] = token_of[first_id]
        for source in sources:
            token = content_of(source.get(f"{role}_token"))
            if token is not None and token in vocabulary:
                found[role] = token
    return found, {role for role in ROLES for source in sources if f"{role}_token" in source}


def content_of(token: object) -> str | None:
    """A token is stored as a string or as an object with its content."""
    inner = token.get("content") if isinstance(token, dict) else token
    return inner if isinstance(inner, str) else None


def template(
    convention: Convention,
    roles: Mapping[str, str],
    vocabulary: Mapping[str, int],
    settings: Mapping[str, Any],
    *,
    adds_bos: bool = False,
) -> dict[str, Any]:
    """A post-processor that puts tokens around a text; a role that no token has is left out. `adds_bos`: where the
    settings could say it and do not."""
    tokens = dict(roles)
    if convention.has_switches:
        for role, usual in {"bos": adds_bos, "eos": False}.items():
            if not settings.get(f"add_{role}_token", usual):
                tokens.pop(role, None)

    def parts(text: str) -> list[dict[str, Any]]:
        named = [part.split(":") for part in text.split()]
        return [
            {"Sequence": {"id": name, "type_id": int(segment)}}
            if name in ("A", "B")
            else {"SpecialToken": {"id": tokens[name], "type_id": int(segment)}}
            for name, segment in named
            if name in ("A", "B") or name in tokens
        ]

    used = sorted(
        {tokens[name] for name in re.findall(r"[a-z]+", f"{convention.single} {convention.pair}") if name in tokens}
    )
    return {
        "type": "TemplateProcessing",
        "single": parts(convention.single),
        "pair": parts(convention.pair),
        "special_tokens": {token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]} for token in used},
    }
