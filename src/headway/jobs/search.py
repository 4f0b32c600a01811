"""`--search M`: successive halving (Jamieson & Talwalkar 2016) over the few settings that matter most, before a run.

Every candidate is a short run of its own in the folder `search` of the run. All train for the same time; the better
half by the held-out score goes on, until one is left. A stopped search goes on where it was.
"""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TypedDict

from headway import tasks
from headway.checkpoints import read_json, save_json
from headway.errors import ConfigError, TrainingError
from headway.files import is_present
from headway.jobs.preparation import Say, check_data, completed, refuse_existing
from headway.jobs.run_config import ON_DISK, Plan, refuse_other, saved_plan, with_length
from headway.jobs.run_folder import PLAN, run_file
from headway.jobs.training import kept_score, run_plan
from headway.training.settings import LENGTHS, length_in_words
from headway.validation import from_dict

FOLDER, STATE = "search", "search.json"
RATES = (1.0, 0.5, 2.0, 4.0)  # times the planned learning rates
DROPOUT = (None, 0.3)  # of a model from scratch; None: the planned one


class SearchState(TypedDict):
    """What is known after each finished run of a candidate, by round."""

    candidates: list[dict[str, float]]
    minutes: float
    length: dict[str, float]  # of the run after it
    scores: list[dict[str, float]]  # of each round: candidate number -> score


def candidates(plan: Plan) -> list[dict[str, float]]:
    """Settings to try, the planned ones first. What the user gave is kept."""
    given, settings = set(plan.given or []), plan.settings()
    rates = [name for name in ("lr", "matrix_lr") if f"train.{name}" not in given]
    if settings.optimizer != "muon":
        rates = [name for name in rates if name == "lr"]
    scratch = plan.start is None and "model.dropout" not in given
    tried = list[dict[str, float]]()
    for dropout, factor in product(DROPOUT if scratch else (None,), RATES if rates else (1.0,)):
        each = {f"train.{name}": float(f"{getattr(settings, name) * factor:.3g}") for name in rates}
        each["model.dropout"] = plan.size().dropout if dropout is None else dropout
        if not scratch:
            del each["model.dropout"]
        if each not in tried:
            tried.append(each)
    if len(tried) < 2:
        raise ConfigError("search: nothing is left to search, since learning rates and dropout are given; leave it out")
    return tried


