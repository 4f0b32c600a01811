"""The worked examples of the notes that Headway grew from, as stories, computed by the function that every model here
uses. Where a note is wrong, the section says what is right (`docs/seeds.md` has the list)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from headway.errors import InputError
from headway.explain import story
from headway.explain.size_budget import PATTERN_POSITIONS
from headway.layers.attend import attend_with_weights, score_scale
from headway.layers.masks import CAUSAL, Mask
from headway.layers.positions import sinusoids

CHASING = [-2.0, 3.0, 2.5, -1.0, 1.5, -2.0]
CAT = [-1.8, 2.8, 3.0, 0.2, 2.5, -1.5]
MOUSE = [-1.5, -2.0, 2.8, -0.5, -2.0, 3.0]


def example(name: str) -> story.Story:
    if name not in EXAMPLES:
        raise InputError(f"example {name!r}: the examples are {', '.join(EXAMPLES)}")
    return EXAMPLES[name]()


def chasing() -> story.Story:
    """Seed 002: 26.05 and −4.5."""
    attention = _attention(
        q=[CHASING],
        k=[CAT, MOUSE],
        v=np.eye(2),
        queries="target",
        keys="source",
        name="chasing attends to cat and mouse",
    )
    rows = [
        [str(i), *(_signed(f"{q:g} × {k:g} = {q * k:g}  {_verdict(q * k)}") for k in (cat, mouse))]
        for i, (q, cat, mouse) in enumerate(zip(CHASING, CAT, MOUSE, strict=True))
    ]
    sums = [sum(q * k for q, k in zip(CHASING, key, strict=True)) for key in (CAT, MOUSE)]
    scaled = [total / math.sqrt(6) for total in sums]
    weights = attention.weights[0, 0].tolist()
    rows += [
        ["sum", *(_signed(f"{total:.4g}") for total in sums)],
        ["÷ √6", *(_signed(f"{score:.3f}") for score in scaled)],
        ["softmax", *(f"{weight:.6f}" for weight in weights)],
    ]
    return _story(
        "What is chasing looking for?",
        {"target": ("the query", ["chasing"]), "source": ("the keys", ["cat", "mouse"])},
        [attention],
        [
            story.Section(
                "A dot product, term by term",
                [
                    "In “The cats are chasing the mouse”, the token chasing has a query: six numbers that say what it "
                    "is looking for. Each other token has a key: six numbers that say what it offers.",
                    "Multiply number by number. Where both have the same sign the term is positive, a match; where "
                    "they differ it is negative, a mismatch. The sum is the score.",
                    "The score is divided by the square root of the number of terms, √6, so that longer vectors do not "
                    "give larger scores by having more terms; softmax turns the scores into weights that sum to one.",
                    "The example stops at the weights. So that the sum of values can be seen as well, the value of "
                    "cat is one axis here and that of mouse the other.",
                ],
                story.TableView(["number", "chasing · cat", "chasing · mouse"], rows),
            )
        ],
    )


def three_words() -> story.Story:
    """Seed 001: the table of “Action gets results”, with vectors of 64 numbers."""
    words = ["Action", "gets", "results"]
    q, k, v = np.random.default_rng(0).normal(size=(3, 3, 64)).astype(np.float32)
    attention = _attention(q=q, k=k, v=v, queries="text", keys="text", name="Action gets results")
    scores = q @ k.T
    assert attention.z is not None
    rows = [
        [
            f"{query} → {other}",
            _signed(f"{scores[i, j]:.3f}"),
            _signed(f"{scores[i, j] / 8:.3f}"),
            f"{attention.weights[0, i, j]:.3f}",
            f"{attention.weights[0, i, j]:.3f} × v({other})",
            "" if j < 2 else f"z({query}) = {_start(attention.z[0, i])}",
        ]
        for i, query in enumerate(words)
        for j, other in enumerate(words)
    ]
    return _story(
        "Action gets results",
        {"text": ("text", words)},
        [attention],
        [
            story.Section(
                "Score, divide, softmax, sum",
                [
                    "Every word attends to every word, itself included: its query times their keys gives the scores.",
                    "Each score is divided by 8, the square root of 64, the size of a query. It has nothing to do with "
                    "how many words there are: three words or three hundred, the divisor stays 8.",
                    "Softmax makes each word's three scores positive weights that sum to one. The weighted sum of the "
                    "values is the output of the word: z.",
                    "The 64 numbers of each vector are drawn at random here; in a model they are learned.",
                ],
                story.TableView(["query → key", "score", "score / 8", "softmax", "softmax × v", "sum"], rows),
            )
        ],
    )


def soft_dictionary() -> story.Story:
    """Seed 002: a dictionary that answers with a mixture."""
    words, sounds = ["dog", "wolf", "cat"], ["bark", "howl", "meow"]
    attention = _attention(
        q=[[1.0]], k=[[4.0], [3.0], [-1.0]], v=np.eye(3), queries="target", keys="source",
        name="husky looks up its sound", scale=1.0,
    )  # fmt: skip
    shares = attention.weights[0, 0].tolist()
    rows = [
        [word, _signed(f"{score:g}"), f"{share:.1%}", sound]
        for word, score, share, sound in zip(words, (4, 3, -1), shares, sounds, strict=True)
    ]
    return _story(
        "A dictionary that answers with a mixture",
        {"target": ("the query", ["husky"]), "source": ("the keys", words)},
        [attention],
        [
            story.Section(
                "No key equals husky, and there is still a result",
                [
                    "A dictionary in a program finds a key or it does not. Attention compares the query with every key "
                    "and takes a part of every value: much where they are similar, next to nothing where they are "
                    "not.",
                    "With scores of 4, 3 and −1 the result is mostly bark with some howl in it. Each value is "
                    "written here as one of three axes, so the weighted sum z shows the mixture itself.",
                ],
                story.TableView(["key", "score", "weight", "value"], rows),
            )
        ],
    )


def masked() -> story.Story:
    """Seeds 001 and 002: a position must not attend to later ones."""
    words = ["Attention", "is", "all", "you", "need"]
    ones = np.ones((5, 1))
    attention = _attention(q=ones, k=ones, v=np.eye(5), queries="text", keys="text", name="causal", mask=CAUSAL)
    return _story(
        "The causal mask",
        {"text": ("text", words)},
        [attention],
        [
            story.Section(
                "Later positions have no weight",
                [
                    "A decoder generates from left to right. In training the whole text is there at once, so what "
                    "comes later is masked: its scores become minus infinity before the softmax.",
                    "The rest still sums to one. Here all scores are equal, and so the first word has only itself, the "
                    "second half and half, the fifth a fifth of each.",
                    "This is not dropout: nothing is set to zero at random, and nothing leaks.",
                ],
            )
        ],
    )


def positions() -> story.Story:
    """Seed 002, and the 2017 paper's section 3.5: sinusoidal positions."""
    words = ["The", "cats", "are", "chasing", "the", "mouse"]
    token = np.random.default_rng(1).normal(size=(len(words), 32)).astype(np.float32)
    token[4] = token[0]
    pattern = sinusoids(PATTERN_POSITIONS, 32).numpy()
    waves = pattern[: len(words)]
    position = story.Position("sinusoidal", waves, pattern=pattern)
    return _story(
        "Sinusoidal positions",
        {"text": ("text", words)},
        [],
        [
            story.Section(
                "Sine and cosine",
                [
                    "Attention treats a text as a bag of tokens: shuffle them and every token gets the same result. So "
                    "each position has a vector of its own, which is added to the token's.",
                    "Its numbers are sines and cosines of the position, from fast waves in the first numbers to slow "
                    "ones in the last. “The” and “the” have the same embedding here and different sums.",
                    "The tokens' own numbers are drawn at random for this page; in a model they are learned.",
                ],
            )
        ],
        embedding=[story.EmbeddingView("text", token, position, token + waves)],
    )


