"""The model card (README.md) of a run folder: data, settings, scores, use."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headway.checkpoints import save_text
from headway.printable import as_code_block, as_markdown

if TYPE_CHECKING:
    from headway.baselines import Baseline
    from headway.bundle import Bundle
    from headway.data.dataset import Dataset
    from headway.data.report import Report
    from headway.jobs.run_config import Plan
    from headway.tasks.task import Task
    from headway.training.loop import FitResult


def write_card(
    folder: Path,
    *,
    bundle: Bundle,
    plan: Plan,
    result: FitResult,
    scores: dict[str, float],
    report: Report,
    data: Dataset,
    cut: list[str],
    warnings: list[str],
    beside: Sequence[Baseline] = (),
) -> None:
    count = sum(p.numel() for p in bundle.model.parameters())
    signature = bundle.task.signature() if bundle.task is not None else ""
    begun = f"started from {as_markdown(Path(plan.start).name)}" if plan.start else "trained from scratch"
    lines = [
        "---",
        "library_name: headway",
        f"tags: [headway, {plan.task}]",
        "---",
        f"# A model for `{plan.task}`",
        "",
        f"{count:,} parameters, {begun}, "
        f"recipe `{plan.recipe}`, {result.steps:,} steps in {result.seconds / 60:.1f} minutes.",
        "",
        "## Data",
        f"{as_markdown(data.name)} ({as_markdown(data.layout)}): {report.examples:,} training examples, "
        f"{report.held_out:,} held out.",
        *([""] + [f"- {as_markdown(warning)}" for warning in report.warnings] if report.warnings else []),
        *(["", "Truncated:"] + [f"- {as_markdown(line)}" for line in cut] if cut else ["", "Nothing was truncated."]),
        "",
        "## Scores on the held-out examples",
        "",
        " | ".join(["| score", "value", *(f"{as_markdown(each.name)}{_noted(each)}" for each in beside)]) + " |",
        "|---|---|" + "---|" * len(beside),
        *[_score_line(name, value, beside) for name, value in scores.items()],
        *(["", f"Signature: {as_markdown(signature)}"] if signature else []),
        *[line for warning in warnings for line in ("", f"**Warning:** {as_markdown(warning)}.")],
        "",
        "## Use",
        *as_code_block(commands("<this folder>", bundle.find_task())),
        "",
        *([f"It opens in `transformers` as `{published}`.", ""] if (published := architecture(bundle)) else []),
        "The exact settings are in `training/plan.json`, every logged number in `training/metrics.jsonl`, "
        "the curves in `training/curves.png`.",
        "",
    ]
    save_text(folder / "README.md", "\n".join(lines))


def commands(folder: str, task: Task) -> list[str]:
    """How a model in the folder is used: with an input, and with a file of them."""
    run = f"headway run {folder}"
    return [
        f"{run} {shlex.quote(task.input_kind.example)}",
        *([] if not task.prediction_kind.tabular else [f"{run} --file FILE --out predictions.csv"]),
    ]


def _noted(baseline: Baseline) -> str:
    return f" ({as_markdown(baseline.note)})" if baseline.note else ""


def _score_line(name: str, value: float, beside: Sequence[Baseline]) -> str:
    others = [f"{each.scores[name]:.4f}" if name in each.scores else "" for each in beside]
    return " | ".join([f"| {as_markdown(name)}", f"{value:.4f}", *others]) + " |"


def architecture(bundle: Bundle) -> str:
    """The class of the reference library that a model from scratch is saved as; empty for Headway's own dialect."""
    names = bundle.foreign.get("architectures") or [""]
    return as_markdown(names[0]) if bundle.family != "headway" else ""
