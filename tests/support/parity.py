"""Parity with the reference library on tiny random models: every check that every family must pass, written once.

A case is one line: a reference class and its config. Each check returns the largest difference; a failure names the
first tap that differs.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import headway
from headway.bundle import Bundle
from headway.checkpoints import TensorFiles
from headway.checkpoints.rules import to_theirs
from headway.families import find
from headway.families.dialect import rules_of
from headway.inspect import record
from headway.models.build import tensor_names
from headway.models.decoder import Decoder
from headway.models.detector import Detector
from headway.models.encoder import Encoder
from headway.models.encoder_decoder import EncoderDecoder
from headway.models.two_stream import TwoStream

LIMIT = 1e-4
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


# ---------------------------------------------------------------------------------------- layer by layer


def stream_taps(model: nn.Module, prefix: str = "", *, raw_last: bool = False) -> list[str]:
    """One tap per entry of the reference's hidden states: the embedding, then each block; the last is after the norm,
    unless `raw_last`."""
    layers = len(model.stack.blocks)
    names = ["embedding.sum"] + [f"stack.blocks.{i}.feedforward_residual.stream" for i in range(layers)]
    if getattr(model.stack, "convolution", None) is not None:
        names[1] = "stack.convolution.stream"
    if not raw_last:
        names[-1] = "stack.final"
    return [prefix + name for name in names]


def first_difference(pair: Pair, limit: float = LIMIT) -> tuple[str | None, float]:
    """(the first tap that differs by more than `limit`, the largest difference of all)."""
    inputs = inputs_for(pair)
    model = pair.model
    two_stacks = isinstance(model, EncoderDecoder | Detector)
    if two_stacks:
        names = stream_taps(model.encoder, "encoder.") + stream_taps(model.decoder, "decoder.")
    else:
        names = stream_taps(model, raw_last=pair.case.raw_last)
    queries = "decoder.embedding.sum" if isinstance(model, Detector) else None  # zeros in both
    names = [name for name in names if name != queries]
    with torch.no_grad(), record(model, names) as recorded:
        pair.ours.logits(**inputs)
        reference = pair.reference(**inputs, output_hidden_states=True)
    if two_stacks:
        first = 0 if queries is None else 1
        theirs = [*reference.encoder_hidden_states, *reference.decoder_hidden_states[first:]]
    else:
        theirs = list(reference.hidden_states)
    assert len(theirs) == len(names), (len(theirs), names)
    worst, first = 0.0, None
    for name, expected in zip(names, theirs, strict=True):
        difference = (recorded[name][-1] - expected).abs().max().item()
        worst = max(worst, difference)
        if difference > limit and first is None:
            first = name
    return first, worst


# ---------------------------------------------------------------------------------------- the checks


def check_logits(pair: Pair) -> float:
    return _difference(pair, inputs_for(pair))


def _difference(pair: Pair, inputs: dict[str, Tensor]) -> float:
    """Of the logits, and of the boxes of a detector."""
    with torch.no_grad():
        expected = pair.reference(**inputs)
    worst = _worst(pair.ours.logits(**inputs), reference_logits(expected))
    boxes = getattr(expected, "pred_boxes", None)
    return worst if boxes is None else max(worst, _worst(pair.ours.boxes(**inputs), boxes))


def check_layers(pair: Pair) -> float:
    first, worst = first_difference(pair)
    assert first is None, f"first tap that differs: {first} (largest difference {worst:.2e})"
    return worst


def check_padding(pair: Pair) -> float:
    """Right and left padding, compared at the real tokens."""
    worst = 0.0
    for side in ("right", "left"):
        inputs = inputs_for(pair, padding=side)
        if "pixel_mask" in inputs:
            return _difference(pair, inputs)
        if "attention_mask" not in inputs and "decoder_attention_mask" not in inputs:
            continue
        got = pair.ours.logits(**inputs)
        pooled = isinstance(pair.model, Encoder) and got.ndim == 2
        if pooled and (side == "left" or getattr(pair.model.config.head, "pool", "") == "last"):
            expected = reference_rows(pair, inputs)
        else:
            with torch.no_grad():
                expected = reference_logits(pair.reference(**inputs))
        if got.ndim == 3 and not isinstance(pair.model, EncoderDecoder):
            keep = inputs["attention_mask"].bool()
            got, expected = got[keep], expected[keep]
        if "decoder_attention_mask" in inputs:
            keep = inputs["decoder_attention_mask"].bool()
            got, expected = got[keep], expected[keep]
        worst = max(worst, _worst(got, expected))
    return worst


def check_batch(pair: Pair) -> float:
    """Each row alone gives what it gives in a padded batch, padding left or right, by the model's own positions."""
    worst = 0.0
    for side in ("right", "left"):
        inputs = inputs_for(pair, padding=side)
        whole = _call(pair.model, inputs)
        for row in range(BATCH):
            single = {key: value[row : row + 1] for key, value in inputs.items()}
            keep = slice(None)
            if "decoder_attention_mask" in single:
                keep = single.pop("decoder_attention_mask")[0].bool()
                single["decoder_input_ids"] = single["decoder_input_ids"][:, keep]
            elif "attention_mask" in single:
                keep = single.pop("attention_mask")[0].bool()
                for key in ("input_ids", "token_type_ids"):
                    if key in single:
                        single[key] = single[key][:, keep]
            got = whole[row : row + 1]
            if got.ndim == 3 and (not isinstance(pair.model, EncoderDecoder) or pair.model.inputs == "audio"):
                got = got[:, keep]
            worst = max(worst, _worst(got, _call(pair.model, single)))
    return worst


