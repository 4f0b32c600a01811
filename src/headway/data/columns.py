"""Maps columns to fields: by the user's choice first, then by column names, then by content."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.errors import DataError, closest
from headway.preprocess.image import SUFFIXES as IMAGE_SUFFIXES
from headway.printable import printable

SYNONYMS: dict[str, tuple[str, ...]] = {
    "text": ("text", "sentence", "review", "content", "prompt", "comment", "body", "message", "tweet", "utterance",
             "document", "question", "query", "title"),
    "label": ("label", "labels", "gold_label", "class", "category", "sentiment", "intent", "topic", "polarity",
              "rating", "stars", "tag", "target", "y", "is_duplicate", "similarity", "score"),
    "source": ("source", "src", "en", "english", "document", "article", "instruction", "prompt", "input", "text",
               "question", "body", "paper", "report", "content", "abstract"),
    "target": ("target", "tgt", "trg", "de", "german", "summary", "output", "response", "translation", "completion",
               "answer", "highlights", "tldr", "reply", "abstract"),
    "words": ("words", "tokens", "text", "sentence"),
    "tags": ("tags", "ner_tags", "pos_tags", "chunk_tags", "labels", "ner", "pos"),
    "question": ("question", "query"),
    "context": ("context", "passage", "paragraph", "document"),
    "answers": ("answers", "answer"),
    "a": ("a", "sentence1", "text1", "anchor", "query", "premise", "question1", "first", "question"),
    "b": ("b", "sentence2", "text2", "positive", "passage", "hypothesis", "question2", "second", "answer"),
    "image": ("image", "image_path", "img", "img_path", "image_file", "picture", "photo", "file_name", "filename",
              "file", "filepath", "path"),
    "audio": ("audio", "audio_path", "audio_file", "wav", "sound", "recording", "clip", "file_name", "filename", "file",
              "filepath", "path"),
    "caption": ("caption", "text", "description", "title", "alt", "prompt", "label"),
    "messages": ("messages", "conversation", "conversations", "dialog", "dialogue", "turns"),
    "instruction": ("instruction", "prompt", "question", "query", "user", "human", "input"),
    "response": ("response", "output", "completion", "answer", "reply", "assistant", "gpt", "target"),
    "system": ("system", "system_prompt", "system_message"),
    "tools": ("tools",),
    "input": ("input", "context"),
    "prompt": ("prompt", "instruction", "question", "query", "input"),
    "chosen": ("chosen", "preferred", "chosen_response", "response_chosen"),
    "rejected": ("rejected", "dispreferred", "rejected_response", "response_rejected"),
    "completion": ("completion",),
    "desirable": ("label", "desirable", "kto_tag"),
}  # fmt: skip

OPTIONS = (
    "text",
    "label",
    "source",
    "target",
    "image",
    "caption",
)  # fields with an option of their own on the command line


@dataclass(frozen=True)
class Alternative:
    """Fields that may take the place of another: those needed, and those used if there are columns for them."""

    needed: tuple[str, ...]
    more: tuple[str, ...]
    preferred: bool = False  # also where the other field has a column

    @property
    def fields(self) -> tuple[str, ...]:
        return (*self.needed, *self.more)


ALTERNATIVES = {
    "messages": (
        Alternative(("chosen", "rejected"), ("messages", "prompt", "system", "tools"), preferred=True),
        Alternative(("completion", "desirable", "prompt"), ("system", "tools"), preferred=True),
        Alternative(("messages", "tools"), (), preferred=True),
        Alternative(("instruction", "response"), ("system", "input", "tools")),
    )
}

# The names of two columns with a pair of texts, without case, spaces and underscores. Those of PAIR_STEMS are numbered:
# sentence1 and sentence2, text_a and text_b.
PAIRS = (("premise", "hypothesis"), ("text", "textpair"), ("question", "sentence"), ("question", "passage"),
         ("query", "passage"), ("query", "document"), ("claim", "evidence"), ("first", "second"),
         ("1string", "2string"), ("a", "b"))  # fmt: skip
PAIR_FIELDS = (("text", "text_pair"), ("a", "b"))
PAIR_STEMS = ("sentence", "sent", "text", "question", "phrase", "word", "query", "document", "doc", "paragraph",
              "passage", "title", "tweet", "message", "utterance", "string", "input", "s", "q")  # fmt: skip

# The codes of languages (ISO 639-1) by which columns of translations are named.
LANGUAGES = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el
en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu
ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na
nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so
sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
LANGUAGE_CODES = frozenset(LANGUAGES.split())

SHOWN = 30
TEXT_WORDS, TEXT_LETTERS = 3, 0.6  # a column of texts has at least so many words a cell, and this share of letters
MANY = 20  # cells that differ in a column of texts


def option_for(name: str) -> str:
    """How an option that names the column of a field begins: `--target ` or `--column words=`."""
    return f"--{name} " if name in OPTIONS else f"--column {name}="


def matching_columns(name: str, columns: Sequence[str]) -> list[str]:
    """The columns whose name is a synonym of a field, best first; that of source also "Source Text"."""
    exact = {re.sub(r"[\s_-]+", "_", column.strip().casefold()): column for column in reversed(columns)}
    known = {name.removesuffix("_text"): column for name, column in exact.items()} | exact
    return [known[word] for word in SYNONYMS.get(name, (name.casefold(),)) if word in known]


def pair_columns(columns: Sequence[str]) -> tuple[str, str] | None:
    """The two columns whose names are those of a pair of texts, such as premise and hypothesis."""
    known = {re.sub(r"[\W_]+", "", column.casefold()): column for column in reversed(columns)}
    numbered = ((f"{stem}{one}", f"{stem}{two}") for stem in PAIR_STEMS for one, two in ("12", "ab"))
    return next(((known[one], known[two]) for one, two in (*PAIRS, *numbered) if one in known and two in known), None)


def assign_columns(
    fields: Sequence[str], columns: Sequence[str], *, sample: Sequence[Mapping[str, Any]], chosen: Mapping[str, str],
    where: str, optional: Sequence[str] = (),
) -> dict[str, str]:  # fmt: skip
    """field -> column, for every field, and for the optional ones that are chosen or named as usual; DataError with the
    list of columns when one cannot be found."""
    fields = alternative_fields(fields, columns, chosen)
    mapping = {name: _chosen_column(name, column, columns, where=where) for name, column in chosen.items()}
    for pair in PAIR_FIELDS:
        if pair[1] in (*fields, *optional) and not mapping.keys() & {*pair}:
            free = [column for column in columns if column not in mapping.values()]
            mapping |= dict(zip(pair, pair_columns(free) or (), strict=False))
    translated = [name for name in ("source", "target") if name in fields and name not in mapping]
    free = [column for column in columns if column not in mapping.values()]
    mapping |= _by_language(translated, free, sample=sample)
    for name in fields:
        free = [column for column in columns if column not in mapping.values()]
        if name not in mapping and (found := matching_columns(name, free)):
            mapping[name] = found[0]
    missing = [name for name in fields if name not in mapping]
    free = [column for column in columns if column not in mapping.values()]
    if missing and set(missing) <= {"image", "text", "text_pair", "caption", "label"}:
        mapping |= _by_content(missing, free, sample=sample)
    elif len(missing) == len(free):
        mapping |= dict(zip(missing, free, strict=True))
    for name in fields:
        if name not in mapping:
            raise DataError(
                f'{where}: no column for "{name}"; the columns are {listing(columns)}. '
                f'Name it: columns={{"{name}": NAME}}, or the option {option_for(name).lstrip("-")}NAME.'
                f"{_did_you_mean(name, columns)}"
            )
    names = [*fields, *(extra for extra in mapping if extra not in fields)]
    return {name: mapping[name] for name in sorted(names, key=lambda name: name == "label")}  # the label last


def unused_texts(mapping: Mapping[str, str], sample: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The columns that hold texts and are mapped to no field."""
    columns = dict.fromkeys(column for record in sample for column in record)
    return tuple(column for column in columns if column not in mapping.values() and _holds_texts(column, sample))


