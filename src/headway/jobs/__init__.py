"""What a person asks for, joined from the rooms; the command line and Python call the same functions."""

from headway.jobs.inference import evaluate, generates, input_lines, misfits, run, score_lines, shown
from headway.jobs.run_config import Plan, make_plan, open_data, refuse_other, saved_plan
from headway.jobs.training import Trained, check, progress, resume, run_plan, show_plan, train, unfinished

__all__ = [
    "Plan",
    "Trained",
    "check",
    "evaluate",
    "input_lines",
    "make_plan",
    "misfits",
    "open_data",
    "progress",
    "refuse_other",
    "resume",
    "run",
    "run_plan",
    "saved_plan",
    "score_lines",
    "show_plan",
    "shown",
    "generates",
    "train",
    "unfinished",
]
