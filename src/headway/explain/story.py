"""The data of one explanation: everything that a page shows.

`collect` builds it for Headway's models; for any other model it can be built from arrays and strings. In JSON an array
is {"shape", "data"}: little-endian float32 in base64, bit for bit the model's. Masks, and weights that do not fit as
float32, are {"shape", "data", "type": "fraction"}: little-endian uint16 n for the value n / 65535."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

import numpy as np

Kind = Literal[
    "decoder", "encoder", "encoder-decoder", "vision", "flow", "detector", "bilm", "span-scorer",
    "recurrent", "recurrent-encoder", "recurrent-decoder",
]  # fmt: skip
UINT16_MAX = 65535
AttentionKind = Literal["self", "cross", "additive", "multiplicative"]
PositionKind = Literal["learned", "sinusoidal", "rotary", "relative", "alibi", "none"]


@dataclass(frozen=True)
class Model:
    name: str
    family: str
    kind: Kind
    facts: list[tuple[str, str]] = field(default_factory=list)  # label, value: layers, heads, width, parameters …


@dataclass(frozen=True)
class Token:
    text: str  # the exact substring of the text; a special token's name
    id: int
    special: bool = False  # added by the tokenizer or the model, not part of the text


@dataclass(frozen=True)
class PictureView:
    """An image whose patches are the tokens, from token `first` on, row by row; or a spectrogram, whose columns are."""

    png: str  # base64
    rows: int
    columns: int
    first: int = 1
    kind: Literal["image", "sound"] = "image"


@dataclass(frozen=True)
class Sequence:
    label: str
    tokens: list[Token]
    picture: PictureView | None = None
    text: str | None = None  # the tokenized text; None: the tokens' texts joined


@dataclass(frozen=True)
class Position:
    kind: PositionKind
    values: np.ndarray | None = None  # (token, width): what is added to the embedding
    angles: np.ndarray | None = None  # (token, size/2): rotary angle of each pair, in radians
    pattern: np.ndarray | None = None  # (position, width): sinusoids, also past the end of the text


@dataclass(frozen=True)
class EmbeddingView:
    sequence: str
    token: np.ndarray  # (token, width), scaled if the model scales it
    position: Position
    result: np.ndarray  # (token, width), after position, segment and norm
    also: list[Literal["segment", "norm"]] = field(default_factory=list)  # also applied to the sum


@dataclass(frozen=True)
class Attention:
    """weights = softmax(q·k · scale + bias, where mask is 1); head h uses key/value head h · kv_heads // heads."""

    name: str  # the module's path, e.g. decoder.stack.blocks.0.attention
    stack: str
    layer: int
    kind: AttentionKind
    queries: str  # names of sequences
    keys: str
    causal: bool
    scale: float
    heads: int
    kv_heads: int
    weights: np.ndarray  # (head, query, key); uint16 when quantized, see `quantize`
    mask: np.ndarray  # (query, key): True where the query may attend
    q: np.ndarray | None = None  # (head, query, size), after rotary and norm, as in the dot product
    k: np.ndarray | None = None  # (kv_head, key, size)
    v: np.ndarray | None = None  # (kv_head, key, size)
    z: np.ndarray | None = None  # (head, query, size): weights · v
    bias: np.ndarray | None = None  # (head, query, key), added to the scaled scores (ALiBi, T5)


@dataclass(frozen=True)
class PartView:
    """One sublayer of the residual stream: the norm of its branch, and of the stream after it."""

    stack: str
    layer: int  # -1: the embedding
    part: Literal["embedding", "attention", "cross", "feedforward"]
    sequence: str
    stream: list[float]  # norm of each token's vector after this part
    branch: list[float] | None = None  # norm of what the part adds
    cosine: list[float] | None = None  # between the stream before and after


@dataclass(frozen=True)
class Candidate:
    text: str
    id: int
    logit: float


@dataclass(frozen=True)
class RowView:
    """The candidates at one position: probability = exp(logit - logsumexp)."""

    label: str  # the token or position
    candidates: list[Candidate]  # best first; all when few
    logsumexp: float  # over all `count` of them
    count: int
    at: int | None = None  # index of the token
    chosen: int | None = None  # id


@dataclass(frozen=True)
class OutputView:
    kind: Literal["next", "classes", "labels", "number", "tags", "span", "fill", "vector", "picture", "objects"]
    rows: list[RowView]
    answer: str
    vector: np.ndarray | None = None  # (width,): the sentence embedding
    given: bool = False  # the answer was given to the model (teacher forcing), not generated


@dataclass(frozen=True)
class Guess:
    text: str
    probability: float


@dataclass(frozen=True)
class LensLayerView:
    """The logit lens after one layer: the best candidates of each token."""

    layer: int
    rows: list[list[Guess]]


@dataclass(frozen=True)
class HeadScore:
    name: str
    layer: int
    head: int
    change: float  # logit minus logit with this head ablated
    gradient: float | None = None  # first-order estimate of `change`


@dataclass(frozen=True)
class AttributionView:
    target: str
    logit: float
    parts: list[tuple[str, float]]  # sum to the logit
    method: Literal["direct", "integrated"] = "direct"  # parts of the model, or tokens of the input


@dataclass(frozen=True)
class Step:
    text: str
    id: int
    candidates: list[Candidate]
    logsumexp: float
    attention: np.ndarray | None = None  # (head, key): weights of the last layer at this step


@dataclass(frozen=True)
class GenerationView:
    steps: list[Step]
    text: str = ""  # of all steps


@dataclass(frozen=True)
class TableView:
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Section:
    """The text of a worked example."""

    title: str
    paragraphs: list[str]
    table: TableView | None = None


@dataclass(frozen=True)
class Story:
    title: str
    model: Model
    sequences: dict[str, Sequence]  # by name: text, or source and target
    task: str | None = None
    note: list[str] = field(default_factory=list)
    embedding: list[EmbeddingView] = field(default_factory=list)
    attention: list[Attention] = field(default_factory=list)
    stream: list[PartView] = field(default_factory=list)
    output: OutputView | None = None
    lens: list[LensLayerView] | None = None
    heads: list[HeadScore] | None = None  # most important first
    attribution: AttributionView | None = None
    generation: GenerationView | None = None
    example: list[Section] | None = None

    def to_json(self) -> str:
        return json.dumps(_plain(self), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def quantize(values: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 1 as uint16, with an error of at most 1/131070."""
    return np.rint(np.asarray(values, dtype=np.float64) * UINT16_MAX).astype(np.uint16)


def dequantize(values: np.ndarray) -> np.ndarray:
    """The array as float32, whether quantized or not."""
    return (
        values.astype(np.float32) / np.float32(UINT16_MAX) if values.dtype == np.uint16 else values.astype(np.float32)
    )


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _encoded(value)
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _encoded(values: np.ndarray) -> dict[str, Any]:
    stored = quantize(values) if values.dtype == np.bool_ else values
    small = stored.dtype == np.uint16
    raw = np.ascontiguousarray(stored, dtype="<u2" if small else "<f4").tobytes()
    plain = {"shape": list(values.shape), "data": base64.b64encode(raw).decode("ascii")}
    return plain | ({"type": "fraction"} if small else {})
