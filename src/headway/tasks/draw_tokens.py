"""Drawing by next-token prediction: a picture is a sequence of codes of its patches, and the caption is the source of
an encoder-decoder that generates them (the idea of DALL·E, Ramesh et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from headway.data.batch import Batch, Loss
from headway.errors import ConfigError
from headway.generation import GenerationSettings, generate
from headway.models import recipes
from headway.models.config import ModelConfig
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size
from headway.preprocess.image_codes import Codebook

if TYPE_CHECKING:
    from headway.tasks.draw import Draw

CODES = 512


class TokenDrawing:
    options = ("n", "seed", "temperature", "top_k", "top_p")
    guidances = (1.0,)  # nothing is guided

    def __init__(self, task: Draw) -> None:
        self.task, self.codebook = task, Codebook.from_lists(task.codebook, patch=task.patch)

    @property
    def count(self) -> int:
        """Codes of a picture."""
        return (self.task.image // self.task.patch) ** 2

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        return recipes.captioned_codes(
            size,
            recipe,
            vocab=len(self.task.tokenizer),
            codes=len(self.codebook),
            count=self.count,
            caption_layers=self.task.caption_layers,
        )

    def adapt(self, model: Model) -> Model:
        raise ConfigError("task draw with method tokens starts from scratch: another model has other codes")

    def batch(
        self, pixels: np.ndarray, captions: Sequence[Any], *, seeds: Sequence[tuple[int, ...]], where: list[str]
    ) -> Batch:
        codes = torch.from_numpy(self.codebook.encode(pixels))  # (batch, count)
        start = torch.full((len(codes), 1), len(self.codebook))
        inputs = {**self.task.text_inputs(captions), "decoder_ids": torch.cat([start, codes[:, :-1]], dim=1)}
        return Batch(inputs, {"codes": codes}, count=codes.numel(), where=where)

    def evaluation_batch(self, pixels: np.ndarray, captions: Sequence[Any], numbers: Sequence[int]) -> Batch:
        return self.batch(pixels, captions, seeds=[], where=[])

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        logits = model(**batch.inputs).logits
        return Loss(F.cross_entropy(logits.flatten(0, 1), batch.targets["codes"].flatten(), reduction="sum"))

    @torch.no_grad()
    def pictures(
        self, model: Model, captions: Sequence[Sequence[int]], seeds: Sequence[int], options: dict[str, Any]
    ) -> list[np.ndarray]:
        chosen = {"temperature": 1.0, **{name: value for name, value in options.items() if name != "guidance"}}
        start = len(self.codebook)
        settings = GenerationSettings(
            max_new_tokens=self.count, min_new_tokens=self.count, suppress_ids=(start,), seed=tuple(seeds), **chosen
        )
        found = generate(cast(Any, model), [[start]] * len(captions), settings, sources=[list(c) for c in captions])
        codes = np.array([answers[0].ids for answers in found])
        return [self.codebook.decode(codes, side=self.task.image)]
