"""Tiny random models of the reference library, each with ours of the same weights, and inputs for both.

A case is one line: a reference class and its config.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import headway
from headway.bundle import Bundle
from headway.families import find
from headway.models.detector import Detector
from headway.models.encoder import Encoder
from headway.models.encoder_decoder import EncoderDecoder

BATCH, LENGTH, TARGET = 3, 11, 7  # odd, so that no two sizes agree by chance
CANVAS = 50, 71  # height and width of pictures of any size


@dataclass(frozen=True)
class Case:
    model: str  # the reference class
    config: dict[str, Any]
    note: str = ""
    mutate: str = "stack.blocks.0.attention_residual.norm"  # what the mutation check removes (below encoder/decoder)
    arguments: dict[str, Any] = field(default_factory=dict)  # of the reference class, beside its config
    raw_last: bool = False  # the reference's last hidden state is the one before the final norm
    not_defined: tuple[str, ...] = ()  # checks that do not hold for the architecture
    prepare: Callable[[Any], None] | None = None  # applied to the reference model before it is saved

    def __str__(self) -> str:
        return f"{self.model} {self.note}".strip()


@dataclass
class Pair:
    """The same random weights in both libraries."""

    case: Case
    reference: Any
    ours: Bundle
    folder: Path

    @property
    def model(self) -> nn.Module:
        return self.ours.model


def make_pair(case: Case, folder: Path) -> Pair:
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, case.model)
    config = kind.config_class(**case.config)
    config._attn_implementation = "eager"
    reference = kind(config, **case.arguments).eval()
    if case.prepare is not None:
        case.prepare(reference)
    learned = [parameter for parameter in reference.parameters() if parameter.requires_grad]
    saved = [buffer for name, buffer in reference.named_buffers() if name in reference.state_dict()]
    with torch.no_grad():
        for tensor in learned + [buffer for buffer in saved if buffer.is_floating_point()]:
            tensor.add_(torch.randn_like(tensor) * 0.05)  # no parameter stays at zero or one
    reference.save_pretrained(folder)
    return Pair(case, reference, headway.load(folder), folder)


# ---------------------------------------------------------------------------------------- inputs


def inputs_for(pair: Pair, *, padding: str | None = None) -> dict[str, Tensor]:
    """Reference-style keyword arguments. `padding` is None, "right" or "left"."""
    torch.manual_seed(1)
    model = pair.model
    if model.inputs == "audio":
        frames = model.config.encoder.embedding
        out = {"input_features": torch.randn(BATCH, frames.bins, frames.max_length)}
        out["decoder_input_ids"] = torch.randint(5, model.vocab_size, (BATCH, TARGET))
        if padding == "right":
            out["decoder_attention_mask"] = (torch.arange(TARGET) < torch.tensor([[TARGET], [4], [2]])).long()
        return out
    if isinstance(model, Detector):
        out = {"pixel_values": torch.randn(BATCH, model.image_channels, *CANVAS)}
        if padding is not None:
            out["pixel_mask"] = torch.zeros(BATCH, *CANVAS, dtype=torch.long)
            for row, (high, wide) in enumerate((CANVAS, (CANVAS[0], 40), (33, 37))):
                out["pixel_mask"][row, :high, :wide] = 1
                out["pixel_values"][row] *= out["pixel_mask"][row]
        return out
    if isinstance(model, Encoder) and not hasattr(model.embedding, "tokens"):
        high, wide = model.embedding.config.image
        return {"pixel_values": torch.randn(BATCH, model.embedding.config.channels, high, wide)}
    tokens = (model.encoder if isinstance(model, EncoderDecoder) else model).embedding.tokens
    vocab = tokens.num_embeddings
    out = {"input_ids": torch.randint(5, vocab, (BATCH, LENGTH))}
    if padding is not None:
        mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
        for row, missing in enumerate((0, 4, 7)):
            if missing:
                mask[row, -missing:] = 0
        if padding == "left":
            mask = mask.flip(1)
        pad = pair.ours.foreign.get("pad_token_id")
        out["input_ids"] = out["input_ids"].masked_fill(mask == 0, pad if isinstance(pad, int) else 1)
        out["attention_mask"] = mask
    if isinstance(model, EncoderDecoder):
        out["decoder_input_ids"] = torch.randint(5, vocab, (BATCH, TARGET))
    elif isinstance(model, Encoder) and model.segments:
        out["token_type_ids"] = torch.randint(0, model.segments, (BATCH, LENGTH))
    return out


def reference_logits(output: Any) -> Tensor:
    for name in ("logits", "prediction_logits", "last_hidden_state"):
        if getattr(output, name, None) is not None:
            return getattr(output, name)
    return torch.stack([output.start_logits, output.end_logits], dim=-1)


def reference_rows(pair: Pair, inputs: dict[str, Tensor]) -> Tensor:
    """The reference on each row with its padding cut off, each token at the position it had: the expected output
    of an encoder that pools its first token for a row padded on the left, where the reference itself pools padding."""
    rows = []
    for row, keep in enumerate(inputs["attention_mask"].bool()):
        single = {key: value[row : row + 1, keep] for key, value in inputs.items() if key != "attention_mask"}
        takes_positions = "position_ids" in inspect.signature(pair.reference.forward).parameters
        if takes_positions and not find(pair.ours.family).positions_skip_pad:
            single["position_ids"] = torch.arange(LENGTH)[None, keep]
        with torch.no_grad():
            rows.append(reference_logits(pair.reference(**single)))
    return torch.cat(rows)
