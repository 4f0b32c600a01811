"""Stories made by hand, from random arrays that are consistent with each other: what a page can be drawn from without
a model."""

import base64

import numpy as np

from headway.explain.story import (
    Attention,
    AttributionView,
    Candidate,
    EmbeddingView,
    GenerationView,
    Guess,
    HeadScore,
    LensLayerView,
    Model,
    OutputView,
    PartView,
    PictureView,
    Position,
    RowView,
    Section,
    Sequence,
    Step,
    Story,
    TableView,
    Token,
)

WORDS = ("Once", " upon", " a", " time", ",", " there", " was", " a", " little", " girl", " who", " ran", ".", " She")
HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=alert(1)>",
    "<!--",
    "\u05e9\u05dc\u05d5\u05dd",  # right to left
    "\u202eevil",  # turns the direction of what follows
    "\U0001f469\u200d\U0001f469\u200d\U0001f467",  # one emoji of three
    "${1+1}",
    "&amp;",
    "\x00",
    "\n",
    "\ud800",  # half a character
    "]]>",
    "'\"`",
)


def sequence(words: tuple[str, ...], count: int, *, label: str = "text") -> Sequence:
    return Sequence(label, [Token(words[i % len(words)], 100 + i) for i in range(count)])


def attention(
    rng: np.random.Generator,
    layer: int,
    *,
    queries: tuple[str, int],
    keys: tuple[str, int],
    heads: int = 4,
    kv_heads: int = 2,
    size: int = 16,
    stack: str = "decoder",
    kind: str = "self",
    bias: bool = False,
    kept: bool = True,
) -> Attention:
    (query_name, nq), (key_name, nk) = queries, keys
    q = 2 * rng.standard_normal((heads, nq, size), dtype=np.float32)
    k, v = (rng.standard_normal((kv_heads, nk, size), dtype=np.float32) for _ in range(2))
    shared = np.repeat(np.arange(kv_heads), heads // kv_heads)
    causal = kind == "self" and stack == "decoder"
    mask = np.tril(np.ones((nq, nk), np.float32)) if causal else np.ones((nq, nk), np.float32)
    added = rng.standard_normal((heads, nq, nk), dtype=np.float32) if bias else None
    scores = q @ k[shared].transpose(0, 2, 1) / np.sqrt(size) + (0 if added is None else added)
    scores = np.where(mask[None] > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = (weights / weights.sum(-1, keepdims=True)).astype(np.float32)
    return Attention(
        f"{stack}.blocks.{layer}.{kind}",
        stack,
        layer,
        kind,
        query_name,
        key_name,
        causal,
        size**-0.5,
        heads,
        kv_heads,
        weights,
        mask,
        *((q, k, v, weights @ v[shared]) if kept else (None,) * 4),
        added,
    )


def candidates(rng: np.random.Generator, words: tuple[str, ...], count: int) -> list[Candidate]:
    logits = np.sort(5 * rng.standard_normal(count))[::-1]
    return [Candidate(words[i % len(words)], i, float(logit)) for i, logit in enumerate(logits)]


def choice(
    rng: np.random.Generator, words: tuple[str, ...], *, label: str = "next token", count: int = 20, at: int = 0
) -> RowView:
    few = candidates(rng, words, count)
    return RowView(label, few, float(np.log(np.exp([each.logit for each in few]).sum())), count, at, few[0].id)


def embedding(
    rng: np.random.Generator, name: str, count: int, *, kind: str = "rotary", width: int = 48
) -> EmbeddingView:
    token = rng.standard_normal((count, width), dtype=np.float32)
    place = np.arange(count)[:, None] / 10000 ** (np.arange(width // 2)[None] * 2 / width)
    waves = np.concatenate([np.sin(place), np.cos(place)], 1).astype(np.float32)
    added = waves if kind in ("sinusoidal", "learned") else None
    angles = place[:, :8].astype(np.float32) if kind == "rotary" else None
    return EmbeddingView(name, token, Position(kind, added, angles), token if added is None else token + added)


def decoder_story(
    *, layers: int = 3, heads: int = 4, count: int = 14, words: tuple[str, ...] = WORDS, size: int = 16, keep: int = 99
) -> Story:
    """Everything a page can show of a decoder; layers from `keep` on have weights only."""
    rng = np.random.default_rng(0)
    text = ("text", count)
    stack = [
        attention(rng, i, queries=text, keys=text, heads=heads, kv_heads=heads // 2, size=size, kept=i < keep)
        for i in range(layers)
    ]
    parts = [PartView("decoder", -1, "embedding", "text", rng.uniform(1, 2, count).tolist())]
    for i in range(layers):
        for part in ("attention", "feedforward"):
            norms = [rng.uniform(1, 9, count).tolist() for _ in range(3)]
            parts.append(PartView("decoder", i, part, "text", norms[0], norms[1], [value / 9 for value in norms[2]]))
    best = [[Guess(words[i % len(words)], 0.3 - 0.1 * k) for k in range(3)] for i in range(count)]
    looks = [np.full((heads, count + i), 1 / (count + i), np.float32) for i in range(5)]
    rows = [choice(rng, words) for _ in looks]
    steps = [
        Step(row.candidates[0].text, row.candidates[0].id, row.candidates, row.logsumexp, look)
        for row, look in zip(rows, looks, strict=True)
    ]
    logits = rng.standard_normal(5).round(3).tolist()
    return Story(
        title="Once upon a time",
        model=Model("stories-synthetic", "llama", "decoder", [("layers", str(layers)), ("heads", str(heads))]),
        sequences={"text": sequence(words, count)},
        task="generate",
        note=["a story made by hand"],
        embedding=[embedding(rng, "text", count)],
        attention=stack,
        stream=parts,
        output=OutputView("next", [choice(rng, words, label="after the last token")], words[0]),
        lens=[LensLayerView(i, best) for i in range(layers)],
        heads=[
            HeadScore(stack[min(1, layers - 1)].name, min(1, layers - 1), 1, -0.7, -0.5),
            HeadScore(stack[0].name, 0, 0, 0.2, None),
        ],
        attribution=AttributionView(words[0], sum(logits), [(f"part {i}", value) for i, value in enumerate(logits)]),
        generation=GenerationView(steps),
        example=[Section("A worked example", ["In words."], TableView(["a", "b"], [["1", "2"]]))],
    )


def translator_story() -> Story:
    """An encoder-decoder: three attentions, learned and sinusoidal positions, a relative bias."""
    rng = np.random.default_rng(1)
    source, target = ("source", 6), ("target", 4)
    stack = [attention(rng, i, queries=source, keys=source, stack="encoder", bias=True) for i in range(2)]
    for i in range(2):
        stack.append(attention(rng, i, queries=target, keys=target))
        stack.append(attention(rng, i, queries=target, keys=source, kind="cross"))
    sequences = {"source": sequence(WORDS, 6, label="read"), "target": sequence(WORDS[6:], 4, label="written")}
    places = [embedding(rng, "source", 6, kind="sinusoidal"), embedding(rng, "target", 4, kind="learned")]
    rows = [choice(rng, WORDS, label=f"after {i}", at=i) for i in range(4)]
    return Story(
        title="A date",
        model=Model("dates", "bart", "encoder-decoder"),
        sequences=sequences,
        task="translate",
        embedding=places,
        attention=stack,
        output=OutputView("next", rows, "2024-01-01"),
    )


def encoder_story(kind: str) -> Story:
    """An encoder's answer of any kind; the attention is additive or without vectors, the rest is missing."""
    rng = np.random.default_rng(2)
    text = ("text", 5)
    rows = [choice(rng, ("yes", "no", "perhaps"), label=WORDS[i], count=3) for i in range(5 if kind == "tags" else 2)]
    output = OutputView(
        kind,
        [] if kind == "vector" else rows,
        "yes",
        rng.standard_normal(24).astype(np.float32) if kind == "vector" else None,
    )
    bare = [
        attention(
            rng, 0, queries=text, keys=text, stack="encoder", kind="additive" if kind == "tags" else "self", kept=False
        )
    ]
    return Story(
        title=kind,
        model=Model("encoder", "bert", "encoder"),
        sequences={"text": sequence(WORDS, 5)},
        task=kind,
        attention=bare,
        output=output,
    )


def picture_story() -> Story:
    """A picture of 2 × 3 patches after one special token."""
    rng = np.random.default_rng(3)
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    assert base64.b64decode(pixel).startswith(b"\x89PNG")
    patches = Sequence(
        "patches", [Token("[CLS]", 0), *(Token(f"patch {i}", i) for i in range(6))], PictureView(pixel, 2, 3)
    )
    return Story(
        title="A picture",
        model=Model("eye", "vit", "vision"),
        sequences={"text": patches},
        attention=[attention(rng, 0, queries=("text", 7), keys=("text", 7), stack="encoder")],
        output=OutputView("classes", [choice(rng, ("cat", "dog"), count=2)], "cat"),
    )


def seed_story() -> Story:
    """`chasing` looks at `cat` and `mouse`: the notes' 26.05 and −4.5."""
    q = np.array([[[-2.0, 3.0, 2.5, -1.0, 1.5, -2.0]]], np.float32)
    k = np.array([[[-1.8, 2.8, 3.0, 0.2, 2.5, -1.5], [-1.5, -2.0, 2.8, -0.5, -2.0, 3.0]]], np.float32)
    scores = (q @ k.transpose(0, 2, 1)) / np.sqrt(6)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    asked, looked = (
        Sequence("the word that looks", [Token("chasing", 0)]),
        Sequence("looked at", [Token("cat", 1), Token("mouse", 2)]),
    )
    return Story(
        title="chasing",
        model=Model("by hand", "none", "encoder"),
        sequences={"source": looked, "target": asked},
        attention=[
            Attention(
                "by hand",
                "example",
                0,
                "cross",
                "target",
                "source",
                False,
                6**-0.5,
                1,
                1,
                weights.astype(np.float32),
                np.ones((1, 2), np.float32),
                q,
                k,
                k,
                weights.astype(np.float32) @ k,
            )
        ],
    )
