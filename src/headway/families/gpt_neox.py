"""GPT-NeoX and Pythia (Black et al. 2022, Biderman et al. 2023): attention and feed-forward read the same input, a
quarter of each head is rotated, and q, k and v are stored head by head."""

from __future__ import annotations

from typing import Any

from headway.checkpoints.rules import Alias, AnyRule, Dropped, interleaved, modules, same
from headway.errors import ConfigError
from headway.families import decoder_heads, llama
from headway.families.family import Family, Keys, activation_name
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.models.config import DecoderConfig, LanguageHeadConfig, StackConfig


def read(keys: Keys, architecture: str) -> DecoderConfig:
    width = keys.size("hidden_size", 6144)
    heads, context = keys.heads("num_attention_heads", 64, width=width), keys.size("max_position_embeddings", 2048)
    dropout = keys.get("hidden_dropout", float, 0.0)
    keys.alias(partial_rotary_factor="rotary_pct")
    own = {  # the older names, under the newer
        "rope_theta": keys.get("rotary_emb_base", float, 10000.0),
        "partial_rotary_factor": keys.get("rotary_pct", float, 0.25),
        **keys.get("rope_scaling", dict, {}),
        **keys.get("rope_parameters", dict, {}),
    }
    keys.ignore("rope_theta")  # written by some versions, used by none
    block = BlockConfig(
        width=width,
        attention=AttentionConfig(
            heads,
            width // heads,
            bias="qkvo" if keys.get("attention_bias", bool, True) else "",
            rotary=llama.rotary(Keys({"rope_parameters": own}, outer=keys), context, 10000.0),
            dropout=keys.get("attention_dropout", float, 0.0),
        ),
        feedforward=FeedForwardConfig(
            keys.size("intermediate_size", 24576), activation=keys.activation("hidden_act", "gelu")
        ),
        norm=NormConfig(eps=keys.get("layer_norm_eps", float, 1e-5)),
        dropout=dropout,
        parallel=keys.get("use_parallel_residual", bool, True),
    )
    return DecoderConfig(
        embedding=EmbeddingConfig(keys.size("vocab_size", 50432), width, dropout=dropout),
        stack=StackConfig(block, keys.layers("num_hidden_layers", 44), causal=True, final_norm=True),
        head=decoder_heads.read_head(keys, architecture.removeprefix("GPTNeoX"), tied=False),
        context=context,
    )


def write(config: DecoderConfig) -> dict[str, Any]:
    block = config.stack.block
    attention = block.attention
    if attention.rotary is None:
        raise ConfigError("GPT-NeoX has rotary positions")
    rotary = llama.write_rotary(attention.rotary)
    return {
        **decoder_heads.write_head(config),
        "hidden_size": block.width,
        "num_attention_heads": attention.heads,
        "num_hidden_layers": config.stack.layers,
        "intermediate_size": block.feedforward.width,
        "hidden_act": activation_name(block.feedforward.activation),
        "layer_norm_eps": block.norm.eps,
        "hidden_dropout": block.dropout,
        "attention_dropout": attention.dropout,
        "attention_bias": "q" in attention.bias,
        "use_parallel_residual": block.parallel,
        "vocab_size": config.embedding.vocab,
        "max_position_embeddings": config.context,
        "rope_parameters": {"partial_rotary_factor": attention.rotary.share, **rotary},
        "tie_word_embeddings": isinstance(config.head, LanguageHeadConfig) and config.head.tied,
    }


def rules(config: DecoderConfig) -> list[AnyRule]:
    ours, theirs = "stack.blocks.{i}.", "{base}layers.{i}."
    return [
        *modules(
            {
                "embedding.tokens": "{base}embed_in",
                ours + "attention_residual.norm": theirs + "input_layernorm",
                ours + "attention.output": theirs + "attention.dense",
                ours + "feedforward_residual.norm": theirs + "post_attention_layernorm",
                ours + "feedforward.up": theirs + "mlp.dense_h_to_4h",
                ours + "feedforward.down": theirs + "mlp.dense_4h_to_h",
                "stack.final_norm": "{base}final_layer_norm",
            }
        ),
        interleaved(
            [ours + f"attention.{part}" for part in ("query", "key", "value")],
            theirs + "attention.query_key_value",
            heads=config.stack.block.attention.heads,
        ),
        same("head.project", decoder_heads.module_name(config, "embed_out")),
        Alias("embed_out.weight", of="{base}embed_in.weight"),
        Dropped("*.attention.bias", "the causal triangle"),
        Dropped("*.attention.masked_bias", "a constant"),
        Dropped("*rotary_emb.inv_freq", "follows from the config"),
    ]


FAMILY = Family(
    name="gpt_neox",
    architectures=(
        "GPTNeoXForCausalLM",
        "GPTNeoXModel",
        "GPTNeoXForSequenceClassification",
        "GPTNeoXForTokenClassification",
    ),
    read=read,
    write=write,
    rules=rules,
    architecture=lambda config: "GPTNeoX" + decoder_heads.kind(config),
    base="gpt_neox.",
    bare=("GPTNeoXModel",),
)
