"""The batch of rows that a model is writing, and how it begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from headway.errors import InputError
from headway.generation.attention_sinks import left_out, seen
from headway.generation.prompt_lookup import Lookahead, exact
from headway.generation.prompts import Answers, Cache, Continues, Model, read, read_apart
from headway.generation.settings import GenerationSettings, tokens_left

Sources = Sequence[Sequence[int]] | Tensor  # ids; or what else the encoder reads, one row a request


class Prefixes(Protocol):
    """Remembers what past requests began with."""

    def restore(self, model: Any, ids: Sequence[int], cache: object) -> int:
        """Fills an empty cache with what is known of the beginning of `ids`; how many of them."""

    def store(self, model: Any, ids: Sequence[int], cache: object) -> None: ...


class Batch:
    """Rows being written: the cache, the ids so far, and the scores of what may come next. With a `window`, a row that
    outgrows so many tokens is read again, shortened. With `room`, a row that is alone may look ahead as far as that,
    guessing by what it has written and by `grounds`."""

    def __init__(
        self,
        model: Model,
        cache: Cache,
        *,
        ids: Tensor,
        mask: Tensor | None,
        prompt: int,
        logits: Tensor | None,
        window: int | None = None,
        room: int = 0,
        grounds: Sequence[int] = (),
    ):
        self.model, self.cache, self.prompt, self.window = model, cache, prompt, window
        self.room, self.grounds = room, grounds
        self._ahead: Lookahead | None = None
        self.ids = ids if mask is None else ids.masked_fill(~mask, -1)  # (row, length), -1 = padding
        self.lengths = [ids.shape[1]] * len(ids) if mask is None else mask.sum(1).tolist()
        if logits is None:
            self._read_again()
        else:
            self.logits = logits

    def repeat(self, times: int) -> None:
        """Each row `times` times over, side by side, before anything is written."""
        rows = [row for row in range(len(self.ids)) for _ in range(times)]
        self._select(rows)
        self.logits = self.logits[rows]

    def step(self, tokens: Tensor, *, rows: list[int]) -> None:
        """Writes `tokens` (row) behind the rows that live on, which may be fewer, repeated and in another order."""
        self._select(rows)
        self.ids = torch.cat([self.ids, tokens[:, None]], dim=1)
        self.lengths = [length + 1 for length in self.lengths]
        if self.window is not None and any(
            left_out(n, self.window) > left_out(n - 1, self.window) for n in self.lengths
        ):
            self._read_again()
        else:
            self.logits = self._next(tokens).float()

    def _next(self, tokens: Tensor) -> Tensor:
        if len(tokens) > 1 or not self.room:
            return self.model.step(tokens[:, None], self.cache)
        if self._ahead is None:
            seen = [*self.grounds, -1, *self.ids[0, -self.lengths[0] : -1].tolist()]
            cache: Any = self.cache
            self._ahead = Lookahead(self.model, cache, seen=seen, room=self.room, device=tokens.device)
        return self._ahead.step(int(tokens[0]))

    def _select(self, rows: list[int]) -> None:
        if rows != list(range(len(self.ids))):  # else all stay as they are, and nothing is copied
            self.cache.select(rows)
            self.ids = self.ids[rows]
            self.lengths = [self.lengths[row] for row in rows]

    def _read_again(self) -> None:
        """Every row, each as much of it as the window shows: a function of its own length, whatever its company."""
        assert self.window is not None
        rows = [
            seen(row[len(row) - length :], self.window)
            for row, length in zip(self.ids.tolist(), self.lengths, strict=True)
        ]
        if self.model.reads_source:
            cast(Any, self.cache).truncate([0] * len(rows))
            self.logits = read(self.model, rows, self.cache)
        else:
            self.cache, self.logits = read_apart(self.model, rows, capacity=self.window)


def start(
    model: Model,
    prompts: Sequence[Sequence[int]],
    settings: GenerationSettings,
    *,
    sources: Sources | None,
    prefixes: Prefixes | None = None,
) -> Batch:
    """Reads sources and prompts, each once however many answers are wanted."""
    check(model, prompts, settings, sources=sources)
    device = next(model.parameters()).device
    begun = [[*prompt, *settings.prefix] for prompt in prompts]
    ids, mask = padded(begun, device=device, left=True)
    window = context_of(model) if settings.overflow == "window" else None
    capacity = min(ids.shape[1] + settings.max_new_tokens - 1, window or 10**9)
    again = window is not None and max(map(len, begun)) > window
    logits = None
    if sources is not None:
        assert isinstance(model, Answers)
        given, given_mask = (
            (sources.to(device), None) if isinstance(sources, Tensor) else padded(sources, device=device)
        )
        cache: Any = model.encode_to_cache(given, padding_mask=given_mask, capacity=capacity)
        logits = None if again else read(model, begun, cache)
    elif again:
        cache = cast(Any, model).new_cache(len(begun))
    elif prefixes is not None and len(prompts) == 1 and window is None:
        cache = cast(Any, model).new_cache(1, capacity=capacity)
        known = prefixes.restore(model, begun[0], cache)
        logits = read(model, [begun[0][known:]], cache)
    else:
        cache, logits = read_apart(model, begun, capacity=capacity)
    alone = len(prompts) == 1 and window is None
    guesses = settings.speculate and settings.beams == 1 and window is None and exact(model, cache)
    return Batch(
        model,
        cache,
        ids=ids,
        mask=mask,
        prompt=ids.shape[1] - len(settings.prefix),
        logits=logits,
        window=window,
        room=capacity if guesses else 0,
        grounds=sources[0] if alone and not isinstance(sources, Tensor | None) and shares_tokens(model) else (),
    )


def shares_tokens(model: Model) -> bool:
    """Whether a source's ids mean the same in its answer."""
    return getattr(model.config, "shared_embedding", False)


