"""EuroBERT (Boizard et al. 2025): LLaMA's blocks as an encoder, in which every token attends to every other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.checkpoints.rules import AnyRule, modules, same
from headway.errors import ConfigError
from headway.families import llama
from headway.families.bert import kind
from headway.families.family import Family, Keys
from headway.models.config import (
    ClassifyHeadConfig,
    DecoderConfig,
    EncoderConfig,
    HeadConfig,
    LanguageHeadConfig,
    TokenHeadConfig,
)

VARIANT = llama.LlamaVariant("EuroBert", context=8192, eps=1e-5)
POOLS = {"bos": "first", "mean": "mean", "late": "late"}


def read(keys: Keys, architecture: str) -> EncoderConfig:
    decoder = llama.read(keys, "EuroBertModel", VARIANT)
    keys.ignore("mask_token_id", "clf_pooling", "tie_word_embeddings")
    pool = keys.get("classifier_pooling", str, keys.get("clf_pooling", str, "late"))
    if pool not in POOLS:
        raise ConfigError(f"config.json: classifier_pooling is {pool!r}; supported: {', '.join(POOLS)}")
    heads: dict[str, HeadConfig | None] = {
        "EuroBertModel": None,
        "EuroBertForMaskedLM": LanguageHeadConfig(
            tied=keys.get("tie_word_embeddings", bool, False), bias=decoder.stack.block.feedforward.bias
        ),
        "EuroBertForSequenceClassification": ClassifyHeadConfig(
            keys.labels(),
            pool=POOLS[pool],  # type: ignore[arg-type]
            dense="gelu",
        ),
        "EuroBertForTokenClassification": TokenHeadConfig(keys.labels()),
    }
    return EncoderConfig(
        embedding=decoder.embedding, stack=replace(decoder.stack, causal=False), head=heads[architecture]
    )


def write(config: EncoderConfig) -> dict[str, Any]:
    decoder = DecoderConfig(config.embedding, config.stack, head=None, context=None)  # type: ignore[arg-type]
    out = llama.write(decoder, VARIANT)
    del out["max_position_embeddings"]  # the limit is not part of the model: rotary angles have no end
    out |= {
        "attention_bias": "q" in config.stack.block.attention.bias,
        "mlp_bias": config.stack.block.feedforward.bias,
        "tie_word_embeddings": isinstance(config.head, LanguageHeadConfig) and config.head.tied,
    }
    if isinstance(config.head, ClassifyHeadConfig):
        out["classifier_pooling"] = {ours: theirs for theirs, ours in POOLS.items()}[config.head.pool]
    return out


def rules(config: EncoderConfig) -> list[AnyRule]:
    head = "lm_head" if isinstance(config.head, LanguageHeadConfig) else "classifier"
    shared = [rule for rule in llama.rules(config) if getattr(rule, "ours", None) != ("head.project",)]  # type: ignore[arg-type]
    return [
        *shared,
        *modules({"head.dense": "dense", "head.project": head}),
        same("head.bias", "lm_head.bias"),
    ]


KINDS = ("ForMaskedLM", "Model", "ForSequenceClassification", "ForTokenClassification")
FAMILY = Family(
    name="eurobert",
    architectures=tuple("EuroBert" + ending for ending in KINDS),
    read=read,
    write=write,
    rules=rules,
    architecture=lambda config: "EuroBert" + kind(config.head),
    base="model.",
    bare=("EuroBertModel",),
)
