"""Room: inspect. `with record(model, "decoder.*.cross.weights") as seen:` – the values that pass the named taps."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase

from torch import Tensor, nn

from headway.errors import InputError
from headway.layers.tap import Tap


@contextmanager
def record(model: nn.Module, names: str | Sequence[str]) -> Iterator[dict[str, list[Tensor]]]:
    """Maps each tap that fires to its values, one for each pass. The hooks are gone on exit, also after an error."""
    patterns = [names] if isinstance(names, str) else list(names)
    taps = {name: module for name, module in model.named_modules() if isinstance(module, Tap)}
    chosen = [name for pattern in patterns for name in _matching(pattern, taps)]
    seen: dict[str, list[Tensor]] = {}
    hooks = []
    try:
        for name in dict.fromkeys(chosen):
            hooks.append(taps[name].register_forward_hook(_listener(seen, name)))
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _listener(seen: dict[str, list[Tensor]], name: str):  # type: ignore[no-untyped-def]
    def listen(_module: nn.Module, _inputs: object, value: Tensor) -> None:
        seen.setdefault(name, []).append(value.detach())

    return listen


def _matching(pattern: str, taps: dict[str, Tap]) -> list[str]:
    found = [name for name in taps if fnmatchcase(name, pattern)]
    if not found:
        close = difflib.get_close_matches(pattern, taps, 3, cutoff=0.3)
        raise InputError(f"no tap is named {pattern!r}; close: {', '.join(close) or 'none'}")
    return found
