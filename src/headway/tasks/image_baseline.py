"""The baseline of `classify-image`: logistic regression of the pixels of small pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from headway.baselines import Baseline, thinned
from headway.baselines.linear import fit
from headway.data.read import Row
from headway.preprocess.image import open_image
from headway.tasks.targets import Target

SIDE = 14  # pixels
PICTURES = 10_000  # that it is fitted to
STRENGTH = 30.0  # of the L2 penalty


def pixel_baseline(target: Target, train: Iterable[Row], rows: Sequence[Row]) -> Baseline:
    kept, note = thinned(train, lambda row: 1, most=PICTURES, what="training pictures")
    wanted = [target.encode(row.fields["label"], where=row.where)[0] for row in kept]
    model = fit(
        _pixels(kept), np.eye(target.outputs)[wanted], kind="one", strength=STRENGTH, iterations=100, tolerance=1e-5
    )
    labels = [target.encode(row.fields["label"], where=row.where, strict=False) for row in rows]
    scores = target.scores(torch.from_numpy(model(_pixels(rows))), labels)
    return Baseline(f"logistic regression of {SIDE} × {SIDE} pixels", scores, note=note)


def _pixels(rows: Sequence[Row]) -> np.ndarray:
    """(picture, value), from -1 to 1."""
    small = [
        np.asarray(open_image(row.fields["image"], where=row.where).convert("RGB").resize((SIDE, SIDE)), np.float64)
        for row in rows
    ]
    return np.stack(small).reshape(len(small), -1) / 127.5 - 1
