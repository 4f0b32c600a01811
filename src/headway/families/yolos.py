"""YOLOS (Fang et al. 2021): a ViT with detection tokens behind the patches, each of which finds one object, or none.
All but the smallest model also have learned positions between their blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.checkpoints.rules import AnyRule, modules
from headway.errors import ConfigError
from headway.families import vit
from headway.families.family import Family, Keys
from headway.layers.embeddings import PatchConfig
from headway.models.config import DetectHeadConfig, EncoderConfig

CLASS_LAYERS = 3
TRAINING = (  # costs of the matching and weights of the losses
    "class_cost", "bbox_cost", "giou_cost", "bbox_loss_coefficient", "giou_loss_coefficient", "eos_coefficient",
    "auxiliary_loss",
)  # fmt: skip


def read(keys: Keys, architecture: str) -> EncoderConfig:
    keys.ignore(*TRAINING)
    tokens = keys.size("num_detection_tokens", 100)
    stack = vit.read_stack(keys)
    patches = vit.read_patches(keys, stack, image=[512, 864])
    if patches.patch[0] != patches.patch[1]:
        raise ConfigError(f"config.json: patch_size is {list(patches.patch)}, but patches of YOLOS are square")
    between = stack.layers - 1 if keys.get("use_mid_position_embeddings", bool, True) else 0
    return EncoderConfig(
        replace(patches, detection_tokens=tokens, layer_positions=between),
        stack,
        DetectHeadConfig(keys.labels(), class_layers=CLASS_LAYERS, tokens=tokens),
    )


def write(config: EncoderConfig) -> dict[str, Any]:
    patches = config.embedding
    assert isinstance(patches, PatchConfig)
    return {
        **vit.write(config),
        "image_size": list(patches.image),
        "num_detection_tokens": patches.detection_tokens,
        "use_mid_position_embeddings": patches.layer_positions > 0,
    }


def rules(config: EncoderConfig) -> list[AnyRule]:
    own = {
        "embedding.detection": "{base}embeddings.detection_tokens",
        "embedding.layer_positions": "{base}encoder.mid_position_embeddings",
        "head.classes.layers.{i}": "class_labels_classifier.layers.{i}",
        "head.boxes.layers.{i}": "bbox_predictor.layers.{i}",
    }
    return [*modules(own), *vit.rules(config)]


FAMILY = Family(
    name="yolos",
    architectures=("YolosForObjectDetection",),
    read=read,
    write=write,
    rules=rules,
    architecture=lambda config: "YolosForObjectDetection",
    base="vit.",
)
