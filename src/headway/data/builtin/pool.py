"""Data room, built-in sets: from a way to make one example to a list of different ones, train and test apart.

An example belongs to train or test by a hash of its group (a date, a passage), whatever the seed and the size. So no
test example, and nothing of its group, is ever in a training set made here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Any, Literal

from headway.errors import ConfigError

Split = Literal["train", "test"]
Fields = dict[str, Any]
Example = tuple[str, Fields | Callable[[], Fields]]  # its group, and its fields or how to make them
TEST_SHARE = 10  # one group in so many is test
PATIENCE = 400  # tries for each example wanted, before the set is called exhausted


@dataclass(frozen=True)
class Recipe:
    """How a built-in set is made: one example from a random state, and how many of them unless told."""

    make: Callable[[Random], Example]
    train: int
    test: int


def split_of(group: str) -> Split:
    digest = int.from_bytes(blake2b(group.encode(), digest_size=8).digest(), "big")
    return "test" if digest % TEST_SHARE == 0 else "train"


def draw(recipe: Recipe, *, name: str, split: Split, size: int | None, seed: int) -> list[Fields]:
    wanted = size if size is not None else (recipe.train if split == "train" else recipe.test)
    chance = Random(f"{name}/{split}/{seed}")
    found: dict[str, Fields] = {}
    for _ in range(PATIENCE * max(wanted, 1)):
        if len(found) >= wanted:
            return list(found.values())
        group, fields = recipe.make(chance)
        if split_of(group) == split:
            made = fields() if callable(fields) else fields
            found.setdefault(_identity(made), made)
    raise ConfigError(
        f"built-in {name!r} has only about {len(found)} different {split} rows; size={wanted} is too many"
    )


def _identity(fields: Fields) -> str:
    return repr({key: value.tobytes() if hasattr(value, "tobytes") else value for key, value in fields.items()})
