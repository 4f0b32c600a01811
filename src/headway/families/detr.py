"""DETR (Carion et al. 2020): a ResNet, an encoder over its last feature map, a decoder of object queries; post-norm.

Files have the ResNet's tensors under timm's names (the published models: use_timm_backbone) or under those of the
reference library's own ResNet (backbone_config)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headway.checkpoints.rules import AnyRule, Dropped, Rule, modules, same, shaped
from headway.errors import ConfigError
from headway.families.family import Family, Keys, activation_name
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.convnet import REDUCTION, ConvNetConfig, Unit
from headway.layers.feature_map import FeatureMapConfig, Learned2dConfig, Sine2dConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.models.config import (
    DetectHeadConfig,
    DetectorConfig,
    EncoderConfig,
    ObjectDecoderConfig,
    StackConfig,
)

RESNETS: dict[int, tuple[Unit, tuple[int, ...]]] = {  # layers: unit, depths
    18: ("basic", (2, 2, 2, 2)),
    34: ("basic", (3, 4, 6, 3)),
    50: ("bottleneck", (3, 4, 6, 3)),
    101: ("bottleneck", (3, 4, 23, 3)),
    152: ("bottleneck", (3, 8, 36, 3)),
}
TRAINING = (  # costs of the matching and weights of the losses
    "class_cost", "bbox_cost", "giou_cost", "bbox_loss_coefficient", "giou_loss_coefficient", "eos_coefficient",
    "mask_loss_coefficient", "dice_loss_coefficient", "init_xavier_std", "encoder_layerdrop", "decoder_layerdrop",
)  # fmt: skip
NESTED = (  # keys of backbone_config that say nothing about its shape
    "stage_names", "features_only", "freeze_batch_norm_2d", "use_pretrained_backbone", "use_timm_backbone",
)  # fmt: skip


def read(keys: Keys, architecture: str) -> DetectorConfig:
    width = keys.size("d_model", 256)
    keys.ignore(*TRAINING, "use_pretrained_backbone", "hidden_size", "num_hidden_layers")
    keys.alias(num_attention_heads="encoder_attention_heads")
    keys.only("auxiliary_loss", False)  # with it the reference norms the decoder's layers twice
    dropout = keys.get("dropout", float, 0.1)
    attention, inner = keys.get("attention_dropout", float, 0.0), keys.get("activation_dropout", float, 0.0)
    activation = keys.activation("activation_function", "relu")

    def stack(side: str, *, cross: bool) -> StackConfig:
        heads = keys.heads(f"{side}_attention_heads", 8, width=width)
        own = AttentionConfig(heads, width // heads, dropout=attention)
        feedforward = FeedForwardConfig(keys.size(f"{side}_ffn_dim", 2048), activation=activation, dropout=inner)
        block = BlockConfig(
            width, own, feedforward, cross=own if cross else None, norm=NormConfig(), norm_place="post", dropout=dropout
        )
        return StackConfig(block, keys.layers(f"{side}_layers", 6), final_norm=cross)

    kind = keys.get("position_embedding_type", str, "sine")
    if kind not in ("sine", "learned"):
        raise ConfigError(f"config.json: position_embedding_type is {kind!r}; known: sine, learned")
    front = FeatureMapConfig(
        width, read_backbone(keys), positions=Sine2dConfig() if kind == "sine" else Learned2dConfig(), dropout=dropout
    )
    queries, head = keys.size("num_queries", 100), DetectHeadConfig(keys.labels())
    return DetectorConfig(
        encoder=EncoderConfig(front, stack("encoder", cross=False)),
        decoder=ObjectDecoderConfig(stack("decoder", cross=True), queries, head),
    )


def read_backbone(keys: Keys) -> ConvNetConfig:
    """`backbone` names a timm model; `backbone_config` is that of a timm model or of the reference library's ResNet."""
    channels, dilated = keys.size("num_channels", 3), keys.get("dilation", bool, False)
    given, named = keys.get("backbone_config", dict, None), keys.get("backbone", str, None)
    keys.ignore("use_timm_backbone", "backbone_kwargs")
    nested = Keys(given or {}, "config.json: backbone_config", outer=keys)
    kind = nested.get("model_type", str, "timm_backbone")
    nested.ignore(*NESTED)
    if kind == "timm_backbone":
        nested.only("output_stride", 16, 32)
        nested.only("out_indices", [1, 2, 3, 4], [4])
        nested.ignore("out_features")
        dilated = dilated or nested.data.get("output_stride") == 16
        channels = nested.size("num_channels", channels)
        net = timm_resnet(nested.get("backbone", str, named or "resnet50"), channels=channels, dilated=dilated)
    elif kind == "resnet":
        net = own_resnet(nested)
    else:
        raise ConfigError(f"config.json: backbone_config.model_type is {kind!r:.60}; known: resnet, timm_backbone")
    nested.done()
    return net


