"""ViT (Dosovitskiy et al. 2021): an image as a row of patches after a class token, read pre-norm. DeiT (Touvron et al.
2021) adds a distillation token after the class token and, in models distilled from a teacher, a second classifier on it
whose logits are averaged with the first's.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from headway.checkpoints.rules import AnyRule, Dropped, modules, same, shaped
from headway.errors import ConfigError
from headway.families.family import Family, Keys, activation_name, encoder_keys, without_absent_pooler
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import PatchConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.models.config import ClassifyHeadConfig, EncoderConfig, HeadConfig, PoolerConfig, StackConfig

MOST_PIXELS = 100_000


def read(keys: Keys, architecture: str) -> EncoderConfig:
    distilled = architecture.startswith("DeiT")
    keys.ignore("encoder_stride")  # of the masked-image decoder
    stack = read_stack(keys)
    keys.only("pooler_output_size", stack.block.width)
    head: dict[str, HeadConfig] = {
        "ForImageClassification": ClassifyHeadConfig(keys.labels()),
        "ForImageClassificationWithTeacher": ClassifyHeadConfig(keys.labels(), distilled=True),
        "Model": PoolerConfig(keys.activation("pooler_act", "tanh")),
    }
    return EncoderConfig(
        embedding=replace(read_patches(keys, stack), distillation_token=distilled),
        stack=stack,
        head=head[architecture.removeprefix("DeiT" if distilled else "ViT")],
    )


def read_stack(keys: Keys) -> StackConfig:
    width = keys.size("hidden_size", 768)
    heads = keys.heads("num_attention_heads", 12, width=width)
    block = BlockConfig(
        width=width,
        attention=AttentionConfig(
            heads,
            width // heads,
            bias="qkvo" if keys.get("qkv_bias", bool, True) else "o",
            dropout=keys.get("attention_probs_dropout_prob", float, 0.0),
        ),
        feedforward=FeedForwardConfig(
            keys.size("intermediate_size", 3072), activation=keys.activation("hidden_act", "gelu")
        ),
        norm=NormConfig(eps=keys.get("layer_norm_eps", float, 1e-12)),
        dropout=keys.get("hidden_dropout_prob", float, 0.0),
    )
    return StackConfig(block, keys.layers("num_hidden_layers", 12), final_norm=True)


def read_patches(keys: Keys, stack: StackConfig, *, image: int | list[int] = 224) -> PatchConfig:
    """`image` is the size where the file states none."""
    size, patch = sides(keys, "image_size", image), sides(keys, "patch_size", 16)
    if size[0] < patch[0] or size[1] < patch[1]:
        raise ConfigError(f"config.json: image_size {size} is smaller than patch_size {patch}")
    channels = keys.size("num_channels", 3)
    return PatchConfig(stack.block.width, size, patch, channels=channels, dropout=stack.block.dropout)


def sides(keys: Keys, key: str, default: int | list[int]) -> tuple[int, int]:
    """(height, width) from one number for both, or two."""
    value = keys.get(key, int | list, default)
    both = tuple(value) if isinstance(value, list) else (value, value)
    if len(both) != 2 or not all(type(side) is int and 0 < side <= MOST_PIXELS for side in both):
        raise ConfigError(f"config.json: {key} is {value!r}, expected one or two numbers from 1 to {MOST_PIXELS}")
    return both


def write(config: EncoderConfig) -> dict[str, Any]:
    block, embedding = config.stack.block, config.embedding
    assert isinstance(embedding, PatchConfig)
    out = {
        **encoder_keys(config.stack),
        "qkv_bias": "q" in block.attention.bias,
        "num_channels": embedding.channels,
    }
    for key, (high, wide) in (("image_size", embedding.image), ("patch_size", embedding.patch)):
        out[key] = high if high == wide else [high, wide]
    if isinstance(config.head, PoolerConfig):
        out["pooler_act"] = activation_name(config.head.activation)
    return out


def rules(config: EncoderConfig) -> list[AnyRule]:
    ours, theirs = "stack.blocks.{i}.", "{base}encoder.layer.{i}."
    patches = config.embedding
    assert isinstance(patches, PatchConfig)
    teacher = isinstance(config.head, ClassifyHeadConfig) and config.head.distilled
    projection = "{base}embeddings.patch_embeddings.projection"
    return [
        shaped(
            "embedding.project.weight",
            projection + ".weight",
            ours_shape=(patches.width, -1),
            theirs_shape=(patches.width, patches.channels, *patches.patch),
        ),
        same("embedding.project.bias", projection + ".bias"),
        *modules(
            {
                "embedding.first": "{base}embeddings.cls_token",
                "embedding.distillation": "{base}embeddings.distillation_token",
                "embedding.positions": "{base}embeddings.position_embeddings",
                ours + "attention_residual.norm": theirs + "layernorm_before",
                ours + "attention.query": theirs + "attention.attention.query",
                ours + "attention.key": theirs + "attention.attention.key",
                ours + "attention.value": theirs + "attention.attention.value",
                ours + "attention.output": theirs + "attention.output.dense",
                ours + "feedforward_residual.norm": theirs + "layernorm_after",
                ours + "feedforward.up": theirs + "intermediate.dense",
                ours + "feedforward.down": theirs + "output.dense",
                "stack.final_norm": "{base}layernorm",
                "head.dense": "{base}pooler.dense",
                "head.project": "cls_classifier" if teacher else "classifier",
                "head.distilled": "distillation_classifier",
            }
        ),
        Dropped("*embeddings.mask_token", "used only to train on masked images"),
        Dropped("{base}pooler.*", "kept in the files of models that do not pool"),
    ]


def architecture(config: EncoderConfig, *, name: str) -> str:
    if not isinstance(config.head, ClassifyHeadConfig):
        return name + "Model"
    return name + "ForImageClassification" + ("WithTeacher" if config.head.distilled else "")


def family(name: str, *kinds: str) -> Family:
    return Family(
        name=name.lower(),
        architectures=tuple(name + kind for kind in kinds),
        read=read,
        write=write,
        rules=rules,
        architecture=partial(architecture, name=name),
        base=name.lower() + ".",
        bare=(name + "Model",),
        infer_from_tensors=without_absent_pooler,
    )


FAMILIES = (
    family("ViT", "ForImageClassification", "Model"),
    family("DeiT", "ForImageClassification", "ForImageClassificationWithTeacher", "Model"),
)
