"""Audio frames as a front end: an encoder over sound, alone and before a decoder."""

from dataclasses import replace

import pytest
import torch
from support.variants import ENCODER, PAIR, random_model

from headway.layers.embeddings import FrameConfig
from headway.models.config import ClassifyHeadConfig, ModelConfig, to_dict
from headway.validation import from_dict

FRAMES = FrameConfig(16, bins=5, positions=20)


def test_convolutions_are_torchs() -> None:
    layer = FrameConfig(6, bins=4, strides=(1, 2, 3)).build()
    x = torch.randn(2, 17, 4)
    want = x.mT
    for stride, linear in zip((1, 2, 3), layer.convolutions, strict=True):
        kernel = linear.weight.unflatten(1, (3, -1)).mT  # (out, in, 3)
        want = torch.nn.functional.gelu(torch.conv1d(want, kernel, linear.bias, stride=stride, padding=1))
    torch.testing.assert_close(layer(x).x, want.mT, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("strides", [(1, 2), (2, 2), (1, 3)])
def test_padding_changes_nothing(strides: tuple[int, ...]) -> None:
    layer = FrameConfig(16, bins=5, strides=strides, positions=20).build()
    sound, lengths = torch.randn(4, 13, 5), [13, 12, 7, 1]
    mask = torch.arange(13) < torch.tensor(lengths)[:, None]
    sound[~mask] = 99.0
    batch = layer(sound, padding_mask=mask)
    for row, length in enumerate(lengths):
        alone = layer(sound[row : row + 1, :length])
        assert alone.x.shape[1] == -(-length // layer.config.stride) == int(batch.padding_mask[row].sum())
        torch.testing.assert_close(batch.x[row : row + 1, : alone.x.shape[1]], alone.x, atol=1e-6, rtol=1e-5)


def test_an_encoder_over_frames() -> None:
    config = replace(ENCODER, embedding=FRAMES, head=ClassifyHeadConfig(3, pool="mean"))
    assert from_dict(ModelConfig, to_dict(config)) == config
    model, sound = random_model(config), torch.randn(2, 12, 5)
    assert model.inputs == "audio" and model.max_length == 40 and model.vocab_size is None
    assert model.token_table is None and "embedding.positions" in model.state_dict()
    output = model(sound, padding_mask=torch.arange(12) < torch.tensor([[12], [5]]))
    assert output.hidden.shape == (2, 6, 16) and output.logits.shape == (2, 3)
    torch.testing.assert_close(output.logits[1:], model(sound[1:, :5]).logits, atol=1e-5, rtol=1e-4)
    output.logits.sum().backward()


def test_an_encoder_decoder_over_frames() -> None:
    config = replace(PAIR, encoder=replace(PAIR.encoder, embedding=FRAMES), shared_embedding=False)
    model, sound, target = random_model(config), torch.randn(2, 12, 5), torch.randint(20, (2, 4))
    assert model.inputs == "audio" and model.source_vocab_size is None and model.vocab_size == 20
    with torch.no_grad():
        whole = model(sound, decoder_ids=target).logits
        cache = model.encode_to_cache(sound)
        steps = [model.step(target[:, i : i + 1], cache) for i in range(4)]
    torch.testing.assert_close(torch.stack(steps, dim=1), whole, atol=1e-5, rtol=1e-4)
