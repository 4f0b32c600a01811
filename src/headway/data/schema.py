"""Types of a store's fields: integers, floats or encoded bytes, of any rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.errors import DataError

BYTES = "bytes"  # encoded data, such as the content of an image file
NUMBERS = frozenset(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)) | frozenset(
    f"float{bits}" for bits in (16, 32, 64)
)
MAX_RANK = 8


@dataclass(frozen=True, slots=True)
class Field:
    """`dtype` is numpy's name of an integer or float type, or "bytes". `rank` is the number of dimensions, 0 for bytes;
    their sizes may differ between examples."""

    dtype: str
    rank: int

    @classmethod
    def of(cls, value: np.ndarray | bytes, *, where: str) -> Field:
        if isinstance(value, bytes):
            return cls(BYTES, 0)
        if value.dtype.name not in NUMBERS or value.ndim > MAX_RANK:
            raise DataError(
                f"{where}: an array of {value.dtype.name} with {value.ndim} dimensions cannot be stored; give "
                f"integers, floats (at most {MAX_RANK} dimensions) or bytes."
            )
        return cls(value.dtype.name, value.ndim)

    @classmethod
    def from_json(cls, value: Any) -> Field:
        """ValueError if `value` is not what `to_json` returns."""
        if not isinstance(value, dict) or set(value) != {"dtype", "rank"}:
            raise ValueError(f"not a field: {value!r:.80}")
        dtype, rank = value["dtype"], value["rank"]
        if type(rank) is not int or not 0 <= rank <= MAX_RANK or not isinstance(dtype, str):
            raise ValueError(f"not a field: {value!r:.80}")
        if dtype not in NUMBERS and (dtype, rank) != (BYTES, 0):
            raise ValueError(f"not a type of field: {dtype!r:.80}")
        return cls(dtype, rank)

    def to_json(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "rank": self.rank}

    @property
    def storage(self) -> np.dtype[Any]:
        """The type of the values in the file: little-endian numbers."""
        return np.dtype(np.uint8) if self.dtype == BYTES else np.dtype(self.dtype).newbyteorder("<")

    @property
    def has_shapes(self) -> bool:
        """Whether each example's shape is stored; up to one dimension the offsets determine it."""
        return self.rank > 1

    def encode(self, value: np.ndarray | bytes) -> bytes:
        return value if isinstance(value, bytes) else value.astype(self.storage, copy=False).tobytes()

    def files(self, name: str) -> tuple[str, ...]:
        return (f"{name}.bin", f"{name}.offsets.bin", *([f"{name}.shapes.bin"] if self.has_shapes else []))


def as_value(value: Any) -> np.ndarray | bytes:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else np.asarray(value)


def read_schema(fields: Any) -> dict[str, Field]:
    """Fields of an index by name; ValueError if it is malformed."""
    if not isinstance(fields, dict) or not fields or not all(map(str.isidentifier, fields)):
        raise ValueError("an index needs fields with plain names")
    return {name: Field.from_json(value) for name, value in fields.items()}


def schema_json(schema: Mapping[str, Field]) -> dict[str, Any]:
    return {name: field.to_json() for name, field in schema.items()}
