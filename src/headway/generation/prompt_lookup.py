"""Speculation by prompt lookup (Saxena 2023): what was written before may well be written again.

One step reads the token just chosen together with a guess at those after it, and keeps the scores after each. The
search goes on one token at a time and knows nothing of it: as long as it chooses what was guessed, the scores it needs
are there; at its first other choice the rest of the guess is forgotten. Every token is therefore chosen from the scores
after exactly the tokens before it, with the same random number, penalties and stops as without. What may differ is the
last bits of a score, since several tokens are added up in another order than one: only a tie as close as that could
fall the other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

SIZE = 3  # tokens that must be alike before anything is guessed
ALIKE = 8  # as far back as likeness is looked for
MOST = 15  # guesses a step
LONGEST_PAUSE = 64  # steps


@runtime_checkable
class Forgets(Protocol):
    """A cache that can take back its last tokens (a recurrent state cannot)."""

    lengths: list[int]
    can_truncate: bool

    def truncate(self, lengths: Sequence[int]) -> None: ...


class Trail:
    """The ids so far, and where each run of `SIZE` of them was last gone on from."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        for token in ids:
            self.push(token)

    def push(self, token: int) -> None:
        if len(self.ids) >= SIZE:
            self._after[tuple(self.ids[-SIZE:])] = len(self.ids)
        self.ids.append(token)

    def guess(self, most: int) -> list[int]:
        """What came next when the text last ended like this: the longer the likeness, the more of it. What repeats
        itself is guessed to go on doing so."""
        ids, count = self.ids, len(self.ids)
        place = self._after.get(tuple(ids[-SIZE:]))
        if place is None:
            return []
        alike = SIZE
        while alike < min(ALIKE, place) and ids[place - alike - 1] == ids[-alike - 1]:
            alike += 1
        out: list[int] = []
        for at in range(place, place + min(most, 2 * alike - 2)):
            token = ids[at] if at < count else out[at - count]
            if token < 0:  # no token: the border between two texts
                break
            out.append(token)
        return out


class Lookahead:
    """Steps of one row that may already have been made."""

    def __init__(self, model: Any, cache: Forgets, *, seen: Sequence[int], room: int, device: torch.device) -> None:
        """`seen`: the ids to look things up in; `room`: the tokens the cache may hold."""
        self.model, self.cache, self.room, self.device = model, cache, room, device
        self.trail = Trail(seen)
        self.guessed: list[int] = []
        self.taken = 0  # how many of them the search has chosen too
        self.scores: Tensor | None = None  # (1, 1 + guessed, vocab)
        self._pause = self._rest = 0

    def step(self, token: int) -> Tensor:  # → (1, vocab)
        self.trail.push(token)
        if self.taken < len(self.guessed) and self.guessed[self.taken] == token:
            self.taken += 1
            assert self.scores is not None
            return self.scores[:, self.taken]
        self._settle()
        self.guessed = self._guess()
        self.taken = 0
        ids = torch.tensor([[token, *self.guessed]], device=self.device)
        if not self.guessed:
            return self.model.step(ids, self.cache)
        self.scores = self.model.step(ids, self.cache, every=True)
        return self.scores[:, 0]

    def _guess(self) -> list[int]:
        if self._rest:
            self._rest -= 1
            return []
        return self.trail.guess(min(MOST, self.room - self.cache.lengths[0] - 1))

    def _settle(self) -> None:
        """Forgets the guesses that were not taken. A guess that did not pay is followed by a pause, each twice as long
        as the last: where nothing repeats itself, speculation is as good as off."""
        if not self.guessed:
            return
        self.cache.truncate([self.cache.lengths[0] - len(self.guessed) + self.taken])
        paid = self.taken + 1 > price(len(self.guessed))
        self._pause = 0 if paid else min(2 * self._pause + 1, LONGEST_PAUSE)
        self._rest = self._pause


def price(guesses: int) -> float:
    """What a step with so many guesses costs, in steps without: sixteen rows of a matrix product take about as long as
    four times one row, on machines where one row waits for the memory."""
    return 1 + 3 * guesses / MOST


def exact(model: Any, cache: object) -> bool:
    """Whether reading several tokens in one step gives the scores of reading them one by one, up to the last bit. Half
    precision rounds more than that, and some rotary scalings turn every token by the length of the whole."""
    return (
        getattr(cache, "can_truncate", False)
        and next(model.parameters()).dtype == torch.float32
        and not model.rotary_depends_on_length
    )
