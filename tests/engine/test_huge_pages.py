"""Moved weights have the same values, in one block of memory."""

import torch

from headway.engine.huge_pages import is_stored_in, move_to_huge_pages
from headway.engine.int8 import quantise
from headway.engine.swap import matrices
from headway.layers.linear import Linear
from headway.models import recipes
from headway.models.build import build
from headway.models.recipes import Size


@torch.no_grad()
def test_moved_weights_are_equal_and_in_one_block() -> None:
    for stored in (False, True):
        model = build(recipes.decoder(Size(width=48, layers=2, heads=3), "classic", vocab=60, context=64)).eval()
        first = next(part for part in model.modules() if isinstance(part, Linear))
        first.weight.data = first.weight.data.T.contiguous().T  # not contiguous
        modules = [module for _, _, module in matrices(model)]
        if stored:
            quantise(model)
            modules = [part for part in model.modules() if hasattr(part, "weight_scale")]
        ids = torch.randint(60, (2, 7))
        before = model(ids).logits
        assert move_to_huge_pages(modules, min_bytes=10**9) is None and not is_stored_in(modules[0], None)
        memory = move_to_huge_pages([*modules, modules[0]], min_bytes=0)
        assert memory is not None and all(is_stored_in(module, memory) for module in modules)
        assert all(module.weight.is_contiguous() and module.weight.data_ptr() % 64 == 0 for module in modules)
        assert memory.nbytes < sum(module.weight.nbytes for module in modules) + 64 * (len(modules) + 1) + 1
        torch.testing.assert_close(model(ids).logits, before)
