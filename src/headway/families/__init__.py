"""Other people's names: the config keys and tensor names of published architectures, both ways."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING

from headway.errors import ConfigError

if TYPE_CHECKING:
    from headway.families.family import Family

MODULES = {  # model_type → the file that knows it
    "gpt2": "gpt2",
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "llama",
    "qwen3": "llama",
    "t5": "t5",
    "mt5": "t5",
    "bart": "bart",
    "mbart": "bart",
    "marian": "marian",
    "gpt-nano": "mingpt",
    "bert": "bert",
    "roberta": "roberta",
    "xlm-roberta": "roberta",
    "camembert": "roberta",
    "distilbert": "distilbert",
    "vit": "vit",
    "headway": "headway",
}


def find(name: str) -> Family:
    if name not in MODULES:
        close = difflib.get_close_matches(name, MODULES, 1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ConfigError(
            f"model_type {name!r} is not a family Headway knows{hint}; known: {', '.join(sorted(MODULES))}"
        )
    module = import_module(f"headway.families.{MODULES[name]}")
    members = getattr(module, "FAMILIES", None) or (module.FAMILY,)
    return next(member for member in members if member.name == name)
