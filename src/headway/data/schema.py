"""Types of a store's fields: integers, floats or encoded bytes, of any rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import numpy as np

from headway.errors import ConfigError, DataError
from headway.validation import Check, between, from_dict

BYTES = "bytes"  # encoded data, such as the content of an image file
NUMBERS = frozenset(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)) | frozenset(
    f"float{bits}" for bits in (16, 32, 64)
)
MAX_RANK = 8
Dtype = Annotated[str, Check("a type of field", lambda dtype: dtype in NUMBERS or dtype == BYTES)]
Rank = Annotated[int, between(0, MAX_RANK)]


@dataclass(frozen=True, slots=True)
class ArrayField:
    """`dtype` is numpy's name of an integer or float type, or "bytes". `rank` is the number of dimensions, 0 for bytes;
    their sizes may differ between examples."""

    dtype: Dtype
    rank: Rank

    @classmethod
    def of(cls, value: np.ndarray | bytes, *, where: str) -> ArrayField:
        if isinstance(value, bytes):
            return cls(BYTES, 0)
        field = _array_field(value.dtype, value.ndim)
        if field is None:
            raise DataError(
                f"{where}: an array of {value.dtype.name} with {value.ndim} dimensions cannot be stored; give "
                f"integers, floats (at most {MAX_RANK} dimensions) or bytes."
            )
        return field

    def to_json(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "rank": self.rank}

    @property
    def storage(self) -> np.dtype[Any]:
        """The type of the values in the file: little-endian numbers."""
        return _storage(self.dtype)

    @property
    def has_shapes(self) -> bool:
        """Whether each example's shape is stored; up to one dimension the offsets determine it."""
        return self.rank > 1

    def encode(self, value: np.ndarray | bytes) -> bytes:
        return value if isinstance(value, bytes) else value.astype(self.storage, copy=False).tobytes()

    def files(self, name: str) -> tuple[str, ...]:
        return (f"{name}.bin", f"{name}.offsets.bin", *([f"{name}.shapes.bin"] if self.has_shapes else []))


@cache
def _array_field(dtype: np.dtype[Any], rank: int) -> ArrayField | None:
    return ArrayField(dtype.name, rank) if dtype.name in NUMBERS and rank <= MAX_RANK else None


@cache
def _storage(dtype: str) -> np.dtype[Any]:
    return np.dtype(np.uint8) if dtype == BYTES else np.dtype(dtype).newbyteorder("<")


def as_value(value: Any) -> np.ndarray | bytes:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else np.asarray(value)


def read_schema(fields: Any) -> dict[str, ArrayField]:
    """Fields of an index by name; ValueError if it is malformed."""
    try:
        schema: dict[str, ArrayField] = from_dict(dict[str, ArrayField], fields, path="fields")
    except ConfigError as error:
        raise ValueError(str(error)) from error
    if not schema or not all(map(str.isidentifier, schema)):
        raise ValueError("an index needs fields with plain names")
    if any(field.dtype == BYTES and field.rank for field in schema.values()):
        raise ValueError("a field of bytes has rank 0")
    return schema


def schema_json(schema: Mapping[str, ArrayField]) -> dict[str, Any]:
    return {name: field.to_json() for name, field in schema.items()}
