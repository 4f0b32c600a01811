"""RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2020) and CamemBERT (Martin et al. 2020): the
encoder of BERT, its positions beginning after the padding id's own row; heads under other names, no next sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.checkpoints.rules import AnyRule, modules, same
from headway.errors import ConfigError
from headway.families import bert
from headway.families.family import Family, Keys, without_absent_pooler
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.positions import LearnedConfig
from headway.models.config import (
    ClassifyHeadConfig,
    EncoderConfig,
    HeadConfig,
    LanguageHeadConfig,
    PoolerConfig,
    TokenHeadConfig,
    TransformConfig,
)

TITLES = {"roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"}
KINDS = ("ForMaskedLM", "Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def read(keys: Keys, kind: str) -> EncoderConfig:
    pad = keys.get("pad_token_id", int, 1)
    if pad < 0:
        raise ConfigError(
            f"config.json: pad_token_id is {pad}: positions are counted from it, so it must not be negative"
        )
    config = bert.read_encoder(keys, offset=pad + 1)
    block = config.stack.block
    dropout = keys.get("classifier_dropout", float, block.dropout)
    heads: dict[str, HeadConfig] = {
        "Model": PoolerConfig(),
        "ForMaskedLM": LanguageHeadConfig(
            tied=keys.get("tie_word_embeddings", bool, True), bias=True, transform=TransformConfig("gelu", block.norm)
        ),
        "ForSequenceClassification": ClassifyHeadConfig(keys.labels(), dense="tanh", dropout=dropout),
        "ForTokenClassification": TokenHeadConfig(keys.labels(), dropout=dropout),
        "ForQuestionAnswering": TokenHeadConfig(2, answer=True),
    }
    return replace(config, head=heads[kind])


def write(config: EncoderConfig) -> dict[str, Any]:
    embedding = config.embedding
    assert isinstance(embedding, EmbeddingConfig) and isinstance(embedding.positions, LearnedConfig)
    return {**bert.write(config), "pad_token_id": embedding.positions.offset - 1}


def rules(config: EncoderConfig) -> list[AnyRule]:
    head: list[AnyRule] = []
    match config.head:
        case LanguageHeadConfig():
            head = bert.language_rules(config.head, "head.", "lm_head.", "dense", "layer_norm")
        case PoolerConfig():
            head = [same("head.dense", "{base}pooler.dense")]
        case ClassifyHeadConfig():
            head = [*modules({"head.dense": "classifier.dense", "head.project": "classifier.out_proj"})]
        case TokenHeadConfig():
            head = [same("head.project", "qa_outputs" if config.head.answer else "classifier")]
    return [*bert.encoder_rules(), *head]


def _family(name: str, title: str) -> Family:
    return Family(
        name=name,
        architectures=tuple(title + kind for kind in KINDS),
        read=lambda keys, architecture: read(keys, architecture.removeprefix(title)),
        write=write,
        rules=rules,
        architecture=lambda config: title + bert.kind(config.head),
        base="roberta.",
        bare=(title + "Model",),
        positions_skip_pad=True,
        infer_from_tensors=without_absent_pooler,
    )


FAMILIES = tuple(_family(name, title) for name, title in TITLES.items())
