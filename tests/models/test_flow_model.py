"""The flow shape: it reads time, caption and picture, begins to learn, and is saved with its config."""

import torch

from headway.layers.patches import cut_patches, join_patches
from headway.models.build import build
from headway.models.config import ModelConfig, to_dict
from headway.models.flow import TimeEmbedding
from headway.models.init import initialise
from headway.models.recipes import Size, flow
from headway.validation import from_dict

SIZE = Size(width=16, layers=2, heads=2, dropout=0.0)
CONFIG = flow(SIZE, "modern", vocab=12, image=(8, 12), patch=4, channels=3, caption_layers=1)
IDS, IMAGES, TIME = torch.tensor([[1, 5, 2], [1, 6, 2]]), torch.randn(2, 3, 8, 12), torch.tensor([0.2, 0.7])


def test_patches_are_joined_as_they_were_cut() -> None:
    cut = cut_patches(IMAGES, (4, 6))
    assert cut.shape == (2, 4, 72) and torch.equal(cut[0, 1], IMAGES[0, :, :4, 6:].flatten())
    assert torch.equal(join_patches(cut, patch=(4, 6), image=(8, 12)), IMAGES)


def test_times_have_different_vectors() -> None:
    vectors = TimeEmbedding(8)(torch.tensor([0.0, 0.01, 0.5, 0.51]))
    assert vectors.shape == (4, 8) and torch.cdist(vectors, vectors).add(torch.eye(4)).min() > 1e-3


@torch.no_grad()
def test_the_velocity_depends_on_picture_time_and_caption() -> None:
    model = build(CONFIG).eval()
    for parameter in model.parameters():
        parameter.normal_(0, 0.3)
    velocity = model(IDS, images=IMAGES, time=TIME).velocity
    assert velocity.shape == IMAGES.shape
    others = [
        model(IDS.flip(0), images=IMAGES, time=TIME),
        model(IDS, images=IMAGES, time=TIME.flip(0)),
        model(IDS, images=IMAGES.flip(0), time=TIME),
    ]
    assert all((other.velocity - velocity).abs().max() > 1e-2 for other in others)
    wide = torch.cat([IDS, torch.zeros_like(IDS)], dim=1)
    padded = model(wide, images=IMAGES, time=TIME, padding_mask=torch.arange(6).expand(2, -1) < 3).velocity
    torch.testing.assert_close(padded, velocity, atol=1e-5, rtol=1e-4)


def test_it_begins_to_learn_in_every_part() -> None:
    model = build(CONFIG)
    initialise(model, "modern", seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(4):
        (model(IDS, images=IMAGES, time=TIME).velocity - IMAGES).square().sum().backward()
        optimizer.step()
        grads = {name: parameter.grad for name, parameter in model.named_parameters()}
        optimizer.zero_grad()
    assert all(grad is not None and grad.abs().sum() > 0 for name, grad in grads.items()), grads.keys()


def test_the_config_is_data() -> None:
    assert from_dict(ModelConfig, to_dict(CONFIG)) == CONFIG
    model = build(CONFIG)
    assert [part.name for part in model.parts] == ["encoder", "denoiser"] and not model.gives_logits
    assert (model.head_kind, model.image_channels, model.vocab_size, model.generates) == ("velocity", 3, 12, False)