def check_cache(pair: Pair) -> float:
    """Step by step with a cache, and in chunks, gives what one pass gives, for rows of different lengths."""
    model = pair.model
    if isinstance(model, Encoder | Detector) or getattr(getattr(model, "decoder", model).head, "scale", None) is None:
        return 0.0
    inputs = inputs_for(pair, padding="right")
    whole = _call(model, inputs)
    ids = inputs["decoder_input_ids"] if isinstance(model, EncoderDecoder) else inputs["input_ids"]
    mask = inputs.get("decoder_attention_mask") if isinstance(model, EncoderDecoder) else inputs["attention_mask"]
    worst = 0.0
    for chunk in (1, 3):
        with torch.no_grad():
            if isinstance(model, EncoderDecoder):
                source = inputs["input_features"].mT if model.inputs == "audio" else inputs["input_ids"]
                cache = model.encode_to_cache(source, padding_mask=inputs.get("attention_mask"))
            else:
                assert isinstance(model, Decoder | TwoStream)
                cache = model.new_cache(len(ids))
            steps = []
            for at in range(0, ids.shape[1], chunk):
                lengths = None if mask is None else mask[:, at : at + chunk].sum(1).tolist()
                steps.append(model.step(ids[:, at : at + chunk], cache, lengths=lengths, every=True))
        got = torch.cat(steps, dim=1)
        keep = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
        worst = max(worst, _worst(got[keep], whole[keep]))
    return worst


def check_gradients(pair: Pair) -> float:
    """In train mode (dropout set to zero in the case), the gradient of every shared parameter, by their names. The
    largest difference is relative to the largest gradient."""
    from transformers.core_model_loading import revert_weight_conversion

    last = isinstance(pair.model, Encoder) and getattr(pair.model.config.head, "pool", "") == "last"
    inputs = inputs_for(pair, padding="left" if last else "right")  # the reference pools the last token, padding or not
    for model in (pair.reference, pair.model):
        model.train()
        model.zero_grad()
    try:
        theirs = reference_logits(pair.reference(**inputs))
        torch.manual_seed(2)
        direction = torch.randn_like(theirs)
        if "attention_mask" in inputs and theirs.ndim == 3 and not isinstance(pair.model, EncoderDecoder):
            direction = direction * inputs["attention_mask"][:, :, None]
        (theirs * direction).sum().backward()
        with torch.enable_grad():
            ours = _forward(pair.ours, inputs)
            (ours * direction).sum().backward()
    finally:
        pair.reference.eval()
        pair.model.eval()
    state = dict(pair.model.named_parameters())
    names = tensor_names(pair.model)
    gradients = {n: torch.zeros_like(state[n]) if state[n].grad is None else state[n].grad for n in names if n in state}
    rules = rules_of(find(pair.ours.family), pair.ours.config)
    got = to_theirs(gradients, rules)
    named = {name: p.grad for name, p in pair.reference.named_parameters() if p.grad is not None}
    expected = revert_weight_conversion(pair.reference, named)  # by the names of their files
    worst, largest, compared = 0.0, 1e-12, 0
    for name in expected.keys() & got.keys():
        compared += 1
        largest = max(largest, expected[name].abs().max().item())
        worst = max(worst, (expected[name] - got[name]).abs().max().item())
    assert compared > 5, f"only {compared} gradients could be compared"
    return worst / largest


