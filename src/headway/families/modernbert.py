"""ModernBERT (Warner et al. 2024): an encoder with rotary positions, gated GELU, pre-norm, and two kinds of layers, two
with a window for each without, which has its own rotary base. The first attention has no norm but the embedding's."""

from __future__ import annotations

from typing import Any

from headway.checkpoints.rules import Alias, AnyRule, fused, modules, same
from headway.errors import ConfigError
from headway.families import gemma3
from headway.families.bert import is_tied, kind
from headway.families.family import Family, Keys, activation_name
from headway.families.llama import write_rotary
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.layers.rotary import RotaryConfig
from headway.models.config import (
    ClassifyHeadConfig,
    EncoderConfig,
    HeadConfig,
    LanguageHeadConfig,
    LayerConfig,
    StackConfig,
    TokenHeadConfig,
    TransformConfig,
)

POOLS = {"cls": "first", "mean": "mean"}
FULL, SLIDING = gemma3.FULL, gemma3.SLIDING
WINDOW = LayerConfig(window=65, rotary=RotaryConfig())  # the published default, written if no layer has a window


def read(keys: Keys, architecture: str) -> EncoderConfig:
    width = keys.size("hidden_size", 768)
    heads, layers = keys.heads("num_attention_heads", 12, width=width), keys.layers("num_hidden_layers", 22)
    context = keys.size("max_position_embeddings", 8192)
    keys.ignore("initializer_cutoff_factor", "deterministic_flash_attn", "sparse_prediction", "reference_compile")
    keys.ignore("sparse_pred_ignore_index", "repad_logits_with_grad", "cls_token_id", "layer_norm_eps")
    norm = NormConfig(eps=keys.get("norm_eps", float, 1e-5), bias=keys.get("norm_bias", bool, False))
    rotary = {
        FULL: gemma3.read_rotary(keys, FULL, context, old="global_rope_theta", default=160000.0),
        SLIDING: gemma3.read_rotary(keys, SLIDING, context, old="local_rope_theta", default=10000.0),
    }
    block = BlockConfig(
        width=width,
        attention=AttentionConfig(
            heads,
            width // heads,
            bias="qkvo" if keys.get("attention_bias", bool, False) else "",
            rotary=rotary[FULL],
            dropout=keys.get("attention_dropout", float, 0.0),
        ),
        feedforward=FeedForwardConfig(
            keys.size("intermediate_size", 1152),
            activation=keys.activation("hidden_activation", "gelu"),
            gated=True,
            bias=keys.get("mlp_bias", bool, False),
            dropout=keys.get("mlp_dropout", float, 0.0),
        ),
        norm=norm,
    )
    return EncoderConfig(
        embedding=EmbeddingConfig(
            keys.size("vocab_size", 50368), width, norm=norm, dropout=keys.get("embedding_dropout", float, 0.0)
        ),
        stack=StackConfig(block, layers, final_norm=True, per_layer=per_layer(keys, layers, rotary[SLIDING])),
        head=read_head(keys, architecture, norm),
    )


def per_layer(keys: Keys, layers: int, rotary: RotaryConfig) -> tuple[LayerConfig, ...]:
    """`local_attention` counts the keys on both sides."""
    size, every = keys.size("local_attention", 128) // 2 + 1, keys.size("global_attn_every_n_layers", 3)
    kinds = gemma3.layer_kinds(keys, [SLIDING if number % every else FULL for number in range(layers)])
    return tuple(
        LayerConfig(
            window=size if kind == SLIDING else None,
            rotary=rotary if kind == SLIDING else None,
            attention_norm=number > 0,
        )
        for number, kind in enumerate(kinds)
    )


def read_head(keys: Keys, architecture: str, norm: NormConfig) -> HeadConfig | None:
    activation, bias = keys.activation("classifier_activation", "gelu"), keys.get("classifier_bias", bool, False)
    pool, dropout = keys.get("classifier_pooling", str, "cls"), keys.get("classifier_dropout", float, 0.0)
    if pool not in POOLS:
        raise ConfigError(f"config.json: classifier_pooling is {pool!r}; supported: {', '.join(POOLS)}")
    transform = TransformConfig(activation, norm, bias=bias)
    heads: dict[str, HeadConfig | None] = {
        "ModernBertModel": None,
        "ModernBertForMaskedLM": LanguageHeadConfig(
            tied=keys.get("tie_word_embeddings", bool, True),
            bias=keys.get("decoder_bias", bool, True),
            transform=transform,
        ),
        "ModernBertForSequenceClassification": ClassifyHeadConfig(
            keys.labels(),
            pool=POOLS[pool],  # type: ignore[arg-type]
            dense=activation,
            dense_bias=bias,
            norm=norm,
            dropout=dropout,
            dense_dropout=False,
        ),
        "ModernBertForTokenClassification": TokenHeadConfig(keys.labels(), dropout=dropout, transform=transform),
        "ModernBertForQuestionAnswering": TokenHeadConfig(2, dropout=dropout, answer=True, transform=transform),
    }
    return heads[architecture]


