"""Integrated gradients: the contributions of tokens sum to the logit, and tokens that cannot matter have none."""

import pytest
import torch

from headway.inspect import integrated_gradients
from headway.layers.recurrent import Cell
from headway.models.build import build
from headway.models.config import ClassifyHeadConfig
from headway.models.init import initialise
from headway.models.protocol import Model
from headway.models.recipes import Size, recurrent, recurrent_decoder, recurrent_encoder

SIZE = Size(width=16, layers=2, heads=2, dropout=0.1)
IDS = torch.tensor([[3, 5, 7, 9, 11]])


def started(config: object) -> Model:
    model = build(config)  # type: ignore[arg-type]
    initialise(model, "classic", seed=0)
    return model


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_a_language_model(cell: Cell) -> None:
    model = started(recurrent_decoder(SIZE, vocab=20, cell=cell))
    found = integrated_gradients(model, {"inputs": IDS}, 4, position=2)
    with torch.no_grad():
        assert found.logit == pytest.approx(model.eval()(IDS).logits[0, 2, 4].item(), abs=1e-6)
    assert found.total == pytest.approx(found.logit, abs=1e-3)
    assert found.tokens[0][3:] == [0.0, 0.0]  # what comes later does not matter
    assert all(abs(value) > 1e-6 for value in found.tokens[0][:3])


def test_a_classifier_ignores_padding() -> None:
    model = started(recurrent_encoder(SIZE, vocab=20, cell="lstm", head=ClassifyHeadConfig(3, pool="mean")))
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    found = integrated_gradients(model, {"inputs": IDS, "padding_mask": mask}, 1)
    assert found.total == pytest.approx(found.logit, abs=1e-3)
    assert found.tokens[0][3:] == [0.0, 0.0] and any(found.tokens[0][:3])


def test_source_and_target_both_count() -> None:
    model = started(recurrent(SIZE, vocab=20, start_id=1))
    found = integrated_gradients(model, {"inputs": IDS, "decoder_ids": IDS[:, :3]}, 4, position=1)
    assert [len(values) for values in found.tokens] == [5, 3]
    assert found.total == pytest.approx(found.logit, abs=1e-3)
    assert any(found.tokens[0]) and found.tokens[1][2] == 0.0