def timm_resnet(name: str, *, channels: int, dilated: bool) -> ConvNetConfig:
    match = re.fullmatch(r"resnet(\d+)(\..*)?", name)
    if match is None or int(match[1]) not in RESNETS:
        known = ", ".join(f"resnet{layers}" for layers in RESNETS)
        raise ConfigError(f"config.json: backbone {name!r:.60} is not one Headway builds; known: {known}")
    unit, depths = RESNETS[int(match[1])]
    stages = tuple(64 * 2**stage * (REDUCTION if unit == "bottleneck" else 1) for stage in range(4))
    return ConvNetConfig(
        64,
        stages,
        depths,
        unit=unit,
        norm="frozen",
        pool=True,
        dilated=dilated,
        channels=channels,
        names="timm",
    )


def own_resnet(keys: Keys) -> ConvNetConfig:
    keys.only("hidden_act", "relu")
    keys.only("downsample_in_first_stage", False)
    keys.only("downsample_in_bottleneck", False)
    stages, depths = (
        tuple(keys.get(key, list[int], default))
        for key, default in (("hidden_sizes", [256, 512, 1024, 2048]), ("depths", [3, 4, 6, 3]))
    )
    keys.only("out_features", [f"stage{len(stages)}"])
    keys.only("out_indices", [len(stages)], [-1])
    unit = keys.get("layer_type", Unit, "bottleneck")
    channels = keys.size("num_channels", 3)
    return ConvNetConfig(
        keys.size("embedding_size", 64),
        stages,
        depths,
        unit=unit,
        norm="frozen",
        pool=True,
        channels=channels,
    )


def write(config: DetectorConfig) -> dict[str, Any]:
    front, head = config.encoder.embedding, config.decoder
    assert isinstance(front, FeatureMapConfig)
    out: dict[str, Any] = {}
    for side, stack in (("encoder", config.encoder.stack), ("decoder", config.decoder.stack)):
        out |= {
            f"{side}_layers": stack.layers,
            f"{side}_attention_heads": stack.block.attention.heads,
            f"{side}_ffn_dim": stack.block.feedforward.width,
        }
    block = config.encoder.stack.block
    return (
        out
        | write_backbone(front.convnet)
        | {
            "d_model": block.width,
            "dropout": block.dropout,
            "attention_dropout": block.attention.dropout,
            "activation_dropout": block.feedforward.dropout,
            "activation_function": activation_name(block.feedforward.activation),
            "num_queries": head.queries,
            "num_channels": front.channels,
            "position_embedding_type": "sine" if isinstance(front.positions, Sine2dConfig) else "learned",
            "is_encoder_decoder": True,
        }
    )


def write_backbone(net: ConvNetConfig) -> dict[str, Any]:
    if net.names == "timm":
        layers = next((n for n, kind in RESNETS.items() if kind == (net.unit, net.depths)), None)
        named = {"use_timm_backbone": True, "backbone": f"resnet{layers}", "backbone_config": None}
        return {**named, "dilation": net.dilated}
    own = {
        "model_type": "resnet",
        "num_channels": net.channels,
        "embedding_size": net.stem,
        "hidden_sizes": list(net.stages),
        "depths": list(net.depths),
        "layer_type": net.unit,
        "hidden_act": "relu",
        "out_features": [f"stage{len(net.stages)}"],
    }
    return {"use_timm_backbone": False, "backbone": None, "backbone_config": own, "dilation": False}


