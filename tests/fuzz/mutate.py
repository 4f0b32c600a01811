"""Damage, at random but from a seed: to bytes as a disk or a hand does it, and to JSON values as a liar does it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

LONGEST = 200_000  # bytes of an input
BYTES = [
    b"\0", b"\r", b"\n", b"\r\n", b"\t", b",", b";", b'"', b'""', b"\\", b"{", b"}", b"[", b"]", b":", b" ", b"-",
    b"\xff\xfe", b"\xef\xbb\xbf", b"\xe9", b"\xc3", b"\x1f\x8b", b"\xed\xa0\x80", b"\xf0\x9f\x99\x82", b"\x1b[31m",
    b"PAR1", b"NaN", b"null", b"true", b"-1", b"0", b"1e999", b"9" * 25, b"\\ud800", b"../", b"\x80\x04\x95", b"PK",
    b"\x85", b"\xe2\x80\xa8", b"-DOCSTART-", b"[MASK]", b"</s>", b"\xc2\xa0", b"\x0b\x0c", b"\x1c", b"\xf3\xa0\x80\x81",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**32, 2**63, -(2**63), 2**64, 10**12, 10**400, 0.5, -0.0, 1e308, 1e-320,
    float("nan"), float("inf"), float("-inf"), "", " ", "x", "\0", "\ud800", "\u2028", "../x", "/etc/passwd", "a\\b",
    "1", "²", "nan", "null", "__class__", "{i}", "x" * 300, [], [0], [None], [[]], ["x"], {}, {"x": 1}, {"": {}},
    {"content": 3}, {"type": "Sequence"}, "float32", "int32", "object", "F32", "<0x41>",
]  # fmt: skip


def damaged(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """One to four changes of any kind."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        data = random.choice(CHANGES)(data, others, random)
    return data[:20_000]


def lied(text: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """A JSON text with some of its values, keys or parts replaced; sometimes its bytes are damaged too."""
    try:
        value = json.loads(text)
        for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
            value = _lie(value, random)
        out = json.dumps(value, ensure_ascii=random.random() < 0.7).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return damaged(text, others, random)
    if len(out) > LONGEST:  # parts repeated within repeated parts
        return damaged(text, others, random)
    return damaged(out, others, random) if random.random() < 0.15 else out


def lied_header(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """A safetensors file whose header lies, or one with damage anywhere."""
    end = 8 + int.from_bytes(data[:8], "little")
    if random.random() < 0.4 or end > len(data):
        return damaged(data, others, random)
    text = lied(data[8:end], [other[8:] for other in others], random)
    length = len(text) if random.random() < 0.95 else random.choice((0, 1, len(data), 2**40, 2**64 - 1))
    return length.to_bytes(8, "little") + text + data[end:]


def _lie(value: Any, random: Random) -> Any:
    places = list(_places(value))
    if not places:
        return random.choice(VALUES)
    holder, key = random.choice(places)
    kind = random.random()
    if kind < 0.6:
        holder[key] = copy.deepcopy(random.choice(VALUES))
    elif kind < 0.7:
        del holder[key]
    elif kind < 0.8:
        other, name = random.choice(places)
        holder[key] = copy.deepcopy(other[name])
    elif kind < 0.9 and isinstance(holder, dict):
        holder[random.choice(["", "x", str(key) + "s", "type", "id", "text", "label"])] = holder.pop(key)
    elif kind < 0.95:
        holder[key] = [holder[key]] * random.choice((0, 2, 40))
    else:
        for _ in range(random.choice((1, 5, 200))):
            holder[key] = [holder[key]] if random.random() < 0.5 else {"a": holder[key]}
    return value


def _places(value: Any) -> Any:
    """(holder, key) of everything inside."""
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        inside = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        for key, part in inside:
            yield holder, key
            if isinstance(part, dict | list):
                waiting.append(part)


def _flip(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    if not data:
        return b"\0"
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def _replace(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]


def _insert(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + random.choice(BYTES) * random.choice((1, 1, 1, 2, 50)) + data[at:]


def _delete(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + data[at + random.choice((1, 1, 2, 5, 20)) :]


def _cut(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    return data[: random.randint(0, len(data))]


def _repeat(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    start, end = sorted((random.randint(0, len(data)), random.randint(0, len(data))))
    return data[:end] + data[start:end] * random.choice((1, 2, 9)) + data[end:]


def _splice(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    other = random.choice(others)
    return data[: random.randint(0, len(data))] + other[random.randint(0, len(other)) :]


def _swap_lines(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    lines = data.split(b"\n")
    random.shuffle(lines)
    return random.choice((b"\n", b"\r\n", b"\r", b"\n\n")).join(lines)


def _recode(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    return data.decode("utf-8", "replace").encode(random.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig")))


CHANGES: list[Callable[[bytes, Sequence[bytes], Random], bytes]] = [
    _flip, _replace, _insert, _insert, _delete, _cut, _repeat, _splice, _swap_lines, _recode,
]  # fmt: skip
