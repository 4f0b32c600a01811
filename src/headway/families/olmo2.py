"""OLMo 2 (OLMo team 2024): LLaMA with its norms on what attention and feed-forward add to the residual stream, and on
queries and keys over all heads together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.checkpoints.rules import AnyRule, modules
from headway.errors import ConfigError
from headway.families import llama
from headway.families.family import Family, Keys
from headway.models.config import DecoderConfig

VARIANT = llama.LlamaVariant("Olmo2", eps=1e-5)
KINDS = llama.KINDS[:3]


def read(keys: Keys, architecture: str) -> DecoderConfig:
    return reordered(llama.read(keys, architecture, VARIANT))


def reordered(config: DecoderConfig) -> DecoderConfig:
    block = config.stack.block
    attention = replace(block.attention, qk_norm=block.norm, qk_norm_over="heads")
    return replace(config, stack=replace(config.stack, block=replace(block, attention=attention, norm_place="branch")))


def write(config: DecoderConfig) -> dict[str, Any]:
    if config != reordered(config):
        raise ConfigError("OLMo 2 has its norms on what each part adds, and on queries and keys over all heads")
    return llama.write(config, VARIANT)


def rules(config: DecoderConfig) -> list[AnyRule]:
    ours, theirs = "stack.blocks.{i}.", "{base}layers.{i}."
    return [
        *llama.rules(config),
        *modules(
            {
                ours + "attention_residual.branch_norm": theirs + "post_attention_layernorm",
                ours + "feedforward_residual.branch_norm": theirs + "post_feedforward_layernorm",
            }
        ),
    ]


FAMILY = Family(
    name="olmo2",
    architectures=tuple(VARIANT.title + kind for kind in KINDS),
    read=read,
    write=write,
    rules=rules,
    architecture=lambda config: llama.architecture(config, VARIANT),
    base="model.",
    bare=("Olmo2Model",),
)
