"""Wide beams find what an exhaustive search finds."""

import itertools

import pytest
import torch
from support.writers import tiny_decoder

from headway.generation import GenerationSettings, generate


@torch.no_grad()
def exhaustive(logits_of, vocab: int, *, eos: int, longest: int, penalty: float) -> list[tuple[float, list[int]]]:
    """Every sequence that ends with eos or at the longest length, best first."""
    found = []
    for length in range(1, longest + 1):
        bodies = itertools.product([t for t in range(vocab) if t != eos], repeat=length - 1)
        ids = torch.tensor([[*b, last] for b in bodies for last in (range(vocab) if length == longest else [eos])])
        sums = logits_of(ids).log_softmax(-1).gather(2, ids[..., None]).sum((1, 2))
        found += zip((sums / length**penalty).tolist(), ids.tolist(), strict=True)
    return sorted(found, key=lambda item: -item[0])


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0, -1.0])
def test_wide_beams_find_what_an_exhaustive_search_finds(penalty):
    vocab, eos, prompt = 4, 2, [1, 3]
    model = tiny_decoder(vocab)

    def logits_of(ids):
        return model(torch.cat([torch.tensor([prompt] * len(ids)), ids], 1)).logits[:, len(prompt) - 1 : -1]

    want = exhaustive(logits_of, vocab, eos=eos, longest=4, penalty=penalty)[:10]
    chosen = GenerationSettings(max_new_tokens=4, beams=200, n=10, eos_ids=(eos,), length_penalty=penalty,
                                early_stopping="never")  # fmt: skip
    [got] = generate(model, [prompt], chosen)
    assert [h.ids for h in got] == [ids for _, ids in want]
    assert [h.score for h in got] == pytest.approx([score for score, _ in want], abs=1e-5)


def test_encoder_decoder_beams_find_what_an_exhaustive_search_finds(translator):
    source = [4, 7, 9]

    def logits_of(ids):
        shifted = torch.cat([torch.ones(len(ids), 1, dtype=torch.long), ids[:, :-1]], 1)
        return translator(torch.tensor([source] * len(ids)), decoder_ids=shifted).logits

    want = exhaustive(logits_of, 12, eos=2, longest=3, penalty=1.0)[:8]
    chosen = GenerationSettings(max_new_tokens=3, beams=300, n=8, eos_ids=(2,))
    others = [[3], source, [5, 5, 5, 5, 5]]
    got = generate(translator, [[1]] * 3, chosen, sources=others)[1]
    assert [h.ids for h in got] == [ids for _, ids in want]
