"""Named parts of a model: taps, attention layers, and the stack whose head gives the logits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase

from torch import nn

from headway.errors import InputError, closest
from headway.layers.attention import Attention
from headway.layers.tap import Tap
from headway.models.protocol import Model, Part

Names = str | Sequence[str]


def taps_of(model: nn.Module) -> dict[str, Tap]:
    return {name: module for name, module in model.named_modules() if isinstance(module, Tap)}


def attentions_of(model: nn.Module) -> dict[str, Attention]:
    return {name: module for name, module in model.named_modules() if isinstance(module, Attention)}


def match_names(names: Names, among: Collection[str], *, kind: str) -> dict[str, list[str]]:
    """Maps each name or pattern (`*` also matches dots) to the names it matches. One that matches nothing raises."""
    patterns = [names] if isinstance(names, str) else list(names)
    matches = {pattern: [name for name in among if fnmatchcase(name, pattern)] for pattern in patterns}
    for pattern, found in matches.items():
        if not found:
            raise InputError(f"no {kind} is named {pattern!r}; close: {_close(pattern, among)}")
    return matches


def unique(matches: Mapping[str, Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for found in matches.values() for name in found))


def check_fired(matches: Mapping[str, Sequence[str]], fired: Collection[str], among: Collection[str]) -> None:
    """Raises for a name or pattern none of whose taps was reached by a forward pass."""
    for pattern, found in matches.items():
        if not any(name in fired for name in found):
            others = [name for name in among if name not in found]
            raise InputError(
                f"{pattern!r} never fired: no forward pass inside the `with` went through it; "
                f"close: {_close(pattern, others)}"
            )


def output_part(model: Model) -> Part:
    """The stack whose head gives the logits: an encoder-decoder's decoder, or the only one."""
    if not model.parts:
        raise InputError(f"{type(model).__name__} has no blocks with a residual stream")
    return model.parts[-1]


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Puts the model in eval mode, and every module back into its own mode on exit."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _close(pattern: str, among: Collection[str]) -> str:
    return ", ".join(closest(pattern, among, n=3, cutoff=0.3)) or "none"
