"""Saves text and JSON atomically; without torch, so that commands that only list files start at once."""

import json
import os
from pathlib import Path
from typing import Any

from headway.errors import CheckpointError
from headway.files import atomic_write, disk_errors
from headway.printable import printable_json


def save_json(path: str | os.PathLike[str], value: Any, *, sort_keys: bool = False) -> None:
    """Write a value as indented JSON, atomically."""
    save_text(path, to_json(Path(path), value, sort_keys=sort_keys))


def save_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, atomically."""
    save_bytes(path, text.encode())


def save_bytes(path: str | os.PathLike[str], content: bytes, *, new: bool = False) -> None:
    """Write a file, atomically; `new`: an existing one is not replaced."""
    with disk_errors(Path(path), len(content)), atomic_write(path, new=new) as partial:
        partial.write_bytes(content)


def to_json(path: Path, value: Any, *, sort_keys: bool = False) -> str:
    """A value as the text of the JSON file `path`."""
    try:
        out = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, sort_keys=sort_keys)
        return printable_json(out) + "\n"
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: not representable in JSON: {error}") from error
