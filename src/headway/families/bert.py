"""BERT (Devlin et al. 2019): an encoder with learned positions and two segments, post-norm, exact GELU;
pre-trained to fill in masked words and to tell whether one sentence follows another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.checkpoints.rules import Alias, AnyRule, Copied, Dropped, modules, same
from headway.families.family import Family, Keys, encoder_keys, without_absent_pooler
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
    PoolerConfig,
    StackConfig,
    TokenHeadConfig,
    TransformConfig,
)

WORDS = "{base}embeddings.word_embeddings"


def read(keys: Keys, architecture: str) -> EncoderConfig:
    config = read_encoder(keys)
    block = config.stack.block
    language = LanguageHeadConfig(
        tied=keys.get("tie_word_embeddings", bool, True),
        bias=True,
        transform=TransformConfig(block.feedforward.activation, block.norm),
    )
    dropout = keys.get("classifier_dropout", float, block.dropout)
    heads: dict[str, HeadConfig] = {
        "BertModel": PoolerConfig(),
        "BertForMaskedLM": language,
        "BertForPreTraining": PoolerConfig(next_sentence=True, language=language),
        "BertForNextSentencePrediction": PoolerConfig(next_sentence=True),
        "BertForSequenceClassification": ClassifyHeadConfig(
            keys.labels(), dense="tanh", dropout=dropout, dense_dropout=False
        ),
        "BertForTokenClassification": TokenHeadConfig(keys.labels(), dropout=dropout),
        "BertForQuestionAnswering": TokenHeadConfig(2, answer=True),
    }
    return replace(config, head=heads[architecture])


def read_encoder(keys: Keys, *, offset: int = 0) -> EncoderConfig:
    """Everything but the head. `offset` rows of the position table come before position 0."""
    width = keys.size("hidden_size", 768)
    heads = keys.heads("num_attention_heads", 12, width=width)
    keys.only("position_embedding_type", "absolute")
    keys.only("is_decoder", False)
    keys.only("add_cross_attention", False)
    keys.ignore("output_past", "directionality", "pooler_fc_size", "pooler_num_attention_heads")
    keys.ignore("pooler_num_fc_layers", "pooler_size_per_head", "pooler_type")  # written once, read by no library
    norm = NormConfig(eps=keys.get("layer_norm_eps", float, 1e-12))
    dropout = keys.get("hidden_dropout_prob", float, 0.1)
    block = BlockConfig(
        width=width,
        attention=AttentionConfig(heads, width // heads, dropout=keys.get("attention_probs_dropout_prob", float, 0.1)),
        feedforward=FeedForwardConfig(
            keys.size("intermediate_size", 3072), activation=keys.activation("hidden_act", "gelu")
        ),
        norm=norm,
        norm_place="post",
        dropout=dropout,
    )
    return EncoderConfig(
        embedding=EmbeddingConfig(
            keys.size("vocab_size"),
            width,
            positions=LearnedConfig(keys.size("max_position_embeddings", 512) - offset, offset=offset),
            segments=keys.size("type_vocab_size", 2),
            norm=norm,
            dropout=dropout,
        ),
        stack=StackConfig(block, keys.layers("num_hidden_layers", 12)),
    )


def write(config: EncoderConfig) -> dict[str, Any]:
    embedding = config.embedding
    assert isinstance(embedding, EmbeddingConfig) and isinstance(embedding.positions, LearnedConfig)
    out = {
        **encoder_keys(config.stack),
        "vocab_size": embedding.vocab,
        "max_position_embeddings": embedding.positions.count + embedding.positions.offset,
        "type_vocab_size": embedding.segments,
        "tie_word_embeddings": is_tied(config.head),
    }
    if isinstance(config.head, ClassifyHeadConfig | TokenHeadConfig) and kind(config.head) != "ForQuestionAnswering":
        out["classifier_dropout"] = config.head.dropout
    return out


def is_tied(head: HeadConfig | None) -> bool:
    language = head.language if isinstance(head, PoolerConfig) else head
    return not isinstance(language, LanguageHeadConfig) or language.tied


def kind(head: HeadConfig | None) -> str:
    """How the name of the class with this head ends, in every family of BERT's variant."""
    match head:
        case LanguageHeadConfig():
            return "ForMaskedLM"
        case ClassifyHeadConfig():
            return "ForSequenceClassification"
        case TokenHeadConfig():
            return "ForQuestionAnswering" if head.answer else "ForTokenClassification"
        case PoolerConfig(next_sentence=True):
            return "ForPreTraining" if head.language else "ForNextSentencePrediction"
        case _:
            return "Model"


