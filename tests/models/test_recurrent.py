"""The recurrent encoder-decoder: it steps as it trains, padding changes nothing, its alignment can be heard."""

import torch

from headway.generation import GenerationSettings, generate
from headway.models.build import build
from headway.models.config import ModelConfig, to_dict
from headway.models.recipes import Size, recurrent
from headway.validation import from_dict

CONFIG = recurrent(Size(width=16, layers=1, heads=2, dropout=0.0), vocab=20, start_id=1)


def test_stepping_equals_teacher_forcing() -> None:
    model = build(CONFIG).eval()
    ids, target = torch.randint(2, 20, (3, 6)), torch.randint(2, 20, (3, 5))
    whole = model(ids, decoder_ids=target).logits
    cache = model.encode_to_cache(ids)
    steps = torch.stack([model.step(target[:, i : i + 1], cache) for i in range(5)], dim=1)
    torch.testing.assert_close(steps, whole, atol=1e-6, rtol=1e-5)


def test_rows_of_a_step_may_be_of_different_lengths_and_join() -> None:
    model = build(CONFIG).eval()
    ids, target = torch.randint(2, 20, (2, 6)), torch.randint(2, 20, (2, 5))
    together = model.encode_to_cache(ids)
    model.step(target[:, :3], together, lengths=[3, 1])
    assert together.lengths == [3, 1]
    alone = model.encode_to_cache(ids[1:])
    model.step(target[1:, :1], alone)
    torch.testing.assert_close(together.state[1:], alone.state)
    other = model.encode_to_cache(torch.randint(2, 20, (1, 9)))
    state = other.state.clone()
    together.append_rows(other)
    together.select([2, 1])
    got = model.step(target[:, 1:2], together)
    torch.testing.assert_close(got[1:], model.step(target[1:, 1:2], alone))
    assert together.lengths == [1, 2] and torch.isfinite(state).all()


def test_padding_changes_nothing_and_gets_no_weight() -> None:
    model = build(CONFIG).eval()
    ids, target = torch.randint(2, 20, (2, 6)), torch.randint(2, 20, (2, 4))
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    heard = []
    hook = model.cross.weights.register_forward_hook(lambda _m, _i, out: heard.append(out))
    padded = model(ids, padding_mask=mask, decoder_ids=target).logits
    hook.remove()
    alone = model(ids[1:, :4], decoder_ids=target[1:]).logits
    torch.testing.assert_close(padded[1:], alone, atol=1e-6, rtol=1e-5)
    assert heard[0].shape == (2, 1, 4, 6)
    assert (heard[0][1, :, :, 4:] == 0).all()
    torch.testing.assert_close(heard[0].sum(-1), torch.ones(2, 1, 4))


def test_the_one_search_writes_with_it() -> None:
    model = build(CONFIG).eval()
    sources = [[3, 4, 5], [6, 7, 8, 9, 10]]
    settings = GenerationSettings(max_new_tokens=6, beams=3, eos_ids=(2,))
    together = generate(model, [[1], [1]], settings, sources=sources)
    alone = [generate(model, [[1]], settings, sources=[source])[0] for source in sources]
    assert [h[0].ids for h in together] == [h[0].ids for h in alone]


def test_config_survives_a_file() -> None:
    assert from_dict(ModelConfig, to_dict(CONFIG)) == CONFIG
