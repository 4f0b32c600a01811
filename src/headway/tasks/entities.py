"""Tags as entities, and their score, in the CoNLL shared task's reading (conlleval; seqeval's default).

An entity goes on while I- or E- follows B- or I- of its own type; any other tag but O begins one. So a stray I- is
an entity, not an error. A tag without a prefix (a part of speech) is an entity of one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

PREFIXED = re.compile(r"([BIES])(?:-(.*))?", re.DOTALL)
AT_START = {"I": "B", "E": "S"}  # what a tag inside an entity is when it begins one


class Entity(NamedTuple):
    type: str
    start: int  # words [start, end)
    end: int


def entities(tags: Sequence[str]) -> list[Entity]:
    found: list[Entity] = []
    open_type: str | None = None  # of the entity that the next word may go on with
    for at, tag in enumerate(tags):
        prefix, kind = _parts(tag)
        if prefix == "O":
            open_type = None
            continue
        if prefix in "IE" and kind == open_type:
            found[-1] = found[-1]._replace(end=at + 1)
        else:
            found.append(Entity(kind, at, at + 1))
        open_type = kind if prefix in "BI" else None
    return found


def repaired(tags: Sequence[str]) -> list[str]:
    """The same entities, each with a beginning: I- becomes B- where it begins one."""
    out = list(tags)
    for entity in entities(tags):
        matched = PREFIXED.fullmatch(out[entity.start])
        if matched and matched[1] in AT_START:
            out[entity.start] = AT_START[matched[1]] + out[entity.start][1:]
    return out


def entity_scores(found: Iterable[Sequence[str]], wanted: Iterable[Sequence[str]]) -> dict[str, float]:
    """Micro-averaged over all sentences: an entity is right when its type and both ends are."""
    right = proposed = there = 0
    for one, other in zip(found, wanted, strict=True):
        ours, theirs = set(entities(one)), set(entities(other))
        right, proposed, there = right + len(ours & theirs), proposed + len(ours), there + len(theirs)
    return {
        "precision": right / proposed if proposed else 0.0,
        "recall": right / there if there else 0.0,
        "f1": 2 * right / (proposed + there) if proposed + there else 0.0,
    }


def all_tags(tags: Iterable[str]) -> list[str]:
    """In order, with the B- and I- of every type that has one of them: a rare I- may first be met in a test."""
    known = set(tags)
    for tag in list(known):
        if tag[:2] in ("B-", "I-"):
            known |= {f"B-{tag[2:]}", f"I-{tag[2:]}"}
    return sorted(known)


def _parts(tag: str) -> tuple[str, str]:
    """(O, B, I, E or S; type)"""
    if tag == "O":
        return "O", ""
    matched = PREFIXED.fullmatch(tag)
    return (matched[1], matched[2] or "_") if matched else ("S", tag)
