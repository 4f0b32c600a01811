"""Speculative decoding by prompt lookup (Saxena 2023): a text that occurred before is proposed as the continuation.

One step feeds the token just chosen together with the proposed tokens and keeps the logits after each of them. As
long as the choices agree with the proposal, their logits are already there; at the first disagreement the rest of the
proposal is dropped from the cache. Every token is chosen from the logits after exactly the tokens before it, with the
same random number, filters and stop criteria as without speculation. Only rounding differs, because several tokens
are multiplied in one product instead of one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

MATCH = 3  # tokens that must match before anything is proposed
LONGEST_MATCH = 8  # tokens compared at most; a longer match proposes more
MOST = 15  # proposed tokens per step
LONGEST_PAUSE = 64  # steps


class NgramIndex:
    """The ids so far, and what followed the last occurrence of each run of `MATCH` ids. A negative id separates
    texts."""

    def __init__(self, ids: Iterable[int]) -> None:
        self.ids: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        for token in ids:
            self.push(token)

    def push(self, token: int) -> None:
        if len(self.ids) >= MATCH:
            self._after[tuple(self.ids[-MATCH:])] = len(self.ids)
        self.ids.append(token)

    def propose(self, most: int) -> list[int]:
        """What followed when the text last ended like this; the longer the match, the more of it. A repetition that
        reaches the end of the text is continued."""
        ids, count = self.ids, len(self.ids)
        place = self._after.get(tuple(ids[-MATCH:]))
        if place is None:
            return []
        match = MATCH
        while match < min(LONGEST_MATCH, place) and ids[place - match - 1] == ids[-match - 1]:
            match += 1
        out: list[int] = []
        for at in range(place, place + min(most, 2 * match - 2)):
            token = ids[at] if at < count else out[at - count]
            if token < 0:
                break
            out.append(token)
        return out


class PromptLookup:
    """Steps of a cache with one row, some of which may already have been computed."""

    def __init__(self, model: Any, cache: Any, *, ids: Iterable[int], capacity: int, device: torch.device) -> None:
        """`ids`: the tokens to search; `capacity`: most tokens that the cache may hold."""
        self.model, self.cache, self.capacity, self.device = model, cache, capacity, device
        self.index = NgramIndex(ids)
        self.proposed: list[int] = []
        self.accepted = 0
        self.logits: Tensor | None = None  # (1, 1 + proposed, vocab)
        self._pause = self._wait = 0

    def step(self, token: int) -> Tensor:
        """Logits after the token, (1, vocab)."""
        self.index.push(token)
        if self.accepted < len(self.proposed) and self.proposed[self.accepted] == token:
            self.accepted += 1
            assert self.logits is not None
            return self.logits[:, self.accepted]
        self.drop_rejected()
        self.proposed = self._propose()
        ids = torch.tensor([[token, *self.proposed]], device=self.device)
        if not self.proposed:
            return self.model.step(ids, self.cache)
        self.logits = self.model.step(ids, self.cache, every=True)
        return self.logits[:, 0]

    def _propose(self) -> list[int]:
        if self._wait:
            self._wait -= 1
            return []
        return self.index.propose(min(MOST, self.capacity - self.cache.lengths[0] - 1))

    def drop_rejected(self) -> None:
        """Removes proposed tokens that were not chosen from the cache. After a proposal that cost more than it saved
        there is a pause, each time twice as long: on text without repetition, speculation is practically off."""
        if not self.proposed:
            return
        self.cache.truncate([self.cache.lengths[0] - len(self.proposed) + self.accepted])
        paid = self.accepted + 1 > cost(len(self.proposed))
        self._pause = 0 if paid else min(2 * self._pause + 1, LONGEST_PAUSE)
        self._wait = self._pause
        self.proposed, self.accepted, self.logits = [], 0, None


def cost(proposed: int) -> float:
    """Cost of a step with so many proposed tokens, in steps without: where one row is bound by memory, sixteen rows
    of a matrix product take about four times as long as one."""
    return 1 + 3 * proposed / MOST


def is_exact(model: Any, cache: Any) -> bool:
    """Whether several tokens in one step give the logits of single steps up to rounding. Half precision rounds too much
    for that, and some rotary scalings rotate every token by the length of the whole text."""
    return cache.can_truncate and next(model.parameters()).dtype == torch.float32 and not model.rotary_depends_on_length