EXAMPLES: dict[str, Callable[[], story.Story]] = {
    "chasing": chasing,
    "three-words": three_words,
    "soft-dictionary": soft_dictionary,
    "mask": masked,
    "positions": positions,
}


def _attention(
    *,
    q: Sequence[Sequence[float]] | np.ndarray,  # (query, size)
    k: Sequence[Sequence[float]] | np.ndarray,
    v: np.ndarray,
    queries: str,
    keys: str,
    name: str,
    scale: float | None = None,
    mask: Mask | None = None,
) -> story.Attention:
    """One attention head."""
    query, key, value = (torch.tensor(np.asarray(each, dtype=np.float32))[None, None] for each in (q, k, v))
    rule = Mask() if mask is None else mask
    summed, weights = attend_with_weights(query, key, value, mask=rule, scale=scale)
    queries_count, keys_count = weights.shape[2:]
    allowed = rule.tensor(queries_count, keys_count, torch.device("cpu"))
    return story.Attention(
        name=name,
        stack="encoder" if mask is None else "decoder",
        layer=0,
        kind="self" if queries == keys else "cross",
        queries=queries,
        keys=keys,
        causal=rule.causal,
        scale=score_scale(key.shape[-1], scale),
        heads=1,
        kv_heads=1,
        weights=weights[0].numpy(),
        mask=np.ones(weights.shape[2:], dtype=bool) if allowed is None else allowed.numpy(),
        q=query[0].numpy(),
        k=key[0].numpy(),
        v=value[0].numpy(),
        z=summed[0].numpy(),
    )


def _story(
    title: str,
    sequences: dict[str, tuple[str, list[str]]],
    attention: list[story.Attention],
    sections: list[story.Section],
    embedding: list[story.EmbeddingView] | None = None,
) -> story.Story:
    every = [word.lower() for _, words in sequences.values() for word in words]
    ids = {word: number for number, word in enumerate(dict.fromkeys(every))}
    return story.Story(
        title=title,
        model=story.Model("worked example", "by hand", "encoder"),
        sequences={
            name: story.Sequence(
                label, [story.Token(" " * bool(n) + word, ids[word.lower()]) for n, word in enumerate(words)]
            )
            for name, (label, words) in sequences.items()
        },
        attention=attention,
        embedding=embedding or [],
        example=sections,
    )


def _verdict(term: float) -> str:
    size = "strong " if abs(term) >= 5 else "minor " if abs(term) < 1 else ""
    return f"({size}{'match' if term > 0 else 'mismatch'})"


def _signed(text: str) -> str:
    """With a typographic minus."""
    return text.replace("-", "−")


def _start(vector: np.ndarray) -> str:
    return _signed("[" + ", ".join(f"{number:.2f}" for number in vector[:3]) + ", …]")
