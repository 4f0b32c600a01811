"""Inputs of models that generate: the tensors of the forward pass, the next-token candidates after each token, and the
generated continuation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from headway.bundle import Bundle
from headway.errors import InputError
from headway.explain import story
from headway.explain.choices import candidates, next_tokens, round_float32, vocabulary
from headway.explain.encoder_inputs import PreparedInput, one_row, without_truncation
from headway.explain.tensors import array
from headway.explain.token_text import HOW_TO_SHORTEN, tokens
from headway.inspect import record
from headway.models.decoder import Decoder
from headway.models.outputs import Output
from headway.preprocess.text import Tokenizer
from headway.tasks.generate import Generate
from headway.tasks.translate import Translate

MAX_TARGET = 64  # tokens


def prepare_decoder(bundle: Bundle, task: Generate | None, value: Any, *, against: str | None) -> PreparedInput:
    """`against` is a continuation of the input."""
    ids = _plain_ids(value) if task is None else task.prompt(value)
    prompt = len(ids)
    if against is not None:
        ids = [*ids, *(_plain_ids(against) if task is None else task.tokenizer.encode(against, special=False))]
    tokenizer = None if task is None else task.tokenizer
    vocab = bundle.config.embedding.vocab  # type: ignore[union-attr]
    wrong = next((index for index in ids if not 0 <= index < vocab), None)
    if wrong is not None:
        raise InputError(f"{wrong} is not an id of this model, whose vocabulary has {vocab} tokens")
    limit = bundle.model.max_length
    if limit is not None and len(ids) > limit:
        raise InputError(f"the text has {len(ids):,} tokens, the model takes {limit:,}; {HOW_TO_SHORTEN}")
    texts = [] if tokenizer is None else [value, *([] if against is None else [against])]
    sequence = story.Sequence("text", tokens(tokenizer, ids, texts), text="".join(texts) or None)

    def read_output(output: Output) -> story.Output:
        rows = next_tokens(output, sequence, [*ids[1:], None], tokenizer)
        answer = _text(tokenizer, ids[prompt:]) or rows[-1].candidates[0].text
        return story.Output("next", rows, answer, given=against is not None)

    return PreparedInput(one_row(bundle, ids), {"text": sequence}, read_output)


def prepare_encoder_decoder(bundle: Bundle, task: Translate, value: str, *, against: str | None) -> PreparedInput:
    """`against` is a target text to score instead of the model's own output."""
    strict = without_truncation(task)
    source = strict.source_ids(value, where="the input")
    limit = min(MAX_TARGET, task.target_limit)
    note: list[str] = []
    if against is not None:
        answer, target = against, strict.target_ids(against, where="--against")
    else:
        (own,) = task.predict(bundle.model, [value], max_new_tokens=limit, logprobs=True, details=True)
        answer, target = own["text"], [token["id"] for token in own["tokens"]]
        if own["finished_by"] == "length":
            note.append(f"The answer is cut at {limit} tokens.")
    decoder_ids = [task.start_id, *target[:-1]]
    source_text = task.prefix + value
    sequences = {
        "source": story.Sequence("source", tokens(task.tokenizer, source, [source_text]), text=source_text),
        "target": story.Sequence("target", tokens(task.tokenizer, decoder_ids, [answer]), text=answer),
    }

    def read_output(output: Output) -> story.Output:
        rows = next_tokens(output, sequences["target"], target, task.tokenizer)
        return story.Output("next", rows, answer, given=against is not None)

    inputs = {
        "inputs": torch.tensor([source], device=bundle.device),
        "decoder_ids": torch.tensor([decoder_ids], device=bundle.device),
    }
    return PreparedInput(inputs, sequences, read_output, note)


def generation_of(output: story.Output, attention: story.Attention | None) -> story.Generation:
    """The steps of an output that was scored in one pass, with the attention weights of each."""
    weights = None if attention is None else story.dequantize(attention.weights)  # (head, query, key)
    return story.Generation(
        [
            story.Step(
                text=next(one.text for one in row.candidates if one.id == row.chosen),
                id=row.chosen,
                candidates=row.candidates,
                logsumexp=row.logsumexp,
                attention=None if weights is None else weights[:, step],
            )
            for step, row in enumerate(output.rows)
            if row.chosen is not None
        ]
    )


@torch.no_grad()
def continuation(bundle: Bundle, ids: Sequence[int], tokenizer: Tokenizer | None, *, steps: int) -> story.Generation:
    """What a decoder generates next, by greedy search."""
    model, name = bundle.model, vocabulary(tokenizer)
    assert isinstance(model, Decoder)
    count = steps if model.config.context is None else min(steps, model.config.context - len(ids))
    tap = f"stack.blocks.{model.config.stack.layers - 1}.attention.weights"
    cache = model.new_cache(capacity=len(ids) + max(count, 0))
    fed, out = list(ids), list[story.Step]()
    while len(out) < count and (not out or tokenizer is None or out[-1].id != tokenizer.eos_id):
        with record(model, tap, queries=[-1]) as recorded:
            output = model(torch.tensor([fed], device=bundle.device), cache=cache, last=True)
        scores = output.logits[0, -1].float().cpu()
        best = int(scores.argmax())
        attention = array(recorded[tap][0][0, :, 0])  # (head, key)
        (text,) = name([best])
        out.append(
            story.Step(text, best, candidates(scores, name), round_float32(float(scores.logsumexp(0))), attention)
        )
        fed = [best]
    return story.Generation(out, _text(tokenizer, [step.id for step in out]))


def _plain_ids(value: Any) -> list[int]:
    """Parses the input of a model without a tokenizer."""
    parts = value.replace(",", " ").split() if isinstance(value, str) else list(value)
    if not parts or not all(str(part).lstrip("-").isdigit() for part in parts):
        raise InputError(f"this model has no tokenizer: give the ids of its tokens, such as '0 2 1', not {value!r}")
    return [int(part) for part in parts]


def _text(tokenizer: Tokenizer | None, ids: Sequence[int]) -> str:
    return " ".join(map(str, ids)) if tokenizer is None else tokenizer.decode(ids)
