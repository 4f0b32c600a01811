"""Replaces the weight matrices of a model by modules with another storage format.

These are the matrices that a decoding step reads in full: every projection of every block, the vocabulary projection,
and the token table (which a tied language head reads too). Positions, norms and small heads are not replaced.
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
    """Replaces every matrix by `linear(module)` or `table(module)`; a shared module is converted once. Returns the
    number of modules converted."""
    converted: dict[nn.Module, nn.Module] = {}
    for parent, name, module in list(matrices(model)):
        if module not in converted:
            converted[module] = linear(module) if isinstance(module, Linear) else table(module)
        setattr(parent, name, converted[module])
    return len(converted)


def matrices(model: nn.Module) -> Iterator[tuple[nn.Module, str, Linear | TokenTable]]:
    """(parent, attribute name, module) of every plain matrix; one that was replaced before (int8, a low-rank adapter)
    is not plain."""
    for part in model.modules():
        if isinstance(part, Block | LanguageHead):
            for parent in part.modules():
                for name, child in parent.named_children():
                    if type(child) is Linear:
                        yield parent, name, child
        elif isinstance(part, Embedding) and type(part.tokens) is TokenTable:
            yield part, "tokens", part.tokens
