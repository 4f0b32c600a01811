"""Recording: what passes a tap, without changing it, and without a trace afterwards."""

from pathlib import Path

import numpy as np
import pytest
import torch

from headway.errors import InputError
from headway.inspect import draw_alignment, record
from headway.layers.tap import Tap
from headway.models.build import build
from headway.models.recipes import Size, decoder, encoder_decoder

SIZE = Size(width=32, layers=2, heads=2, dropout=0.0)


def test_weights_are_recorded_and_nothing_changes() -> None:
    model = build(encoder_decoder(SIZE, "modern", vocab=40, context=32, start_id=1)).eval()
    ids, target = torch.randint(2, 40, (2, 7)), torch.randint(2, 40, (2, 5))
    with torch.no_grad():
        plain = model(ids, decoder_ids=target).logits
        with record(model, "decoder.*.cross.weights") as seen:
            heard = model(ids, decoder_ids=target).logits
    assert list(seen) == [f"decoder.stack.blocks.{i}.cross.weights" for i in range(2)]
    for values in seen.values():
        assert values[0].shape == (2, 2, 5, 7)  # (batch, head, target, source)
        torch.testing.assert_close(values[0].sum(-1), torch.ones(2, 2, 5))
    torch.testing.assert_close(heard, plain)


def test_hooks_are_gone_on_exit_also_after_an_error() -> None:
    model = build(decoder(SIZE, "modern", vocab=40, context=32))
    with pytest.raises(RuntimeError), record(model, "*"):
        raise RuntimeError
    assert not any(tap.listening for tap in model.modules() if isinstance(tap, Tap))


def test_a_name_that_is_not_there_gets_suggestions() -> None:
    model = build(decoder(SIZE, "modern", vocab=40, context=32))
    with (
        pytest.raises(InputError, match=r"stack\.blocks\.0\.attention\.weights"),
        record(model, "stack.blocks.0.atention.weights"),
    ):
        pass


def test_the_recorded_weights_are_the_explicit_ones() -> None:
    model = build(decoder(SIZE, "classic", vocab=40, context=32)).eval()
    names = [f"stack.blocks.1.attention.{part}" for part in ("q", "k", "v", "weights", "z")]
    with torch.no_grad(), record(model, names) as seen:
        model(torch.randint(0, 40, (1, 6)))
    q, k, v, weights, z = (seen[name][0] for name in names)
    scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf)
    torch.testing.assert_close(weights, scores.softmax(-1), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(z, weights @ v, atol=1e-6, rtol=1e-5)


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    draw_alignment(np.eye(3), columns=["a", "$b", "\n"], rows=["x", "y", ""], path=tmp_path / "a.png", title="t")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
