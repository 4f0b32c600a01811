"""`info`: facts about a model folder, without running the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from torch import nn

from headway.checkpoints import resolve
from headway.checkpoints.saved import model_files
from headway.engine.weights import weight_bytes, weight_tensors, weights_of
from headway.errors import CheckpointError
from headway.files import sha256
from headway.loading import load
from headway.models.config import StackConfig
from headway.models.ensemble import members_of
from headway.preprocess.processor import Processor


def model_info(name: str | Path) -> dict[str, Any]:
    folder = resolve(name)
    bundle = load(folder)
    model = bundle.model
    total = sum(p.numel() for p in weight_tensors(model))
    others = {path.name for path in folder.iterdir() if path.suffix in (".safetensors", ".json")}
    files = [folder / name for name in sorted({*model_files(folder), *others})]
    return {
        "family": bundle.family,
        "shape": model.shape,
        "stacks": {part.name: _stack(part.model.config.stack) for part in model.parts},
        "head": model.head_kind,
        "vocabulary": None if model.vocab_size is None else f"{model.vocab_size:,} tokens",
        "context": model.max_context or model.max_length,
        "parameters": total,
        "parts": dict(_parts(model)),
        "dtype": str(weights_of(model)).removeprefix("torch."),
        "memory_bytes": weight_bytes(model),
        "tokenizer": _tokenizer(bundle.processor),
        "members": dict(cast(Any, bundle.model).weights) if members_of(bundle.model) else {},
        "pictures": None if bundle.processor.image is None else bundle.processor.image.describe(),
        "sound": None if bundle.processor.audio is None else bundle.processor.audio.describe(),
        "generation": bundle.generation.describe(),
        "task": None if bundle.task is None else bundle.task.name,
        "about": None if bundle.task is None else bundle.task.about(),
        "files": {path.name: _file_facts(path) for path in files},
    }


def info_lines(facts: dict[str, Any]) -> list[str]:
    out = [f"family      {facts['family']} ({facts['shape']})"]
    if facts["task"]:
        out.append(f"task        {facts['task']}" + (f": {facts['about']}" if facts["about"] else ""))
    for name, stack in facts["stacks"].items():
        out.append(f"{name:<11} {stack}")
    out.append(f"head        {facts['head'] or 'none: outputs hidden states'}")
    if facts["members"]:
        weights = ", ".join(f"{name} {weight:.2f}" for name, weight in facts["members"].items())
        out.append(f"ensemble    the logits are a weighted sum: {weights}")
    out.append(f"vocabulary  {facts['vocabulary'] or 'none'}; tokenizer {facts['tokenizer'] or 'none'}")
    if facts["pictures"]:
        out.append(f"pictures    {facts['pictures']}")
    if facts["sound"]:
        out.append(f"sound       {facts['sound']}")
    if facts["generation"]:
        out.append(f"generation  {facts['generation']}")
    out.append(f"context     {facts['context'] or 'no limit'}")
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


def _file_facts(path: Path) -> dict[str, Any]:
    try:
        return {"bytes": path.stat().st_size, "sha256": sha256(path, inside=path.parent)}
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error


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


def _parts(model: nn.Module) -> Iterator[tuple[str, int]]:
    """Parameters by part; shared ones are counted with the first part."""
    seen: set[int] = set()
    sides = [("", model)] if not hasattr(model, "encoder") else [(n + ".", m) for n, m in model.named_children()]
    for prefix, side in sides:
        for name, part in side.named_children():
            fresh = [p for p in weight_tensors(part) if id(p) not in seen]
            seen.update(id(p) for p in fresh)
            if fresh:
                yield prefix + name, sum(p.numel() for p in fresh)
