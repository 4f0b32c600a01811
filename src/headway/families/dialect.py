"""A family and one file: the architecture that its config.json names, and the prefix of its tensor names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headway.checkpoints.rules import Alias, AnyRule, Copied
from headway.errors import ConfigError
from headway.families.family import Family, Keys
from headway.models.config import ModelConfig


def architecture_of(keys: Keys, kind: Family) -> str:
    wanted = (keys.get("architectures", list, None) or kind.architectures)[0]
    wanted = next(
        (name for name in kind.architectures if name.lower() == str(wanted).lower()), wanted
    )  # LLaMAForCausalLM
    if wanted not in kind.architectures:
        raise ConfigError(
            f"config.json: architecture {wanted!r} is not one Headway builds; known: {', '.join(kind.architectures)}"
        )
    return wanted


def rules_of(kind: Family, config: ModelConfig, *, names: Sequence[str] | None = None) -> list[AnyRule]:
    """The family's rules with `{base}` filled in: from the file's tensor names if given, else from the architecture."""
    bare = kind.architecture(config) in kind.bare
    if names is not None and kind.base:
        bare = not any(name.startswith(kind.base) for name in names)
    base = "" if bare else kind.base
    out: list[AnyRule] = []
    for rule in kind.rules(config):
        theirs = rule.theirs.replace("{base}", base)
        if isinstance(rule, Alias | Copied):
            out.append(replace(rule, theirs=theirs, of=rule.of.replace("{base}", base)))
        else:
            out.append(replace(rule, theirs=theirs))
    return out