def check_round_trip(pair: Pair) -> float:
    """theirs → ours → theirs: the same bytes under the same names, and the reference library loads them."""
    again = pair.ours.save(pair.folder / "again")
    before, after = TensorFiles(pair.folder), TensorFiles(again)
    assert set(before.names) == set(after.names), set(before.names) ^ set(after.names)
    for name in before.names:
        assert before[name].dtype == after[name].dtype, name
        assert before[name].contiguous().numpy().tobytes() == after[name].contiguous().numpy().tobytes(), name
    config = json.loads((pair.folder / "config.json").read_text())
    assert json.loads((again / "config.json").read_text())["architectures"] == config["architectures"]
    reopened, info = type(pair.reference).from_pretrained(again, output_loading_info=True, **pair.case.arguments)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    inputs = inputs_for(pair)
    with torch.no_grad():
        return _worst(reference_logits(reopened.eval()(**inputs)), reference_logits(pair.reference(**inputs)))


def check_mutation(pair: Pair) -> float:
    """A removed norm must be detected, at the right tap. Returns 0, since the table shows differences."""
    side = "encoder." if isinstance(pair.model, EncoderDecoder | Detector) else ""
    path, _, name = (side + pair.case.mutate).rpartition(".")
    owner = pair.model.get_submodule(path)
    norm = getattr(owner, name)
    setattr(owner, name, nn.Identity())
    try:
        first, worst = first_difference(pair)
    finally:
        setattr(owner, name, norm)
    assert first is not None and worst > 10 * LIMIT, f"the mutation was not detected ({worst:.2e})"
    first_block = ("stack.blocks.0.feedforward_residual.stream", "stack.convolution.stream")
    assert first in [side + name for name in (*first_block, "stack.final", "embedding.sum")]
    return 0.0


CHECKS: dict[str, Callable[[Pair], float]] = {
    "logits": check_logits,
    "layers": check_layers,
    "padding": check_padding,
    "batch = single": check_batch,
    "cached = uncached": check_cache,
    "gradients (relative)": check_gradients,
    "round trip": check_round_trip,
    "mutation noticed": check_mutation,
}


def _call(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """The model itself, which counts positions over real tokens."""
    names = {
        "attention_mask": "padding_mask",
        "token_type_ids": "segments",
        "decoder_input_ids": "decoder_ids",
        "decoder_attention_mask": "decoder_padding_mask",
        "pixel_mask": "padding_mask",
    }
    args = dict(inputs)
    first = args.pop("pixel_values", None)
    if "input_features" in args:
        first = args.pop("input_features").mT  # (batch, frame, bin)
    first = args.pop("input_ids") if first is None else first
    with torch.no_grad():
        output = model(first, **{names[key]: value for key, value in args.items()})
    return output.hidden if output.logits is None else output.logits


def _forward(ours: Bundle, inputs: dict[str, Tensor]) -> Tensor:
    return Bundle.logits.__wrapped__(ours, **inputs)  # the same call without no_grad


def _worst(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape, (a.shape, b.shape)
    assert torch.isfinite(a).all()
    return (a - b).abs().max().item()