def search(plan: Plan, folder: Path, *, minutes: float, say: Say) -> Plan:
    """The plan with the best of the candidates."""
    _require_searchable(plan, minutes=minutes)
    refuse_existing(folder)
    place = folder / FOLDER
    fitted, state = _state(plan, place, minutes=minutes)
    rounds = _rounds(state["candidates"])
    alive, trained = list(range(len(state["candidates"]))), 0.0
    for number in range(rounds):
        trained += minutes / rounds / len(alive)
        if len(state["scores"]) <= number:
            state["scores"].append({})
        for each in alive:
            if str(each) not in state["scores"][number]:
                tried = _with(fitted, state["candidates"][each], minutes=trained)
                value, metric, higher = _run(tried, place / f"{each:02}", minutes=trained)
                state["scores"][number][str(each)] = value if higher else -value
                save_json(place / STATE, state)
                say(
                    f"search       {_in_words(state['candidates'][each])}: {metric} {value:.4g} after {trained:.2g} min"
                )
        ranked = sorted(alive, key=lambda one: -state["scores"][number][str(one)])
        alive = sorted(ranked[: max(1, len(ranked) // 2)])
    best = state["candidates"][alive[0]]
    for each in range(len(state["candidates"])):
        shutil.rmtree(place / f"{each:02}", ignore_errors=True)
    why = f"{_in_words(best)}, the best of {len(state['candidates'])} in {minutes:g} minutes (search/{STATE})"
    kept = {name.partition(".")[2]: plan.train.get(name.partition(".")[2]) for name in ON_DISK}
    found = _with(dataclasses.replace(fitted, train=fitted.train | kept), best)
    return dataclasses.replace(found, why={**plan.why, "search": why})


def show_search(plan: Plan, *, minutes: float, say: Say) -> None:
    """Prints what `search` would try; trains and writes nothing."""
    _require_searchable(plan, minutes=minutes)
    _, fitted = check_data(*completed(plan))
    tried = candidates(fitted)
    say(
        f"search       not run; it would try {len(tried)} candidates in {minutes:g} minutes (rounds: {_rounds(tried)}):"
    )
    for each in tried:
        say(f"search       {_in_words(each)}")


def _require_searchable(plan: Plan, *, minutes: float) -> None:
    if minutes <= 0:
        raise ConfigError(f"search: {minutes:g} minutes; a number above 0 is needed")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("search: runs in one process; search first, then train in several with the settings it finds")
    if tasks.find(plan.task).variant(plan.options).own_job:
        raise ConfigError(f"search: task {plan.task} is not trained by the loop; leave it out")


def _rounds(tried: Sequence[Mapping[str, float]]) -> int:
    """Each halves the candidates, until one is left."""
    return math.ceil(math.log2(len(tried)))


def _in_words(candidate: Mapping[str, float]) -> str:
    return ", ".join(f"{name.partition('.')[2]} {value:g}" for name, value in candidate.items())


def _with(plan: Plan, candidate: Mapping[str, float], *, minutes: float | None = None) -> Plan:
    """The fitted plan with the candidate's settings: nothing is chosen over them."""
    train, model = dict(plan.train), dict(plan.model)
    for name, value in candidate.items():
        section, _, key = name.partition(".")
        {"train": train, "model": model}[section][key] = value
    found = {*candidate, "train.batch", *(f"task.{name}" for name in plan.options)}
    if minutes is not None:
        train |= dict.fromkeys(LENGTHS, 0) | {"minutes": minutes, "keep_states": True}  # the next round goes on with it
        found |= {f"train.{name}" for name in LENGTHS}
    return dataclasses.replace(plan, train=train, model=model, found=sorted(found))


def _run(plan: Plan, folder: Path, *, minutes: float) -> tuple[float, str, bool]:
    """Trains or goes on; returns the best score, its name, and whether higher is better."""
    resume = is_present(run_file(folder, PLAN))
    if resume:
        plan = with_length(saved_plan(folder), minutes=minutes)
    trained = run_plan(plan, folder, resume=resume, with_baselines=False)
    if trained.result.exit_code:
        raise TrainingError(
            f"the search was stopped by {trained.result.stopped_by}; repeat the command to go on with it"
        )
    name, higher = kept_score(trained.bundle.find_task(), plan.settings())
    value = trained.result.best
    return trained.scores[name] if value is None else value, name, higher


def _state(plan: Plan, place: Path, *, minutes: float) -> tuple[Plan, SearchState]:
    """The plan and the state of a search that was stopped, or new ones."""
    length = {name: plan.train[name] for name in LENGTHS}
    if not is_present(place / STATE):
        _, fitted = check_data(*completed(plan))
        new: SearchState = {"candidates": candidates(fitted), "minutes": minutes, "length": length, "scores": []}
        place.mkdir(parents=True, exist_ok=True)
        save_json(place / PLAN, dataclasses.asdict(fitted))
        save_json(place / STATE, new)
        return fitted, new
    fitted, state = (
        from_dict(kind, read_json(place / name, inside=place), path=str(place / name))
        for kind, name in ((Plan, PLAN), (SearchState, STATE))
    )
    refuse_other(plan, dataclasses.replace(fitted, train={**fitted.train, **length}), run=place)
    if (state["minutes"], state["length"]) != (minutes, length):
        raise ConfigError(
            f"{place}: an earlier search had {state['minutes']:g} minutes for a run of "
            f"{length_in_words(state['length'])}; repeat it with these, or remove the folder"
        )
    return fitted, state
