"""How much of a model one page holds: every layer's weights when they fit, and queries, keys and values
of as many layers as still do, spread from the first to the last."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headway.errors import InputError
from headway.explain.model_map import Place
from headway.explain.token_text import ADVICE

PAGE = 4_800_000  # bytes
FRAME = 250_000  # of the page itself, of a model's facts, of the steps it goes on for
WORD = 50  # of a candidate: its text, its id, its score
LONGEST = 512  # tokens, whatever the room
PLACES = 64  # of a sinusoidal pattern, which is drawn further than the text
NUMBER, FRACTION = 4 * 4 / 3, 2 * 4 / 3  # bytes of one number in base64: a float32, a fraction


@dataclass(frozen=True)
class Kept:
    weights: frozenset[int]  # layers
    vectors: frozenset[int]  # layers with q, k, v and z
    embedding: bool
    rounded: bool  # weights as fractions
    note: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Needs:
    """What the parts of a story take, in bytes."""

    places: Sequence[Place]
    lengths: Mapping[str, int]
    widths: Mapping[str, int]  # of the embedding of each sequence

    def weights(self, layers: Iterable[int], *, rounded: bool) -> float:
        return sum(
            q * k * (p.module.heads * (FRACTION if rounded else NUMBER) + FRACTION)
            for p, q, k in self._sized(set(layers))
        )

    def vectors(self, layer: int) -> float:
        total = 0.0
        for place, queries, keys in self._sized({layer}):
            heads, few, size = place.module.heads, place.module.kv_heads, place.module.config.head_size
            bias = heads * queries * keys if place.biased else 0
            total += NUMBER * (2 * heads * queries * size + 2 * few * keys * size + bias)
        return total

    def embedding(self) -> float:
        return sum(NUMBER * (3 * self.lengths[name] + PLACES) * width for name, width in self.widths.items())

    def words(self) -> float:
        """What each layer would say, three guesses a token, and ten candidates a token at the end."""
        layers = 2 + max((place.layer for place in self.places), default=-1)
        return WORD * max(self.lengths.values()) * (3 * layers + 10)

    def _sized(self, layers: set[int]) -> list[tuple[Place, int, int]]:
        return [(p, self.lengths[p.side.sequence], self.lengths[p.keys]) for p in self.places if p.layer in layers]


def keep(needs: Needs, layers: Sequence[int] | None, *, page: int = PAGE) -> Kept:
    """`layers` are those asked for; they are kept in full, or refused."""
    room = page - FRAME - needs.words()
    count = 1 + max((place.layer for place in needs.places), default=-1)
    asked = _asked(layers, count)
    order = [*asked, *(layer for layer in _spread(count) if layer not in asked)]
    first = asked or order[:1]
    _fits_a_page(needs, order[:1], page)
    full = sum(map(needs.vectors, first))
    rounded = needs.weights(order, rounded=False) + full + needs.embedding() > room
    left = room - needs.weights(first, rounded=rounded)
    if asked and full > left:
        raise InputError(f"{_listed(asked)} of this input do not fit on one page in full; ask for fewer, or less text")
    vectors = set(first) if full <= left else set()
    left -= full if vectors else 0
    embedding = needs.embedding() <= left
    left -= needs.embedding() if embedding else 0
    weights = set(first)
    for layer in order:
        if layer not in weights and (cost := needs.weights([layer], rounded=rounded)) <= left:
            weights.add(layer)
            left -= cost
    for layer in order if not asked else ():
        if layer in weights - vectors and (cost := needs.vectors(layer)) <= left:
            vectors.add(layer)
            left -= cost
    note = _note(count, weights, vectors, embedding=embedding, rounded=rounded)
    return Kept(frozenset(weights), frozenset(vectors), embedding, rounded, note)


def _asked(layers: Sequence[int] | None, count: int) -> list[int]:
    wrong = [layer for layer in layers or () if not 0 <= layer < count]
    if wrong:
        raise InputError(f"there is no layer {wrong[0]}: this model's layers are 0 to {count - 1}")
    return list(dict.fromkeys(layers or ()))


def _spread(count: int) -> list[int]:
    """First, last, middle, quarters, …: any beginning of this list is spread over all of them."""
    order = [0, count - 1] if count else []
    step = float(max(count - 1, 1))
    while len(set(order)) < count:
        step /= 2
        order += [round(step * n) for n in range(1, int(count / step) + 1) if round(step * n) < count]
    return list(dict.fromkeys(order))


def _fits_a_page(needs: Needs, layer: Sequence[int], page: int) -> None:
    """At the very least the weights of one layer."""

    def size(most: int) -> float:
        cut = Needs(needs.places, {name: min(length, most) for name, length in needs.lengths.items()}, {})
        return FRAME + cut.words() + cut.weights(layer, rounded=True)

    longest = max(needs.lengths.values())
    most = min(longest, LONGEST)
    while most > 1 and size(most) > page:
        most -= 1
    if most < longest:
        raise InputError(f"{longest:,} tokens are too many for one page, which holds {most} of this model's; {ADVICE}")


def _note(count: int, weights: set[int], vectors: set[int], *, embedding: bool, rounded: bool) -> list[str]:
    out = []
    if len(vectors) < count:
        kept = f"kept of {_listed(vectors)} of {count}; choose others with --layers" if vectors else "left out"
        out.append(f"Queries, keys and values are {kept}.")
    if len(weights) < count:
        out.append(f"Attention weights are kept of {_listed(weights)} of {count}.")
    if rounded:
        out.append("Attention weights are rounded to five digits, to save room.")
    if not embedding:
        out.append("The embeddings' numbers are left out, to save room.")
    return out


def _listed(layers: Collection[int]) -> str:
    return ("layer " if len(set(layers)) == 1 else "layers ") + ", ".join(map(str, sorted(layers)))