def _holds_texts(column: str, sample: Sequence[Mapping[str, Any]]) -> bool:
    """Whether most cells have several words, mostly of letters, and many cells differ."""
    cells = [cell for record in sample if isinstance(cell := record.get(column), str) and cell.strip()]
    joined = "".join("".join(cell.split()) for cell in cells)
    return (
        len(cells) > len(sample) / 2
        and len(set(cells)) > min(len(sample) / 2, MANY)
        and sum(len(cell.split()) for cell in cells) >= TEXT_WORDS * len(cells)
        and sum(map(str.isalpha, joined)) >= TEXT_LETTERS * len(joined)
    )


def alternative_fields(fields: Sequence[str], columns: Sequence[str], chosen: Mapping[str, str]) -> list[str]:
    """The fields, with others in place of one that has no column while they have."""
    out: list[str] = []
    for name in fields:
        has_column = name in chosen or bool(matching_columns(name, columns))
        usable = (
            each
            for each in ALTERNATIVES.get(name, ())
            if (each.preferred or not has_column)
            and all(part in chosen or matching_columns(part, columns) for part in each.needed)
        )
        if (alternative := next(usable, None)) is None:
            out.append(name)
            continue
        first = [matching_columns(each, columns)[0] for each in alternative.needed if each not in chosen]
        rest = [column for column in columns if column not in (*first, *chosen.values())]
        out += [*alternative.needed, *(each for each in alternative.more if matching_columns(each, rest))]
    return out


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
    return printable(short)


