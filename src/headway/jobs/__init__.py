"""What a user asks for, put together from the other packages. The command line and Python call the same functions.

Names are imported on first use, so that inference does not import the training loop.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.jobs.inference import evaluate, run, score_lines
    from headway.jobs.inputs import read_inputs
    from headway.jobs.preparation import check, check_plan, show_plan
    from headway.jobs.run_config import Plan, make_plan, open_data, refuse_other, saved_plan, with_length
    from headway.jobs.run_folder import unfinished
    from headway.jobs.training import Trained, progress, resume, run_plan, train

__all__ = [
    "Plan",
    "Trained",
    "check",
    "check_plan",
    "evaluate",
    "make_plan",
    "open_data",
    "progress",
    "read_inputs",
    "refuse_other",
    "resume",
    "run",
    "run_plan",
    "saved_plan",
    "score_lines",
    "show_plan",
    "train",
    "unfinished",
    "with_length",
]

_INFERENCE = ("evaluate", "run", "score_lines")
_RUN_CONFIG = ("Plan", "make_plan", "open_data", "refuse_other", "saved_plan", "with_length")
_MODULES = {
    **dict.fromkeys(_INFERENCE, "inference"),
    **dict.fromkeys(_RUN_CONFIG, "run_config"),
    "read_inputs": "inputs",
    "check": "preparation",
    "check_plan": "preparation",
    "show_plan": "preparation",
    "unfinished": "run_folder",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"headway.jobs.{_MODULES.get(name, 'training')}"), name)
