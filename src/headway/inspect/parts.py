"""What can be named in a model: its taps, its attentions, and the part of it that has the last word."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase

from torch import Tensor, nn

from headway.errors import InputError, closest
from headway.layers.attention import Attention
from headway.layers.embeddings import Embedding
from headway.layers.tap import Tap
from headway.models.decoder import Decoder
from headway.models.encoder import Encoder
from headway.models.encoder_decoder import EncoderDecoder

Names = str | Sequence[str]


def taps_of(model: nn.Module) -> dict[str, Tap]:
    return {name: module for name, module in model.named_modules() if isinstance(module, Tap)}


def attentions_of(model: nn.Module) -> dict[str, Attention]:
    return {name: module for name, module in model.named_modules() if isinstance(module, Attention)}


def choose(names: Names, among: Collection[str], *, kind: str) -> dict[str, list[str]]:
    """Each name or pattern (`*` also spans dots) → what it matches; one that matches nothing is an error."""
    asked = [names] if isinstance(names, str) else list(names)
    chosen = {pattern: [name for name in among if fnmatchcase(name, pattern)] for pattern in asked}
    for pattern, found in chosen.items():
        if not found:
            raise InputError(f"no {kind} is named {pattern!r}; close: {_close(pattern, among)}")
    return chosen


def unique(chosen: Mapping[str, Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for found in chosen.values() for name in found))


def must_have_fired(chosen: Mapping[str, Sequence[str]], fired: Collection[str], among: Collection[str]) -> None:
    """A name whose value never came is an error: what was asked for did not happen."""
    for pattern, found in chosen.items():
        if not any(name in fired for name in found):
            others = [name for name in among if name not in found]
            raise InputError(
                f"{pattern!r} never fired: no forward pass inside the `with` went through it; "
                f"close: {_close(pattern, others)}"
            )


def speaker(model: nn.Module) -> tuple[str, Encoder | Decoder]:
    """(the prefix of its names, the part whose head gives the logits): an encoder-decoder's decoder, or the model."""
    if isinstance(model, EncoderDecoder):
        return "decoder.", model.decoder
    if isinstance(model, Encoder | Decoder):
        return "", model
    raise InputError(f"{type(model).__name__} has no blocks with a residual stream to look into")


def token_table(part: Encoder | Decoder) -> Tensor | None:
    """(vocab, width), or what stands for it; a head may be tied to it. None for images."""
    return part.embedding.tokens.table if isinstance(part.embedding, Embedding) else None


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout, and afterwards as it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _close(pattern: str, among: Collection[str]) -> str:
    return ", ".join(closest(pattern, among, n=3, cutoff=0.3)) or "none"