def write(config: EncoderConfig) -> dict[str, Any]:
    block, embedding, head = config.stack.block, config.embedding, config.head
    attention = block.attention
    sliding = next((layer for layer in config.stack.per_layer if layer.window), WINDOW)
    if attention.rotary is None or not isinstance(sliding.rotary, RotaryConfig) or sliding.window is None:
        raise ConfigError("ModernBERT has rotary positions, of their own in layers with a window")
    if not isinstance(embedding, EmbeddingConfig):
        raise ConfigError("ModernBERT reads tokens")
    out: dict[str, Any] = {
        "hidden_size": block.width,
        "num_attention_heads": attention.heads,
        "num_hidden_layers": config.stack.layers,
        "intermediate_size": block.feedforward.width,
        "hidden_activation": activation_name(block.feedforward.activation),
        "norm_eps": block.norm.eps,
        "norm_bias": block.norm.bias,
        "attention_bias": "q" in attention.bias,
        "attention_dropout": attention.dropout,
        "mlp_bias": block.feedforward.bias,
        "mlp_dropout": block.feedforward.dropout,
        "embedding_dropout": embedding.dropout,
        "vocab_size": embedding.vocab,
        "local_attention": 2 * (sliding.window - 1),
        "layer_types": [SLIDING if layer.window else FULL for layer in config.stack.per_layer],
        "rope_parameters": {FULL: write_rotary(attention.rotary), SLIDING: write_rotary(sliding.rotary)},
        "tie_word_embeddings": is_tied(head),
    }
    match head:
        case LanguageHeadConfig(transform=TransformConfig() as transform):
            out |= {"classifier_bias": transform.bias, "classifier_activation": activation_name(transform.activation)}
            out["decoder_bias"] = head.bias
        case TokenHeadConfig(transform=TransformConfig() as transform):
            out |= {"classifier_bias": transform.bias, "classifier_activation": activation_name(transform.activation)}
            out["classifier_dropout"] = head.dropout
        case ClassifyHeadConfig(dense=str(activation)):
            out |= {"classifier_bias": head.dense_bias, "classifier_activation": activation_name(activation)}
            out["classifier_dropout"] = head.dropout
            out["classifier_pooling"] = {ours: theirs for theirs, ours in POOLS.items()}[head.pool]
    return out


def rules(config: EncoderConfig) -> list[AnyRule]:
    ours, theirs = "stack.blocks.{i}.", "{base}layers.{i}."
    project = "decoder" if isinstance(config.head, LanguageHeadConfig) else "classifier"
    return [
        *modules(
            {
                "embedding.tokens": "{base}embeddings.tok_embeddings",
                "embedding.norm": "{base}embeddings.norm",
                ours + "attention_residual.norm": theirs + "attn_norm",
                ours + "attention.output": theirs + "attn.Wo",
                ours + "feedforward_residual.norm": theirs + "mlp_norm",
                ours + "feedforward.down": theirs + "mlp.Wo",
                "stack.final_norm": "{base}final_norm",
                "head.dense": "head.dense",
                "head.norm": "head.norm",
                "head.project": project,
            }
        ),
        fused([ours + f"attention.{part}" for part in ("query", "key", "value")], theirs + "attn.Wqkv"),
        fused([ours + "feedforward.gate", ours + "feedforward.up"], theirs + "mlp.Wi"),
        same("head.bias", "decoder.bias"),
        Alias("decoder.weight", of="{base}embeddings.tok_embeddings.weight"),
    ]


KINDS = ("ForMaskedLM", "Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
FAMILY = Family(
    name="modernbert",
    architectures=tuple("ModernBert" + ending for ending in KINDS),
    read=read,
    write=write,
    rules=rules,
    architecture=lambda config: "ModernBert" + kind(config.head),
    base="model.",
    bare=("ModernBertModel",),
)
