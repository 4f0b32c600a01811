"""Word vectors as files of word2vec's formats, which gensim and others open, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F

from headway.bundle import Bundle
from headway.checkpoints.word2vec import read_word2vec, save_word2vec
from headway.errors import InputError
from headway.inspect.pictures import draw_points
from headway.kinds.inputs import MarkedInput
from headway.kinds.predictions import NeighboursPrediction
from headway.loading import load
from headway.tasks.context_vectors import ContextVectors
from headway.tasks.task import Task
from headway.tasks.vectors import Vectors
from headway.tasks.word_expressions import parse_expression

AROUND = 8  # nearest words drawn around each given word
MOST_FREQUENT = 150  # words drawn where none is given


@dataclass(frozen=True)
class Export:
    path: str
    format: str
    words: int
    width: int
    largest_difference: float  # between a number of the model and of the file, read back

    def lines(self) -> list[str]:
        return [
            f"{self.path}: {self.words:,} words of {self.width} numbers in word2vec's {self.format} format",
            f"read back, the largest difference is {self.largest_difference:g}",
        ]


def export_word2vec(model: str | Path | Bundle, path: str | Path) -> Export:
    """Writes the vectors of a model of task vectors: in the binary format if the file ends in .bin, else as text."""
    bundle, path = model if isinstance(model, Bundle) else load(model), Path(path)
    task = vectors_task(bundle)
    table = bundle.model.token_table
    if table is None:
        raise InputError("this model has no vector for a word by itself, but one for a word in its context (ELMo)")
    vectors = table[: len(task.words)].detach().float().cpu().numpy()
    binary = path.suffix == ".bin"
    save_word2vec(path, task.words, vectors, binary=binary)
    words, again = read_word2vec(path)
    difference = float(np.abs(again - vectors).max()) if words == task.words else float("inf")
    return Export(str(path), "binary" if binary else "text", len(words), vectors.shape[1], difference)


def vectors_task(bundle: Bundle) -> Vectors:
    task = bundle.find_task()
    if not gives_word_vectors(task):
        raise InputError(f"word vectors are needed (task vectors); this model is for task {task.name}")
    return cast(Vectors, task)


def gives_word_vectors(task: Task) -> bool:
    """Of words by themselves, or of a marked word in its context."""
    return isinstance(task.prediction_kind, NeighboursPrediction) or isinstance(task.input_kind, MarkedInput)


@torch.no_grad()
def picture_words(bundle: Bundle, given: Sequence[Any], path: Path) -> str:
    """Draws words in the two directions in which their vectors differ most (PCA): the given ones, each with its
    nearest; else the most frequent. Returns what was drawn, in words."""
    task = vectors_task(bundle)
    if isinstance(task.input_kind, MarkedInput):
        return _picture_contexts(bundle, cast(ContextVectors, task), given, path)
    if not given:
        names, groups = task.words[:MOST_FREQUENT], [0] * min(MOST_FREQUENT, len(task.words))
    else:
        names, groups = [], []
        for group, text in enumerate(given):
            own = [word for word, _ in parse_expression(text, where=f"input {group + 1}").terms]
            near = [each["word"] for each in task.predict(bundle.model, [text], n=AROUND)[0]] if len(own) == 1 else []
            for word in (*own, *near):
                if word not in names:
                    names.append(word)
                    groups.append(group)
    units = task.unit_vectors(bundle.model)[[task.word_id(word, where="the picture") for word in names]]
    draw_points(principal(units), labels=names, groups=groups, path=path)
    return f"{path}: {len(names)} words in the two directions in which their vectors differ most (PCA)"


def _picture_contexts(bundle: Bundle, task: ContextVectors, given: Sequence[Any], path: Path) -> str:
    """The marked word of each text: points that are close are used in the same sense."""
    if len(given) < 3:
        raise InputError("a picture of words in context needs at least three texts, each with a marked [word]")
    marked = [task.marked(text, where=f"input {number}") for number, text in enumerate(given, 1)]
    vectors = F.normalize(torch.stack(task.word_vectors(bundle.model, marked)), dim=-1)
    words = list(dict.fromkeys(text[at] for text, at in marked))
    labels = [_around(text, at) for text, at in marked]
    draw_points(principal(vectors), labels=labels, groups=[words.index(text[at]) for text, at in marked], path=path)
    return (
        f"{path}: {len(given)} words in their context, in the two directions in which their vectors differ most (PCA)"
    )


def _around(words: Sequence[str], at: int) -> str:
    """The word in capitals between its neighbours."""
    return " ".join([*words[max(0, at - 3) : at], words[at].upper(), *words[at + 1 : at + 4]])


def principal(vectors: torch.Tensor) -> np.ndarray:
    """(point, 2): the two principal components."""
    centred = F.pad(vectors - vectors.mean(0), (0, max(0, 2 - vectors.shape[1])))
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    return (centred @ directions[:2].T).cpu().numpy()
