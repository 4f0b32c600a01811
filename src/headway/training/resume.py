"""What of a run has to be saved so that it can go on as if never stopped, and how it is put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headway.errors import CheckpointError, TrainingError
from headway.training import rng
from headway.training.state import Loaded, State, load_latest, load_state
from headway.training.state_schema import ANYTHING, AVERAGE, STATE, refusal, require
from headway.training.tensor_tree import ties

if TYPE_CHECKING:
    from headway.training.loop import Run

# A run cannot be gone on with under another value of these.
FIXED = (
    *("batch", "batch_unit", "seed", "precision", "average"),
    *("optimizer", "lr", "matrix_lr", "betas", "eps", "weight_decay"),
)


def latest(run: Run) -> Loaded:
    """The newest valid state; the first rank finds it, all read it."""
    found = run.world.first(lambda: load_latest(run.training))
    path = run.world.share(found and found.path)
    return found or Loaded(state=load_state(path), path=path, warnings=[])


def snapshot(run: Run) -> State:
    """Everything the next step depends on. Every rank takes part; the first one's result is complete."""
    named = run.model.state_dict()
    return {
        "model": named,
        "optimizer": run.replica.gathered(run.optimizers.state_dict()),
        "average": run.replica.gathered(run.average.state_dict()) if run.average is not None else None,
        "ranks": run.world.gather({"rng": rng.capture(), "window": run.window.state()}),
        "status": run.status.numbers(),
        "stepper": {"accumulate": run.stepper.accumulate, "scale": dict(vars(run.stepper.scale))},
        "spikes": run.spikes.state(),
        "journal": run.journal.length(),
        "settings": run.settings.as_dict(),
        "fingerprint": run.source.fingerprint,
        "ties": ties(named),
    }


def restore(run: Run, loaded: Loaded) -> list[str]:
    """Put a snapshot back into a fresh run; what the user should know about it."""
    state, folder = loaded.state, loaded.path
    require(state, {**STATE, "average": ANYTHING if run.average is None else AVERAGE}, folder=folder)
    warnings = _settings(state["settings"], run.settings.as_dict())
    _data(state["fingerprint"], run.source.fingerprint)
    if state["ties"] != ties(run.model.state_dict()):
        raise TrainingError(f"the saved state does not fit this model: tied weights were {state['ties']}")
    try:
        run.replica.load(state, run.optimizers, run.average)
    except (RuntimeError, ValueError, KeyError, CheckpointError) as error:
        raise TrainingError(f"{folder}: the saved state does not fit this model: {error}") from error
    vars(run.status).update(state["status"])
    run.pace.restart(run.status)
    run.stepper.accumulate = max(state["stepper"]["accumulate"], run.settings.accumulate)
    vars(run.stepper.scale).update(state["stepper"]["scale"])
    run.spikes.load(state["spikes"])
    if run.status.position >= (batches := len(run.batches())):
        raise refusal(folder, f"status.position is {run.status.position}, in an epoch of {batches} batches")
    if len(state["ranks"]) == run.world.size:
        own = state["ranks"][run.world.rank]
        try:
            rng.restore(own["rng"])
        except (RuntimeError, ValueError, LookupError, TypeError, OverflowError) as error:
            raise refusal(folder, f"ranks.{run.world.rank}.rng is not what a random stream is put back by") from error
        run.window.load(own["window"], run.device)
    else:
        rng.seed_all(run.settings.seed + run.world.rank + 1000 * run.status.step)
        warnings.append(
            f"saved by {len(state['ranks'])} ranks, resumed by {run.world.size}: every example still comes once an "
            "epoch, but dropout is drawn anew"
        )
    return warnings


def _settings(saved: dict[str, Any], now: dict[str, Any]) -> list[str]:
    changed = [name for name in now if name in saved and saved[name] != now[name]]
    said = {name: f"{name} was {saved[name]!r} and is now {now[name]!r}" for name in changed}
    for name in FIXED:
        if name in said:
            raise TrainingError(f"this run cannot be resumed with other settings: {said[name]}")
    return [f"resumed with other settings: {'; '.join(said.values())}"] if said else []


def _data(saved: str, now: str) -> None:
    if saved != now:
        gone = set(saved.splitlines()) - set(now.splitlines())
        come = set(now.splitlines()) - set(saved.splitlines())
        raise TrainingError(
            f"the data changed since this run was saved: was {', '.join(sorted(gone)) or 'less'}, "
            f"is {', '.join(sorted(come)) or 'less'}. Put the data back, or start a new run"
        )
