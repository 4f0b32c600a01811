"""Encoder inputs, by the kind of prediction: the tensors of the forward pass, the tokens to show for them, and how the
output becomes the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headway.bundle import Bundle
from headway.errors import InputError
from headway.explain import story
from headway.explain.choices import choice, labels, round_float32, vocabulary
from headway.explain.picture_patches import patches
from headway.explain.token_text import NoTruncation, tokens, truncate
from headway.kinds.inputs import FieldsInput, InputKind, MarkedInput, PairInput, PictureInput, TextInput
from headway.kinds.predictions import PREDICTION, LabelSetPrediction, NumberPrediction
from headway.models.outputs import Output
from headway.tasks.task import Example, Task

ReadOutput = Callable[[Output], story.OutputView]


@dataclass(frozen=True)
class PreparedInput:
    inputs: dict[str, Tensor]  # keyword arguments of the model's forward; a batch of one
    sequences: dict[str, story.Sequence]
    read_output: ReadOutput
    note: list[str] = field(default_factory=list)
    answer_from: int = 0  # the row of the output with the first token that an encoder-decoder chose

    @property
    def lengths(self) -> dict[str, int]:
        return {name: len(sequence.tokens) for name, sequence in self.sequences.items()}


def without_truncation(task: Task) -> Any:
    """The same task, which raises for an input that is too long."""
    strict = replace(task, overflow="error")
    strict.truncation = NoTruncation()
    return strict


def shorten(task: Task, value: Any, *, first: int | None, last: int | None) -> Any:
    """The first or last tokens of the text, of each text of a pair, or of the context of a question."""
    if first is None and last is None:
        return value
    if first is not None and last is not None:
        raise InputError("first and last: give one of them")
    if min(n for n in (first, last) if n is not None) < 1:
        raise InputError("first and last take a number of tokens from 1")
    return task.input_kind.shortened(value, partial(truncate, task.tokenizer, first=first, last=last))


def one_row(bundle: Bundle, ids: Any) -> dict[str, Tensor]:
    """A batch of one, under the name of the model's first argument."""
    row = torch.as_tensor(ids, dtype=torch.long, device=bundle.device)[None]
    return {"inputs": row}


def prepare_classes(bundle: Bundle, task: Any, value: Any, *, against: str | None) -> PreparedInput:
    """Of a model with a row of logits: the scores of `task.labels`, or one number."""
    kind, names = task.prediction_kind, list[str](getattr(task, "labels", ()))
    if against is not None and isinstance(kind, NumberPrediction):
        raise InputError("against: the model predicts a number and has no other output to explain")
    if against is not None and against not in names:
        raise InputError(f"against {against!r}: not one of the labels {', '.join(names)}")
    show = SHOW.get(type(task.input_kind))
    if show is None:
        raise InputError(f"explain does not support the inputs of task {task.name}")
    example = without_truncation(task).read(value, where="the input")
    inputs, sequence = dict(task.batch([example], bundle.model).inputs), show(bundle, task, value, example)

    def read_output(output: Output) -> story.OutputView:
        assert output.logits is not None
        at = {"first": 0, "last": len(sequence.tokens) - 1}.get(bundle.config.head.pool)  # type: ignore[union-attr]
        chosen = None if against is None else names.index(against)
        logits = output.logits[0].detach().float().cpu()
        if isinstance(kind, NumberPrediction):
            return _number(logits, _answer(bundle, task, value), at=at)
        if isinstance(kind, LabelSetPrediction):
            return _label_set(logits, names, _answer(bundle, task, value), at=at, chosen=chosen)
        row = choice(logits, labels(names), label=sequence.label, at=at, chosen=chosen)
        return story.OutputView("classes", [row], row.candidates[0].text)

    return PreparedInput(inputs, {"text": sequence}, read_output)


def _answer(bundle: Bundle, task: Any, value: Any) -> Any:
    """The model's own, as `headway run` gives it in a table."""
    (found,) = task.predict(bundle.model, [value])
    return task.prediction_kind.columns(found)[PREDICTION]


