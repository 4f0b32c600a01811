"""The stages of a run at which a disk may be full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.bundle import Bundle
from headway.data.store_writer import StoreWriter
from headway.jobs import preparation, training
from headway.training import loop
from headway.training.best import BestCheckpoint
from headway.training.log import MetricsLog

STAGES: dict[str, tuple[Any, str, int]] = {  # the disk is full from the n-th call of a function on
    "preparing, first example": (StoreWriter, "add", 1),
    "preparing, in the middle": (StoreWriter, "add", 20),
    "preparing, progress": (StoreWriter, "save_progress", 2),
    "preparing, end": (StoreWriter, "finish", 1),
    "first save": (Bundle, "save", 1),
    "plan": (preparation, "save_json", 2),
    "lock": (loop, "lock_folder", 1),
    "metrics": (MetricsLog, "write", 2),
    "best weights": (BestCheckpoint, "update", 1),
    "first state": (loop, "save_state", 1),
    "second state": (loop, "save_state", 2),
    "curves": (loop, "draw_curves", 1),
    "final save": (Bundle, "save", 2),
    "card": (training, "write_card", 1),
    "scores": (training, "save_json", 1),
}


def full_from(stage: str, fill: Callable[[], None], *, set_attribute: Callable[..., None] = setattr) -> None:
    """Patch the function of a stage so that the disk is filled before it."""
    owner, name, number = STAGES[stage]
    original, calls = getattr(owner, name), [0]

    def counted(*args: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            fill()
        return original(*args, **options)

    set_attribute(owner, name, counted)
