"""`info`: what a model folder holds, told without running it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn

from headway.bundle import load
from headway.checkpoints import resolve
from headway.engine.weights import weight_bytes, weight_tensors, weights_of
from headway.files import sha256
from headway.models.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig, StackConfig
from headway.preprocess.processor import Processor


def about(name: str | Path) -> dict[str, Any]:
    folder = resolve(name)
    bundle = load(folder)
    model, config = bundle.model, bundle.config
    total = sum(p.numel() for p in weight_tensors(model))
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.suffix in (".safetensors", ".json")]
    return {
        "family": bundle.family,
        "shape": config.shape,
        "stacks": dict(_stacks(config)),
        "head": None if getattr(config, "head", None) is None else config.head.kind,  # type: ignore[union-attr]
        "vocabulary": _vocabulary(model),
        "context": _context(config),
        "parameters": total,
        "parts": dict(_parts(model)),
        "dtype": str(weights_of(model)).removeprefix("torch."),
        "memory_bytes": weight_bytes(model),
        "tokenizer": _tokenizer(bundle.processor),
        "pictures": None if bundle.processor.image is None else bundle.processor.image.describe(),
        "generation": bundle.generation.describe(),
        "task": None if bundle.task is None else bundle.task.name,
        "files": {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in files},
    }


def lines(facts: dict[str, Any]) -> list[str]:
    out = [f"family      {facts['family']} ({facts['shape']})"]
    if facts["task"]:
        out.append(f"task        {facts['task']}")
    for name, stack in facts["stacks"].items():
        out.append(f"{name:<11} {stack}")
    out.append(f"head        {facts['head'] or 'none: gives hidden states'}")
    out.append(f"vocabulary  {facts['vocabulary'] or 'none'}; tokenizer {facts['tokenizer'] or 'none'}")
    if facts["pictures"]:
        out.append(f"pictures    {facts['pictures']}")
    if facts["generation"]:
        out.append(f"generation  {facts['generation']}")
    out.append(f"context     {facts['context'] or 'no limit of its own'}")
    out.append(f"parameters  {facts['parameters']:,} in {facts['dtype']}, {facts['memory_bytes'] / 2**20:,.1f} MiB")
    for name, count in facts["parts"].items():
        out.append(f"            {name:<24} {count:>14,}  {count / max(facts['parameters'], 1):6.1%}")
    for name, file in facts["files"].items():
        out.append(f"file        {name}  {file['bytes']:,} bytes  sha256 {file['sha256'][:16]}…")
    return out


def _tokenizer(processor: Processor) -> str | None:
    if processor.tokenizer_error is not None:
        return f"not read: {processor.tokenizer_error}"
    return None if processor.tokenizer is None else f"{len(processor.tokenizer):,} tokens"


def _stacks(config: Any) -> Iterator[tuple[str, str]]:
    if isinstance(config, EncoderDecoderConfig):
        yield "encoder", _stack(config.encoder.stack)
        yield "decoder", _stack(config.decoder.stack)
    elif isinstance(config, EncoderConfig | DecoderConfig):
        yield config.shape, _stack(config.stack)


def _stack(config: StackConfig) -> str:
    block, attention = config.block, config.block.attention
    heads = f"{attention.heads} heads of {attention.head_size}"
    if attention.kv_heads not in (None, attention.heads):
        heads += f" ({attention.kv_heads} for keys and values)"
    gate = "gated " if block.feedforward.gated else ""
    return (
        f"{config.layers} layers, width {block.width}, {heads}, feed-forward {block.feedforward.width} "
        f"({gate}{block.feedforward.activation}), {block.norm_place}-norm ({block.norm.kind})"
    )


def _context(config: Any) -> int | None:
    if isinstance(config, EncoderDecoderConfig):
        return config.decoder.context
    if isinstance(config, DecoderConfig):
        return config.context
    positions = getattr(getattr(config, "embedding", None), "positions", None)
    return getattr(positions, "count", None) or None


def _vocabulary(model: nn.Module) -> str | None:
    tables = [m for name, m in model.named_modules() if isinstance(m, nn.Embedding) and name.endswith("tokens")]
    return f"{tables[0].num_embeddings:,} tokens" if tables else None


def _parts(model: nn.Module) -> Iterator[tuple[str, int]]:
    """Parameters by part; what two parts share is counted with the first."""
    seen: set[int] = set()
    sides = [("", model)] if not hasattr(model, "encoder") else [(n + ".", m) for n, m in model.named_children()]
    for prefix, side in sides:
        for name, part in side.named_children():
            fresh = [p for p in weight_tensors(part) if id(p) not in seen]
            seen.update(id(p) for p in fresh)
            if fresh:
                yield prefix + name, sum(p.numel() for p in fresh)
