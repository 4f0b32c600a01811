"""The detector: queries that are learned, or boxes; what padding, noised targets and the box prior may influence."""

from dataclasses import replace

import pytest
import torch

from headway.errors import ConfigError
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.boxes import BoxPrior
from headway.layers.convnet import ConvNetConfig
from headway.layers.embedded import Grid
from headway.layers.feature_map import FeatureMapConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.models.build import build
from headway.models.config import (
    AnchorConfig,
    DetectHeadConfig,
    DetectorConfig,
    EncoderConfig,
    ModelConfig,
    ObjectDecoderConfig,
    StackConfig,
    to_dict,
)
from headway.models.config_checks import validate
from headway.models.detector import Detector, distinct
from headway.models.init import initialise
from headway.validation import from_dict

ATTENTION = AttentionConfig(2, 8)
BLOCK = BlockConfig(16, ATTENTION, FeedForwardConfig(24))
NET = ConvNetConfig(8, (8, 16, 16), (1, 1, 2))


def config(anchors: AnchorConfig | None = None, *, top_down: bool = False) -> DetectorConfig:
    return DetectorConfig(
        EncoderConfig(FeatureMapConfig(16, NET, top_down=top_down), StackConfig(BLOCK, 1, final_norm=True)),
        ObjectDecoderConfig(
            StackConfig(replace(BLOCK, cross=ATTENTION), 2, final_norm=True),
            5,
            DetectHeadConfig(3, no_object=anchors is None),
            anchors,
        ),
    )


def random_detector(config: DetectorConfig) -> Detector:
    torch.manual_seed(0)
    model = build(config).eval()
    assert isinstance(model, Detector)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


VARIANTS = [
    None,
    AnchorConfig(),
    AnchorConfig(proposals=False),
    AnchorConfig(denoising=False, prior=False),
    AnchorConfig(refine=False),
]


@pytest.mark.parametrize("anchors", VARIANTS)
def test_every_kind_of_query(anchors: AnchorConfig | None) -> None:
    whole = config(anchors, top_down=anchors is not None)
    assert from_dict(ModelConfig, to_dict(whole)) == whole
    model = random_detector(whole)
    output = model(torch.randn(2, 3, 48, 64))
    assert output.logits.shape == (2, 5, 3 + (anchors is None)) and output.boxes.shape == (2, 5, 4)
    assert ((output.boxes > 0) & (output.boxes < 1)).all() and len(output.auxiliary) == 1
    proposed = anchors is not None and anchors.proposals
    assert (output.proposals is not None) == proposed
    if proposed:
        assert output.proposals.boxes.shape == (2, 6 * 8, 4)  # at a stride of 8
    (output.logits.sum() + output.boxes.sum() + output.auxiliary[0].boxes.sum()).backward()
    assert (model.shape, model.inputs, model.head_kind, model.image_channels) == ("detector", "image", "detect", 3)
    assert model.vocab_size is None and not model.generates


def test_noised_targets_do_not_reach_the_other_queries() -> None:
    model = random_detector(config(AnchorConfig()))
    image, boxes = torch.randn(2, 3, 48, 64), torch.rand(2, 4, 4) * 0.4 + 0.3
    noised = {
        "denoising_boxes": boxes,
        "denoising_labels": torch.tensor([[0, 1, 2, 0]] * 2),
        "denoising_groups": torch.tensor([[1, 1, 2, -1]] * 2),
    }
    alone, both = model(image), model(image, **noised)
    torch.testing.assert_close(both.boxes, alone.boxes)
    assert len(both.denoised) == 2 and both.denoised[0].boxes.shape == (2, 4, 4) and not alone.denoised
    changed = boxes.clone()
    changed[:, 2] += 0.1  # group 2
    other = model(image, **(noised | {"denoising_boxes": changed})).denoised[1].boxes
    torch.testing.assert_close(other[:, :2], both.denoised[1].boxes[:, :2])
    assert not torch.allclose(other[:, 2], both.denoised[1].boxes[:, 2])


