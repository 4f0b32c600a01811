"""Reversible rules between our tensor names and somebody else's (idea: litgpt's template map and
transformers 5's reversible operations). Knows no family.

A rule's names are templates: `{i}` stands for a number, and a template may name a parameter or a module, whose `weight`
and `bias` are then carried over by the same rule. Rules for parts that a model does not have are passed over. It is
strict both ways: every parameter is filled by one rule, every source tensor is used or knowingly dropped.
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
    """A tensor of theirs that is knowingly not used; `theirs` is a shell pattern."""

    theirs: str
    why: str


@dataclass(frozen=True)
class Constant:
    """A tensor of theirs that follows from the config: checked when read, written again when their files have it."""

    theirs: str
    shape: tuple[int, ...]
    make: Callable[[], Tensor]
    written: bool = True


@dataclass(frozen=True)
class Alias:
    """Another name of the same tensor (a tied copy, an older spelling): a file may have either, or both if they are
    equal; it is not written."""

    theirs: str
    of: str


@dataclass(frozen=True)
class Copied:
    """A tensor of theirs that nothing uses, yet their model holds: not read, written as a copy of another."""

    theirs: str
    of: str


AnyRule = Rule | Dropped | Constant | Alias | Copied


def same(ours: str, theirs: str) -> Rule:
    return Rule((ours,), theirs, lambda t: (t,), lambda ts: ts[0])


def modules(table: Mapping[str, str]) -> list[Rule]:
    """{ours: theirs}, each the same tensor under another name."""
    return [same(ours, theirs) for ours, theirs in table.items()]


def transposed(ours: str, theirs: str) -> Rule:
    """A matrix stored the other way round; vectors stay."""
    return Rule((ours,), theirs, lambda t: (_turn(t),), lambda ts: _turn(ts[0]))


def shaped(ours: str, theirs: str, *, ours_shape: Sequence[int], theirs_shape: Sequence[int]) -> Rule:
    """The same numbers in the same order under another shape (a bias kept as a row, patches kept as a convolution)."""
    return Rule((ours,), theirs, lambda t: (t.reshape(*ours_shape),), lambda ts: ts[0].reshape(*theirs_shape))


def fused(ours: Sequence[str], theirs: str, *, transpose: bool = False) -> Rule:
    """Several equal-sized projections of ours kept as one of theirs (q, k and v in one matrix)."""

    def to_ours(t: Tensor) -> Sequence[Tensor]:
        return (_turn(t) if transpose else t).chunk(len(ours), dim=0)

    def to_theirs(ts: Sequence[Tensor]) -> Tensor:
        whole = torch.cat(list(ts), dim=0)
        return _turn(whole) if transpose else whole

    return Rule(tuple(ours), theirs, to_ours, to_theirs)


def _turn(t: Tensor) -> Tensor:
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
        raise CheckpointError(f"no rule fills {_some(missing)}")
    return out


def to_ours(source: Mapping[str, Tensor], rules: Sequence[AnyRule], ours: Iterable[str]) -> dict[str, Tensor]:
    """Their tensors under our names."""
    out: dict[str, Tensor] = {}
    used: set[str] = set()
    missing: list[str] = []
    concrete = expand(rules, ours)
    claimed = {rule.theirs for rule in concrete}
    aliases = {name: of for name, of in _aliases(source, rules) if name not in claimed}
    instead = {of: name for name, of in aliases.items() if of not in source}
    for rule in concrete:
        name = instead.get(rule.theirs, rule.theirs)
        if name not in source:
            missing.append(name)
            continue
        used.add(name)
        out.update(zip(rule.ours, rule.to_ours(source[name]), strict=True))
    for name in aliases.keys() - used:
        of = instead.get(aliases[name], aliases[name])
        if not torch.equal(source[name], source[of]):
            raise CheckpointError(f"{name} should be tied to {of} but differs: set tie_word_embeddings to false")
        used.add(name)
    if missing:
        raise CheckpointError(f"the file has no {_some(missing)}, which the model needs")
    left = [name for name in source if name not in used and not _accounted(name, source, rules)]
    if left:
        raise CheckpointError(f"the file has {_some(left)}, which nothing in the model uses")
    return out


def to_theirs(state: Mapping[str, Tensor], rules: Sequence[AnyRule]) -> dict[str, Tensor]:
    """Our tensors under their names: the inverse of `to_ours`."""
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
    """(an alias that the file has, the name it stands for)."""
    patterns = [(_pattern(rule.theirs), rule.of) for rule in rules if isinstance(rule, Alias)]
    return [
        (name, of.replace("{i}", match.groupdict().get("i") or ""))
        for name in source
        for pattern, of in patterns
        if (match := pattern.fullmatch(name))
    ]


def _accounted(name: str, source: Mapping[str, Tensor], rules: Sequence[AnyRule]) -> bool:
    for rule in rules:
        if isinstance(rule, Dropped) and fnmatchcase(name, rule.theirs):
            return True
        if isinstance(rule, Constant) and name == rule.theirs:
            found = source[name]  # its shape first: the config's may take more memory than there is
            if tuple(found.shape) != rule.shape or not torch.allclose(rule.make().to(found.dtype), found, atol=1e-4):
                raise CheckpointError(f"{name} is not what the config says it must be")
            return True
        if isinstance(rule, Copied) and name == rule.theirs:
            return True
    return False


def _some(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