def rules(config: DetectorConfig) -> list[AnyRule]:
    front = config.encoder.embedding
    assert isinstance(front, FeatureMapConfig)
    table = {
        "encoder.embedding.positions.rows": "{base}position_embedding.row_embeddings",
        "encoder.embedding.positions.columns": "{base}position_embedding.column_embeddings",
        "decoder.queries.weight": "{base}query_position_embeddings.weight",
        "decoder.stack.final_norm": "{base}decoder.layernorm",
        "decoder.head.classes.layers.0": "class_labels_classifier",
        "decoder.head.boxes.layers.{i}": "bbox_predictor.layers.{i}",
    }
    for side in ("encoder", "decoder"):
        ours, theirs = f"{side}.stack.blocks.{{i}}.", f"{{base}}{side}.layers.{{i}}."
        for own, their in (("attention", "self_attn"), ("cross", "encoder_attn")):
            for part, name in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("output", "out_proj")):
                table[f"{ours}{own}.{part}"] = f"{theirs}{their}.{name}"
            table[f"{ours}{own}_residual.norm"] = f"{theirs}{their}_layer_norm"
        table[ours + "feedforward.up"], table[ours + "feedforward.down"] = theirs + "fc1", theirs + "fc2"
        table[ours + "feedforward_residual.norm"] = theirs + "final_layer_norm"
    return [
        *modules(table),
        *kernel("encoder.embedding.project", "{base}input_projection", (front.convnet.stages[-1], 1)),
        same("encoder.embedding.project.bias", "{base}input_projection.bias"),
        *backbone_rules(front.convnet),
        Dropped("*num_batches_tracked", "a count of the batches that a norm saw"),
    ]


def kernel(ours: str, theirs: str, shape: tuple[int, int]) -> list[Rule]:
    """A convolution's kernel: ours is the matrix, theirs has four dimensions."""
    inputs, side = shape
    flat, four = (-1, inputs * side * side), (-1, inputs, side, side)
    return [shaped(f"{ours}.weight", f"{theirs}.weight", ours_shape=flat, theirs_shape=four)]


def backbone_rules(net: ConvNetConfig) -> list[Rule]:
    ours, theirs = "encoder.embedding.convnet.", "{base}backbone.conv_encoder.model."
    timm = net.names == "timm"
    names = ("conv1", "bn1") if timm else ("embedder.embedder.convolution", "embedder.embedder.normalization")
    out = conv_norm(ours + "stem.", [theirs + name for name in names], (net.channels, 7 if net.pool else 3))
    inputs = net.stem
    for stage, (outputs, depth) in enumerate(zip(net.stages, net.depths, strict=True)):
        for unit in range(depth):
            mine = f"{ours}stages.{stage}.{unit}."
            other = f"{theirs}layer{stage + 1}.{unit}." if timm else f"{theirs}encoder.stages.{stage}.layers.{unit}."
            for place, shape in enumerate(unit_shapes(inputs, outputs, net.unit)):
                names = (f"conv{place + 1}", f"bn{place + 1}")
                names = names if timm else (f"layer.{place}.convolution", f"layer.{place}.normalization")
                out += conv_norm(f"{mine}convs.{place}.", [other + name for name in names], shape)
            names = ("downsample.0", "downsample.1") if timm else ("shortcut.convolution", "shortcut.normalization")
            out += conv_norm(mine + "shortcut.", [other + name for name in names], (inputs, 1))
            inputs = outputs
    return out


def unit_shapes(inputs: int, outputs: int, unit: str) -> list[tuple[int, int]]:
    """(input channels, side of the kernel) of each convolution of a residual unit."""
    inside = outputs // REDUCTION
    return [(inputs, 3), (outputs, 3)] if unit == "basic" else [(inputs, 1), (inside, 3), (inside, 1)]


def conv_norm(ours: str, theirs: list[str], shape: tuple[int, int]) -> list[Rule]:
    conv, norm = theirs
    values: Mapping[str, str] = {f"{ours}norm.{name}": f"{norm}.{name}" for name in NORM}
    return [*kernel(ours + "conv", conv, shape), *modules(values)]


NORM = ("weight", "bias", "running_mean", "running_var")

FAMILY = Family(
    name="detr",
    architectures=("DetrForObjectDetection",),
    read=read,
    write=write,
    rules=rules,
    architecture=lambda config: "DetrForObjectDetection",
    base="model.",
)
