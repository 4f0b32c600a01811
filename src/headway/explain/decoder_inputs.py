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
from headway.explain.model_map import attentions
from headway.explain.tensors import array
from headway.explain.token_text import HOW_TO_SHORTEN, tokens
from headway.generation import GenerationSettings, generate, tokens_left
from headway.inspect import record
from headway.models.outputs import Output
from headway.preprocess.id_text import IdTokenizer
from headway.tasks.task import Task

MAX_TARGET = 64  # tokens
QUERY_STREAM = "Of its two streams the page shows the query stream, which predicts the token behind each position."


def prepare_text(bundle: Bundle, task: Any, value: Any, *, against: str | None) -> PreparedInput:
    """`against` is a text to score instead of the model's own."""
    prepare = _source_and_target if bundle.model.reads_source else _prompt
    return prepare(bundle, task, value, against=against)


def _prompt(bundle: Bundle, task: Any, value: Any, *, against: str | None) -> PreparedInput:
    """A model without a tokenizer also takes a list of ids."""
    tokenizer = task.tokenizer
    if isinstance(tokenizer, IdTokenizer) and not isinstance(value, str):
        value = " ".join(map(str, value))
    text = "".join(task.input_kind.texts(value))
    ids = task.prompt(value, where="the input")
    prompt = len(ids)
    if against is not None:
        ids = [*ids, *tokenizer.encode(against, special=False)]
    limit = bundle.model.max_length
    if limit is not None and len(ids) > limit:
        raise InputError(f"the text has {len(ids):,} tokens, the model takes {limit:,}; {HOW_TO_SHORTEN}")
    texts = [] if isinstance(tokenizer, IdTokenizer) else [text, *([] if against is None else [against])]
    sequence = story.Sequence("text", tokens(tokenizer, ids, texts), text="".join(texts) or None)

    def read_output(output: Output) -> story.OutputView:
        rows = next_tokens(output, sequence, [*ids[1:], None], tokenizer)
        answer = tokenizer.decode(ids[prompt:]) or rows[-1].candidates[0].text
        return story.OutputView("next", rows, answer, given=against is not None)

    note = [QUERY_STREAM] if bundle.model.predicts_any_order else []
    return PreparedInput(one_row(bundle, ids), {"text": sequence}, read_output, note)


def _source_and_target(bundle: Bundle, task: Any, value: str, *, against: str | None) -> PreparedInput:
    strict = without_truncation(task)
    source = strict.source_ids(value, where="the input")
    limit = min(MAX_TARGET, task.target_limit)
    note: list[str] = []
    if against is not None:
        answer, target = against, strict.target_ids(against, where="--against")
    else:
        (own,) = task.predict(bundle.model, [value], max_new_tokens=limit, n=1, logprobs=True, details=True)
        answer, target = own["text"], [token["id"] for token in own["tokens"]]
        if own["finished_by"] == "length":
            note.append(f"The answer is cut at {limit} tokens.")
    decoder_ids = [task.start_id, *target[:-1]]
    source_text = task.prefix + value
    sequences = {
        "source": story.Sequence("source", tokens(task.tokenizer, source, [source_text]), text=source_text),
        "target": story.Sequence("target", tokens(task.tokenizer, decoder_ids, [answer]), text=answer),
    }

    def read_output(output: Output) -> story.OutputView:
        rows = next_tokens(output, sequences["target"], target, task.tokenizer)
        return story.OutputView("next", rows, answer, given=against is not None)

    inputs = {
        "inputs": torch.tensor([source], device=bundle.device),
        "decoder_ids": torch.tensor([decoder_ids], device=bundle.device),
    }
    return PreparedInput(inputs, sequences, read_output, note)


def generation_of(output: story.OutputView, attention: story.Attention | None) -> story.GenerationView:
    """The steps of an output that was scored in one pass, with the attention weights of each."""
    weights = None if attention is None else story.dequantize(attention.weights)  # (head, query, key)
    return story.GenerationView(
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
def continuation(bundle: Bundle, task: Task, ids: Sequence[int], *, steps: int) -> story.GenerationView:
    """What a decoder generates next, by greedy search, with the candidates and the attention weights of each step."""
    model, tokenizer = bundle.model, task.tokenizer
    to_text = vocabulary(tokenizer)
    if model.max_context is not None:
        steps = min(steps, tokens_left(model.max_context, len(ids)))
    if steps < 1:
        return story.GenerationView([])
    ends = () if tokenizer.eos_id is None else (tokenizer.eos_id,)
    ends = task.generation_defaults.options.get("eos_ids", ends)
    settings = GenerationSettings(max_new_tokens=steps, eos_ids=ends)
    ((found,),) = generate(model, [ids], settings, tokenizer=tokenizer)
    inputs = [*ids, *found.ids[:-1]]
    positions = range(len(ids) - 1, len(inputs))  # where each token was generated
    taps = [f"{layer.name}.weights" for layer in attentions(model)[-1:]]  # a recurrent model has none
    with record(model, taps, queries=positions if taps else None) as recorded:
        logits = model(**one_row(bundle, inputs)).logits[0].float().cpu()
    weights = recorded[taps[0]][-1][0] if taps else None  # (head, step, key)
    out = []
    for step, (position, index) in enumerate(zip(positions, found.ids, strict=True)):
        scores = logits[position]
        shown = candidates(scores, to_text, chosen=index)
        logsumexp = round_float32(float(scores.logsumexp(0)))
        kept = None if weights is None else array(weights[:, step, : position + 1])
        out.append(story.Step(to_text([index])[0], index, shown, logsumexp, kept))
    return story.GenerationView(out, tokenizer.decode(found.ids))
