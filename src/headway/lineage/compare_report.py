"""The report of a comparison: report.json, one offline page (report.html), and a table for the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway import tasks
from headway.checkpoints import save_json, save_text
from headway.data.row import Row
from headway.data.split import drawn_rows
from headway.errors import DataError
from headway.files import is_present, open_file
from headway.jobs.compare_scores import standings
from headway.jobs.preparation import Say
from headway.jobs.run_config import open_data, saved_plan
from headway.jobs.run_folder import read_run_json, run_file
from headway.kinds.predictions import LOWER_IS_BETTER, EntitiesPrediction, TextPrediction
from headway.lineage.compare import ROWS, WATCHED, ContenderRun, sample_input
from headway.lineage.compare_measures import alignment, cost_by_length, gradient_by_distance, prediction_speed
from headway.lineage.compare_page import comparison_page
from headway.loading import load
from headway.models.protocol import Model
from headway.tasks.counts import Counts, by_length
from headway.tasks.task import Task

JSON, PAGE = "report.json", "report.html"
SEQUENCES = (TextPrediction, EntitiesPrediction)  # predictions with an output for each token


def write_report(runs: Sequence[ContenderRun], out: Path, *, say: Say) -> dict[str, Any]:
    """Measures the trained models, writes both files, and returns the content of report.json."""
    say("measuring")
    report = measure(runs)
    save_json(out / JSON, report)
    save_text(out / PAGE, comparison_page(report))
    return report


def measure(runs: Sequence[ContenderRun]) -> dict[str, Any]:
    plan = saved_plan(runs[0].folder)
    data = open_data(plan).load()
    rows = usable(load(runs[0].folder).find_task(), drawn_rows(data.valid(), ROWS))
    counts: dict[str, list[Counts]] = {}
    models: dict[str, dict[str, Any]] = {}
    metric, sample = "", None
    for run in runs:
        bundle = load(run.folder)
        task, name = bundle.find_task(), run.contender.name
        found, metric = score_counts(task, bundle.model, rows)
        counts.setdefault(name, []).append(found)
        log, parameters = _log(run.folder), sum(parameter.numel() for parameter in bundle.model.parameters())
        models.setdefault(name, {"parameters": parameters, "runs": []})["runs"].append(
            {"seed": run.seed, "folder": run.folder.name, **_training(log, run.folder)}
        )
        if run.seed:
            continue
        sample, text = sample_input(task, rows[0]), found.texts
        models[name] |= {
            "width": run.contender.size.width,
            "cost": cost_by_length(bundle.model),
            "gradient": gradient_by_distance(bundle.model) if isinstance(task.prediction_kind, SEQUENCES) else [],
            "alignment": alignment(bundle, task, rows[0]),
            "speed": prediction_speed(task, bundle.model, rows),
            "seen": (read_run_json(run.folder, WATCHED) or {}).get("seen", []),
            "answer": text[0] if text else "",
        }
    ranked, verdict = standings(counts)
    has_lengths = bool(next(iter(counts.values()))[0].lengths.any())
    for one in ranked:
        models[one.name] |= {"score": one.score, "low": one.low, "high": one.high, "seeds": one.seeds}
        models[one.name]["by_length"] = by_length(counts[one.name]) if has_lengths else []
    return {
        "task": plan.task,
        "data": plan.data or "built-in",
        "minutes": plan.train["minutes"],
        "examples": len(next(iter(counts.values()))[0].values),
        "score": metric,
        "verdict": verdict,
        "sample": str(sample),
        "reference": str(rows[0].fields.get("target") or rows[0].fields.get("label") or ""),
        "order": [one.name for one in ranked],
        "models": models,
    }


def usable(task: Task, rows: Sequence[Row]) -> list[Row]:
    """The rows that models can be scored on: not those with a label that no training example has."""

    def is_usable(row: Row) -> bool:
        try:
            return bool(task.examples(row))
        except DataError:
            return False

    with task.count_truncation():
        out = [row for row in rows if task.judges(row) and is_usable(row)]
    if not out:
        raise DataError("none of the held-out examples has labels that the training examples have; give more examples")
    return out


def score_counts(task: Task, model: Model, rows: Sequence[Row]) -> tuple[Counts, str]:
    """What the score of a model is computed from, and the name of the score; texts are generated greedily."""
    evaluated = task.predictions(model, rows, **({"beams": 1} if model.reads_source else {}))
    found = evaluated.counts()
    assert found is not None
    return found, evaluated.metric


def _log(folder: Path) -> list[dict[str, Any]]:
    path = run_file(folder, "metrics.jsonl")
    if not is_present(path):
        return []
    with open_file(path, inside=folder) as file:
        return [json.loads(line) for line in file]


def _training(log: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    """The curve by time and by predictions, the speed, and the memory of the process."""
    logged = [entry for entry in log if entry.get("loss") is not None and "seconds" in entry]
    seen, curve = 0, []
    for entry in logged:
        seen += entry.get("predictions", 0)
        curve.append([entry["seconds"], seen, entry["loss"]])
    seconds = curve[-1][0] if curve else 0.0
    return {
        "steps": logged[-1]["step"] if logged else 0,
        "seconds": seconds,
        "curve": curve,
        "speed": seen / seconds if seconds else None,
        "memory": (read_run_json(folder, WATCHED) or {}).get("memory"),
    }


# ---------------------------------------------------------------------------------------- terminal


def lines(report: dict[str, Any]) -> list[str]:
    metric = report["score"]
    width = max(9, len(metric))
    out = [f"{'':14} {metric:>{width}}   95% interval      parameters   steps  predictions/s  peak memory"]
    for name in report["order"]:
        model = report["models"][name]
        first = model["runs"][0]
        interval = f"{model['low']:.4g} – {model['high']:.4g}"
        memory = "–" if first["memory"] is None else f"{first['memory'] / 2**20:,.0f} MiB"
        speed = "–" if first["speed"] is None else f"{first['speed']:,.0f}"
        out.append(
            f"{name:14} {model['score']:{width}.4g}   {interval:<17} {model['parameters']:10,} {first['steps']:7,} "
            f"{speed:>13}  {memory:>11}"
        )
    lower = " (lower is better)" if metric in LOWER_IS_BETTER else ""
    return [*out, "", f"{metric} on {report['examples']:,} held-out examples{lower}. {report['verdict']}"]


def default_folder(task: str) -> Path:
    tasks.find(task)
    return Path(f"runs/compare-{task}")
