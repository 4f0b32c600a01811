"""A real tokenizer and model (stories15M): constraints over 32,000 tokens, a conversation, a text past the context."""

import json
import re

import pytest
import torch

import headway
from headway.bundle import Bundle
from headway.generation import GenerationSettings, generate
from headway.generation.attention_sinks import visible
from headway.jobs.chat import Conversation


@pytest.fixture(scope="module")
def stories(real_data) -> Bundle:
    return headway.load(real_data / "weights" / "stories15M")


@pytest.mark.parametrize("more", [{"temperature": 1.0, "seed": 1}, {"beams": 2}], ids=["sampled", "beams"])
def test_constraints(stories, more) -> None:
    assert stories.processor.tokenizer is not None
    prompts = [stories.processor.tokenizer.encode(text) for text in ("The girl is", "Tim was a boy of", "")]
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "old": {"type": "boolean"}},
              "required": ["name", "old"], "additionalProperties": False}  # fmt: skip
    chosen = GenerationSettings(max_new_tokens=60, eos_ids=(2,), json_schema=schema, **more)
    for [answer] in generate(stories.model, prompts, chosen, tokenizer=stories.processor.tokenizer):
        value = json.loads(answer.text)
        assert answer.fits and set(value) == {"name", "old"} and len(value["name"]) <= 9
    chosen = GenerationSettings(max_new_tokens=60, eos_ids=(2,), regex=" [0-9]{1,2} years( old)?", **more)
    for [answer] in generate(stories.model, prompts, chosen, tokenizer=stories.processor.tokenizer):
        assert answer.fits and re.fullmatch(" [0-9]{1,2} years( old)?", answer.text)


def test_prompt_and_answer_are_one_text(stories) -> None:
    """The space between them is neither lost nor doubled."""
    assert stories.processor.tokenizer is not None
    prompt = stories.processor.tokenizer.encode("The cat")
    [[answer]] = generate(
        stories.model, [prompt], GenerationSettings(max_new_tokens=9), tokenizer=stories.processor.tokenizer
    )
    assert stories.processor.tokenizer.decode([*prompt, *answer.ids]) == "The cat" + answer.text
    assert answer.text.startswith(" ")


def test_a_conversation(stories) -> None:
    notes: list[str] = []
    conversation = Conversation(stories, notify=notes.append, temperature=0.0, max_new_tokens=24, overflow="window")
    for _ in range(4):
        streamed: list[str] = []
        answer = conversation.say("Tell me about the boat that Tom made. " * 8, on_text=streamed.append)
        assert answer and answer == "".join(streamed).rstrip() and not re.search(r"\n(User|System|Assistant):", answer)
    assert any("no longer fit" in line for line in notes)


def test_past_the_context_each_token_is_that_of_a_fresh_reading(stories) -> None:
    assert stories.processor.tokenizer is not None
    ids = stories.processor.tokenizer.encode("Once upon a time there was a cat. " * 26)
    assert 230 < len(ids) <= 256, "control: it outgrows the context while it is written"
    [[answer]] = generate(stories.model, [ids], GenerationSettings(max_new_tokens=30, overflow="window"))
    with torch.no_grad():
        for token in answer.ids:
            if len(ids) > 254:
                assert token == int(stories.model(torch.tensor([visible(ids, 256)])).logits[0, -1].argmax())
            ids.append(token)
