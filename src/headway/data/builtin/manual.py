"""Python's language reference, which is part of every Python as `pydoc_data.topics`.

Sections quote each other; only the first copy of a paragraph is kept, so none is in two documents.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pydoc_data.topics import topics
from random import Random

from headway.data.builtin.pool import Builtin, Fields, Split, split_of
from headway.errors import ConfigError

LEAST = 200  # characters of the shortest document
REPEATABLE = 40  # characters up to which a paragraph ("Example:") may repeat
PARAGRAPH_END = re.compile(r"\n\s*\n|\n[*=~^\"-]{3,}(?=\n)")  # an empty line, or the rule under a heading
SENTENCE_END = re.compile(r"(?<=[.?!:])\s+(?=[A-Z\"(])")


@dataclass(frozen=True)
class Manual(Builtin):
    """One row a document."""

    row: Callable[[str], Fields]

    def fields(self, split: Split, *, size: int | None, seed: int) -> list[Fields]:
        return [self.row(document) for document in _chosen(split, size=size, seed=seed)]


def whole_text(document: str) -> Fields:
    return {"text": document}


def text_and_sentences(document: str) -> Fields:
    """With the sentences in order, so that the next sentence of each is known."""
    parts = sentences(document)
    return {"text": " ".join(parts), "sentences": parts}


def sentences(document: str) -> list[str]:
    return [
        " ".join(sentence.split())
        for paragraph in PARAGRAPH_END.split(document)
        if "::=" not in paragraph and ">>>" not in paragraph  # grammar and sessions are not prose
        for sentence in SENTENCE_END.split(paragraph)
        if any(map(str.isalpha, sentence))
    ]


def _chosen(split: Split, *, size: int | None, seed: int) -> list[str]:
    found = [text for name, text in _documents().items() if split_of(name) == split]
    if size is not None and size > len(found):
        raise ConfigError(f"the built-in manual has {len(found)} {split} documents; size={size} is too many")
    return Random(seed).sample(found, len(found))[:size]


@cache
def _documents() -> dict[str, str]:
    seen: set[str] = set()
    documents: dict[str, str] = {}
    for name in sorted(topics):
        paragraphs = [p for p in re.split(r"\n\s*\n", topics[name]) if p.strip() and _bare(p) not in seen]
        seen |= {_bare(p) for p in paragraphs if len(_bare(p)) > REPEATABLE}
        text = "\n\n".join(paragraphs).strip("\n")
        if len(text) >= LEAST:
            documents[name] = text + "\n"
    return documents


def _bare(paragraph: str) -> str:
    return " ".join(paragraph.split())


DOCUMENTS = Manual("generate", whole_text)
SENTENCES = Manual("fill", text_and_sentences)
