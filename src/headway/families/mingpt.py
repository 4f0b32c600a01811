"""minGPT (Karpathy): GPT-2's shape, with matrices stored (out, in) and an untied vocabulary."""

from __future__ import annotations

from typing import Any

from headway.checkpoints.rules import AnyRule, Dropped, fused, modules
from headway.families.family import Family, Keys
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.positions import LearnedConfig
from headway.models.config import DecoderConfig, LanguageHeadConfig, StackConfig


def read(keys: Keys, architecture: str) -> DecoderConfig:
    keys.strict = True
    width, heads, context = keys.size("n_embd"), keys.size("n_head"), keys.size("block_size")
    block = BlockConfig(
        width=width,
        attention=AttentionConfig(heads, width // heads, dropout=keys.get("attn_pdrop", float, 0.1)),
        feedforward=FeedForwardConfig(4 * width, activation="gelu_tanh"),
        dropout=keys.get("resid_pdrop", float, 0.1),
    )
    return DecoderConfig(
        embedding=EmbeddingConfig(
            keys.size("vocab_size"),
            width,
            positions=LearnedConfig(context),
            dropout=keys.get("embd_pdrop", float, 0.1),
        ),
        stack=StackConfig(block, keys.layers("n_layer"), causal=True, final_norm=True),
        head=LanguageHeadConfig(tied=False),
        context=context,
    )


def write(config: DecoderConfig) -> dict[str, Any]:
    block = config.stack.block
    return {
        "n_embd": block.width,
        "n_head": block.attention.heads,
        "n_layer": config.stack.layers,
        "vocab_size": config.embedding.vocab,
        "block_size": config.context,
        "attn_pdrop": block.attention.dropout,
        "resid_pdrop": block.dropout,
        "embd_pdrop": config.embedding.dropout,
    }


def rules(config: DecoderConfig) -> list[AnyRule]:
    ours, theirs = "stack.blocks.{i}.", "transformer.h.{i}."
    return [
        *modules(
            {
                "embedding.tokens": "transformer.wte",
                "embedding.positions.table": "transformer.wpe",
                ours + "attention_residual.norm": theirs + "ln_1",
                ours + "attention.output": theirs + "attn.c_proj",
                ours + "feedforward_residual.norm": theirs + "ln_2",
                ours + "feedforward.up": theirs + "mlp.c_fc",
                ours + "feedforward.down": theirs + "mlp.c_proj",
                "stack.final_norm": "transformer.ln_f",
                "head.project": "lm_head",
            }
        ),
        fused([ours + f"attention.{part}" for part in ("query", "key", "value")], theirs + "attn.c_attn"),
        Dropped("*.attn.bias", "the causal triangle"),
    ]


FAMILY = Family(
    name="gpt-nano",
    architectures=("GPT",),
    read=read,
    write=write,
    rules=rules,
    architecture=lambda config: "GPT",
)