def padded(rows: Sequence[Sequence[int]], *, device: torch.device, left: bool = False) -> tuple[Tensor, Tensor | None]:
    """(ids, mask), both (row, length); no mask when all rows are of one length."""
    longest = max(len(row) for row in rows)
    gaps = [[0] * (longest - len(row)) for row in rows]
    both = [[*gap, *row] if left else [*row, *gap] for row, gap in zip(rows, gaps, strict=True)]
    ids = torch.tensor(both, dtype=torch.long, device=device)
    if not any(gaps):
        return ids, None
    lengths = torch.tensor([len(row) for row in rows], device=device)[:, None]
    column = torch.arange(longest, device=device)[None]
    return ids, column >= longest - lengths if left else column < lengths


# ---------------------------------------------------------------------------------------- refusals


def check(
    model: Model, prompts: Sequence[Sequence[int]], settings: GenerationSettings, *, sources: Sources | None
) -> None:
    if model.training:
        raise InputError(
            "the model is in training mode, where dropout would garble the answer: call model.eval() first"
        )
    check_sources(model, sources, count=len(prompts))
    config = getattr(model.config, "decoder", model.config)
    check_ids("prompt", prompts, vocab=config.embedding.vocab)
    check_ids("settings.prefix", [settings.prefix], vocab=config.embedding.vocab, may_be_empty=True)
    forced = [*settings.forced_eos_ids, *([] if settings.forced_bos_id is None else [settings.forced_bos_id])]
    check_ids("settings.forced", [forced], vocab=config.embedding.vocab, may_be_empty=True)
    longest = max(range(len(prompts)), key=lambda i: len(prompts[i]))
    given = len(prompts[longest]) + len(settings.prefix)
    context = context_of(model)
    left = None if context is None else tokens_left(context, given)
    if left is not None and settings.max_new_tokens > left and settings.overflow == "error":
        raise InputError(
            f"prompt {longest} has {given} tokens, and max_new_tokens is {settings.max_new_tokens}, but the model's "
            f"context is {context} tokens, which leaves {left}; shorten one of them, or drop the oldest tokens "
            "(overflow 'window')"
        )


def context_of(model: Model) -> int | None:
    """The tokens that prompt and answer may have together; None: no limit."""
    return getattr(getattr(model.config, "decoder", model.config), "context", None)


def check_sources(model: Model, sources: Sources | None, *, count: int) -> None:
    name = type(model).__name__
    if sources is None:
        if not isinstance(model, Continues):
            raise InputError(f"{name} reads a source before it writes: give sources, one for each prompt")
        return
    if not isinstance(model, Answers):
        raise InputError(f"{name} writes on from a prompt and reads no source: leave sources out")
    if len(sources) != count:
        raise InputError(f"there are {len(sources)} sources but {count} prompts: give one prompt for each source")
    if isinstance(sources, Tensor):
        return
    embedding = getattr(model.config, "encoder", model.config).embedding
    check_ids("source", sources, vocab=embedding.vocab)
    limit = getattr(getattr(embedding, "positions", None), "count", None) or None
    longest = max(range(count), key=lambda i: len(sources[i]))
    if limit is not None and len(sources[longest]) > limit:
        raise InputError(f"source {longest} has {len(sources[longest])} tokens, but the model reads at most {limit}")


def check_ids(what: str, rows: Sequence[Sequence[int]], *, vocab: int, may_be_empty: bool = False) -> None:
    for i, row in enumerate(rows):
        if not row and not may_be_empty:
            raise InputError(f"{what} {i} is empty: it needs at least one token to go on from")
        wrong = next((token for token in row if not 0 <= token < vocab), None)
        if wrong is not None:
            raise InputError(f"{what} {i} contains id {wrong}, which is not in the model's vocabulary of {vocab}")
