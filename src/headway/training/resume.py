"""Captures everything a run needs to continue exactly, and restores it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from headway.errors import CheckpointError, TrainingError
from headway.training import rng
from headway.training.schedule import Extension
from headway.training.settings import LENGTHS, length_in_words
from headway.training.state import LoadedState, State, load_latest, load_state
from headway.training.state_schema import AverageState, TrainingState, check_schema, schema_error
from headway.training.tensor_tree import tied_names

if TYPE_CHECKING:
    from headway.training.loop import TrainingRun

# A run cannot be resumed with other values of these settings.
FIXED_SETTINGS = (
    *("batch", "batch_unit", "seed", "precision", "average"),
    *("optimizer", "lr", "matrix_lr", "betas", "eps", "weight_decay"),
)


def latest(run: TrainingRun) -> LoadedState:
    """The newest valid state: rank 0 finds it, every rank reads it."""
    found = run.world.run_on_main(lambda: load_latest(run.training))
    path = run.world.broadcast(found and found.path)
    return found or LoadedState(state=load_state(path), path=path, warnings=[])


def snapshot(run: TrainingRun) -> State:
    """Everything the next step depends on. Every rank must call it; the result is complete on rank 0 only."""
    named = run.model.state_dict()
    return {
        "model": named,
        "optimizer": run.replica.gather_state(run.optimizers.state_dict()),
        "average": run.replica.gather_state(run.ema.state_dict()) if run.ema is not None else None,
        "ranks": run.world.all_gather(
            {"rng": rng.capture(), "window": run.running.state(), **carried_state(run.model)}
        ),
        "status": run.status.as_dict(),
        "stepper": {"accumulate": run.stepper.accumulate, "scale": dict(vars(run.stepper.scale))},
        "spikes": run.spike_filter.state(),
        "journal": run.metrics_log.length(),
        "settings": run.settings.as_dict(),
        "fingerprint": run.source.fingerprint,
        "ties": tied_names(named),
    }


def carried_state(model: nn.Module) -> dict[str, Tensor]:
    """What a recurrent model keeps between the windows of a text; empty for others."""
    carried = getattr(model, "carried", None)
    return {} if carried is None else {"carried": carried}


def restore(run: TrainingRun, loaded: LoadedState) -> list[str]:
    """Restore a snapshot into a new run. Returns warnings for the user."""
    state, folder = loaded.state, loaded.path
    check_schema(state, TrainingState, folder=folder)
    if run.ema is not None:
        check_schema(state["average"], AverageState, folder=folder, path="average")
    warnings = _check_settings(state["settings"], run.settings.as_dict())
    _check_data(state["fingerprint"], run.source.fingerprint)
    if state["ties"] != tied_names(run.model.state_dict()):
        raise TrainingError(f"the saved state does not fit this model: its tied weights are {state['ties']}")
    _rename_parameters(state["optimizer"], getattr(run.model, "earlier_names", dict)())
    try:
        run.replica.load(state, run.optimizers, run.ema)
    except (RuntimeError, ValueError, KeyError, CheckpointError) as error:
        raise TrainingError(f"{folder}: the saved state does not fit this model: {error}") from error
    vars(run.status).update(state["status"])
    run.intervals.reset(run.status)
    run.stepper.accumulate = max(state["stepper"]["accumulate"], run.settings.accumulate)
    vars(run.stepper.scale).update(state["stepper"]["scale"])
    run.spike_filter.load(state["spikes"])
    if run.status.position >= (batches := len(run.batches())):
        raise schema_error(folder, f"status.position is {run.status.position}, in an epoch of {batches} batches")
    if len(state["ranks"]) == run.world.size:
        own = state["ranks"][run.world.rank]
        try:
            rng.restore(own["rng"])
        except (RuntimeError, ValueError, LookupError, TypeError, OverflowError) as error:
            raise schema_error(folder, f"ranks[{run.world.rank}].rng is not a valid random state") from error
        run.running.load(own["window"], run.device)
        if "carried" in own:
            run.model.carried = own["carried"].to(run.device)
    else:
        rng.seed_all(run.settings.seed + run.world.rank + 1000 * run.status.step)
        warnings.append(
            f"saved by {len(state['ranks'])} ranks, resumed by {run.world.size}: each epoch still has every example "
            "exactly once, but dropout masks differ"
        )
    return warnings


def _rename_parameters(optimizers: dict[str, Any], names: Mapping[str, str]) -> None:
    """Gives the parameters of saved optimisers the names that the model has for them now."""
    for group in (group for saved in optimizers.values() for group in saved["param_groups"]):
        group["param_names"] = [names.get(name, name) for name in group["param_names"]]


def extend(run: TrainingRun, saved: dict[str, Any]) -> str | None:
    """Change the length of a restored run if it differs from that of the `saved` settings. Returns what the learning
    rate does from now on; for a run that has finished, how it is extended."""
    status, settings = run.status, run.settings
    finished = run.intervals.stop_reason(status) is not None
    before = {name: saved.get(name) for name in LENGTHS}
    if before == {name: getattr(settings, name) for name in LENGTHS}:
        if not finished:
            return None
        return f"the run has finished its {settings.length}; to extend it, resume it with more steps, epochs or minutes"
    status.unimproved = 0  # a run that ended by its patience goes on
    if run.intervals.stop_reason(status) is not None:
        done = f"{status.step:,} steps ({status.epoch:,} epochs, {status.elapsed / 60:.1f} minutes)"
        raise TrainingError(f"{run.training.parent}: has trained {done} already; {settings.length} is not more")
    status.extended_at, status.extended_factor = status.step, status.factor
    steps = run.intervals.planned_steps(status, len(run.batches()))
    rate = run.schedule.continuation(steps, Extension(status.step, status.factor))
    return f"the run now has {settings.length}, was {length_in_words(before)}: its learning rate {rate}"


def _check_settings(saved: dict[str, Any], now: dict[str, Any]) -> list[str]:
    changed = [name for name in now if name in saved and saved[name] != now[name] and name not in LENGTHS]
    differences = {name: f"{name} was {saved[name]!r} and is now {now[name]!r}" for name in changed}
    for name in FIXED_SETTINGS:
        if name in differences:
            raise TrainingError(f"this run cannot be resumed with other settings: {differences[name]}")
    return [f"resumed with other settings: {'; '.join(differences.values())}"] if differences else []


def _check_data(saved: str, now: str) -> None:
    if saved != now:
        removed = set(saved.splitlines()) - set(now.splitlines())
        added = set(now.splitlines()) - set(saved.splitlines())
        raise TrainingError(
            f"the data changed since this run was saved: was {', '.join(sorted(removed)) or 'nothing else'}, "
            f"is {', '.join(sorted(added)) or 'nothing else'}. Restore the data, or start a new run"
        )