def rules(config: EncoderConfig) -> list[AnyRule]:
    pooler, language = (
        {"head.dense": "{base}pooler.dense"},
        ("cls.predictions.", "transform.dense", "transform.LayerNorm"),
    )
    head: list[AnyRule] = []
    match config.head:
        case LanguageHeadConfig():
            head = language_rules(config.head, "head.", *language)
        case PoolerConfig():
            head = [*modules(pooler | {"head.next_sentence": "cls.seq_relationship"})]
            if config.head.language:
                head += language_rules(config.head.language, "head.language.", *language)
        case ClassifyHeadConfig():
            head = [*modules(pooler | {"head.project": "classifier"})]
        case TokenHeadConfig():
            head = [same("head.project", "qa_outputs" if config.head.answer else "classifier")]
    return [*encoder_rules(), *head, Dropped("cls.seq_relationship.*", "pre-training's other half")]


def encoder_rules() -> list[AnyRule]:
    ours, theirs = "stack.blocks.{i}.", "{base}encoder.layer.{i}."
    norms = {
        "embedding.norm": "{base}embeddings.LayerNorm",
        ours + "attention_residual.norm": theirs + "attention.output.LayerNorm",
        ours + "feedforward_residual.norm": theirs + "output.LayerNorm",
    }
    return [
        *modules(
            {
                "embedding.tokens": WORDS,
                "embedding.positions.table": "{base}embeddings.position_embeddings",
                "embedding.segments": "{base}embeddings.token_type_embeddings",
                ours + "attention.query": theirs + "attention.self.query",
                ours + "attention.key": theirs + "attention.self.key",
                ours + "attention.value": theirs + "attention.self.value",
                ours + "attention.output": theirs + "attention.output.dense",
                ours + "feedforward.up": theirs + "intermediate.dense",
                ours + "feedforward.down": theirs + "output.dense",
            }
            | norms
        ),
        *(old for norm in norms.values() for old in old_norm(norm)),
        Dropped("*embeddings.position_ids", "0, 1, 2…"),
        Dropped("{base}pooler.*", "kept in the files of models that do not pool"),
    ]


def language_rules(head: LanguageHeadConfig, ours: str, theirs: str, dense: str, norm: str) -> list[AnyRule]:
    """dense → norm → vocabulary. The bias has two names; an untied model reads the second and still holds the first."""
    first, second = theirs + "bias", theirs + "decoder.bias"
    names = {"dense": dense, "norm": norm, "project": "decoder", "bias": "bias" if head.tied else "decoder.bias"}
    shared: list[AnyRule] = [Alias(theirs + "decoder.weight", of=WORDS + ".weight"), Alias(second, of=first)]
    return [
        *modules({ours + part: theirs + name for part, name in names.items()}),
        *old_norm(theirs + norm),
        *(shared if head.tied else [Copied(first, of=second)]),
    ]


def old_norm(theirs: str) -> list[AnyRule]:
    """What the first published files call a norm's weight and bias."""
    return [Alias(theirs + ".gamma", of=theirs + ".weight"), Alias(theirs + ".beta", of=theirs + ".bias")]


KINDS = (
    "ForMaskedLM",
    "Model",
    "ForPreTraining",
    "ForNextSentencePrediction",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)
FAMILY = Family(
    name="bert",
    architectures=tuple("Bert" + ending for ending in KINDS),
    read=read,
    write=write,
    rules=rules,
    architecture=lambda config: "Bert" + kind(config.head),
    base="bert.",
    bare=("BertModel",),
    infer_from_tensors=without_absent_pooler,
)
