"""Built-in data sets, and distinct rows drawn from a function that generates one.

A hash of an example's group (a date, a passage) decides whether it is train or test, for any seed and size. So no group
has examples in both.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Any, Literal, get_args

from headway.data.row import Row
from headway.errors import ConfigError

Split = Literal["train", "test"]
Fields = dict[str, Any]
Example = tuple[str, Fields | Callable[[], Fields]]  # group, and fields or a function that makes them
TEST_SHARE = 10  # one group in this many is test
PATIENCE = 400  # tries per example before giving up


def split_of(group: str) -> Split:
    digest = int.from_bytes(blake2b(group.encode(), digest_size=8).digest(), "big")
    return "test" if digest % TEST_SHARE == 0 else "train"


@dataclass(frozen=True)
class Builtin(ABC):
    """A built-in data set. Its rows are the same in every process."""

    name: str  # of the task it is for

    def rows(self, *, split: Split = "train", size: int | None = None, seed: int = 0) -> list[Row]:
        """`size=None` gives the usual number of rows. Test rows are never among the training rows, whatever the
        seed."""
        if split not in get_args(Split):
            raise ConfigError(f"split {split!r}: choose one of {', '.join(get_args(Split))}")
        if size is not None and size < 1:
            raise ConfigError(f"size={size}: at least one example is needed")
        made = self.fields(split, size=size, seed=seed)
        return [Row(fields, f"builtin/{self.name}/{split}:{line}") for line, fields in enumerate(made, start=1)]

    @abstractmethod
    def fields(self, split: Split, *, size: int | None, seed: int) -> list[Fields]: ...


@dataclass(frozen=True)
class Generated(Builtin):
    """Rows drawn from a function that makes one example from a random state."""

    make: Callable[[Random], Example]
    train: int  # rows, unless a size is given
    test: int

    def fields(self, split: Split, *, size: int | None, seed: int) -> list[Fields]:
        wanted = size if size is not None else (self.train if split == "train" else self.test)
        chance = Random(f"{self.name}/{split}/{seed}")
        found: dict[str, Fields] = {}
        for _ in range(PATIENCE * max(wanted, 1)):
            if len(found) >= wanted:
                return list(found.values())
            group, fields = self.make(chance)
            if split_of(group) == split:
                made = fields() if callable(fields) else fields
                found.setdefault(_identity(made), made)
        raise ConfigError(
            f"built-in {self.name!r} has only about {len(found)} different {split} rows; size={wanted} is too many"
        )


def _identity(fields: Fields) -> str:
    """Equal for equal fields only. Pictures and sounds by a digest: the repr of their bytes takes longer to make."""
    return repr({key: _digest(value) if hasattr(value, "tobytes") else value for key, value in fields.items()})


def _digest(value: Any) -> bytes:
    return blake2b(value.tobytes()).digest()
