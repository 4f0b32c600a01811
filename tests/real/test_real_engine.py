"""The engine on published weights: stories15M writes the same story compiled, and loses nothing to speak of in int8."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import headway
from headway.engine import prepare, release, unsupported_reason
from headway.generation import GenerationSettings, generate

PROMPT = "Once upon a time, there was a little"
STORY = [
    "Once upon a time there was a small brown mouse called Pip. Pip lived under the kitchen floor of an old house "
    "with his mother and his two sisters. Every night, when the people were asleep, the mice came out to look for "
    "crumbs. One night Pip saw something new on the table. It was round and yellow, and it smelled wonderful. "
    '"Mother, what is it?" he asked. "That is a cheese," said his mother, "but do not touch it. The cat sleeps '
    'beside it." Pip looked at the cat. She was big and grey, and her eyes were closed.',
    "Pip was very hungry. He climbed up the leg of the chair as quietly as he could. He took one step, then "
    "another. The cat did not move. Pip bit off a little piece of the cheese and put it in his cheek. Then he "
    'sneezed! The cat opened one eye. "Who is eating my cheese?" she said. Pip was so scared that he could not '
    'run. "I am sorry," he said. "My sisters are hungry, and you have so much." The cat looked at him for a long '
    'time. Then she pushed the cheese to the edge of the table with her paw. "Take it," she said. "I do not even '
    'like cheese. I was only keeping it warm."',
    "Pip and his sisters carried the cheese home that night. They ate until their bellies were full. In the "
    "morning Pip went back to the kitchen with a present. It was a soft ball of wool that he had found behind the "
    "stove. The cat was very happy. She played with it all day long. From then on, the cat and the mouse were "
    "friends, and nobody in the old house was ever hungry again.",
]


def stories(real_data: Path) -> headway.Bundle:
    folder = real_data / "weights" / "stories15M"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    return headway.load(folder)


def test_the_same_story(real_data: Path) -> None:
    pytest.importorskip("numba")
    bundle = stories(real_data)
    prompts = [bundle.processor.tokenizer.encode(text) for text in (PROMPT, "The dog")]
    settings = GenerationSettings(max_new_tokens=60)
    release(bundle.model)
    plain = [[h.ids for h in answer] for answer in generate(bundle.model, prompts, settings)]
    prepare(bundle.model)
    assert [[h.ids for h in answer] for answer in generate(bundle.model, prompts, settings)] == plain
    assert unsupported_reason(bundle.model) is None


@torch.no_grad()
def perplexity(model: Any, texts: list[list[int]]) -> float:
    losses = [F.cross_entropy(model(torch.tensor([ids])).logits[0, :-1], torch.tensor(ids[1:])) for ids in texts]
    return float(torch.stack(losses).mean().exp())


@pytest.mark.parametrize(("weights", "group"), [("int8", None), ("int8", 32), ("bf16", None)])
@pytest.mark.parametrize("by", ["the model", "a person"])
def test_perplexity_after_storing_smaller(real_data: Path, by: str, weights: str, group: int | None) -> None:
    """On stories that the model itself draws, where its perplexity is low, and on one that somebody else wrote, where a
    loss shows first."""
    bundle = stories(real_data)
    prompt = bundle.processor.tokenizer.encode(PROMPT)
    settings = GenerationSettings(max_new_tokens=160, temperature=1.0, seed=1, n=4)
    if by == "the model":
        texts = [prompt + h.ids for h in generate(bundle.model, [prompt], settings)[0]]
    else:
        texts = [bundle.processor.tokenizer.encode(part) for part in STORY]
    before = perplexity(bundle.model, texts)
    assert before < 12, "control: it knows such stories"
    after = perplexity(prepare(bundle.model, weights, group=group), texts)
    assert after != before and after / before <= 1.005, (before, after)


@torch.no_grad()
def test_groups_lose_less_than_one_scale_an_output(real_data: Path) -> None:
    """By how far the whole distribution of the next token moves: a perplexity can also fall by chance."""
    bundle = stories(real_data)
    texts = [torch.tensor([bundle.processor.tokenizer.encode(part)]) for part in STORY]
    before = [bundle.model(ids).logits.log_softmax(-1) for ids in texts]

    def divergence(group: int | None) -> float:
        model = prepare(stories(real_data).model, "int8", group=group)
        after = [model(ids).logits.log_softmax(-1) for ids in texts]
        return float(torch.cat([(p.exp() * (p - q)).sum(-1)[0] for p, q in zip(before, after, strict=True)]).mean())

    assert 0 < divergence(None) < 0.8 * divergence(0) < 0.002
