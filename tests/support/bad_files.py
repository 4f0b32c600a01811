"""Valid files for every text task in every format it reads, to be damaged; and what Headway reports on a file."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from headway import tasks
from headway.data.check import check
from headway.data.dataset import Dataset, open_files
from headway.errors import DataError
from headway.preprocess.text import Tokenizer
from headway.tasks.batches import prepare
from headway.tasks.task import Task

COUNT = 40
ODD = 3  # the example with a letter beyond ASCII
Example = dict[str, Any]


def example(task: str, i: int) -> Example:
    drink = "café" if i == ODD else ("tea", "milk", "water")[i % 3]
    sentence = f"Guest {i} asked for {drink} at table {i * 7 % 11}."
    if task in ("generate", "fill"):
        return {"text": sentence}
    if task in ("translate", "summarize"):
        return {"source": sentence, "target": f"{drink} for {i}"}
    if task == "classify":
        return {"text": sentence, "label": ("calm", "loud")[i % 2]}
    if task == "tag":
        words = ["Guest", f"Ada{i}", "wants", drink]
        return {"words": words, "tags": ["O", "B-PER", "O", "B-DRINK"]}
    if task == "answer":
        question = f"What did guest {i} ask for?"
        return {
            "question": question,
            "context": sentence,
            "answers": [{"text": drink, "answer_start": sentence.index(drink)}],
        }
    return {"a": sentence, "b": f"{drink} was ordered by {i}"}


def as_text(examples: list[Example]) -> str:
    return "".join(row["text"] + "\n" for row in examples)


def as_jsonl(examples: list[Example]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in examples)


def as_table(examples: list[Example], *, delimiter: str = ",") -> str:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(examples[0])
    writer.writerows(row.values() for row in examples)
    return out.getvalue()


def as_conll(examples: list[Example]) -> str:
    blocks = ["".join(f"{w} X {t}\n" for w, t in zip(row["words"], row["tags"], strict=True)) for row in examples]
    return "\n".join(blocks)


def as_squad(examples: list[Example]) -> str:
    """An article a line."""

    def article(number: int, row: Example) -> str:
        question = {"id": str(number), "question": row["question"], "answers": row["answers"]}
        paragraph = {"context": row["context"], "qas": [question]}
        return json.dumps({"title": str(number), "paragraphs": [paragraph]}, ensure_ascii=False)

    return '{"version": "1.1", "data": [\n' + ",\n".join(map(article, range(len(examples)), examples)) + "\n]}\n"


WRITERS: dict[str, Callable[[list[Example]], str]] = {
    "txt": as_text,
    "jsonl": as_jsonl,
    "csv": as_table,
    "tsv": lambda examples: as_table(examples, delimiter="\t"),
    "conll": as_conll,
    "json": as_squad,
}
FORMATS = {
    "generate": ("txt", "jsonl"),
    "translate": ("tsv", "csv", "jsonl"),
    "summarize": ("jsonl", "csv"),
    "classify": ("csv", "tsv", "jsonl"),
    "tag": ("conll", "jsonl"),
    "answer": ("json", "jsonl"),
    "fill": ("txt", "csv"),
    "embed": ("tsv", "jsonl"),
}
EVERY = [(task, kind) for task, kinds in FORMATS.items() for kind in kinds]


def is_running(task: str, kind: str) -> bool:
    return tasks.find(task).running_text and kind == "txt"


def sound(task: str, kind: str, *, count: int = COUNT) -> str:
    return WRITERS[kind]([example(task, i) for i in range(count)])


def line_of(kind: str, i: int) -> int:
    """The line on which example `i` begins."""
    return {"csv": i + 2, "tsv": i + 2, "json": i + 2, "conll": 5 * i + 1}.get(kind, i + 1)


@cache
def tokenizer() -> Tokenizer:
    texts = [str(value) for task in FORMATS for i in range(COUNT) for value in example(task, i).values()]
    return Tokenizer.train(texts, kind="wordpiece", size=300)


def opened(task: str, path: Path | list[Path], **options: Any) -> Dataset:
    kind = tasks.find(task)
    return open_files(path, fields=kind.fields, columns={}, running=kind.running_text, **options)


def begun(task: str, data: Dataset, **options: Any) -> Task:
    return tasks.find(task).from_data(tasks.find(task).scan(data.train()), tokenizer=tokenizer(), options=options)


def check_output(task: str, path: Path | list[Path], folder: Path, *, valid: Path | None = None, **options: Any) -> str:
    """What `headway check` and the start of `headway train` print about the data."""
    data = opened(task, path, valid=valid)
    ready = begun(task, data, **options)
    report = check(data.train(), held_out=data.valid(), measure=ready.token_lengths, limits=ready.length_limits())
    prepare(ready, data.train(), folder / "store", key="k")
    return "\n".join([*report.summary(), *ready.truncation.summary()])


def rows_of(task: str, path: Path) -> list[Example]:
    return [row.fields for row in opened(task, path).test()]


REMEDIES = re.compile(
    r"name the|name it|convert|remove|download|split|quote|close it|use |give|fix|raise|leave|shorten|double|"
    r"did you mean|expected|copy|must belong|are needed|separate|gunzip",
    re.IGNORECASE,
)


def refusal(task: str, path: Path | list[Path], folder: Path, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        check_output(task, path, folder, **options)
    message = str(caught.value)
    assert message.isprintable() or "\n" not in message
    assert REMEDIES.search(message), f"the message names no remedy: {message}"
    return message


def write(folder: Path, name: str, content: bytes | bytearray | str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
