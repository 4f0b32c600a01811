"""A pytest plugin that removes three protections: TRUST 24 (names in a config select from a fixed list), 27 (templates
are rendered in a sandbox) and 28 (special tokens in a text are plain text). Tests of these must then fail."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from headway import loading
from headway.preprocess import chat
from headway.preprocess.text import Tokenizer

# 24: the module that auto_map names is imported, as libraries with trust_remote_code do
_load = loading.load


def load_with_remote_code(path: Any, **options: Any) -> Any:
    config = json.loads((Path(path) / "config.json").read_text())
    for name in config.get("auto_map", {}).values():
        sys.path.insert(0, str(path))
        importlib.import_module(name.split("--")[-1].partition(".")[0])
    return _load(path, **options)


sys.modules["headway"].__dict__["load"] = load_with_remote_code

# 27: the same script with Jinja's plain environment
_script = chat.SANDBOX.read_text().replace("ImmutableSandboxedEnvironment(", "jinja2.Environment(")
_folder = tempfile.TemporaryDirectory()
chat.SANDBOX = Path(_folder.name) / "chat_sandbox.py"
chat.SANDBOX.write_text(_script)
chat.RENDERER.script = chat.SANDBOX

# 28: texts are encoded by the backend that recognises special tokens
_init = Tokenizer.__init__


def init_without_plain(self: Tokenizer, description: Any) -> None:
    _init(self, description)
    self._plain = self._full


Tokenizer.__init__ = init_without_plain  # type: ignore[method-assign]
