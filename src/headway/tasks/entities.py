"""Entities from tags, and their scores, as in the CoNLL shared task (conlleval; seqeval's default mode).

An entity continues while I- or E- follows B- or I- of the same type; any other tag but O starts one. A stray I- is
an entity, not an error. A tag without a prefix (a part of speech) is an entity of one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

PREFIXED = re.compile(r"([BIES])(?:-(.*))?", re.DOTALL)
AT_START = {"I": "B", "E": "S"}  # the tag that starts an entity, for one that continues it


class Entity(NamedTuple):
    type: str
    start: int  # words [start, end)
    end: int


def entities(tags: Sequence[str]) -> list[Entity]:
    found: list[Entity] = []
    open_type: str | None = None  # type of the entity that the next word may continue
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
    """The same entities, each with a proper first tag: I- becomes B- where it starts an entity."""
    out = list(tags)
    for entity in entities(tags):
        matched = PREFIXED.fullmatch(out[entity.start])
        if matched and matched[1] in AT_START:
            out[entity.start] = AT_START[matched[1]] + out[entity.start][1:]
    return out


def entity_scores(found: Iterable[Sequence[str]], wanted: Iterable[Sequence[str]]) -> dict[str, float]:
    """Micro-averaged over all sentences; an entity is correct when its type and both ends are."""
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
    """Sorted, with both B- and I- of every type: a rare I- may not occur in the training data."""
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
