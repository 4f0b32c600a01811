"""Bytes on disk to decoded lines, in bounded memory; errors name file and line.

A file is plain or gzip (detected by its first bytes), UTF-8 with or without a BOM, UTF-16, or a given encoding.
"""

from __future__ import annotations

import codecs
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from headway.errors import DataError
from headway.files import RefusedFileError, open_file

OnBytes = Callable[[bytes], object]  # such as a hash's `update`

CHUNK = 1 << 18
GZIP_MAGIC = b"\x1f\x8b"
NAME_ENCODING = "give the file's encoding, often --encoding cp1252 or latin-1, or convert the file to UTF-8"
OFFICE = "an office document; save its table as CSV (UTF-8) and give that file"
BINARY = {  # first bytes → what the file is, and what to do
    b"PK\x03\x04": "a zip archive; unpack it and give the file in it",
    b"\xd0\xcf\x11\xe0": OFFICE,
    b"ARROW1": "an Arrow (Feather) file; save its table as Parquet and give that file",
    b"%PDF": "a PDF document; extract its text and give that file",
    b"7z\xbc\xaf": "a 7z archive; unpack it and give the file in it",
    b"Rar!": "a RAR archive; unpack it and give the file in it",
}
BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits that protect memory from damaged or hostile files."""

    line_bytes: int = 16 << 20  # the longest line, CSV record or JSON value
    unpack_ratio: int = 200  # largest ratio of uncompressed to gzip size …
    unpack_free: int = 64 << 20  # … applied above this many bytes


DEFAULT = ReadLimits()


def read_lines(
    path: Path, *, encoding: str | None = None, limits: ReadLimits = DEFAULT, on_bytes: OnBytes | None = None
) -> Iterator[tuple[int, str]]:
    """(number from 1, line without its line end). `on_bytes` is called with the file's bytes as they are read."""
    number, pending = 1, bytearray()
    for chunk in _utf8(path, encoding, limits, on_bytes):
        pieces = chunk.split(b"\n")
        for piece in pieces[:-1]:
            pending += piece
            _check_size(path, number, len(pending), limits)
            yield number, _decode(path, number, bytes(pending))
            pending.clear()
            number += 1
        pending += pieces[-1]
        _check_size(path, number, len(pending), limits)
    if pending:
        yield number, _decode(path, number, bytes(pending))


def read_text(
    path: Path, *, encoding: str | None = None, limits: ReadLimits = DEFAULT, on_bytes: OnBytes | None = None
) -> Iterator[str]:
    """The decoded content in pieces that end at character boundaries, for formats whose values span lines."""
    decoder, number, column = codecs.getincrementaldecoder("utf-8")(), 1, 0
    for chunk in _utf8(path, encoding, limits, on_bytes):
        yield _checked_piece(path, number, column, decoder=decoder, chunk=chunk)
        number += chunk.count(b"\n")
        column = (0 if b"\n" in chunk else column) + len(chunk) - chunk.rfind(b"\n") - 1
    _checked_piece(path, number, column, decoder=decoder, chunk=b"")


def detect_encoding(path: Path, *, limits: ReadLimits = DEFAULT) -> str:
    """The encoding according to a file's first bytes; UTF-8 by default."""
    return _encoding_of(next(_decompressed(path, limits), b""))


def head_bytes(path: Path, *, limits: ReadLimits = DEFAULT) -> bytes:
    """The first bytes of the content (after gzip)."""
    return next(_decompressed(path, limits), b"")


def refuse_binary(path: Path, head: bytes) -> None:
    """DataError for a file that holds no text, by its first bytes, with what to do instead."""
    for magic, found in BINARY.items():
        if head.startswith(magic):
            office = path.suffix.lower() in (".docx", ".ods", ".odt")
            raise DataError(f"{path}: {OFFICE if office else found}")


def refuse_cr_line_ends(path: Path, head: bytes) -> None:
    """DataError if lines end with a carriage return only: the whole file would be one line."""
    if b"\r" in head.strip() and b"\n" not in head:
        raise DataError(
            f"{path}:1: lines end with a carriage return only (classic Mac OS); "
            "convert them (tr '\\r' '\\n' < old > new)."
        )


