"""LLaMA 1–3 (Touvron et al. 2023) and its variants: Mistral (sliding window), Qwen2 (q, k, v biases),
Qwen3 (norms on queries and keys), Mixtral (a router chooses experts for each token). RMS pre-norm, rotary positions,
gated feed-forward, grouped heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headway.checkpoints.rules import Alias, AnyRule, Dropped, modules, same
from headway.errors import ConfigError
from headway.families import decoder_heads
from headway.families.family import Family, Keys, activation_name
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.layers.rotary import RotaryConfig, RotaryScaling
from headway.models.config import DecoderConfig, LanguageHeadConfig, LayerConfig, StackConfig
from headway.validation import from_dict

SCALING = {  # their key → ours; which of them a kind uses
    "factor": "factor",
    "original_max_position_embeddings": "original_length",
    "attention_factor": "attention_factor",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "mscale": "mscale",
    "mscale_all_dim": "mscale_all_dim",
    "truncate": "truncate",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "short_factor": "short_factor",
    "long_factor": "long_factor",
}


@dataclass(frozen=True)
class LlamaVariant:
    """How one member differs from LLaMA."""

    title: str
    theta: float = 10000.0
    kv_heads: int | None = None
    head_size: int | None = None
    qkv_bias: bool = False
    qk_norm: bool = False
    window: int | None = None  # the published default
    context: int = 2048
    eps: float = 1e-6
    tied: bool = False
    experts: int = 0  # the published default


VARIANTS = {
    "llama": LlamaVariant("Llama"),
    "mistral": LlamaVariant("Mistral", kv_heads=8, window=4096, context=4096 * 32),
    "mixtral": LlamaVariant("Mixtral", kv_heads=8, window=0, context=4096 * 32, eps=1e-5, experts=8),
    "qwen2": LlamaVariant("Qwen2", kv_heads=32, qkv_bias=True, window=4096, context=32768),
    "qwen3": LlamaVariant("Qwen3", kv_heads=32, head_size=128, qk_norm=True, window=4096, context=32768),
}


def read(keys: Keys, architecture: str, variant: LlamaVariant) -> DecoderConfig:
    width, heads = keys.size("hidden_size"), keys.size("num_attention_heads")
    layers = keys.layers("num_hidden_layers")
    context = keys.size("max_position_embeddings", variant.context)
    norm = NormConfig("rms", eps=keys.get("rms_norm_eps", float, variant.eps))
    bias = "qkv" if variant.qkv_bias else ("qkvo" if keys.get("attention_bias", bool, False) else "")
    block = BlockConfig(
        width=width,
        attention=AttentionConfig(
            heads,
            keys.size("head_dim", variant.head_size or width // heads),
            kv_heads=keys.size("num_key_value_heads", min(variant.kv_heads or heads, heads)),
            bias=bias,
            rotary=rotary(keys, context, variant.theta),
            qk_norm=norm if variant.qk_norm else None,
            dropout=keys.get("attention_dropout", float, 0.0),
        ),
        feedforward=FeedForwardConfig(
            keys.size("intermediate_size"),
            activation=keys.activation("hidden_act", "silu"),
            gated=True,
            bias=False if variant.experts else keys.get("mlp_bias", bool, False),
            **read_experts(keys, variant),
        ),
        norm=norm,
    )
    kind = architecture.removeprefix(variant.title)
    head_dropout = keys.get("hidden_dropout", float, 0.1)
    return DecoderConfig(
        embedding=EmbeddingConfig(keys.size("vocab_size"), width),
        stack=StackConfig(block, layers, causal=True, final_norm=True, per_layer=per_layer(keys, layers, variant)),
        head=decoder_heads.read_head(keys, kind, tied=variant.tied, dropout=head_dropout),
        context=context,
    )


def read_experts(keys: Keys, variant: LlamaVariant) -> dict[str, int]:
    if not variant.experts:
        return {}
    keys.alias(num_experts="num_local_experts")
    keys.only("router_jitter_noise", 0, 0.0)
    keys.ignore("router_aux_loss_coef", "output_router_logits")  # of a loss that is not computed here
    return {"experts": keys.size("num_local_experts", variant.experts), "chosen": keys.size("num_experts_per_tok", 2)}


def per_layer(keys: Keys, layers: int, variant: LlamaVariant) -> tuple[LayerConfig, ...]:
    """The sliding windows; empty: no layer has one."""
    if variant.window is None:
        return ()
    size = keys.get("sliding_window", int, variant.window if "sliding_window" not in keys.data else None)
    if variant.title in ("Mistral", "Mixtral"):
        return (LayerConfig(window=size),) * layers if size else ()
    if not keys.get("use_sliding_window", bool, False):
        size = None
    first = keys.get("max_window_layers", int, 28)
    kinds = keys.get("layer_types", list, None)
    slides = [kind == "sliding_attention" for kind in kinds] if kinds else [layer >= first for layer in range(layers)]
    windows = tuple(LayerConfig(window=size if slide else None) for slide in slides)
    return windows if size and any(slides) else ()


def rotary(keys: Keys, context: int, theta: float) -> RotaryConfig:
    """Reads both spellings: `rope_parameters`, and the older `rope_theta` with `rope_scaling`."""
    parameters = {**keys.get("rope_scaling", dict, {}), **keys.get("rope_parameters", dict, {})}
    given = Keys(parameters, f"{keys.file}: rope_parameters", outer=keys)
    theta = given.get("rope_theta", float, keys.get("rope_theta", float, theta))
    kind = given.get("rope_type", str, given.get("type", str, "default"))
    kind = "longrope" if kind == "su" else kind  # its first name
    share = given.get("partial_rotary_factor", float, keys.get("partial_rotary_factor", float, 1.0))
    original = given.size("original_max_position_embeddings", keys.size("original_max_position_embeddings", None))
    values = {ours: given.data[key] for key, ours in SCALING.items() if given.data.get(key) is not None}
    given.ignore(*SCALING)
    given.done()
    if kind == "default":
        return RotaryConfig(theta, share=share)
    if kind not in ("linear", "dynamic", "yarn", "longrope", "llama3"):
        raise ConfigError(f"config.json: rope_parameters: rope_type {kind!r} is not supported")
    if kind in ("yarn", "longrope"):
        values["original_length"] = original or context
    if kind == "dynamic":
        values["original_length"] = context
    if "factor" not in values:
        values["factor"] = context / (original or context)
    scaling = from_dict(RotaryScaling, {"kind": kind, **values}, path="config.json: rope_parameters")
    return RotaryConfig(theta, share=share, scaling=scaling)


def write_rotary(config: RotaryConfig) -> dict[str, Any]:
    out: dict[str, Any] = {"rope_type": "default", "rope_theta": config.theta}
    if config.share != 1.0:
        out["partial_rotary_factor"] = config.share
    if config.scaling is not None:
        plain = RotaryScaling(config.scaling.kind)
        out["rope_type"], out["factor"] = config.scaling.kind, config.scaling.factor
        for theirs, ours in SCALING.items():
            value = getattr(config.scaling, ours)
            if value != getattr(plain, ours) or (config.scaling.kind == "llama3" and "freq" in ours):
                out[theirs] = list(value) if isinstance(value, tuple) else value
    return out


def write(config: DecoderConfig, variant: LlamaVariant) -> dict[str, Any]:
    block = config.stack.block
    attention = block.attention
    if attention.rotary is None:
        raise ConfigError(f"{variant.title} has rotary positions")
    out = {
        "hidden_size": block.width,
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.kv_heads or attention.heads,
        "head_dim": attention.head_size,
        "num_hidden_layers": config.stack.layers,
        "intermediate_size": block.feedforward.width,
        "hidden_act": activation_name(block.feedforward.activation),
        "rms_norm_eps": block.norm.eps,
        "vocab_size": config.embedding.vocab,
        "max_position_embeddings": config.context,
        "rope_parameters": write_rotary(attention.rotary),
        "attention_dropout": attention.dropout,
        "tie_word_embeddings": isinstance(config.head, LanguageHeadConfig) and config.head.tied,
        **decoder_heads.write_head(config),
    }
    if variant.experts:
        out |= {"num_local_experts": block.feedforward.experts, "num_experts_per_tok": block.feedforward.chosen}
    if variant.title in ("Llama", "Qwen3", "SmolLM3", "Olmo2"):
        out["attention_bias"] = "q" in attention.bias
    if variant.title in ("Llama", "SmolLM3"):
        out["mlp_bias"] = block.feedforward.bias
    if variant.window is not None:
        size = next((layer.window for layer in config.stack.per_layer if layer.window), None)
        out["sliding_window"] = size
        if variant.title not in ("Mistral", "Mixtral"):
            out["use_sliding_window"] = size is not None
            kinds = [("sliding" if layer.window else "full") + "_attention" for layer in config.stack.per_layer]
            out["layer_types"] = kinds or ["full_attention"] * config.stack.layers
            out["max_window_layers"] = config.stack.layers
    return out


def architecture(config: DecoderConfig, variant: LlamaVariant) -> str:
    return variant.title + decoder_heads.kind(config)


def rules(config: DecoderConfig) -> list[AnyRule]:
    ours, theirs = "stack.blocks.{i}.", "{base}layers.{i}."
    separate = {
        ours + "attention.query": theirs + "self_attn.q_proj",
        ours + "attention.key": theirs + "self_attn.k_proj",
        ours + "attention.value": theirs + "self_attn.v_proj",
        ours + "feedforward.gate": theirs + "mlp.gate_proj",
        ours + "feedforward.up": theirs + "mlp.up_proj",
    }
    own, routed = ours + "feedforward.", theirs + "block_sparse_moe."
    names = {"gate": "w1", "down": "w2", "up": "w3"}
    experts = {
        f"{own}experts.{number}.{part}": f"{routed}experts.{number}.{name}"
        for number in range(config.stack.block.feedforward.experts)
        for part, name in names.items()
    }
    return [*modules(separate | experts | {own + "router": routed + "gate"}), *common_rules(config)]


def common_rules(config: DecoderConfig) -> list[AnyRule]:
    """All but the projections that some families keep in one matrix."""
    ours, theirs = "stack.blocks.{i}.", "{base}layers.{i}."
    head = "lm_head" if isinstance(config.head, LanguageHeadConfig) else "score"
    return [
        *modules(
            {
                "embedding.tokens": "{base}embed_tokens",
                ours + "attention_residual.norm": theirs + "input_layernorm",
                ours + "attention.output": theirs + "self_attn.o_proj",
                ours + "attention.query_norm": theirs + "self_attn.q_norm",
                ours + "attention.key_norm": theirs + "self_attn.k_norm",
                ours + "feedforward_residual.norm": theirs + "post_attention_layernorm",
                ours + "feedforward.down": theirs + "mlp.down_proj",
                "stack.final_norm": "{base}norm",
            }
        ),
        same("head.project", head),
        Alias("lm_head.weight", of="{base}embed_tokens.weight"),
        Dropped("*rotary_emb.inv_freq", "follows from the config"),
    ]


KINDS = ("ForCausalLM", "Model", "ForSequenceClassification", "ForTokenClassification")


def _family(name: str, variant: LlamaVariant) -> Family:
    return Family(
        name=name,
        architectures=tuple(variant.title + kind for kind in KINDS),
        read=lambda keys, architecture: read(keys, architecture, variant),
        write=lambda config: write(config, variant),
        rules=rules,
        architecture=lambda config: architecture(config, variant),
        base="model.",
        bare=(variant.title + "Model",),
    )


FAMILIES = tuple(_family(name, variant) for name, variant in VARIANTS.items())
