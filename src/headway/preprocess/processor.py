"""What turns raw inputs into tensors for one model, and predictions back: its tokenizer, its image processor, its audio
processor; those it has. A bundle carries one. It is read from and written to the files of a model folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.checkpoints import save_bytes, save_json
from headway.checkpoints.header import parse_json, read_bounded
from headway.errors import InputError
from headway.files import is_present
from headway.preprocess.audio_processor import AudioProcessor
from headway.preprocess.image_processor import NAME as PROCESSOR_FILE
from headway.preprocess.image_processor import ImageProcessor
from headway.validation import from_dict

if TYPE_CHECKING:
    from headway.preprocess.text import Tokenizer

COMBINED_FILE = "processor_config.json"  # of a model with several kinds of input: image_processor, feature_extractor, …
MAX_BYTES = 64 << 20  # of one file that is kept


@dataclass(frozen=True)
class Processor:
    tokenizer: Tokenizer | None = None
    image: ImageProcessor | None = None
    audio: AudioProcessor | None = None
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # of the folder it is from, written back as is
    tokenizer_error: str | None = None  # why the folder's tokenizer files give no tokenizer

    @classmethod
    def load(cls, folder: Path, *, image_channels: int | None = None, audio: bool = False) -> Processor:
        """`image_channels`: of the pictures the model takes; None: it takes none. `audio`: whether it takes sound."""
        tokenizer, error = _load_tokenizer(folder)
        image = None if image_channels is None else _load_image(folder, channels=image_channels)
        sound = _load_audio(folder) if audio else None
        files = {
            name: read_bounded(folder / name, limit=MAX_BYTES)
            for name in _kept_files(with_tokenizer=tokenizer is not None)
            if is_present(folder / name)
        }
        return cls(tokenizer, image, sound, files=files, tokenizer_error=error)

    def save(self, folder: Path) -> None:
        for name, content in self.files.items():
            save_bytes(folder / name, content)
        if self.tokenizer is not None:
            self.tokenizer.save(folder)
        made = self.image or self.audio
        if made is not None and not self.files.keys() & {PROCESSOR_FILE, COMBINED_FILE}:
            save_json(folder / PROCESSOR_FILE, made.to_json())

    def with_tokenizer(self, tokenizer: Tokenizer | None) -> Processor:
        """The same with another tokenizer; the files of the old one are left out."""
        if tokenizer is self.tokenizer:
            return self
        files = {name: content for name, content in self.files.items() if name in (PROCESSOR_FILE, COMBINED_FILE)}
        return replace(self, tokenizer=tokenizer, files=files, tokenizer_error=None)

    def with_image(self, image: ImageProcessor | None) -> Processor:
        """The same with another image processor; the files of the old one are left out."""
        if image == self.image:
            return self
        return replace(self, image=image, files=self._without_processor_files())

    def with_audio(self, audio: AudioProcessor | None) -> Processor:
        """The same with another audio processor; the files of the old one are left out."""
        return self if audio == self.audio else replace(self, audio=audio, files=self._without_processor_files())

    def _without_processor_files(self) -> dict[str, bytes]:
        return {name: content for name, content in self.files.items() if name not in (PROCESSOR_FILE, COMBINED_FILE)}

    def require_tokenizer(self, use: str) -> Tokenizer:
        """The tokenizer, or an error that says why there is none; `use` is what needs it."""
        if self.tokenizer is None:
            raise InputError(f"{use} needs a tokenizer: {self.tokenizer_error or 'this model has none'}")
        return self.tokenizer

    def require_image(self, use: str) -> ImageProcessor:
        if self.image is None:
            raise InputError(
                f"{use} needs to know how the model's pictures are resized and normalised: there is no {PROCESSOR_FILE}"
            )
        return self.image

    def require_audio(self, use: str) -> AudioProcessor:
        if self.audio is None:
            raise InputError(f"{use} needs to know the features of the model's sound: there is no {PROCESSOR_FILE}")
        return self.audio


def _load_tokenizer(folder: Path) -> tuple[Tokenizer | None, str | None]:
    """(tokenizer, None), or (None, why the files that are there give none), or (None, None) where there are none."""
    from headway.preprocess.text_files import CHARACTER_FILE, TOKENIZER_FILES, unreadable_layout

    if is_present(folder / CHARACTER_FILE):
        from headway.preprocess.character_text import load_character_tokenizer

        return load_character_tokenizer(folder), None
    if not any(is_present(folder / name) for name in TOKENIZER_FILES):
        return None, None
    if error := unreadable_layout(folder):
        return None, error
    from headway.preprocess.text import Tokenizer

    return Tokenizer.load(folder), None


def _load_image(folder: Path, *, channels: int) -> ImageProcessor | None:
    name, data = _settings(folder, "image_processor")
    return ImageProcessor.from_json(data, channels=channels, name=name) if data else None


def _load_audio(folder: Path) -> AudioProcessor | None:
    name, data = _settings(folder, "feature_extractor")
    return AudioProcessor.from_json(data, name=name) if data else None


def _settings(folder: Path, section: str) -> tuple[str, dict[str, Any]]:
    """(file, settings): of the file of one processor, else a section of that of several; empty if there is none."""
    for name in (PROCESSOR_FILE, COMBINED_FILE):
        if not is_present(folder / name):
            continue
        data: dict[str, Any] = parse_json(read_bounded(folder / name, limit=MAX_BYTES), folder / name)
        if name == COMBINED_FILE:
            data = from_dict(dict[str, Any], data.get(section) or {}, path=f"{folder / name}: {section}")
        if data:
            return str(folder / name), data
    return "", {}


def _kept_files(*, with_tokenizer: bool) -> list[str]:
    """The names of files that are written back as they are: those that `save` does not write itself."""
    from headway.preprocess.text_files import COMPANION_FILES, TOKENIZER_FILES

    written = ("tokenizer.json", "tokenizer_config.json") if with_tokenizer else ()
    return [n for n in (*TOKENIZER_FILES, *COMPANION_FILES, PROCESSOR_FILE, COMBINED_FILE) if n not in written]
