"""A glossary: terms of a source text and what they are in its translation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headway.data.text_reader import read_lines
from headway.errors import DataError, InputError


@dataclass(frozen=True)
class Glossary:
    terms: Mapping[str, str]  # source -> target

    @classmethod
    def read(cls, given: str | Path | Mapping[str, str]) -> Glossary:
        """A file has a term a line: source and target with a tab between them."""
        if isinstance(given, Mapping):
            pairs = [(f"the term {source!r:.60}", source, target) for source, target in given.items()]
        else:
            path = Path(given)
            if not path.is_file():
                raise InputError(f"{path}: no such file; a glossary has a term a line: source, a tab, target")
            pairs = []
            for number, line in read_lines(path):
                source, tab, target = line.partition("\t")
                if line.strip() and not line.startswith("#"):
                    pairs.append((f"{path}:{number}", source, target if tab else ""))
        terms = dict[str, str]()
        for where, source, target in pairs:
            if not source.strip() or not target.strip() or "\t" in target:
                raise DataError(f"{where}: expected a term and its translation with one tab between them")
            if terms.setdefault(source.strip(), target.strip()) != target.strip():
                raise DataError(f"{where}: {source.strip()!r:.60} has two translations; keep one")
        if not terms:
            raise DataError("the glossary has no terms")
        return cls(terms)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """The longest terms first. A term in lower case is found in any case, another one as it is written."""
        forms = sorted(self.terms, key=len, reverse=True)
        return re.compile("|".join(rf"(?<!\w){_form(term)}(?!\w)" for term in forms))

    @cached_property
    def _folded(self) -> dict[str, str]:
        return {term.casefold(): target for term, target in self.terms.items() if term == term.lower()}

    def found(self, text: str) -> tuple[str, ...]:
        """The translations of the terms that a text has, each once."""
        matches = [" ".join(match[0].split()) for match in self._pattern.finditer(text)]
        found = [self.terms.get(term) or self._folded.get(term.casefold(), "") for term in matches]
        return tuple(dict.fromkeys(filter(None, found)))


def _form(term: str) -> str:
    words = r"\s+".join(map(re.escape, term.split()))
    return f"(?i:{words})" if term == term.lower() else words
