"""Run folders of untrained models with random weights."""

from pathlib import Path
from typing import Any

import torch

from headway.bundle import Bundle
from headway.models.build import build
from headway.models.recipes import Size
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer
from headway.tasks import find
from headway.tasks.embed import Embed
from headway.tasks.generate import Generate
from headway.tasks.task import Task
from headway.tasks.translate import Translate

TEXTS = ["The import statement, on the 3rd of May 1998: 0123456789 - User: hello Assistant: hello"] * 3
SMALL = Size(width=32, layers=1, heads=2)


def language_model(folder: Path, *, context: int = 128) -> Path:
    return _saved(Generate(Tokenizer.train(TEXTS, kind="bpe", size=300), context=context), folder)


def translator(folder: Path) -> Path:
    tokenizer = Tokenizer.train(TEXTS, kind="bpe", size=300)
    assert tokenizer.bos_id is not None
    return _saved(Translate(tokenizer, start_id=tokenizer.bos_id, target_limit=40), folder)


def embedder(folder: Path) -> Path:
    return _saved(Embed(Tokenizer.train(TEXTS, kind="wordpiece", size=80)), folder)


def of_task(name: str, folder: Path, **options: Any) -> Path:
    """A model for any task, with labels and a vocabulary from a few rows of the built-in data."""
    kind = find(name).variant(options)
    rows = kind.builtin.rows(split="train", size=24)
    return _saved(kind.from_data(kind.scan(rows), tokenizer=None, options=options), folder)


def _saved(task: Task, folder: Path) -> Path:
    torch.manual_seed(0)
    config = task.config(SMALL, "modern")
    model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)  # logits that differ
    return Bundle(model, "headway", task.processor(Processor()), task=task).save(folder)
