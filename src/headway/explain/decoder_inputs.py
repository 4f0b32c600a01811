"""Models that write: what they were shown, what they chose after each token, and how it went on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from headway.bundle import Bundle
from headway.errors import InputError
from headway.explain import story
from headway.explain.choices import candidates, next_tokens, short, vocabulary
from headway.explain.encoder_inputs import Asked, rows, strict
from headway.explain.tensors import array
from headway.explain.token_text import ADVICE, tokens
from headway.inspect import record
from headway.models.decoder import Decoder
from headway.models.outputs import Output
from headway.preprocess.text import Tokenizer
from headway.tasks.generate import Generate
from headway.tasks.translate import Translate

WRITTEN = 64  # tokens of an answer


def ask_decoder(bundle: Bundle, task: Generate | None, value: Any, *, against: str | None) -> Asked:
    """`against` is a text that goes on from the input."""
    ids = _plain_ids(value) if task is None else task.prompt(value)
    begun = len(ids)
    if against is not None:
        ids = [*ids, *(_plain_ids(against) if task is None else task.tokenizer.encode(against, special=False))]
    tokenizer = None if task is None else task.tokenizer
    vocab = bundle.config.embedding.vocab  # type: ignore[union-attr]
    wrong = next((index for index in ids if not 0 <= index < vocab), None)
    if wrong is not None:
        raise InputError(f"{wrong} is not an id of this model, whose vocabulary has {vocab}")
    limit = bundle.model.max_length
    if limit is not None and len(ids) > limit:
        raise InputError(f"the text has {len(ids):,} tokens, the model takes {limit:,}; {ADVICE}")
    texts = [] if tokenizer is None else [value, *([] if against is None else [against])]
    read = story.Sequence("text", tokens(tokenizer, ids, texts), text="".join(texts) or None)

    def tell(output: Output) -> story.Output:
        wanted = [*ids[1:], None]
        chosen = next_tokens(output, read, wanted, tokenizer)
        answer = _text(tokenizer, ids[begun:]) or chosen[-1].candidates[0].text
        return story.Output("next", chosen, answer, given=against is not None)

    return Asked(rows(bundle, ids), {"text": read}, tell)


def ask_translator(bundle: Bundle, task: Translate, value: str, *, against: str | None) -> Asked:
    """`against` is a target to be written in place of the model's own answer."""
    whole = strict(task)
    source = whole.source_ids(value, where="the input")
    room = min(WRITTEN, task.target_limit)
    note: list[str] = []
    if against is not None:
        answer, target = against, whole.target_ids(against, where="the answer")
    else:
        (own,) = task.predict(bundle.model, [value], max_new_tokens=room, logprobs=True, details=True)
        answer, target = own["text"], [token["id"] for token in own["tokens"]]
        if own["finished_by"] == "length":
            note.append(f"The answer is shown up to {room} tokens.")
    begun = [task.start_id, *target[:-1]]
    read = story.Sequence("source", tokens(task.tokenizer, source, [task.prefix + value]), text=task.prefix + value)
    written = story.Sequence("target", tokens(task.tokenizer, begun, [answer]), text=answer)

    def tell(output: Output) -> story.Output:
        chosen = next_tokens(output, written, target, task.tokenizer)
        return story.Output("next", chosen, answer, given=against is not None)

    inputs = {
        "inputs": torch.tensor([source], device=bundle.device),
        "decoder_ids": torch.tensor([begun], device=bundle.device),
    }
    return Asked(inputs, {"source": read, "target": written}, tell, note)


def generation_of(output: story.Output, looked: story.Attention | None) -> story.Generation:
    """The steps of an answer that was written in one pass, with what each looked at."""
    weights = None if looked is None else story.numbers(looked.weights)  # (head, query, key)
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
def go_on(bundle: Bundle, ids: Sequence[int], tokenizer: Tokenizer | None, *, steps: int) -> story.Generation:
    """What a decoder writes next, the likeliest token each time."""
    model, name = bundle.model, vocabulary(tokenizer)
    assert isinstance(model, Decoder)
    room = steps if model.config.context is None else min(steps, model.config.context - len(ids))
    tap = f"stack.blocks.{model.config.stack.layers - 1}.attention.weights"
    cache = model.new_cache(capacity=len(ids) + max(room, 0))
    fed, out = list(ids), list[story.Step]()
    while len(out) < room and (not out or tokenizer is None or out[-1].id != tokenizer.eos_id):
        with record(model, tap, queries=[-1]) as seen:
            output = model(torch.tensor([fed], device=bundle.device), cache=cache, last=True)
        scores = output.logits[0, -1].float().cpu()
        best = int(scores.argmax())
        looked = array(seen[tap][0][0, :, 0])  # (head, key)
        (text,) = name([best])
        out.append(story.Step(text, best, candidates(scores, name), short(float(scores.logsumexp(0))), looked))
        fed = [best]
    return story.Generation(out, _text(tokenizer, [step.id for step in out]))


def _plain_ids(value: Any) -> list[int]:
    """A model without a tokenizer is shown numbers."""
    parts = value.replace(",", " ").split() if isinstance(value, str) else list(value)
    if not parts or not all(str(part).lstrip("-").isdigit() for part in parts):
        raise InputError(f"this model has no tokenizer: give the ids of its tokens, such as '0 2 1', not {value!r}")
    return [int(part) for part in parts]


def _text(tokenizer: Tokenizer | None, ids: Sequence[int]) -> str:
    return " ".join(map(str, ids)) if tokenizer is None else tokenizer.decode(ids)
