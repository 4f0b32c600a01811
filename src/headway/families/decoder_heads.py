"""The heads that the reference library puts on decoders, by the part of the architecture's name behind the title."""

from __future__ import annotations

from typing import Any

from headway.families.family import Keys
from headway.models.config import (
    ClassifyHeadConfig,
    DecoderConfig,
    HeadConfig,
    LanguageHeadConfig,
    TokenHeadConfig,
)

KINDS: dict[type, str] = {
    type(None): "Model",
    LanguageHeadConfig: "ForCausalLM",
    ClassifyHeadConfig: "ForSequenceClassification",
    TokenHeadConfig: "ForTokenClassification",
}


def read_head(keys: Keys, kind: str, *, tied: bool, dropout: float = 0.1) -> HeadConfig | None:
    """`tied` and `dropout` are the family's defaults."""
    heads: dict[str, HeadConfig | None] = {
        "Model": None,
        "ForCausalLM": LanguageHeadConfig(tied=keys.get("tie_word_embeddings", bool, tied)),
        "ForSequenceClassification": ClassifyHeadConfig(keys.labels(), pool="last", bias=False),
        "ForTokenClassification": TokenHeadConfig(
            keys.labels(), dropout=keys.get("classifier_dropout", float, dropout)
        ),
    }
    return heads[kind]


def write_head(config: DecoderConfig) -> dict[str, Any]:
    return {"classifier_dropout": config.head.dropout} if isinstance(config.head, TokenHeadConfig) else {}


def kind(config: DecoderConfig) -> str:
    return KINDS[type(config.head)]


def module_name(config: DecoderConfig, language: str) -> str:
    """Of the head; `language` is that of a language model's."""
    return {ClassifyHeadConfig: "score", TokenHeadConfig: "classifier"}.get(type(config.head), language)
