"""A sound file, its bytes, a stream or an array → mono samples at one rate, block by block.

Memory does not grow with the length of a file: it is decoded (libsndfile: WAV, FLAC, Ogg, MP3, …), mixed to mono and
resampled (soxr) in blocks. The format is told by the content, not by the name. A file is named by a `Path`; a plain
string, which may come from anywhere, is refused.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from headway.errors import DataError, HeadwayError
from headway.files import PackedPath, RefusedFileError, open_file
from headway.preprocess.archive import DAMAGED

Samples = NDArray[np.float32]  # mono, full scale from -1 to 1

MPEG = (
    b"\xe2\xe3\xe4\xe5\xf2\xf3\xf4\xf5\xfa\xfb\xfc\xfd"  # second byte of a frame: versions 1, 2 and 2.5, layers 2 and 3
)
# By libsndfile's names: suffixes, and what the files begin with. It knows more, decoders of which print to standard
# output, and takes what it does not know for MP3.
FORMATS: dict[str, tuple[tuple[str, ...], tuple[bytes, ...]]] = {
    "WAV": ((".wav",), (b"RIFF", b"RIFX")),
    "FLAC": ((".flac",), (b"fLaC",)),
    "OGG": ((".ogg", ".oga", ".opus"), (b"OggS",)),
    "MP3": ((".mp3",), (b"ID3", *(b"\xff" + bytes([second]) for second in MPEG))),
    "AIFF": ((".aiff", ".aif"), (b"FORM",)),
    "AU": ((".au",), (b".snd", b"dns.")),
    "CAF": ((".caf",), (b"caff",)),
    "W64": ((".w64",), (b"riff",)),
    "RF64": ((".rf64",), (b"RF64",)),
    "WAVEX": ((), (b"RIFF",)),
    "NIST": ((), (b"NIST_1A",)),
}
SUFFIXES = tuple(suffix for suffixes, _ in FORMATS.values() for suffix in suffixes)
SIGNATURES = tuple(signature for _, signatures in FORMATS.values() for signature in signatures)
MAX_SECONDS = 48 * 3600.0  # a small file of silence may decode to years
RATES = (1_000, 1_000_000)  # samples a second that a recording may have
BLOCK = 1 << 18  # values that are decoded at once, over all channels
MISSING_SECONDS = 0.5  # that a file may lack of what its header declares; encoders round


@dataclass(frozen=True)
class SoundHeader:
    """What a file declares about itself."""

    rate: int
    channels: int
    frames: int  # samples of one channel; the file may hold fewer
    format: str

    @property
    def seconds(self) -> float:
        return self.frames / self.rate


@dataclass(frozen=True)
class Sound:
    """A recording that is decoded each time it is iterated. `source` is a Path, encoded bytes, a seekable binary
    stream, a mono array at `rate`, or (array, its rate). `where` names in errors a source that is no file."""

    source: Any
    rate: int  # of the samples that `blocks` yields
    name: str = "sound"
    error: type[HeadwayError] = DataError

    @property
    def where(self) -> str:
        return str(self.source) if isinstance(self.source, Path) else self.name

    @cached_property
    def header(self) -> SoundHeader:
        """Checked: a rate, a number of channels and a length that can be."""
        if (given := self._array()) is not None:
            samples, rate = given
            found = SoundHeader(rate, 1 if samples.ndim == 1 else samples.shape[1], len(samples), "array")
        else:
            with ExitStack() as stack:
                file = self._opened(stack)
                found = SoundHeader(file.samplerate, file.channels, file.frames, file.format)
        if not RATES[0] <= found.rate <= RATES[1]:
            self._refuse(f"{found.rate:,} samples a second; expected {RATES[0]:,} to {RATES[1]:,}")
        if found.frames <= 0:
            self._refuse("holds no sound: no samples")
        if found.seconds > MAX_SECONDS:
            self._refuse(f"{found.seconds / 3600:,.0f} hours; at most {MAX_SECONDS / 3600:.0f} are read. Split it")
        return found

    def blocks(self) -> Iterator[Samples]:
        """Mono samples at `rate`; the last block may be short. Sounds without a sample, or with one that is not a
        number, are refused."""
        header = self.header
        convert, rest = self._resampler(header.rate)
        for samples in self._mono():
            if len(converted := convert(samples)):
                yield converted
        if len(last := rest()):
            yield last

    def read(self, *, seconds: float | None = None) -> Samples:
        """All of it, or the first `seconds`, in memory."""
        most = None if seconds is None else round(seconds * self.rate)
        parts, count = list[Samples](), 0
        for block in self.blocks():
            parts.append(block)
            count += len(block)
            if most is not None and count >= most:
                break
        whole = np.concatenate(parts) if parts else np.zeros(0, np.float32)
        return whole if most is None else whole[:most]

    def _mono(self) -> Iterator[Samples]:
        header, count = self.header, 0
        size = max(256, BLOCK // header.channels)
        with ExitStack() as stack:
            for block in self._decoded(stack, size):
                mono = block[:, 0] if block.shape[1] == 1 else block.mean(1, dtype=np.float32)
                if not np.isfinite(mono).all():
                    at = (count + int(np.flatnonzero(~np.isfinite(mono))[0])) / header.rate
                    self._refuse(f"the sample at {at:.3f} s is not a finite number")
                count += len(mono)
                yield np.ascontiguousarray(mono)
        if header.frames - count > MISSING_SECONDS * header.rate:
            self._refuse(
                f"truncated or damaged: {count / header.rate:.1f} s of the {header.seconds:.1f} s that its header "
                "declares can be read"
            )

    def _decoded(self, stack: ExitStack, size: int) -> Iterator[NDArray[np.float32]]:
        """Blocks (sample, channel)."""
        if (given := self._array()) is not None:
            samples = given[0].reshape(len(given[0]), -1)
            for start in range(0, len(samples), size):
                yield samples[start : start + size]
            return
        file = self._opened(stack)
        while True:
            try:
                block = file.read(size, dtype="float32", always_2d=True)
            except Exception as error:
                self._refuse(f"damaged ({error})")
            if not len(block):
                return
            yield block

    def _opened(self, stack: ExitStack) -> Any:
        soundfile = optional("soundfile")
        source = self.source
        if isinstance(source, Path):
            source = stack.enter_context(self._open_path(source))
        elif isinstance(source, bytes):
            source = io.BytesIO(source)
        elif hasattr(source, "seek") and hasattr(source, "read"):
            source.seek(0)
        else:
            self._refuse(f"expected a sound file's Path, its bytes or an array, found {type(source).__name__}")
        if not (head := source.read(max(map(len, SIGNATURES)))):
            self._refuse("empty: 0 bytes")
        source.seek(0)
        try:
            if not head.startswith(SIGNATURES):
                raise ValueError("unknown format")
            file = stack.enter_context(soundfile.SoundFile(_QuietStream(source)))
            if file.format in FORMATS:
                return file
            raise ValueError(f"{file.format} is not read")
        except Exception as raised:
            error = getattr(raised, "error_string", raised)  # without the name of an object
        self._refuse(f"not a sound file, or a damaged one ({error}); expected {', '.join(SUFFIXES[:6])} or similar")

    def _open_path(self, path: Path) -> IO[bytes]:
        try:
            if not isinstance(path, PackedPath):
                return open_file(path)
            with open_file(path) as packed:  # as a whole: a library in C reads it, which sees no errors of the archive
                return io.BytesIO(packed.read())
        except FileNotFoundError:
            self._refuse("no such file")
        except RefusedFileError as error:
            self._refuse(f"cannot be read ({error.strerror})")
        except (OSError, ValueError, *DAMAGED) as error:
            self._refuse(f"cannot be read ({error})")

    def _array(self) -> tuple[NDArray[np.float32], int] | None:
        """(samples, rate) of a source that is not encoded."""
        source, rate = self.source, self.rate
        if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], np.ndarray):
            source, rate = source
        if not isinstance(source, np.ndarray):
            return None
        if source.ndim not in (1, 2) or source.dtype.kind not in "fi" or type(rate) is not int:
            self._refuse(
                f"an array of {source.dtype} with shape {source.shape}; expected (sample,) or (sample, channel) of "
                "floats from -1 to 1 or of integers, alone or with its rate: (array, 8000)"
            )
        if source.dtype.kind == "i":
            return (source / -float(np.iinfo(source.dtype).min)).astype(np.float32), rate
        return source.astype(np.float32, copy=False), rate

    def _resampler(self, rate: int) -> tuple[Callable[[Samples], Samples], Callable[[], Samples]]:
        """(a function from samples to samples at another rate, one that returns what is still buffered)."""
        if rate == self.rate:
            return lambda samples: samples, lambda: np.zeros(0, np.float32)
        stream = optional("soxr").ResampleStream(rate, self.rate, 1, dtype="float32", quality="HQ")
        return stream.resample_chunk, lambda: stream.resample_chunk(np.zeros(0, np.float32), last=True)

    def _refuse(self, problem: str) -> NoReturn:
        raise self.error(f"{self.where}: {problem}")


@dataclass
class _QuietStream:
    """A stream for libsndfile, which asks for impossible places when a file is damaged. It reads through callbacks,
    whose exceptions Python would print; a place that cannot be reached is told by the one that is."""

    file: IO[bytes]

    def seek(self, offset: int, whence: int = 0) -> int:
        with suppress(OSError, ValueError, OverflowError):
            self.file.seek(offset, whence)
        return self.file.tell()

    def tell(self) -> int:
        return self.file.tell()

    def read(self, size: int) -> bytes:
        try:
            return self.file.read(size)
        except (OSError, ValueError, OverflowError, MemoryError):
            return b""


def optional(module: str) -> Any:
    """A library of the extra `audio`."""
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:  # OSError: its shared library is missing
        raise DataError(f"sound needs {module}, which is not installed: pip install 'headway[audio]'") from error


def resampled(samples: Samples, rate: int, to: int) -> Samples:
    """At another rate; both may be any numbers, so that a ratio of rates changes the speed."""
    return samples if rate == to else optional("soxr").resample(samples, rate, to, quality="HQ").astype(np.float32)
