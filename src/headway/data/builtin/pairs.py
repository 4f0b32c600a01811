"""Pairs of texts with the same meaning: dates in two styles, paraphrased requests, and functions
of the standard library with the first line of their docstring."""
# ruff: noqa: SIM905 - a list of words reads best as words

import ast
import sysconfig
from functools import cache
from pathlib import Path
from random import Random

from headway.data.builtin.dates import format_day, random_day
from headway.data.builtin.pool import Example, Generated
from headway.data.builtin.words import PLACES, THINGS

LIBRARY = (
    "ast base64 bisect calendar colorsys contextlib copy csv difflib dis fileinput fnmatch functools genericpath "
    "getpass gettext glob gzip heapq hmac inspect linecache mimetypes ntpath numbers operator os pkgutil platform "
    "plistlib posixpath pprint queue quopri random shlex shutil socket socketserver statistics sysconfig tempfile "
    "textwrap threading timeit tokenize traceback types uuid warnings weakref zipapp email.utils urllib.parse "
    "xml.sax.saxutils"
).split()
WAYS = [
    ["How do I {do} {things} in {place}?", "I would like to know how one can {do} {things} in {place}."],
    ["Where in {place} can I {do} {things}?", "Tell me a spot in {place} to {do} {things}."],
    ["Is it allowed to {do} {things} in {place}?", "May one {do} {things} in {place}?"],
    ["What does it cost to {do} {things} in {place}?", "In {place}, how much is it if I {do} {things}?"],
    ["Who will help me {do} {things} in {place}?", "I need somebody in {place} to {do} {things} with me."],
    ["Never {do} {things} in {place}.", "In {place} you should not {do} {things} at all."],
]
VERBS = {
    "buy": "purchase", "repair": "mend", "sell": "trade away", "borrow": "get a loan of", "find": "discover",
    "paint": "colour", "carry": "haul", "throw away": "dispose of", "collect": "gather", "clean": "wash",
}  # fmt: skip


def embed(chance: Random) -> Example:
    kind = chance.random()
    return _date(chance) if kind < 0.4 else _request(chance) if kind < 0.8 else _function(chance)


def _date(chance: Random) -> Example:
    day = random_day(chance)
    first = format_day(day, chance)
    second = next(text for text in iter(lambda: format_day(day, chance), None) if text.lower() != first.lower())
    return day.isoformat(), {"a": first, "b": second}


def _request(chance: Random) -> Example:
    things, place, verb = chance.choice(THINGS), chance.choice(PLACES), chance.choice(list(VERBS))
    way = chance.randrange(len(WAYS))
    a, b = chance.sample(WAYS[way], 2)
    fields = {
        "a": a.format(do=verb, things=things, place=place),
        "b": b.format(do=VERBS[verb], things=things, place=place),
    }
    return f"{way} {verb} {things} {place}", fields


def _function(chance: Random) -> Example:
    name, summary = chance.choice(_functions())
    return summary, {"a": name, "b": summary}


@cache
def _functions() -> list[tuple[str, str]]:
    """(module.function, first line of its docstring), where that is a sentence.

    Read from the library's source: an imported module may have been changed by another library.
    """
    library = Path(sysconfig.get_path("stdlib"))
    found: dict[str, str] = {}
    for module in LIBRARY:
        source = library.joinpath(*module.split(".")).with_suffix(".py")
        for node in ast.parse(source.read_bytes()).body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            summary = (ast.get_docstring(node) or "").split("\n")[0]
            if summary.endswith(".") and " " in summary:
                found.setdefault(summary, f"{module}.{node.name}")
    return [(name, summary) for summary, name in found.items()]


PAIRS = Generated("embed", embed, train=8_000, test=500)