def _encoding_of(head: bytes) -> str:
    for bom, name in BOMS:
        if head.startswith(bom):
            return name
    head = head[:4096]
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if max(even, odd) > 0.3 * (len(head) // 2) and min(even, odd) == 0:  # Latin letters in UTF-16 without a BOM
        return "utf-16-be" if even else "utf-16-le"
    return "utf-8"


def _utf8(path: Path, encoding: str | None, limits: ReadLimits, on_bytes: OnBytes | None) -> Iterator[bytes]:
    """The content as UTF-8 bytes without a BOM, from any encoding."""
    number = 1
    decoder: codecs.IncrementalDecoder | None = None
    for position, chunk in enumerate(_decompressed(path, limits, on_bytes)):
        if position == 0:
            found = encoding or _encoding_of(chunk)
            if found == "utf-8-sig" or (found == "utf-8" and chunk.startswith(codecs.BOM_UTF8)):
                chunk = chunk.removeprefix(codecs.BOM_UTF8)
            elif found not in ("utf-8", "utf8"):
                decoder = _decoder(path, found)
        if decoder is not None:
            chunk = _transcode(path, number, decoder, chunk)
            number += chunk.count(b"\n")
        yield chunk
    if decoder is not None:
        yield _transcode(path, number, decoder, b"")


def _decoder(path: Path, encoding: str) -> codecs.IncrementalDecoder:
    try:
        "".encode(encoding)  # refuses codecs from bytes to bytes
        return codecs.getincrementaldecoder(encoding)()
    except (LookupError, ValueError) as error:
        raise DataError(f'{path}: there is no encoding "{encoding}"; try utf-8, latin-1 or cp1252.') from error


def _transcode(path: Path, number: int, decoder: codecs.IncrementalDecoder, chunk: bytes) -> bytes:
    try:
        return decoder.decode(chunk, final=not chunk).encode()
    except UnicodeDecodeError as error:
        line = number + _newlines_before(error)
        raise DataError(
            f"{path}:{line}: byte 0x{error.object[error.start]:02x} is not {error.encoding} "
            f"({error.reason}); {NAME_ENCODING}."
        ) from error
    except UnicodeError as error:
        raise DataError(f"{path}:{number}: {error}; {NAME_ENCODING}.") from error


def _newlines_before(error: UnicodeDecodeError) -> int:
    """Line ends before a decoding error."""
    return error.object[: error.start].decode(error.encoding, errors="replace").count("\n")


def _decode(path: Path, number: int, line: bytes) -> str:
    line = line.removesuffix(b"\r")
    if (at := line.find(0)) >= 0:
        raise DataError(_nul(path, number, at))
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(_not_utf8(path, number, error.start, byte=line[error.start])) from error


def _checked_piece(path: Path, number: int, column: int, *, decoder: codecs.IncrementalDecoder, chunk: bytes) -> str:
    """Decodes a chunk that begins at a column of a line."""

    def place(before: bytes) -> tuple[int, int]:
        behind = 0 if b"\n" in before else column
        return number + before.count(b"\n"), behind + len(before) - before.rfind(b"\n") - 1

    if (at := chunk.find(0)) >= 0:
        raise DataError(_nul(path, *place(chunk[:at])))
    try:
        return decoder.decode(chunk, final=not chunk)
    except UnicodeDecodeError as error:
        column -= len(error.object) - len(chunk)  # the decoder had buffered the start of a character
        line, at = place(error.object[: error.start])
        raise DataError(_not_utf8(path, line, at, byte=error.object[error.start])) from error


def _nul(path: Path, number: int, at: int) -> str:
    return (
        f"{path}:{number}: NUL byte at byte {at + 1} of the line; this is not a text file, or it is damaged there. "
        "Remove the byte, or give the file's encoding (--encoding) if it is UTF-16 or UTF-32."
    )


def _not_utf8(path: Path, number: int, at: int, *, byte: int) -> str:
    return (
        f"{path}:{number}: byte 0x{byte:02x} at byte {at + 1} of the line is not UTF-8. "
        f"{NAME_ENCODING[0].upper()}{NAME_ENCODING[1:]}."
    )


def _check_size(path: Path, number: int, size: int, limits: ReadLimits) -> None:
    if size > limits.line_bytes:
        raise DataError(
            f"{path}:{number}: the line is longer than {limits.line_bytes:,} bytes. Split it into several examples, "
            "or raise the limit with limits=Limits(line_bytes=…)."
        )


def _decompressed(path: Path, limits: ReadLimits, on_bytes: OnBytes | None = None) -> Iterator[bytes]:
    try:
        with open_file(path) as file:
            first = _observed(file, on_bytes)
            rest = iter(lambda: _observed(file, on_bytes), b"")
            yield from _gunzip(path, first, rest, limits) if first.startswith(GZIP_MAGIC) else _chain(first, rest)
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file.") from error
    except RefusedFileError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); copy its content into one.") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(f"{path}: the archive is damaged here ({error}); pack it again.") from error


def _observed(file: IO[bytes], on_bytes: OnBytes | None) -> bytes:
    chunk = file.read(CHUNK)
    if on_bytes is not None:
        on_bytes(chunk)
    return chunk


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _gunzip(path: Path, first: bytes, rest: Iterator[bytes], limits: ReadLimits) -> Iterator[bytes]:
    packed, unpacked, number = 0, 0, 1
    member = None  # the current gzip member; a file may have several
    pieces = bytearray()
    for chunk in _chain(first, rest):
        packed += len(chunk)
        full = False  # the last piece filled its buffer, so more output may be pending
        while chunk or full:
            if member is None:
                member = zlib.decompressobj(wbits=31)
            try:
                piece = member.decompress(chunk, CHUNK)
            except zlib.error as error:
                raise DataError(
                    f"{path}:{number}: the gzip data is damaged here ({error}); download it again."
                ) from error
            chunk, full = member.unconsumed_tail, len(piece) == CHUNK
            if member.eof:
                chunk, full, member = member.unused_data.lstrip(b"\0"), False, None  # NULs: padding
            unpacked += len(piece)
            if unpacked > max(limits.unpack_free, limits.unpack_ratio * packed):
                raise DataError(
                    f"{path}: unpacks to over {unpacked:,} bytes from {packed:,}, more than "
                    f"{limits.unpack_ratio} times. If you trust it, unpack it first (gunzip) "
                    "or raise limits=Limits(unpack_ratio=…)."
                )
            number += piece.count(b"\n")
            pieces += piece
            if len(pieces) >= CHUNK:
                yield bytes(pieces)
                pieces.clear()
    yield bytes(pieces)
    if member is not None:
        raise DataError(f"{path}:{number}: the gzip file is truncated here; download it again.")
