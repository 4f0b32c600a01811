"""Sampling: what is drawn follows the distribution that each filter's formula gives, by chi-square, worked out here."""

import math

import pytest
import torch
from scipy import stats
from support.writers import tiny_decoder

from headway.generation import GenerationSettings, generate

VOCAB, DRAWS, PROMPT = 12, 4000, [3, 5, 3, 3]
FLATTER = 0.4  # of the model's scores, so that several tokens have a chance


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = tiny_decoder(VOCAB)
    with torch.no_grad():
        model.head.project.weight.mul_(FLATTER)
    return model


def softmax(scores: list[float]) -> list[float]:
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    return [weight / sum(weights) for weight in weights]


def nucleus(p: list[float], order: list[int], mass: float) -> list[float]:
    kept, total = set(), 0.0
    for i in order:
        if total >= mass:
            break
        kept.add(i)
        total += p[i]
    return [p[i] / total if i in kept else 0.0 for i in range(len(p))]


def hot(scores: list[float]) -> list[float]:
    return softmax([score / 1.7 for score in scores])


def first_four(scores: list[float]) -> list[float]:
    p = softmax(scores)
    return nucleus(p, sorted(range(VOCAB), key=lambda i: -p[i])[:4], 1.0)


def likeliest(scores: list[float]) -> list[float]:
    p = softmax(scores)
    return nucleus(p, sorted(range(VOCAB), key=lambda i: -p[i]), 0.7)


def near_the_best(scores: list[float]) -> list[float]:
    p = softmax(scores)
    return nucleus(p, [i for i in range(VOCAB) if p[i] >= 0.15 * max(p)], 1.0)


def typical(scores: list[float]) -> list[float]:
    p = softmax(scores)
    entropy = -sum(each * math.log(each) for each in p)
    return nucleus(p, sorted(range(VOCAB), key=lambda i: abs(-math.log(p[i]) - entropy)), 0.6)


def repeated(scores: list[float]) -> list[float]:
    """Of the prompt's tokens."""
    seen = {3, 5}
    return softmax([(s * 2 if s < 0 else s / 2) if i in seen else s for i, s in enumerate(scores)])


def forced(scores: list[float]) -> list[float]:
    """Of the answer's: the forced prefix is 3, 5, 3."""
    counts = {3: 2, 5: 1}
    return softmax([s - 0.4 * counts.get(i, 0) - 0.9 * (i in counts) for i, s in enumerate(scores)])


CASES = {
    "plain": ({}, softmax),
    "temperature": ({"temperature": 1.7}, hot),
    "top-k": ({"top_k": 4}, first_four),
    "top-p": ({"top_p": 0.7}, likeliest),
    "min-p": ({"min_p": 0.15}, near_the_best),
    "typical": ({"typical_p": 0.6}, typical),
    "repetition": ({"repetition_penalty": 2.0}, repeated),
    "frequency and presence": ({"frequency_penalty": 0.4, "presence_penalty": 0.9, "prefix": (3, 5, 3)}, forced),
}


def fit(seen: list[int], want: list[float]) -> float:
    """The chance of a difference as great as this; 0 where the impossible was drawn. Rare tokens count together."""
    if any(count and not p for count, p in zip(seen, want, strict=True)):
        return 0.0
    common = [i for i in range(VOCAB) if want[i] * DRAWS >= 5]
    pairs = [(seen[i], want[i] * DRAWS) for i in common]
    rest = (DRAWS - sum(count for count, _ in pairs), DRAWS - sum(expected for _, expected in pairs))
    if rest[1] > 0.5:
        pairs.append(rest)
    total = sum(expected for _, expected in pairs)
    observed = [count for count, _ in pairs]
    return float(stats.chisquare(observed, [expected * sum(observed) / total for _, expected in pairs]).pvalue)


@pytest.mark.parametrize("case", CASES)
def test_what_is_drawn_follows_the_formula(model, case):
    more, formula = CASES[case]
    prompt = [*PROMPT, *more.get("prefix", ())]
    with torch.no_grad():
        scores = model(torch.tensor([prompt])).logits[0, -1].tolist()
    chosen = GenerationSettings(**{"max_new_tokens": 1, "temperature": 1.0, "n": 1000, "seed": 11, **more})
    found = generate(model, [PROMPT] * (DRAWS // 1000), chosen)
    drawn = [hypothesis.ids[-1] for answers in found for hypothesis in answers]
    seen = [drawn.count(i) for i in range(VOCAB)]
    assert fit(seen, formula(scores)) > 0.01
    if formula is not softmax:
        assert fit(seen, softmax(scores)) < 1e-6, "control: without the filter it would be another"
