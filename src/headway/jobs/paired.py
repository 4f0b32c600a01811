"""Two or more models evaluated on the same examples: is the difference of their scores more than chance? By the paired
bootstrap (Koehn 2004)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headway.bundle import Bundle
from headway.errors import InputError
from headway.files import is_present
from headway.jobs.columns import Columns
from headway.jobs.compare_scores import DRAWS, Difference, difference
from headway.jobs.inference import evaluation_data, require_finite, training_note
from headway.jobs.run_folder import PLAN, Paths, read_run_json, run_file
from headway.loading import load
from headway.tasks.counts import Counts

SEED = 0


@dataclass(frozen=True)
class Paired:
    """Scores of several models on the same examples, and the differences of the others from the first."""

    models: list[str]
    scores: list[dict[str, float]]
    metric: str
    differences: list[Difference]  # of each model but the first
    examples: int
    data: str
    search: str
    notes: list[str]  # a line for each model that was trained on these examples

    def to_dict(self) -> dict[str, Any]:
        differences = [
            asdict(each) | {"difference": each.value, "clear": each.is_clear, "model": model}
            for each, model in zip(self.differences, self.models[1:], strict=True)
        ]
        return {
            "models": dict(zip(self.models, self.scores, strict=True)),
            "metric": self.metric,
            "differences": differences,
            "examples": self.examples,
            "data": self.data,
            "draws": DRAWS,
            "seed": SEED,
            **({"search": self.search} if self.search else {}),
            **({"notes": self.notes} if self.notes else {}),
        }

    def lines(self) -> list[str]:
        names = list(dict.fromkeys(name for scores in self.scores for name in scores))
        width, across = max(map(len, names)), [max(len(model), 10) for model in self.models]
        head = "  ".join(f"{model:>{size}}" for model, size in zip(self.models, across, strict=True))
        lines = [f"{'':<{width}}  {head}"]
        for name in names:
            cells = [f"{scores[name]:.4f}" if name in scores else "–" for scores in self.scores]
            row = "  ".join(f"{cell:>{size}}" for cell, size in zip(cells, across, strict=True))
            lines.append(f"{name:<{width}}  {row}")
        lines += ["", ", ".join(filter(None, [f"on {self.examples:,} examples of {self.data}", self.search]))]
        lines += [self._verdict(each, model) for each, model in zip(self.differences, self.models[1:], strict=True)]
        return lines + [f"note: {note}" for note in self.notes]

    def _verdict(self, found: Difference, model: str) -> str:
        p = f"p < {2 / DRAWS:g}" if found.p < 2 / DRAWS else f"p = {found.p:.3f}"
        numbers = (
            f"{self.metric} {found.value:+.4g}, 95% interval {found.low:+.4g} to {found.high:+.4g}, {p} "
            f"(paired bootstrap, {DRAWS:,} draws)"
        )
        if not found.is_clear:
            return f"no clear difference between {self.models[0]} and {model}: {numbers}"
        return f"{model} is {'better' if found.second_is_better else 'worse'} than {self.models[0]}: {numbers}"


def is_model_folder(path: Path) -> bool:
    """Whether this is a folder with a model, and not one with data."""
    return (path / "config.json").is_file() and any(path.glob("*.safetensors*"))


def split_models(first: str, rest: Sequence[Path]) -> tuple[list[str], list[Path]]:
    """MODEL [MODEL…] [DATA…] of a command line: after the first model, all folders that hold a model are models too."""
    count = next((at for at, path in enumerate(rest) if not is_model_folder(path)), len(rest))
    return [first, *map(str, rest[:count])], list(rest[count:])


def compare_models(
    models: Sequence[str | Path],
    data: Paths | None = None,
    *,
    columns: Columns | None = None,
    encoding: str | None = None,
    beams: int | None = None,
    weights: str | None = None,
    device: str = "cpu",
) -> Paired:
    """Evaluates each model on the same examples: those of `data`, else the held-out part that their runs share."""
    if not data:
        _require_same_data(models)
    scores, counts, metric, search, task, name = [], list[Counts](), "", "", "", ""
    where, notes = list[str](), list[str]()
    for model in models:
        bundle = load(model, weights=weights, device=device)
        own = bundle.find_task()
        options = {} if beams is None else {"beams": beams}
        rows, own_name = evaluation_data(bundle, data, columns=columns, encoding=encoding)
        kept = list(rows())
        if task and (own.name != task or [row.where for row in kept] != where):
            raise InputError(
                f"{model} is not evaluated on the examples of {models[0]}: its task is {own.name} with {len(kept):,} "
                f"examples, there it is {task} with {len(where):,}"
            )
        task, where, name = own.name, [row.where for row in kept], own_name
        search = own.search(bundle.model, **options)
        evaluated = own.predictions(bundle.model, kept, **options)
        found = evaluated.counts()
        if found is None:
            raise InputError(
                f"task {task} has no score that is computed example by example, so models cannot be compared by the "
                "bootstrap; evaluate them one by one"
            )
        require_finite(evaluated.scores())
        if counts and (found.kind, len(found.values)) != (counts[0].kind, len(counts[0].values)):
            raise InputError(f"{model} and {models[0]} are not evaluated by the same score on the same examples")
        scores.append(evaluated.scores())
        counts.append(found)
        metric = evaluated.metric
        if note := training_note(bundle.folder, data):
            notes.append(f"{model}: {note}")
    differences = [difference(counts[0], other, seed=SEED) for other in counts[1:]]
    return Paired([str(model) for model in models], scores, metric, differences, len(where), name, search, notes)


def _require_same_data(models: Sequence[str | Path | Bundle]) -> None:
    """Raises unless all are runs on the same data, or none is a run."""
    plans = [read_run_json(str(model), PLAN) if is_present(run_file(str(model), PLAN)) else None for model in models]
    held = [None if plan is None else (plan.get("data"), plan.get("valid")) for plan in plans]
    if any(each != held[0] for each in held):
        raise InputError(
            f"{models[0]} and {models[held.index(next(h for h in held if h != held[0]))]} were not trained on the same "
            "data, so one may have been trained on what the other is evaluated on; give DATA that neither has seen"
        )
