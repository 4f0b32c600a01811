"""GPT-2 (Radford et al. 2019): learned positions, pre-norm, tanh GELU, q, k and v in one matrix, and
every matrix stored (in, out)."""

from __future__ import annotations

from typing import Any

from headway.checkpoints.rules import Alias, AnyRule, Dropped, fused, modules, same, transposed
from headway.families import decoder_heads
from headway.families.family import Family, Keys, activation_name
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.layers.positions import LearnedConfig
from headway.models.config import DecoderConfig, LanguageHeadConfig, StackConfig


def read(keys: Keys, architecture: str) -> DecoderConfig:
    keys.alias(hidden_size="n_embd", num_attention_heads="n_head", num_hidden_layers="n_layer")
    keys.alias(max_position_embeddings="n_positions")
    width, heads = keys.size("n_embd", 768), keys.size("n_head", 12)
    keys.only("scale_attn_weights", True)
    keys.only("scale_attn_by_inverse_layer_idx", False)
    keys.only("add_cross_attention", False)
    keys.ignore("reorder_and_upcast_attn", "summary_type", "summary_use_proj", "summary_activation", "n_ctx")
    keys.ignore("summary_proj_to_labels", "summary_first_dropout")
    dropout = keys.get("resid_pdrop", float, 0.1)
    context = keys.size("n_positions", 1024)
    block = BlockConfig(
        width=width,
        attention=AttentionConfig(heads, width // heads, dropout=keys.get("attn_pdrop", float, 0.1)),
        feedforward=FeedForwardConfig(
            keys.size("n_inner", 4 * width), activation=keys.activation("activation_function", "gelu_new")
        ),
        norm=NormConfig(eps=keys.get("layer_norm_epsilon", float, 1e-5)),
        dropout=dropout,
    )
    kind = architecture.removeprefix("GPT2").replace("LMHeadModel", "ForCausalLM")
    head = decoder_heads.read_head(keys, kind, tied=True, dropout=keys.get("hidden_dropout", float, 0.1))
    return DecoderConfig(
        embedding=EmbeddingConfig(
            keys.size("vocab_size", 50257),
            width,
            positions=LearnedConfig(context),
            dropout=keys.get("embd_pdrop", float, 0.1),
        ),
        stack=StackConfig(block, keys.layers("n_layer", 12), causal=True, final_norm=True),
        head=head,
        context=context,
    )


def write(config: DecoderConfig) -> dict[str, Any]:
    block = config.stack.block
    return {
        **decoder_heads.write_head(config),
        "n_embd": block.width,
        "n_head": block.attention.heads,
        "n_layer": config.stack.layers,
        "n_inner": block.feedforward.width,
        "n_positions": config.context,
        "vocab_size": config.embedding.vocab,
        "activation_function": activation_name(block.feedforward.activation),
        "layer_norm_epsilon": block.norm.eps,
        "attn_pdrop": block.attention.dropout,
        "resid_pdrop": block.dropout,
        "embd_pdrop": config.embedding.dropout,
        "tie_word_embeddings": not isinstance(config.head, LanguageHeadConfig) or config.head.tied,
    }


def architecture(config: DecoderConfig) -> str:
    return "GPT2" + decoder_heads.kind(config).replace("ForCausalLM", "LMHeadModel")


def rules(config: DecoderConfig) -> list[AnyRule]:
    ours, theirs = "stack.blocks.{i}.", "{base}h.{i}."
    return [
        *modules(
            {
                "embedding.tokens": "{base}wte",
                "embedding.positions.table": "{base}wpe",
                ours + "attention_residual.norm": theirs + "ln_1",
                ours + "feedforward_residual.norm": theirs + "ln_2",
                "stack.final_norm": "{base}ln_f",
            }
        ),
        fused(
            [ours + f"attention.{part}" for part in ("query", "key", "value")], theirs + "attn.c_attn", transpose=True
        ),
        transposed(ours + "attention.output", theirs + "attn.c_proj"),
        transposed(ours + "feedforward.up", theirs + "mlp.c_fc"),
        transposed(ours + "feedforward.down", theirs + "mlp.c_proj"),
        same("head.project", decoder_heads.module_name(config, "lm_head")),
        Alias("lm_head.weight", of="{base}wte.weight"),
        Dropped("*.attn.bias", "the causal triangle"),
        Dropped("*.attn.masked_bias", "a constant"),
    ]


FAMILY = Family(
    name="gpt2",
    architectures=("GPT2LMHeadModel", "GPT2Model", "GPT2ForSequenceClassification", "GPT2ForTokenClassification"),
    read=read,
    write=write,
    rules=rules,
    architecture=architecture,
    base="transformer.",
    bare=("GPT2Model",),
)
