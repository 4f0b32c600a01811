"""A recording as the input: its spectrogram, whose columns are the encoder's tokens, and the text that the decoder
generates with cross-attention to them.

The pass is over the recording's own frames. Where it is longer than a page holds, the first seconds are used; a Whisper
gets them without the silence that fills up its window.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.bundle import Bundle
from headway.errors import InputError
from headway.explain import story
from headway.explain.choices import next_tokens
from headway.explain.encoder_inputs import PreparedInput, without_truncation
from headway.explain.picture_patches import png_text
from headway.explain.token_text import tokens
from headway.generation import GenerationSettings, Hypothesis, Session
from headway.generation.filters import Filter, Suppress
from headway.models.outputs import Output
from headway.preprocess.feature_stream import FeatureStream
from headway.tasks.long_form import Query, run_together
from headway.tasks.transcripts import Transcript

MOST_VECTORS = 300  # of the encoder: six seconds for a Whisper
MOST_TOKENS = 64
FRAME_PIXELS, BIN_PIXELS = 2, 2  # of the drawn spectrogram
LOW, HIGH = (13, 13, 43), (255, 233, 150)  # colours of the smallest and largest value …
MIDDLE = (190, 55, 84)  # … and half-way


def prepare_sound(bundle: Bundle, task: Any, value: object, *, against: str | None) -> PreparedInput:
    """`against` is a text to score instead of the model's own."""
    stream = FeatureStream(task.sound(value, where="the input", error=InputError), task.audio)
    stride = bundle.model.parts[0].model.config.embedding.stride
    frames = min(stream.frames, MOST_VECTORS * stride)
    features = stream.window(0, frames).to(bundle.device)  # (frame, bin)
    note = list[str]()
    rate = task.audio.frames_per_second
    if frames < stream.frames:
        note.append(f"Only the first {frames / rate:g} of {stream.seconds:.1f} seconds are used: a page holds no more.")
    if task.tokens is not None:
        note.append("The window is not filled up with silence to 30 seconds, as it is when a recording is transcribed.")
    prompt = [task.start_id, *task.first_ids()]
    if against is not None:
        target, answer = without_truncation(task).target_ids(against, where="--against"), against
    else:
        target = _generated(bundle, task, features, prompt)
        if len(target) == MOST_TOKENS and target[-1] != task.tokenizer.eos_id:
            note.append(f"The text is cut at {MOST_TOKENS} tokens.")
        answer = task.tokenizer.decode([one for one in target if one not in task.tokenizer.special_ids]).strip()
    spoken = f" {answer}" if task.tokens is not None else answer
    decoder_ids = [*prompt, *target[:-1]]
    vectors = -(-frames // stride)
    columns = [story.Token(f"{number * stride / rate:.2f}s", number) for number in range(vectors)]
    picture = story.PictureView(spectrogram(features), 1, vectors, first=0, kind="sound")
    sequences = {
        "source": story.Sequence("sound, by time", columns, picture),
        "target": story.Sequence("text", tokens(task.tokenizer, decoder_ids, [spoken] if answer else []), text=answer),
    }

    def read_output(output: Output) -> story.OutputView:
        rows = next_tokens(output, sequences["target"], [*prompt[1:], *target], task.tokenizer)
        return story.OutputView("next", rows, answer, given=against is not None)

    inputs = {"inputs": features[None], "decoder_ids": torch.tensor([decoder_ids], device=bundle.device)}
    return PreparedInput(inputs, sequences, read_output, note, answer_from=len(prompt) - 1)


def _generated(bundle: Bundle, task: Any, features: Tensor, prompt: list[int]) -> list[int]:
    """The ids of the answer, by greedy search without timestamps."""
    end = task.tokenizer.eos_id
    most = MOST_TOKENS if bundle.model.max_context is None else min(MOST_TOKENS, bundle.model.max_context - len(prompt))
    settings = GenerationSettings(max_new_tokens=most, eos_ids=() if end is None else (end,))
    options, tokens = task.generation_defaults.options, task.tokens
    never = {*options.get("suppress_ids", ()), *(tokens.never_generated() if tokens is not None else ())}
    filters: list[Filter] = [Suppress(tuple(sorted(never)))] if never else []
    if options.get("begin_suppress_ids"):
        filters.append(Suppress(tuple(options["begin_suppress_ids"]), begin=0, until=1))
    found = list[Hypothesis]()

    def query():  # type: ignore[no-untyped-def]
        found.append((yield Query(features, prompt, settings, tuple(filters))))
        return Transcript()

    run_together(Session(bundle.model), [query()], most=1)
    return list(found[0].ids)


def spectrogram(features: Tensor) -> str:
    """(frame, bin) as a picture, time to the right and frequency upwards: PNG in base64."""
    values = features.float().cpu().numpy().T[::-1]  # (bin, frame)
    low, high = float(values.min()), float(values.max())
    share = (values - low) / (high - low) if high > low else np.zeros_like(values)
    stops = np.array([LOW, MIDDLE, HIGH], dtype=np.float64)
    colours = np.stack([np.interp(share, (0, 0.5, 1), stops[:, channel]) for channel in range(3)], axis=-1)
    pixels = colours.round().astype(np.uint8).repeat(BIN_PIXELS, 0).repeat(FRAME_PIXELS, 1)
    return png_text(pixels)