def prepare_vector(bundle: Bundle, task: Any, value: Any, *, against: str | None) -> PreparedInput:
    prepare = _marked_word if isinstance(task.input_kind, MarkedInput) else _text_vector
    return prepare(bundle, task, value)


def _marked_word(bundle: Bundle, task: Any, value: Any) -> PreparedInput:
    words, at = task.marked(task.require_text(value, where="the input"), where="the input")
    ids, _ = task.text.encode_words(words)
    shown = [story.Token(f" {text}" if number > 1 else text, 0, tuple(token) in task.text.special_ids)
             for number, (text, token) in enumerate(zip(task.text.tokens(ids), ids, strict=True))]  # fmt: skip
    sequence = story.Sequence("text", shown, text=" ".join(words))

    def read_output(output: Output) -> story.OutputView:
        vector = output.hidden[0, 1 + at].float().cpu()
        return story.OutputView("vector", [], f"“{words[at]}” here: {len(vector)} numbers", vector.numpy())

    return PreparedInput(one_row(bundle, ids), {"text": sequence}, read_output)


def _number(logits: Tensor, answer: Any, *, at: int | None) -> story.OutputView:
    """The one logit is the answer, or what it is computed from."""
    value = round_float32(float(logits[0]))
    row = story.RowView("value", [story.Candidate("value", 0, value)], value, 1, at=at, chosen=0)
    return story.OutputView("number", [row], json.dumps(answer))


def _label_set(
    logits: Tensor, names: Sequence[str], answer: Sequence[str], *, at: int | None, chosen: int | None
) -> story.OutputView:
    """A row for each label, the chosen or most probable one first: its logit against 0, as the softmax of a logit and 0
    is the logit's sigmoid."""
    order = sorted(range(len(logits)), key=lambda index: (index != chosen, -float(logits[index])))
    rows = []
    for index in order:
        scores = torch.stack([logits[index], torch.zeros(())])
        name = names[index]
        row = choice(scores, labels([name, f"not {name}"]), label=name, at=at)
        ids = {0: index, 1: -1}
        pair = [replace(one, id=ids[one.id]) for one in row.candidates]
        rows.append(replace(row, candidates=pair, chosen=index if name in answer else -1))
    return story.OutputView("labels", rows, ", ".join(answer) or "no label")


def _text_tokens(bundle: Bundle, task: Any, value: Any, example: Example) -> story.Sequence:
    texts = task.input_kind.texts(value)
    return story.Sequence("text", tokens(task.tokenizer, example["ids"].tolist(), texts), text="\n".join(texts))


def _patches(bundle: Bundle, task: Any, value: Any, example: Example) -> story.Sequence:
    config: Any = bundle.config.embedding  # type: ignore[union-attr]
    shape = config.image if config.channels == 1 else (*config.image, config.channels)
    pixels = task.image_processor.pixels(value, where="the input")
    return patches("image", pixels.reshape(shape), config.grid(config.image), before=config.prefix)


# the tokens of an input, by its kind
SHOW: dict[type[InputKind], Callable[..., story.Sequence]] = {
    TextInput: _text_tokens,
    PairInput: _text_tokens,
    FieldsInput: _text_tokens,
    PictureInput: _patches,
}


def prepare_tags(bundle: Bundle, task: Any, value: Any, *, against: str | None) -> PreparedInput:
    if bundle.model.head_kind != "token":
        raise InputError(f"explain does not support task {task.name}")
    (found,) = task.predict(bundle.model, [value])
    (encoded,) = without_truncation(task).readings(found["words"], where="the input")
    text = value if isinstance(value, str) else " ".join(found["words"])
    sequence = story.Sequence("text", tokens(task.tokenizer, encoded.ids, found["words"]), text=text)
    gaps = _gaps(value, found["words"])
    for at, word in encoded.places:
        token = sequence.tokens[at]
        sequence.tokens[at] = replace(token, text=gaps[word] + token.text.lstrip())

    def read_output(output: Output) -> story.OutputView:
        assert output.logits is not None
        chosen = [
            choice(output.logits[0, at], labels(task.labels), label=found["words"][word], at=at)
            for at, word in encoded.places
        ]
        named = [f"{entity['text']} ({entity['type']})" for entity in found["entities"]]
        return story.OutputView("tags", chosen, ", ".join(named) or "nothing tagged")

    return PreparedInput(one_row(bundle, encoded.ids), {"text": sequence}, read_output)


