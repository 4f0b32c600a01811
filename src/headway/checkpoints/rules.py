"""Reversible rules between Headway's tensor names ("ours") and those of another library ("theirs"). The idea is from
litgpt's template map and the reversible operations of transformers 5.

The names of a rule are templates: `{i}` is a number, and a template may name a parameter, or a module whose `weight`
and `bias` both follow the rule. Rules for parts that a model lacks are skipped. Both directions are strict: every
parameter is filled by exactly one rule, and every source tensor is used or explicitly dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from headway.errors import CheckpointError

LEAF = r"(?P<leaf>(?:\.(?:weight|bias))?(?:_scale)?)"  # `weight_scale` goes with an int8 `weight`


@dataclass(frozen=True)
class Rule:
    """One or several of our tensors ⇄ one of theirs."""

    ours: tuple[str, ...]
    theirs: str
    to_ours: Callable[[Tensor], Sequence[Tensor]]
    to_theirs: Callable[[Sequence[Tensor]], Tensor]


@dataclass(frozen=True)
class Dropped:
    """A tensor of theirs that is not used; `theirs` is a shell pattern."""

    theirs: str
    why: str


@dataclass(frozen=True)
class Constant:
    """A tensor of theirs that is determined by the config: checked when reading, and saved if `written`."""

    theirs: str
    shape: tuple[int, ...]
    make: Callable[[], Tensor]
    written: bool = True


@dataclass(frozen=True)
class Alias:
    """Another name of the same tensor (tied or renamed): a file may have either, or both if they are equal. It is not
    saved."""

    theirs: str
    of: str


@dataclass(frozen=True)
class Copied:
    """A tensor that their model has but does not use: not read, saved as a copy of another."""

    theirs: str
    of: str


AnyRule = Rule | Dropped | Constant | Alias | Copied


def same(ours: str, theirs: str) -> Rule:
    return Rule((ours,), theirs, lambda t: (t,), lambda ts: ts[0])


def modules(table: Mapping[str, str]) -> list[Rule]:
    """Rules that only rename, from a table {ours: theirs}."""
    return [same(ours, theirs) for ours, theirs in table.items()]


def transposed(ours: str, theirs: str) -> Rule:
    """A transposed matrix; vectors are unchanged."""
    return Rule((ours,), theirs, lambda t: (_transpose(t),), lambda ts: _transpose(ts[0]))


def shaped(ours: str, theirs: str, *, ours_shape: Sequence[int], theirs_shape: Sequence[int]) -> Rule:
    """The same values reshaped (for example a patch projection stored as a convolution)."""
    return Rule((ours,), theirs, lambda t: (t.reshape(*ours_shape),), lambda ts: ts[0].reshape(*theirs_shape))


def convolution(ours: str, theirs: str, *, kernel: int) -> Rule:
    """A linear map of neighbouring vectors (out, kernel · in) that is stored as a convolution (out, in, kernel)."""

    def to_theirs(ts: Sequence[Tensor]) -> Tensor:
        return ts[0].unflatten(1, (kernel, -1)).transpose(1, 2)

    return Rule((ours,), theirs, lambda t: (t.transpose(1, 2).flatten(1),), to_theirs)


def fused(ours: Sequence[str], theirs: str, *, transpose: bool = False, sizes: Sequence[int] | None = None) -> Rule:
    """Several projections of ours kept as one of theirs (q, k and v in one matrix): of equal size, or of `sizes`."""

    def to_ours(t: Tensor) -> Sequence[Tensor]:
        whole = _transpose(t) if transpose else t
        return whole.chunk(len(ours), dim=0) if sizes is None else whole.split(list(sizes), dim=0)

    def to_theirs(ts: Sequence[Tensor]) -> Tensor:
        whole = torch.cat(list(ts), dim=0)
        return _transpose(whole) if transpose else whole

    return Rule(tuple(ours), theirs, to_ours, to_theirs)


def interleaved(ours: Sequence[str], theirs: str, *, heads: int) -> Rule:
    """Several projections of ours kept as one of theirs, head by head: q, k, v of the first head, of the second, …"""

    def to_ours(t: Tensor) -> Sequence[Tensor]:
        return [part.flatten(0, 1) for part in t.unflatten(0, (heads, len(ours), -1)).unbind(1)]

    def to_theirs(ts: Sequence[Tensor]) -> Tensor:
        return torch.stack([t.unflatten(0, (heads, -1)) for t in ts], dim=1).flatten(0, 2)

    return Rule(tuple(ours), theirs, to_ours, to_theirs)


def _transpose(t: Tensor) -> Tensor:
    return t.t() if t.ndim == 2 else t


def expand(rules: Iterable[AnyRule], ours: Iterable[str]) -> list[Rule]:
    """The rules with their numbers filled in, one per group of parameters that the model really has."""
    names, out = list(ours), []
    filled: dict[str, str] = {}
    for rule in rules:
        if not isinstance(rule, Rule):
            continue
        pattern = _pattern(rule.ours[0], LEAF)
        for name in names:
            match = pattern.fullmatch(name)
            if match is None:
                continue
            number, leaf = match.groupdict().get("i") or "", match["leaf"]
            concrete = [template.replace("{i}", number) + leaf for template in (*rule.ours, rule.theirs)]
            for target in concrete[:-1]:
                if target in filled:
                    raise CheckpointError(f"two rules fill {target}: from {filled[target]} and {concrete[-1]}")
                filled[target] = concrete[-1]
            out.append(Rule(tuple(concrete[:-1]), concrete[-1], rule.to_ours, rule.to_theirs))
    missing = [name for name in names if name not in filled]
    if missing:
        raise CheckpointError(f"no rule fills {_list_names(missing)}")
    return out


def to_ours(source: Mapping[str, Tensor], rules: Sequence[AnyRule], ours: Iterable[str]) -> dict[str, Tensor]:
    """Convert their tensors to our names."""
    out: dict[str, Tensor] = {}
    used: set[str] = set()
    missing: list[str] = []
    concrete = expand(rules, ours)
    used_by_rules = {rule.theirs for rule in concrete}
    aliases = {name: of for name, of in _aliases(source, rules) if name not in used_by_rules}
    replacement = {of: name for name, of in aliases.items() if of not in source}
    for rule in concrete:
        name = replacement.get(rule.theirs, rule.theirs)
        if name not in source:
            missing.append(name)
            continue
        used.add(name)
        out.update(zip(rule.ours, rule.to_ours(source[name]), strict=True))
    for name in aliases.keys() - used:
        of = replacement.get(aliases[name], aliases[name])
        if not torch.equal(source[name], source[of]):
            raise CheckpointError(f"{name} should be tied to {of} but differs; set tie_word_embeddings to false")
        used.add(name)
    if missing:
        raise CheckpointError(f"the file has no {_list_names(missing)}, which the model needs")
    unused = [name for name in source if name not in used and not _is_unused(name, source, rules)]
    if unused:
        raise CheckpointError(f"the file has {_list_names(unused)}, which the model does not use")
    return out


def to_theirs(state: Mapping[str, Tensor], rules: Sequence[AnyRule]) -> dict[str, Tensor]:
    """Convert our tensors to their names: the inverse of `to_ours`."""
    out = {
        rule.theirs: rule.to_theirs([state[name] for name in rule.ours]).contiguous() for rule in expand(rules, state)
    }
    for rule in rules:
        if isinstance(rule, Constant) and rule.written:
            out[rule.theirs] = rule.make().to(next(iter(out.values())).dtype)
        elif isinstance(rule, Copied):
            out[rule.theirs] = out[rule.of]
    return out


def _pattern(template: str, tail: str = "") -> re.Pattern[str]:
    return re.compile(re.escape(template).replace(r"\{i\}", r"(?P<i>\d+)") + tail)


def _aliases(source: Iterable[str], rules: Sequence[AnyRule]) -> list[tuple[str, str]]:
    """Pairs (alias in the file, name of the same tensor)."""
    patterns = [(_pattern(rule.theirs), rule.of) for rule in rules if isinstance(rule, Alias)]
    return [
        (name, of.replace("{i}", match.groupdict().get("i") or ""))
        for name in source
        for pattern, of in patterns
        if (match := pattern.fullmatch(name))
    ]


def _is_unused(name: str, source: Mapping[str, Tensor], rules: Sequence[AnyRule]) -> bool:
    for rule in rules:
        if isinstance(rule, Dropped) and fnmatchcase(name, rule.theirs):
            return True
        if isinstance(rule, Constant) and name == rule.theirs:
            found = source[name]  # compare the shape first: that of the config may need too much memory
            if tuple(found.shape) != rule.shape or not torch.allclose(rule.make().to(found.dtype), found, atol=1e-4):
                raise CheckpointError(f"{name} does not have the values the config determines")
            return True
        if isinstance(rule, Copied) and name == rule.theirs:
            return True
    return False


def _list_names(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
