"""Counts truncated examples, so that nothing is truncated silently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.errors import DataError, HeadwayError

UNITS = {"boxes": "boxes", "picture": "pixels", "recording": "frames of 10 ms"}  # of a part's length, if not tokens
LEFT_OUT = frozenset({"recording"})  # parts that cannot be cut: examples over the limit are not used
MOST = 2**53  # a larger count can only come from a damaged file


@dataclass
class TruncationCounter:
    """`policy` "error" raises `error` for ids over the limit; "truncate" cuts them and counts, by part."""

    policy: str = "truncate"
    error: type[HeadwayError] = DataError
    seen: dict[str, int] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    limit: dict[str, int] = field(default_factory=dict)
    worst: dict[str, tuple[int, str]] = field(default_factory=dict)

    def apply(self, ids: list[int], limit: int, *, part: str, where: str, last: int | None = None) -> list[int]:
        """`ids`, cut to `limit` tokens if longer; `last` (an end token), if given, then replaces the last one."""
        if not self.exceeds(len(ids), limit, part=part, where=where):
            return ids
        return ids[:limit] if last is None else [*ids[: limit - 1], last]

    def exceeds(self, length: int, limit: int, *, part: str, where: str) -> bool:
        """Whether a part has more than `limit` tokens, which the caller then cuts; counts it, or raises by policy."""
        self.seen[part] = self.seen.get(part, 0) + 1
        if length <= limit:
            return False
        if self.policy == "error":
            raise self.error(
                f"{where}: {part} has {length} {unit(part)}, the model takes {limit}; "
                "shorten it, raise the limit, or set overflow=truncate"
            )
        self.cut[part] = self.cut.get(part, 0) + 1
        self.limit[part] = limit
        if length > self.worst.get(part, (0, ""))[0]:
            self.worst[part] = (length, where)
        return True

    def merge(self, state: Mapping[str, Any]) -> None:
        """Adds the counts of another counter's `state_dict`."""
        for part, count in state["seen"].items():
            self.seen[part] = self.seen.get(part, 0) + count
        for part, count in state["cut"].items():
            self.cut[part] = self.cut.get(part, 0) + count
            self.limit[part] = state["limit"][part]
            self.worst[part] = max(self.worst.get(part, (0, "")), tuple(state["worst"][part]))

    def summary(self) -> list[str]:
        """A line for each part with truncated examples."""
        return [
            f"{part}: {count} of {self.seen[part]} {'left out: over' if part in LEFT_OUT else 'cut to'} "
            f"{self.limit[part]} {unit(part)} "
            f"({count / self.seen[part]:.1%}); the longest had {self.worst[part][0]} ({self.worst[part][1]})"
            for part, count in self.cut.items()
        ]

    def state_dict(self) -> dict[str, Any]:
        """All counts, for `load_state_dict`."""
        return {"seen": self.seen, "cut": self.cut, "limit": self.limit, "worst": self.worst}

    def load_state_dict(self, state: Any) -> bool:
        """Restores the counts of `state_dict`. Returns False and changes nothing if `state` is malformed."""
        try:
            seen, cut, limit = (dict(state[name]) for name in ("seen", "cut", "limit"))
            worst = {part: (length, where) for part, (length, where) in state["worst"].items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            return False
        counts = [*seen.values(), *cut.values(), *limit.values(), *(length for length, _ in worst.values())]
        if not all(type(count) is int and 0 < count < MOST for count in counts) or not seen.keys() >= cut.keys():
            return False
        if not cut.keys() == limit.keys() == worst.keys() or not all(
            isinstance(where, str) for _, where in worst.values()
        ):
            return False
        self.seen, self.cut, self.limit, self.worst = seen, cut, limit, worst
        return True

    def to_dict(self) -> dict[str, Any]:
        return {
            part: {
                "cut": count,
                "of": self.seen[part],
                "limit": self.limit[part],
                "longest": self.worst[part][0],
                "where": self.worst[part][1],
            }
            for part, count in self.cut.items()
        }


def unit(part: str) -> str:
    """What the length of a part counts."""
    return UNITS.get(part, "tokens")
