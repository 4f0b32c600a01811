"""The input of a model that draws: a picture half-way from noise, whose patches attend to the words of the caption."""

from __future__ import annotations

from typing import Any

import torch

from headway.bundle import Bundle
from headway.errors import InputError
from headway.explain import story
from headway.explain.encoder_inputs import PreparedInput, one_row, without_truncation
from headway.explain.picture_patches import patches
from headway.explain.token_text import tokens
from headway.models.outputs import Output
from headway.preprocess.image import to_picture
from headway.tasks.draw import plain_caption

SEED = 0
HALF = 0.5  # the time of the pass that is shown


def prepare_flow(bundle: Bundle, task: Any, caption: str, *, against: str | None) -> PreparedInput:
    if bundle.model.shape != "flow":
        raise InputError("explain shows drawings of method flow; this model was trained with method tokens")
    ids = without_truncation(task).caption_ids(caption, where="the input")
    state, pixels = task.drawing.state_at(bundle.model, ids, seed=SEED, time=HALF)
    side = task.image // task.patch
    text = plain_caption(caption)
    sequences = {
        "source": story.Sequence("caption", tokens(task.tokenizer, ids, [text]), text=text),
        "target": patches("picture", to_picture(pixels), (side, side)),
    }

    def read_output(output: Output) -> story.OutputView:
        return story.OutputView("picture", [], "")

    inputs = {**one_row(bundle, ids), "images": state, "time": torch.tensor([HALF], device=bundle.device)}
    note = f"Numbers and weights are those of the pass at time {HALF:g}, half-way from noise (0) to the picture (1)."
    return PreparedInput(inputs, sequences, read_output, [note])
