"""Encoding without padding equals encoding each text by itself."""

import pytest
import torch
from support.variants import random_model

from headway.engine import encode_ragged
from headway.families import find
from headway.families.family import Keys
from headway.models.build import build
from headway.models.recipes import Recipe, Size, encoder


@pytest.mark.parametrize("recipe", ["modern", "classic"])
@pytest.mark.parametrize("budget", [8, 40, 512])
def test_ragged_equals_one_by_one(recipe: Recipe, budget: int) -> None:
    model = build(encoder(Size(width=32, layers=2, heads=2), recipe, vocab=50, segments=2)).eval()
    generator = torch.Generator().manual_seed(0)
    lengths = [5, 1, 17, 9, 9, 3]
    rows = [torch.randint(0, 50, (n,), generator=generator).tolist() for n in lengths]
    kinds = [[i % 2 for i in range(n)] for n in lengths]
    together = dict(encode_ragged(model, rows, segments=kinds, budget=budget))
    assert list(together) == [1, 5, 0, 3, 4, 2], "shortest first"
    for i, (row, kind) in enumerate(zip(rows, kinds, strict=True)):
        expected = model.encode(torch.tensor([row]), segments=torch.tensor([kind]))[0]
        torch.testing.assert_close(together[i], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("local", [4, 10])
def test_windows_are_those_of_each_text(local: int) -> None:
    """ModernBERT: texts shorter and longer than the window, in one row."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 4, "intermediate_size": 20}
    keys = Keys(sizes | {"vocab_size": 50, "local_attention": local})
    model = random_model(find("modernbert").read(keys, "ModernBertModel")).eval()
    rows = [torch.randint(0, 50, (n,)).tolist() for n in (3, 12, 12, 7)]
    for i, hidden in encode_ragged(model, rows):
        torch.testing.assert_close(hidden, model.encode(torch.tensor([rows[i]]))[0], atol=1e-5, rtol=1e-5)


def test_texts_do_not_attend_to_each_other() -> None:
    model = build(encoder(Size(width=32, layers=2, heads=2), "modern", vocab=50)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    first = dict(encode_ragged(model, [[1, 2, 3], [4, 5, 6]]))
    second = dict(encode_ragged(model, [[1, 2, 3], [7, 8, 9]]))
    assert torch.equal(first[0], second[0]) and not torch.equal(first[1], second[1])
