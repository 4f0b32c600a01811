"""Entities from tags, and their scores, as in the CoNLL shared task (conlleval; seqeval's default mode).

Tags are in BIO, BIOES or BILOU. An entity continues while I-, E- or L- follows B- or I- of the same type; any other tag
but O starts one. A stray I- is an entity, not an error. A tag without a prefix continues an entity of the same type, as
an I- does (IO tags).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

PREFIXED = re.compile(r"([BIES])(?:-(.*))?|([LU])-(.*)", re.DOTALL)  # a bare L or U is not a prefix
BILOU = {"L": "E", "U": "S"}  # the same in BIOES
AT_START = {"I": "B", "E": "S", "L": "U"}  # the tag that starts an entity, for one that continues it


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
        first = out[entity.start]
        if PREFIXED.fullmatch(first) and first[0] in AT_START:
            out[entity.start] = AT_START[first[0]] + first[1:]
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
    """Sorted, with every prefix of the scheme for every type: a rare I- may not occur in the training data."""
    known = set(tags)
    prefixes = {tag[0] for tag in known if tag[1:2] == "-" and tag[0] in "BIESLU"}
    scheme = "BI" if prefixes <= set("BI") else "BILU" if prefixes & set("LU") else "BIES"
    for tag in list(known):
        if tag[1:2] == "-" and tag[0] in scheme:
            known |= {f"{prefix}-{tag[2:]}" for prefix in scheme}
    return sorted(known)


def _parts(tag: str) -> tuple[str, str]:
    """(O, B, I, E or S; type)"""
    if tag == "O":
        return "O", ""
    matched = PREFIXED.fullmatch(tag)
    if matched is None:
        return "I", tag
    return (matched[1], matched[2] or "_") if matched[1] else (BILOU[matched[3]], matched[4])
