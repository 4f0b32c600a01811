"""DETR's files: the backbone under timm's names, as published, or under those of the reference library's ResNet."""

import json
from pathlib import Path

import pytest
import torch
from parity.cases import detr
from safetensors.torch import load_file, save_file

import headway
from headway.errors import ConfigError
from headway.families.detr import timm_resnet

RESNET18 = dict(embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic")


def timm_name(name: str) -> str:
    """The name that the published files have for a tensor of the reference library's own ResNet."""
    start = "model.backbone.conv_encoder.model."
    if not name.startswith(start):
        return name
    parts = name.removeprefix(start).split(".")
    norm = {"convolution": "conv", "normalization": "bn"}[parts[-2]]
    if parts[0] == "embedder":
        return f"{start}{norm}1.{parts[-1]}"
    stage, unit = int(parts[2]) + 1, parts[4]
    if parts[5] == "shortcut":
        return f"{start}layer{stage}.{unit}.downsample.{0 if norm == 'conv' else 1}.{parts[-1]}"
    return f"{start}layer{stage}.{unit}.{norm}{int(parts[6]) + 1}.{parts[-1]}"


def test_the_published_dialect(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.DetrConfig(**detr(**RESNET18))
    reference = transformers.DetrForObjectDetection(config).eval()
    reference.save_pretrained(tmp_path / "own")
    published = tmp_path / "published"
    published.mkdir()
    tensors = {timm_name(name): tensor for name, tensor in load_file(tmp_path / "own" / "model.safetensors").items()}
    save_file(tensors, published / "model.safetensors")
    keys = json.loads((tmp_path / "own" / "config.json").read_text())
    del keys["backbone_config"], keys["use_timm_backbone"]
    (published / "config.json").write_text(json.dumps(keys | {"backbone": "resnet18", "use_timm_backbone": True}))
    ours, image = headway.load(published), torch.randn(1, 3, 70, 90)
    with torch.no_grad():
        expected = reference(pixel_values=image)
    torch.testing.assert_close(ours.logits(pixel_values=image), expected.logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.boxes(pixel_values=image), expected.pred_boxes, atol=1e-4, rtol=1e-4)
    again = ours.save(tmp_path / "again")
    saved = load_file(again / "model.safetensors")
    assert saved.keys() == tensors.keys() and all(torch.equal(saved[name], tensors[name]) for name in tensors)
    assert json.loads((again / "config.json").read_text())["backbone"] == "resnet18"


def test_depths_of_the_published_backbones() -> None:
    fifty = timm_resnet("resnet50", channels=3, dilated=True)
    assert (fifty.stages, fifty.depths, fifty.stride) == ((256, 512, 1024, 2048), (3, 4, 6, 3), 16)
    with pytest.raises(ConfigError, match="'convnext_tiny' is not one Headway builds"):
        timm_resnet("convnext_tiny", channels=3, dilated=False)
