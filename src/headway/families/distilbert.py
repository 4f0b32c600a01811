"""DistilBERT (Sanh et al. 2019): BERT with half the layers, no segments, no pooler, its own names."""

from __future__ import annotations

from typing import Any

from headway.checkpoints.rules import Alias, AnyRule, Dropped, modules, same
from headway.families.bert import is_tied, kind
from headway.families.family import Family, Keys, activation_name
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.layers.positions import LearnedConfig
from headway.models.config import (
    ClassifyHeadConfig,
    EncoderConfig,
    HeadConfig,
    LanguageHeadConfig,
    StackConfig,
    TokenHeadConfig,
    TransformConfig,
)

NORM = NormConfig(eps=1e-12)  # not in the config


def read(keys: Keys, architecture: str) -> EncoderConfig:
    keys.alias(hidden_size="dim", num_attention_heads="n_heads", num_hidden_layers="n_layers")
    width = keys.size("dim", 768)
    heads = keys.heads("n_heads", 12, width=width)
    activation = keys.activation("activation", "gelu")
    dropout = keys.get("dropout", float, 0.1)
    keys.ignore("sinusoidal_pos_embds")  # how the position table began; it is in the file either way
    keys.ignore("tie_weights_", "output_past")
    block = BlockConfig(
        width=width,
        attention=AttentionConfig(heads, width // heads, dropout=keys.get("attention_dropout", float, 0.1)),
        feedforward=FeedForwardConfig(keys.size("hidden_dim", 4 * 768), activation=activation),
        norm=NORM,
        norm_place="post",
        dropout=dropout,
        drop_attention=False,
    )
    head: dict[str, HeadConfig | None] = {
        "DistilBertModel": None,
        "DistilBertForMaskedLM": LanguageHeadConfig(
            tied=keys.get("tie_word_embeddings", bool, True), bias=True, transform=TransformConfig(activation, NORM)
        ),
        "DistilBertForSequenceClassification": ClassifyHeadConfig(
            keys.labels(), dense="relu", dropout=keys.get("seq_classif_dropout", float, 0.2), dense_dropout=False
        ),
        "DistilBertForTokenClassification": TokenHeadConfig(keys.labels(), dropout=dropout),
        "DistilBertForQuestionAnswering": TokenHeadConfig(2, dropout=keys.get("qa_dropout", float, 0.1), answer=True),
    }
    return EncoderConfig(
        embedding=EmbeddingConfig(
            keys.size("vocab_size", 30522),
            width,
            positions=LearnedConfig(keys.size("max_position_embeddings", 512)),
            norm=NORM,
            dropout=dropout,
        ),
        stack=StackConfig(block, keys.layers("n_layers", 6)),
        head=head[architecture],
    )


def write(config: EncoderConfig) -> dict[str, Any]:
    block, embedding = config.stack.block, config.embedding
    assert isinstance(embedding, EmbeddingConfig) and isinstance(embedding.positions, LearnedConfig)
    out = {
        "dim": block.width,
        "n_heads": block.attention.heads,
        "n_layers": config.stack.layers,
        "hidden_dim": block.feedforward.width,
        "activation": activation_name(block.feedforward.activation),
        "dropout": block.dropout,
        "attention_dropout": block.attention.dropout,
        "vocab_size": embedding.vocab,
        "max_position_embeddings": embedding.positions.count,
        "tie_word_embeddings": is_tied(config.head),
    }
    if isinstance(config.head, ClassifyHeadConfig):
        out["seq_classif_dropout"] = config.head.dropout
    if isinstance(config.head, TokenHeadConfig) and config.head.answer:
        out["qa_dropout"] = config.head.dropout
    return out


def rules(config: EncoderConfig) -> list[AnyRule]:
    ours, theirs = "stack.blocks.{i}.", "{base}transformer.layer.{i}."
    head: dict[str, str] = {}
    match config.head:
        case LanguageHeadConfig():
            head = {"head.dense": "vocab_transform", "head.norm": "vocab_layer_norm", "head.project": "vocab_projector"}
        case ClassifyHeadConfig():
            head = {"head.dense": "pre_classifier", "head.project": "classifier"}
        case TokenHeadConfig():
            head = {"head.project": "qa_outputs" if config.head.answer else "classifier"}
    return [
        *modules(
            {
                "embedding.tokens": "{base}embeddings.word_embeddings",
                "embedding.positions.table": "{base}embeddings.position_embeddings",
                "embedding.norm": "{base}embeddings.LayerNorm",
                ours + "attention.query": theirs + "attention.q_lin",
                ours + "attention.key": theirs + "attention.k_lin",
                ours + "attention.value": theirs + "attention.v_lin",
                ours + "attention.output": theirs + "attention.out_lin",
                ours + "attention_residual.norm": theirs + "sa_layer_norm",
                ours + "feedforward.up": theirs + "ffn.lin1",
                ours + "feedforward.down": theirs + "ffn.lin2",
                ours + "feedforward_residual.norm": theirs + "output_layer_norm",
            }
            | head
        ),
        same("head.bias", "vocab_projector.bias"),
        Alias("vocab_projector.weight", of="{base}embeddings.word_embeddings.weight"),
        Dropped("*embeddings.position_ids", "0, 1, 2…"),
    ]


KINDS = ("ForMaskedLM", "Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
FAMILY = Family(
    name="distilbert",
    architectures=tuple("DistilBert" + ending for ending in KINDS),
    read=read,
    write=write,
    rules=rules,
    architecture=lambda config: "DistilBert" + kind(config.head),
    base="distilbert.",
    bare=("DistilBertModel",),
)
