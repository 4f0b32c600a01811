"""Maps columns to fields: by the user's choice first, then by column names, then by content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headway.errors import DataError, closest

SYNONYMS: dict[str, tuple[str, ...]] = {
    "text": ("text", "sentence", "review", "content", "prompt", "comment", "body", "message", "tweet", "utterance",
             "document", "question", "query", "title"),
    "label": ("label", "labels", "class", "category", "sentiment", "intent", "topic", "polarity", "rating", "stars",
              "tag", "target", "y"),
    "source": ("source", "src", "en", "english", "document", "article", "instruction", "prompt", "input", "text",
               "question", "abstract", "body"),
    "target": ("target", "tgt", "trg", "de", "german", "summary", "output", "response", "translation", "completion",
               "answer", "highlights", "tldr", "reply"),
    "words": ("words", "tokens", "text", "sentence"),
    "tags": ("tags", "ner_tags", "pos_tags", "chunk_tags", "labels", "ner", "pos"),
    "question": ("question", "query"),
    "context": ("context", "passage", "paragraph", "document"),
    "answers": ("answers", "answer"),
    "a": ("a", "sentence1", "text1", "anchor", "query", "premise", "question1", "first", "question"),
    "b": ("b", "sentence2", "text2", "positive", "passage", "hypothesis", "question2", "second", "answer"),
    "messages": ("messages", "conversation", "conversations", "dialog", "dialogue", "turns"),
}  # fmt: skip

SHOWN = 30


def matching_columns(name: str, columns: Sequence[str]) -> list[str]:
    """The columns whose name is a synonym of a field, best first."""
    known = {column.strip().casefold(): column for column in reversed(columns)}
    return [known[word] for word in SYNONYMS.get(name, (name.casefold(),)) if word in known]


def assign_columns(
    fields: Sequence[str], columns: Sequence[str], *, sample: Sequence[Mapping[str, Any]], chosen: Mapping[str, str],
    where: str,
) -> dict[str, str]:  # fmt: skip
    """field -> column, for every field; DataError with the list of columns when one cannot be found."""
    mapping = {name: _chosen_column(name, column, columns, where=where) for name, column in chosen.items()}
    for name in fields:
        free = [column for column in columns if column not in mapping.values()]
        if name not in mapping and (found := matching_columns(name, free)):
            mapping[name] = found[0]
    missing = [name for name in fields if name not in mapping]
    free = [column for column in columns if column not in mapping.values()]
    if missing and set(missing) <= {"text", "label"}:
        mapping |= _by_content(missing, free, sample=sample)
    elif len(missing) == len(free):
        mapping |= dict(zip(missing, free, strict=True))
    for name in fields:
        if name not in mapping:
            raise DataError(
                f'{where}: no column for "{name}"; the columns are {listing(columns)}. '
                f"Name it with columns {name}=<column>.{_did_you_mean(name, columns)}"
            )
    return {name: mapping[name] for name in (*fields, *(extra for extra in chosen if extra not in fields))}


def label_column(columns: Sequence[str], *, sample: Sequence[Mapping[str, Any]]) -> str | None:
    """The column with few, short, recurring values."""
    if not columns:
        return None
    return min(columns, key=lambda column: _variety(_cells(column, sample)))


def listing(columns: Iterable[str]) -> str:
    """Names in quotation marks, shortened, with control characters escaped: they come from a file."""
    names = list(columns)
    shown = (f'"{_visible(name)}"' for name in names[:SHOWN])
    return ", ".join(shown) + (f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else "")


def _visible(name: str) -> str:
    short = name if len(name) <= 60 else name[:59] + "…"
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in short)


def _by_content(missing: Sequence[str], free: list[str], *, sample: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    mapping: dict[str, str] = {}
    if len(free) < len(missing):
        return mapping
    if "label" in missing and (label := label_column(free, sample=sample)) is not None:
        mapping["label"] = label
        free = [column for column in free if column != label]
    if "text" in missing:
        mapping["text"] = max(free, key=lambda column: _mean_length(_cells(column, sample)))
    return mapping


def _chosen_column(name: str, column: str, columns: Sequence[str], *, where: str) -> str:
    if column in columns:
        return column
    if column.isdecimal() and 1 <= int(column) <= len(columns):
        return columns[int(column) - 1]
    raise DataError(
        f'{where}: there is no column "{_visible(column)}" (given for {name}); the columns are {listing(columns)}.'
        f"{_did_you_mean(column, columns)}"
    )


def _did_you_mean(word: str, columns: Sequence[str]) -> str:
    close = closest(word, columns)
    return f' Did you mean "{_visible(close[0])}"?' if close else ""


def _cells(column: str, sample: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(record.get(column, "")) for record in sample]


def _mean_length(cells: Sequence[str]) -> float:
    return sum(map(len, cells)) / max(1, len(cells))


def _variety(cells: Sequence[str]) -> tuple[float, float]:
    """Small for a label column. A column with one value counts as labels only if no other column's values repeat."""
    distinct = len(set(cells))
    return (distinct if distinct > 1 else max(2, len(cells) / 2), _mean_length(cells))
