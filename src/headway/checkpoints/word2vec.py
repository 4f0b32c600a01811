"""Files of word vectors in the text and binary formats of word2vec, which gensim, fastText and others read and write.

Both begin with a line `words width`. A word and its numbers follow: in the text format as decimals on one line, in the
binary format as the word, a space, and little-endian float32.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from headway.errors import CheckpointError
from headway.files import atomic_write, disk_errors, open_file

HEADER = re.compile(rb"(\d{1,10}) (\d{1,7})\s*\n")
MAX_WORDS, MAX_WIDTH = 100_000_000, 1_000_000
LONGEST_WORD = 1 << 16  # bytes


def is_word2vec(path: Path) -> bool:
    """Whether a file begins as one of word vectors does."""
    if not path.is_file():
        return False
    with open_file(path) as file:
        return HEADER.match(file.read(64)) is not None


def read_word2vec(path: Path) -> tuple[list[str], np.ndarray]:
    """(words, vectors (word, width) float32) of a file in either format."""
    with open_file(path) as file:
        header = HEADER.match(file.read(64))
        if header is None:
            raise CheckpointError(f"{path}: does not begin with the number of words and their width")
        count, width = int(header[1]), int(header[2])
        if not 0 < count <= MAX_WORDS or not 0 < width <= MAX_WIDTH:
            raise CheckpointError(f"{path}: says {count} words of {width} numbers, which is not possible")
        size = file.seek(0, io.SEEK_END) - header.end()
        if size < count * (2 + width):  # the shortest text: a letter, then a space and a digit for each number
            raise CheckpointError(f"{path}: says {count:,} words of {width} numbers, but is too short for them")
        file.seek(header.end())
        binary = _is_binary(file.read(1 << 16), width)
        file.seek(header.end())
        entries = (_binary if binary else _text)(file, path, count=count, width=width)
        words, vectors = list[str](), np.empty((count, width), dtype=np.float32)
        for index, (word, vector) in enumerate(entries):
            words.append(word)
            vectors[index] = vector
    if len(set(words)) != count:
        raise CheckpointError(f"{path}: a word occurs twice; every word has one vector")
    if not np.isfinite(vectors).all():
        raise CheckpointError(f"{path}: a vector has a number that is not finite")
    return words, vectors


def _is_binary(start: bytes, width: int) -> bool:
    """By the first entry: as text it is one line of a word and `width` decimals."""
    line = start.split(b"\n", 1)[0]
    try:
        numbers = line.decode("utf-8").split()[-width:]
        return len(numbers) != width or not [float(number) for number in numbers]
    except ValueError:
        return True


def _binary(file: io.BufferedReader, path: Path, *, count: int, width: int) -> Iterator[tuple[str, np.ndarray]]:
    for index in range(count):
        letters = bytearray()
        while (letter := file.read(1)) != b" ":
            if not letter or len(letters) > LONGEST_WORD:
                raise CheckpointError(f"{path}: damaged after {index:,} of {count:,} words")
            letters += letter.strip(b"\n")
        content = file.read(4 * width)
        if len(content) != 4 * width:
            raise CheckpointError(f"{path}: ends within word {index + 1:,} of {count:,}; fetch it again")
        yield _decoded(bytes(letters), path, index), np.frombuffer(content, dtype="<f4")


def _text(file: io.BufferedReader, path: Path, *, count: int, width: int) -> Iterator[tuple[str, np.ndarray]]:
    for index in range(count):
        cells = _decoded(file.readline().rstrip(b"\r\n "), path, index).split(" ")
        try:
            if len(cells) != width + 1:
                raise ValueError(f"{len(cells) - 1} numbers")
            yield cells[0], np.array(cells[1:], dtype=np.float32)
        except ValueError as error:
            raise CheckpointError(
                f"{path}:{index + 2}: expected a word and {width} numbers separated by spaces ({error})"
            ) from error


def _decoded(word: bytes, path: Path, index: int) -> str:
    try:
        return word.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: word {index + 1:,} is not UTF-8 ({error})") from error


def save_word2vec(path: Path, words: Sequence[str], vectors: np.ndarray, *, binary: bool) -> None:
    """`vectors` is (word, width). Nine digits give every float32 exactly."""
    vectors = np.ascontiguousarray(vectors, dtype="<f4")
    for word in words:
        if not word or any(letter.isspace() for letter in word):
            raise CheckpointError(f"{path}: {word!r} has a space, which separates words in this format")
    lines = [f"{len(words)} {vectors.shape[1]}\n".encode()]
    for word, vector in zip(words, vectors, strict=True):
        start = word.encode() + b" "
        lines.append(start + (vector.tobytes() + b"\n" if binary else _decimals(vector)))
    content = b"".join(lines)
    with disk_errors(path, len(content)), atomic_write(path) as partial:
        partial.write_bytes(content)


def _decimals(vector: np.ndarray) -> bytes:
    return (" ".join(f"{value:.9g}" for value in vector.tolist()) + "\n").encode()