def test_padding_is_not_proposed_and_not_attended_to() -> None:
    whole = config(AnchorConfig())
    frozen = FeatureMapConfig(16, replace(NET, norm="frozen"))  # a group norm sees all of the canvas
    few = replace(whole.decoder, queries=4)  # as many as there are vectors that are not padding
    model = random_detector(replace(whole, encoder=replace(whole.encoder, embedding=frozen), decoder=few))
    small = torch.randn(1, 3, 32, 32)
    canvas, mask = torch.zeros(1, 3, 64, 160), torch.zeros(1, 64, 160, dtype=torch.bool)
    canvas[:, :, :32, :32], mask[:, :32, :32] = small, True
    source = model.encoder.embed(canvas, padding_mask=mask)
    assert source.padding_mask.sum() == 4 and source.grid.columns.shape == (1, 10)
    torch.testing.assert_close(source.grid.columns[0, :2], torch.tensor([0.25, 0.75]))
    torch.testing.assert_close(source.grid.rows[0, :2], torch.tensor([0.25, 0.75]))
    output = model(canvas, padding_mask=mask)
    noise = canvas.clone()
    noise[:, :, :, 128:] = 9.0  # beyond what a convolution sees of the picture's edge
    torch.testing.assert_close(model(noise, padding_mask=mask).boxes, output.boxes)


def test_the_prior_by_hand() -> None:
    prior = BoxPrior(2)
    grid = Grid(torch.tensor([[0.25, 0.75]]), torch.tensor([[0.1, 0.5, 0.9]]))
    bias = prior(torch.tensor([[[0.5, 0.25, 0.4, 0.2]]]), grid)  # (1, head, 1, 6)
    assert bias.shape == (1, 2, 1, 6)
    point = (0.5 + prior.point[1, 0] * 0.2, 0.25 + prior.point[1, 1] * 0.1)
    by_hand = -0.5 * (((0.9 - point[0]) / 0.2) ** 2 + ((0.75 - point[1]) / 0.1) ** 2)
    torch.testing.assert_close(bias[0, 1, 0, 5], by_hand.detach())
    (gradient,) = torch.autograd.grad(bias.sum(), prior.sharpness)
    assert gradient.abs().min() > 0


def test_a_fresh_model_proposes_rare_boxes_of_the_given_size() -> None:
    model = build(config(AnchorConfig(size=0.3)))
    initialise(model, "modern", seed=0)
    output = model(torch.randn(1, 3, 48, 64))
    torch.testing.assert_close(output.proposals.boxes[..., 2:], torch.full_like(output.proposals.boxes[..., 2:], 0.3))
    assert output.logits.sigmoid().max().item() == pytest.approx(0.01, abs=1e-6)
    torch.testing.assert_close(output.boxes, output.auxiliary[0].boxes)


def test_an_object_has_one_query() -> None:
    """Of three proposals for one object and one for another, the first two queries are one of each."""
    boxes = torch.tensor([[[0.3, 0.3, 0.2, 0.2], [0.7, 0.7, 0.2, 0.2], [0.31, 0.3, 0.2, 0.2], [0.3, 0.31, 0.2, 0.2]]])
    scores = torch.tensor([[3.0, -1.0, 2.0, 4.0]])
    assert distinct(scores, boxes, 2).tolist() == [[3, 1]]
    assert distinct(scores, boxes, 9).tolist() == [[3, 1, 0, 2]]  # then the others, the best first


def test_sizes_that_do_not_fit_are_refused() -> None:
    whole = config()
    with pytest.raises(ConfigError, match="cross is missing: the decoder attends to the encoder's output"):
        validate(replace(whole, decoder=replace(whole.decoder, stack=StackConfig(BLOCK, 1))))
    with pytest.raises(ConfigError, match=r"depths is \[1\] for the 2 stages"):
        validate(ConvNetConfig(8, (8, 16), (1,)))
