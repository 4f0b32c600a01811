"""Functions of layers that are written as in the papers, and may be replaced by a faster one of the same values: the
layers do not know it. `headway.engine.training` registers those for a CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class replaceable(Generic[P, R]):  # noqa: N801  a decorator
    def __init__(self, plain: Callable[P, R]):
        functools.update_wrapper(self, plain)
        self.plain = plain
        self.faster: Callable[P, R] | None = None
        self.applies: Callable[P, bool] | None = None  # None: to all arguments

    def replace(self, faster: Callable[P, R], *, where: Callable[P, bool] | None = None) -> None:
        """From now on `faster` is called for arguments for which `where` is true."""
        self.faster, self.applies = faster, where

    @contextmanager
    def replaced(self, faster: Callable[P, R] | None, *, where: Callable[P, bool] | None = None) -> Iterator[None]:
        """As `replace`, within the context."""
        before = self.faster, self.applies
        self.faster, self.applies = faster, where
        try:
            yield
        finally:
            self.faster, self.applies = before

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.faster is None or (self.applies is not None and not self.applies(*args, **kwargs)):
            return self.plain(*args, **kwargs)
        return self.faster(*args, **kwargs)

    def __reduce__(self) -> str:  # copied and pickled by name, as functions are
        return self.plain.__qualname__
