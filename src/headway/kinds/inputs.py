"""Input kinds: a text, a pair of texts, several named texts, a conversation, a picture, a sound.

Each knows the columns that it is made of, how it is read from an argument of the command line and from a row of a
table, and its name in a title.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from headway.data.columns import pair_columns
from headway.data.paths import as_folder, data_path
from headway.data.row import Row
from headway.errors import InputError
from headway.preprocess.audio import SUFFIXES
from headway.preprocess.image import picture_files

PAIR = ("text", "text_pair")


@dataclass(frozen=True)
class InputKind:
    columns: tuple[str, ...] = ("text",)  # fields of a row that an input is made of
    example: str = "Some text"  # on the command line
    alone: tuple[str, ...] = ()  # fields of which one is enough, where the table has no other; best first
    special_tokens: bool = True  # the tokenizer's own are put around a text; not around one that is continued as it is

    is_file: ClassVar[bool] = False

    def parse(self, text: str) -> Any:
        """An argument of the command line."""
        return text

    def parse_all(self, text: str) -> list[Any]:
        """The inputs that one argument stands for: a folder stands for its files."""
        return [self.parse(text)]

    def of_row(self, row: Row) -> Any:
        return row.fields[self.columns[0]]

    def is_several(self, inputs: Any) -> bool:
        """Whether a call of the model gives several inputs, rather than one."""
        return isinstance(inputs, list)

    def texts(self, value: Any, *, where: str = "the input") -> list[str]:
        """The texts of an input in the order in which they are tokenised; none of a picture or a sound."""
        return [value] if isinstance(value, str) else []

    def shortened(self, value: Any, shorten: Callable[[str], str]) -> Any:
        """The input with a part of its text: of a question the context is shortened."""
        if not isinstance(value, str):
            raise InputError("first and last select a part of a text, and this input is not a text")
        return shorten(value)

    def title(self, value: Any) -> str:
        return str(value)


class TextInput(InputKind):
    """A text; words may come as a list."""


class MarkedInput(TextInput):
    """A text in which one word is marked: the [bank] of the river."""


class FieldsInput(InputKind):
    """Several named texts. Where one text alone is enough, `alone` names its field."""

    def parse(self, text: str) -> Any:
        if self.alone and not text.lstrip().startswith("{"):
            return text
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            wanted = json.dumps(dict.fromkeys(self.columns, "…"), ensure_ascii=False)
            raise InputError(f"the input must be a JSON object such as {wanted}, not {text[:60]!r}") from error
        missing = [name for name in self.columns if not isinstance(value, dict) or name not in value]
        if missing:
            raise InputError(f"the input has no {missing[0]!r}: {text[:60]!r}")
        return value

    def of_row(self, row: Row) -> Any:
        return {name: row.fields[name] for name in self.columns}

    def texts(self, value: Any, *, where: str = "the input") -> list[str]:
        return [value] if isinstance(value, str) else [value[name] for name in self.columns]

    def shortened(self, value: Any, shorten: Callable[[str], str]) -> Any:
        last = self.columns[-1]
        if isinstance(value, Mapping) and isinstance(value.get(last), str):
            return {**value, last: shorten(value[last])}
        return super().shortened(value, shorten)

    def title(self, value: Any) -> str:
        return str(value[self.columns[0]]) if isinstance(value, Mapping) else str(value)


@dataclass(frozen=True)
class PairInput(InputKind):
    """Two texts that are read together. `optional`: a text alone is an input as well."""

    columns: tuple[str, ...] = PAIR
    names: Sequence[str] = PAIR  # of the columns in the training data
    optional: bool = False

    def parse(self, text: str) -> Any:
        """A JSON object, or a list of two texts."""
        if self.optional and text.lstrip()[:1] not in ("{", "["):
            return text
        try:
            return self.both(json.loads(text), where="the input")
        except (json.JSONDecodeError, RecursionError, InputError) as error:
            if self.optional:  # a text that begins with a bracket
                return text
            raise InputError(f"{_PAIR_WANTED}, as JSON; not {text[:60]!r}") from error

    def both(self, value: Any, *, where: str) -> tuple[str, str]:
        """The two texts of a tuple, a list, or an object with the names of the training data or such as premise and
        hypothesis."""
        names: Sequence[str] | None = None
        if isinstance(value, Mapping):
            own = all(name in value for name in self.names)
            names = self.names if own else pair_columns(list(value))
        pair = [value[name] for name in names] if names else value
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise InputError(f"{where}: {_PAIR_WANTED}, not {type(value).__name__} ({value!r:.60})")
        return pair[0], pair[1]

    def of_row(self, row: Row) -> Any:
        found = {name: row.fields[name] for name in PAIR if name in row.fields}
        return found if len(found) == 2 else found["text"]

    def texts(self, value: Any, *, where: str = "the input") -> list[str]:
        return [value] if self.optional and isinstance(value, str) else [*self.both(value, where=where)]

    def shortened(self, value: Any, shorten: Callable[[str], str]) -> Any:
        parts = [shorten(text) for text in self.texts(value)]
        return parts[0] if len(parts) == 1 else tuple(parts)

    def title(self, value: Any) -> str:
        return " / ".join(value) if isinstance(value, tuple) else str(value)


_PAIR_WANTED = 'task classify takes a pair of texts here: {"text": …, "text_pair": …}'


@dataclass(frozen=True)
class ConversationInput(InputKind):
    """A message of the user, or a whole conversation: a list of messages, or an object with `messages` and `tools`."""

    columns: tuple[str, ...] = ("messages",)
    alone: tuple[str, ...] = ("instruction", "text")

    def parse(self, text: str) -> Any:
        if not text.lstrip().startswith(("[", "{")):
            return text
        try:
            found = json.loads(text)
        except json.JSONDecodeError:
            return text
        return found if isinstance(found, list) or "messages" in found else text

    def is_several(self, inputs: Any) -> bool:
        """A list of messages is one conversation, and so is an object with `messages`."""
        if not isinstance(inputs, list):
            return False
        return not (inputs and isinstance(inputs[0], Mapping) and "messages" not in inputs[0])


@dataclass(frozen=True)
class PictureInput(InputKind):
    columns: tuple[str, ...] = ("image",)
    example: str = "picture.png"

    is_file: ClassVar[bool] = True

    def parse(self, text: str) -> Any:
        return Path(text)

    def parse_all(self, text: str) -> list[Any]:
        return picture_files(as_folder(data_path(text)))

    def title(self, value: Any) -> str:
        return value.name if isinstance(value, Path) else "a picture"


@dataclass(frozen=True)
class SoundInput(InputKind):
    columns: tuple[str, ...] = ("audio",)
    example: str = "recording.wav"

    is_file: ClassVar[bool] = True

    def parse(self, text: str) -> Any:
        return Path(text)

    def parse_all(self, text: str) -> list[Any]:
        """A folder stands for its recordings, in name order."""
        path = as_folder(data_path(text))
        if not path.is_dir():
            return [path]
        found = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in SUFFIXES and file.is_file()]
        if not found:
            raise InputError(f"{path}: the folder has no recordings ({', '.join(SUFFIXES)})")
        return found

    def title(self, value: Any) -> str:
        return value.name if isinstance(value, Path) else "a recording"
