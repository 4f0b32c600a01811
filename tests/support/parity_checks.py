"""Parity with the reference library: every check that every family must pass, written once.

Each check returns the largest difference; a failure names the first tap that differs.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import torch
from support.parity import BATCH, Pair, inputs_for, reference_logits, reference_rows
from torch import Tensor, nn

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