def _gaps(value: Any, words: Sequence[str]) -> list[str]:
    """The text before each word; a space between words that came as a list."""
    if not isinstance(value, str):
        return [" " * bool(number) for number, _ in enumerate(words)]
    out, done = list[str](), 0
    for word in words:
        start = value.index(word, done)
        out.append(value[done:start])
        done = start + len(word)
    return out


def prepare_span(bundle: Bundle, task: Any, value: Any, *, against: str | None) -> PreparedInput:
    (found,) = task.predict(bundle.model, [value])
    (window,) = without_truncation(task).windows(value["question"], value["context"], where="the input")
    texts = [value["question"], value["context"]]
    sequence = story.Sequence("text", tokens(task.tokenizer, window.ids, texts), text="\n".join(texts))
    span = window.span(found["start"], found["end"]) if found["answer"] else (0, 0)

    def read_output(output: Output) -> story.OutputView:
        """A candidate's id is the index of its token; the first token means no answer."""
        assert output.logits is not None
        possible = torch.zeros(len(window.ids), dtype=torch.bool)
        possible[[0, *range(*window.context)]] = True
        names = labels([token.text for token in sequence.tokens])
        scores = output.logits[0].cpu().masked_fill(~possible[:, None], -torch.inf)  # (token, start or end)
        chosen = [
            choice(scores[:, side], names, label=label, at=at, chosen=at)
            for side, (label, at) in enumerate(zip(("start", "end"), span, strict=True))
        ]
        return story.OutputView("span", chosen, found["answer"] or "no answer in the text")

    return PreparedInput(dict(task.batch([window.example()], bundle.model).inputs), {"text": sequence}, read_output)


def prepare_masks(bundle: Bundle, task: Any, value: Any, *, against: str | None) -> PreparedInput:
    ids = task.masked_ids(value, 1)
    *before, rest = value.split(task.mask)
    sequence = story.Sequence(
        "text", tokens(task.tokenizer, ids, [*(part.rstrip() for part in before), rest]), text=value
    )
    places = [at for at, index in enumerate(ids) if index == task.tokenizer.mask_id]
    for at, part in zip(places, before, strict=True):
        gap = part[len(part.rstrip()) :]
        sequence.tokens[at] = replace(sequence.tokens[at], text=gap + task.mask, special=False)

    def read_output(output: Output) -> story.OutputView:
        assert output.logits is not None
        special = torch.from_numpy(task.masking.special)
        chosen = [
            choice(
                output.logits[0, at].cpu().masked_fill(special, -torch.inf),
                vocabulary(task.tokenizer),
                label=task.mask if len(places) == 1 else f"{task.mask} {number}",
                at=at,
            )
            for number, at in enumerate(places, 1)
        ]
        return story.OutputView("fill", chosen, ", ".join(row.candidates[0].text.strip() for row in chosen))

    return PreparedInput(one_row(bundle, ids), {"text": sequence}, read_output)


def _text_vector(bundle: Bundle, task: Any, value: Any) -> PreparedInput:
    if not isinstance(value, str):
        raise InputError("explain takes one text at a time for an embedding model")
    ids = without_truncation(task).read(value, where="the input")["ids"].tolist()
    sequence = story.Sequence("text", tokens(task.tokenizer, ids, [value]), text=value)

    def read_output(output: Output) -> story.OutputView:
        vector = task.embedding(output.hidden)[0].cpu()
        start = ", ".join(f"{round_float32(number):.3f}" for number in vector[:3].tolist()).replace("-", "−")
        return story.OutputView("vector", [], f"{len(vector)} numbers: {start}, …", vector.numpy())

    return PreparedInput(one_row(bundle, ids), {"text": sequence}, read_output)
