"""Selects the layers whose data fit on one page: the attention weights of every layer when they fit, and queries, keys
and values of as many layers as still do, spread from the first to the last."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headway.errors import InputError
from headway.explain.model_map import AttentionInfo
from headway.explain.token_text import HOW_TO_SHORTEN

PAGE = 4_800_000  # bytes
FRAME = 250_000  # bytes of the page itself, the model's description and the generated steps
CANDIDATE = 50  # bytes of a candidate: its text, id and logit
MAX_TOKENS = 512  # however small the model
PATTERN_POSITIONS = 64  # of a sinusoidal pattern, which is drawn for more positions than the text has
FLOAT32, UINT16 = 4 * 4 / 3, 2 * 4 / 3  # bytes of one number in base64


@dataclass(frozen=True)
class Kept:
    """What the page includes."""

    weights: frozenset[int]  # layers
    vectors: frozenset[int]  # layers with q, k, v and z
    embedding: bool
    quantized: bool  # weights as uint16
    note: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class StorySizes:
    """The bytes that the parts of a story take."""

    attentions: Sequence[AttentionInfo]
    lengths: Mapping[str, int]
    widths: Mapping[str, int]  # of the embedding of each sequence

    def weights(self, layers: Iterable[int], *, quantized: bool) -> float:
        return sum(
            queries * keys * (each.module.heads * (UINT16 if quantized else FLOAT32) + UINT16)
            for each, queries, keys in self._lengths(set(layers))
        )

    def vectors(self, layer: int) -> float:
        total = 0.0
        for each, queries, keys in self._lengths({layer}):
            heads, kv_heads, size = each.module.heads, each.module.kv_heads, each.module.config.head_size
            bias = heads * queries * keys if each.biased else 0
            total += FLOAT32 * (2 * heads * queries * size + 2 * kv_heads * keys * size + bias)
        return total

    def embedding(self) -> float:
        return sum(
            FLOAT32 * (3 * self.lengths[name] + PATTERN_POSITIONS) * width for name, width in self.widths.items()
        )

    def candidates(self) -> float:
        """Three candidates per layer and token for the logit lens, ten per token for the output."""
        layers = 2 + max((each.layer for each in self.attentions), default=-1)
        return CANDIDATE * max(self.lengths.values()) * (3 * layers + 10)

    def _lengths(self, layers: set[int]) -> list[tuple[AttentionInfo, int, int]]:
        return [
            (each, self.lengths[each.stack.sequence], self.lengths[each.keys])
            for each in self.attentions
            if each.layer in layers
        ]


def select_layers(
    sizes: StorySizes, requested: Sequence[int] | None, *, page: int = PAGE, most: int = MAX_TOKENS
) -> Kept:
    """Requested layers are kept in full; raises when they do not fit, or a sequence has more than `most` tokens."""
    budget = page - FRAME - sizes.candidates()
    count = 1 + max((each.layer for each in sizes.attentions), default=-1)
    requested = _checked(requested, count)
    order = [*requested, *(layer for layer in _spread(count) if layer not in requested)]
    first = requested or order[:1]
    _check_length(sizes, order[:1], page, limit=most)
    full = sum(map(sizes.vectors, first))
    quantized = sizes.weights(order, quantized=False) + full + sizes.embedding() > budget
    left = budget - sizes.weights(first, quantized=quantized)
    if requested and full > left:
        raise InputError(f"{_listed(requested)} of this input do not fit on one page; request fewer, or less text")
    vectors = set(first) if full <= left else set()
    left -= full if vectors else 0
    embedding = sizes.embedding() <= left
    left -= sizes.embedding() if embedding else 0
    weights = set(first)
    for layer in order:
        if layer not in weights and (cost := sizes.weights([layer], quantized=quantized)) <= left:
            weights.add(layer)
            left -= cost
    for layer in order if not requested else ():
        if layer in weights - vectors and (cost := sizes.vectors(layer)) <= left:
            vectors.add(layer)
            left -= cost
    note = _note(count, weights, vectors, embedding=embedding, quantized=quantized)
    return Kept(frozenset(weights), frozenset(vectors), embedding, quantized, note)


def _checked(layers: Sequence[int] | None, count: int) -> list[int]:
    wrong = [layer for layer in layers or () if not 0 <= layer < count]
    if wrong:
        raise InputError(f"there is no layer {wrong[0]}: this model's layers are 0 to {count - 1}")
    return list(dict.fromkeys(layers or ()))


def _spread(count: int) -> list[int]:
    """First, last, middle, quarters, …: any prefix of this list is spread over all layers."""
    order = [0, count - 1] if count else []
    step = float(max(count - 1, 1))
    while len(set(order)) < count:
        step /= 2
        order += [round(step * n) for n in range(1, int(count / step) + 1) if round(step * n) < count]
    return list(dict.fromkeys(order))


def _check_length(sizes: StorySizes, layer: Sequence[int], page: int, *, limit: int) -> None:
    """Raises when the quantized weights of one layer do not fit; the message has the longest length that does."""

    def size(most: int) -> float:
        short = replace(sizes, lengths={name: min(length, most) for name, length in sizes.lengths.items()}, widths={})
        return FRAME + short.candidates() + short.weights(layer, quantized=True)

    longest = max(sizes.lengths.values())
    most = min(longest, limit)
    while most > 1 and size(most) > page:
        most -= 1
    if most < longest:
        raise InputError(
            f"{longest:,} tokens are too many for one page, which holds {most} with this model; {HOW_TO_SHORTEN}"
        )


def _note(count: int, weights: set[int], vectors: set[int], *, embedding: bool, quantized: bool) -> list[str]:
    out = []
    if len(vectors) < count:
        kept = f"kept of {_listed(vectors)} of {count}; choose others with --layers" if vectors else "left out"
        out.append(f"Queries, keys and values are {kept}.")
    if len(weights) < count:
        out.append(f"Attention weights are kept of {_listed(weights)} of {count}.")
    if quantized:
        out.append("Attention weights are rounded to five digits, to save space.")
    if not embedding:
        out.append("The embeddings' numbers are left out, to save space.")
    return out


def _listed(layers: Collection[int]) -> str:
    return ("layer " if len(set(layers)) == 1 else "layers ") + ", ".join(map(str, sorted(layers)))
