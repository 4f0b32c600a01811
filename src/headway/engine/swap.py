"""Which matrices of a model are worth storing smaller, and how one module takes another's place.

They are the ones a written token reads in full: every projection of every block, the vocabulary's projection, and the
token table (which a tied vocabulary reads too). Positions, norms and small heads stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import nn

from headway.layers.block import Block
from headway.layers.embeddings import Embedding
from headway.layers.linear import Linear, TokenTable
from headway.models.heads import LanguageHead


def swap_matrices(
    model: nn.Module,
    *,
    linear: Callable[[Linear], nn.Module],
    table: Callable[[TokenTable], nn.Module],
) -> int:
    """Puts `linear(module)` or `table(module)` in the place of each; a shared module is made once. Returns how many."""
    made: dict[nn.Module, nn.Module] = {}
    for owner, name, module in list(matrices(model)):
        if module not in made:
            made[module] = linear(module) if isinstance(module, Linear) else table(module)
        setattr(owner, name, made[module])
    return len(made)


def matrices(model: nn.Module) -> Iterator[tuple[nn.Module, str, Linear | TokenTable]]:
    """(owner, name in it, module) of every plain matrix; one that was taken over by somebody else (int8, a low-rank
    adapter) is no longer plain."""
    for part in model.modules():
        if isinstance(part, Block | LanguageHead):
            for owner in part.modules():
                for name, child in owner.named_children():
                    if type(child) is Linear:
                        yield owner, name, child
        elif isinstance(part, Embedding) and type(part.tokens) is TokenTable:
            yield part, "tokens", part.tokens
