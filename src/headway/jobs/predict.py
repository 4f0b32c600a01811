"""`headway.predict`: predictions beside the columns of files, or of a table in memory; `headway.complete`: the next
words that a language model expects after a text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headway.bundle import Bundle
from headway.data.tables import Tables, as_tables
from headway.errors import DataError, InputError, with_article
from headway.generation.next_words import NextWord, next_words
from headway.jobs.columns import Columns
from headway.jobs.inputs import Paths, Record, read_records
from headway.jobs.predictions_file import SUFFIXES, add_predictions, is_predictions_file, refuse_present, writer
from headway.loading import as_bundle


def predict(
    model: str | Path | Bundle,
    data: Any,
    *,
    out: str | Path | None = None,
    columns: Columns | None = None,
    encoding: str | None = None,
    device: str | None = None,
    **options: Any,
) -> list[Record]:
    """The rows of files (also patterns, folders and zip archives), or of a table in memory, each with the model's
    prediction; `headway run --file` writes the same. `out` is a file for them too: .csv, .jsonl or .parquet. `columns`
    names those of the inputs where they are not found by their names; options of generation go to the model. Inputs
    that are texts, and no table: `headway.load(model)(texts)`.

    >>> headway.predict("weather", [{"text": "what a fine day", "station": 7}])[0]["prediction"]
    'good'
    """
    file = None if out is None else Path(out)
    if file is not None and not is_predictions_file(file):
        raise InputError(f"out: {out}: expected a file with the suffix {', '.join(SUFFIXES)}")
    if file is not None:
        refuse_present(file)
    bundle, rows = as_bundle(model, device=device), list[Record]()
    with _files(data) as paths:
        add_predictions(bundle, read_records(paths, bundle, columns=columns, encoding=encoding), rows.extend, **options)
    if file is not None:
        with writer(file, list(dict.fromkeys(name for row in rows for name in row))) as write:
            write(rows)
    return rows


def complete(model: str | Path | Bundle, text: str, *, top: int = 5, device: str | None = None) -> list[NextWord]:
    """The `top` most probable next words of the text, whole words, with their probabilities; best first. A text that
    ends within a word is continued to the end of that word. `device` is where a model is loaded, as in `load`."""
    bundle = as_bundle(model, device=device)
    if not bundle.model.generates or bundle.model.reads_source:
        raise InputError(
            "completion needs a decoder with a language-model head (GPT-like); this model is "
            f"{with_article(bundle.model.shape)}"
        )
    tokenizer = bundle.processor.require_tokenizer("completion")
    ids = tokenizer.encode(text, special=bundle.find_task().input_kind.special_tokens)
    if ids and ids[-1] == tokenizer.eos_id:
        ids = ids[:-1]
    if not ids:
        ids = [tokenizer.bos_id if tokenizer.bos_id is not None else 0]
    return next_words(bundle.model, ids, tokenizer=tokenizer, top=top)


@contextmanager
def _files(data: Any) -> Iterator[Paths]:
    """The files that are given; a table in memory as a file of JSON lines."""
    tables: Tables | None = as_tables(data)
    if data is None:
        raise InputError("data: give a file, a folder or a table with the inputs")
    if tables is None:
        yield data
        return
    with TemporaryDirectory(prefix="headway-") as folder:
        path = Path(folder) / "table.jsonl"
        path.write_text("".join(tables.train.json_lines()), encoding="utf-8")
        try:
            yield path
        except (DataError, InputError) as error:
            raise type(error)(tables.train.renamed(str(error), path)) from error