def _by_content(missing: Sequence[str], free: list[str], *, sample: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    mapping: dict[str, str] = {}
    if len(free) < len(missing):
        return mapping
    if "image" in missing:
        if not (images := [column for column in free if names_images(_cells(column, sample))]):
            return mapping
        mapping["image"] = images[0]
        free = [column for column in free if column != images[0]]
    if "label" in missing and (label := label_column(free, sample=sample)) is not None:
        mapping["label"] = label
        free = [column for column in free if column != label]
    texts = [name for name in ("text", "text_pair", "caption") if name in missing]
    longest = sorted(free, key=lambda column: -_mean_length(_cells(column, sample)))[: len(texts)]
    return mapping | dict(zip(texts, (column for column in free if column in longest), strict=True))


def _by_language(missing: Sequence[str], free: Sequence[str], *, sample: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Source and target in columns named by their languages, in the order of the columns."""
    languages = [column for column in free if is_language(column) and not _are_identifiers(_cells(column, sample))]
    others = [column for column in free if column not in languages]
    if len(languages) != len(missing) or all(matching_columns(name, others) for name in missing):
        return {}
    return dict(zip(missing, languages, strict=True))


def is_language(name: str) -> bool:
    """Whether a column's name is the code of a language, such as en or pt-BR."""
    code, *region = re.split(r"[-_]", name.strip().casefold())
    return code in LANGUAGE_CODES and [len(part) for part in region] in ([], [2])


def _are_identifiers(cells: Sequence[str]) -> bool:
    """Whether most of the values are one word with a digit, as in a column "id" (also the code of Indonesian)."""
    return 2 * sum(bool(re.fullmatch(r"\S*\d\S*", cell.strip())) for cell in cells) > len(cells)


def are_column_names(cells: Sequence[str], fields: Iterable[str]) -> bool:
    """Whether each of the cells is made of words that name columns of these fields: comment_text, Text EN, phrase."""
    stems = {word for name in fields for synonym in SYNONYMS.get(name, ()) for word in _words(synonym) if len(word) > 2}
    stems |= {stem for stem in PAIR_STEMS if len(stem) > 2}
    more = {"id", "a", "b", "1", "2", "pair"} | LANGUAGE_CODES
    words = [set(_words(cell)) for cell in cells]
    return bool(words) and all(each and each <= stems | more and (each & stems or each == {"id"}) for each in words)


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W\d_]+|\d+", name.casefold())


def names_images(cells: Sequence[str]) -> bool:
    """Whether most of the values are names of picture files."""
    return 2 * sum(cell.strip().lower().endswith(IMAGE_SUFFIXES) for cell in cells) > len(cells)


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
