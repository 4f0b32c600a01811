"""The story of one input: everything that a page shows, as plain data.

`collect` tells it of our models; one of any other model can be built by hand, from arrays and strings. On the wire an
array is {"shape", "data"}: its little-endian float32 numbers in base64, which are exactly the model's.
Masks, and weights too many for float32, go as {"shape", "data", "type": "fraction"}: little-endian 16-bit whole numbers
n that stand for n / 65535."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

import numpy as np

Kind = Literal["decoder", "encoder", "encoder-decoder", "recurrent", "vision"]
WHOLE = 65535
PositionKind = Literal["learned", "sinusoidal", "rotary", "relative", "alibi", "none"]


@dataclass(frozen=True)
class Model:
    name: str
    family: str
    kind: Kind
    facts: list[tuple[str, str]] = field(default_factory=list)  # label, value: layers, heads, width, parameters …


@dataclass(frozen=True)
class Token:
    text: str  # the exact piece of the text; a special token's own name
    id: int
    special: bool = False  # put there by the tokenizer or the model, and no part of the text


@dataclass(frozen=True)
class Picture:
    """An image whose patches are the tokens, from token `first` on, row by row."""

    png: str  # base64
    rows: int
    columns: int
    first: int = 1


@dataclass(frozen=True)
class Sequence:
    label: str
    tokens: list[Token]
    picture: Picture | None = None
    text: str | None = None  # what the tokens were made from; else they are it, one after the other


@dataclass(frozen=True)
class Position:
    kind: PositionKind
    values: np.ndarray | None = None  # (token, width): what is added to the embedding
    angles: np.ndarray | None = None  # (token, size/2): how far rotary turns each pair, in radians
    pattern: np.ndarray | None = None  # (place, width): sinusoids of the first places, however short the text


@dataclass(frozen=True)
class Embedding:
    sequence: str
    token: np.ndarray  # (token, width), as it enters the sum: scaled, where the model scales it
    position: Position
    result: np.ndarray  # (token, width), after position, segment and norm
    also: list[Literal["segment", "norm"]] = field(default_factory=list)  # what else was done to the sum


@dataclass(frozen=True)
class Attention:
    """weights = softmax(q·k · scale + bias, where mask is 1); head h reads key and value head h · kv_heads // heads."""

    name: str  # the module's path, e.g. decoder.stack.blocks.0.attention
    stack: str
    layer: int
    kind: Literal["self", "cross", "additive"]
    queries: str  # names of sequences
    keys: str
    causal: bool
    scale: float
    heads: int
    kv_heads: int
    weights: np.ndarray  # (head, query, key); of uint16 when they are fractions, see `fractions`
    mask: np.ndarray  # (query, key): True where the query may look
    q: np.ndarray | None = None  # (head, query, size), after rotary and norm: what is multiplied
    k: np.ndarray | None = None  # (kv_head, key, size)
    v: np.ndarray | None = None  # (kv_head, key, size)
    z: np.ndarray | None = None  # (head, query, size): weights · v
    bias: np.ndarray | None = None  # (head, query, key), added to the scaled scores (ALiBi, T5)


@dataclass(frozen=True)
class Part:
    """One step of the residual stream: how much its branch adds, and how large the stream is after it."""

    stack: str
    layer: int  # -1: the embedding
    part: Literal["embedding", "attention", "cross", "feedforward"]
    sequence: str
    stream: list[float]  # the norm of each token's vector after this part
    branch: list[float] | None = None  # the norm of what the part adds
    cosine: list[float] | None = None  # between the stream before and after: 1 is unturned


@dataclass(frozen=True)
class Candidate:
    text: str
    id: int
    logit: float


@dataclass(frozen=True)
class Row:
    """One choice: probability of a candidate = exp(logit - logsumexp)."""

    label: str  # which token or position this choice is for
    candidates: list[Candidate]  # best first; all of them when few
    logsumexp: float  # over all `count` of them
    count: int
    at: int | None = None  # index of the token the choice is made at
    chosen: int | None = None  # id


@dataclass(frozen=True)
class Output:
    kind: Literal["next", "classes", "tags", "span", "fill", "vector"]
    rows: list[Row]
    answer: str
    vector: np.ndarray | None = None  # (width,): what a bare encoder makes of the text
    given: bool = False  # the answer is one that was put to the model, not its own


@dataclass(frozen=True)
class Guess:
    text: str
    probability: float


@dataclass(frozen=True)
class LensLayer:
    """What the model would say if it stopped after this layer: the best few for each token."""

    layer: int
    rows: list[list[Guess]]


@dataclass(frozen=True)
class HeadScore:
    name: str
    layer: int
    head: int
    change: float  # how much of the chosen logit is lost when this head is silenced; below 0 it spoke against it
    gradient: float | None = None  # the same, estimated


@dataclass(frozen=True)
class Attribution:
    target: str
    logit: float
    parts: list[tuple[str, float]]  # sum to the logit


@dataclass(frozen=True)
class Step:
    text: str
    id: int
    candidates: list[Candidate]
    logsumexp: float
    attention: np.ndarray | None = None  # (head, key): what the last layer looked at, taking this step


@dataclass(frozen=True)
class Generation:
    steps: list[Step]
    text: str = ""  # what they say together


@dataclass(frozen=True)
class Table:
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Section:
    """A worked example's own words, beside the numbers."""

    title: str
    paragraphs: list[str]
    table: Table | None = None


@dataclass(frozen=True)
class Story:
    title: str
    model: Model
    sequences: dict[str, Sequence]  # by name: text, or source and target
    task: str | None = None
    note: list[str] = field(default_factory=list)
    embedding: list[Embedding] = field(default_factory=list)
    attention: list[Attention] = field(default_factory=list)
    stream: list[Part] = field(default_factory=list)
    output: Output | None = None
    lens: list[LensLayer] | None = None
    heads: list[HeadScore] | None = None  # most important first
    attribution: Attribution | None = None
    generation: Generation | None = None
    example: list[Section] | None = None

    def to_json(self) -> str:
        return json.dumps(_plain(self), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def fractions(values: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 1 in half the room, each within 1/131070 of itself."""
    return np.rint(np.asarray(values, dtype=np.float64) * WHOLE).astype(np.uint16)


def numbers(values: np.ndarray) -> np.ndarray:
    """The float32 numbers an array stands for."""
    return values.astype(np.float32) / np.float32(WHOLE) if values.dtype == np.uint16 else values.astype(np.float32)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _wire(value)
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _wire(values: np.ndarray) -> dict[str, Any]:
    whole = fractions(values) if values.dtype == np.bool_ else values
    small = whole.dtype == np.uint16
    raw = np.ascontiguousarray(whole, dtype="<u2" if small else "<f4").tobytes()
    plain = {"shape": list(values.shape), "data": base64.b64encode(raw).decode("ascii")}
    return plain | ({"type": "fraction"} if small else {})
