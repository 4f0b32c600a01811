"""A state with matching checksums and a wrong field is refused by file and field; no value of a field raises another
kind of error."""

import copy
import hashlib
import json
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from headway.errors import HeadwayError, TrainingError
from headway.training import loop, resume
from headway.training.state import states

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("toy_run.py"))))
RUN = {"steps": 4, "average": 0.9, "log_every": 3, "evaluate": toy.toy_evaluate, "score": "loss"}
RUN["higher_is_better"] = False
MISSING = object()


@pytest.fixture(scope="module", autouse=True)
def no_curves():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "draw_curves", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run stopped after its second step, when no part of its state is empty."""
    folder = tmp_path_factory.mktemp("run")

    class Full:
        def on_save(self, status, path) -> None:
            if status.step == 2:
                shutil.copytree(folder, folder / "kept")

    toy.toy_fit(folder, save_every=1, eval_every=1, callbacks=[Full()], **RUN)
    return folder / "kept"


def forge(folder: Path, form: Any) -> Path:
    """Replace state.json and update the manifest to match."""
    (state,) = states(folder / "training")[:1]
    text = json.dumps(form).encode()
    (state / "state.json").write_bytes(text)
    manifest = json.loads((state / "manifest.json").read_text())
    manifest["files"]["state.json"] = {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
    (state / "manifest.json").write_text(json.dumps(manifest))
    return state


def read(folder: Path) -> Any:
    return json.loads((states(folder / "training")[0] / "state.json").read_text())


def put(form: Any, place: str, value: Any) -> Any:
    """A copy with one field changed or removed."""
    form = copy.deepcopy(form)
    *way, last = [int(name) if name.isdigit() else name for name in place.split("/")]
    inside = form
    for name in way:
        inside = inside[name]
    if value is MISSING:
        del inside[last]
    else:
        inside[last] = value
    return form


def resumed(run: Path, folder: Path, form: Any) -> Path:
    shutil.copytree(run, folder)
    state = forge(folder, form)
    toy.toy_fit(folder, model=toy.ToyModel(seed=1), resume=True, **RUN)
    return state


CASES = {
    "status": (MISSING, "missing key 'status'"),
    "status/step": (MISSING, "status: missing key 'step'"),
    "status/position": ("3", "status.position: expected a whole number, 0 or more, got '3'"),
    "status/epoch": (-1, "status.epoch: expected a whole number, 0 or more, got -1"),
    "status/model": ("os", "status: unknown key 'model'"),
    "stepper": ([], "stepper: expected an object, got []"),
    "stepper/accumulate": (10**12, "stepper.accumulate: expected a whole number from 1 to 1048576, got 1000000000000"),
    "stepper/scale/value": (0, "stepper.scale.value: expected a number above 0, got 0"),
    "spikes/norms": ({"a": 1}, "spikes.norms: expected a list, got {'a': 1}"),
    "ranks/0/window/sums": (None, "ranks[0].window.sums: expected an object, got None"),
    "ranks/0/rng/python": (5, "ranks[0].rng.python: expected a tuple, got 5"),
    "ranks/0/rng/numpy/state": ({}, "ranks[0].rng is not a valid random state"),
    "settings": (3.5, "settings: expected an object, got 3.5"),
    "average/mean": (MISSING, "average: missing key 'mean'"),
    "optimizer/muon/param_groups/0/lr": (
        "high",
        "optimizer.muon.param_groups[0]: expected an object with name, param_names",
    ),
    "journal": (None, "journal: expected a whole number, 0 or more, got None"),
}


@pytest.mark.parametrize("place", CASES)
def test_a_forged_field_is_named(run, tmp_path, place):
    value, message = CASES[place]
    with pytest.raises(TrainingError) as caught:
        resumed(run, tmp_path / "run", put(read(run), place, value))
    text = str(caught.value)
    assert text.startswith(f"{tmp_path}/run/training/state-2/state.json: {message}") and "Remove state-2" in text


def test_a_position_beyond_the_epoch_and_an_optimiser_state_of_other_shapes(run, tmp_path):
    form = read(run)
    with pytest.raises(TrainingError, match=r"state\.json: status\.position is 6, in an epoch of 6 batches"):
        resumed(run, tmp_path / "place", put(form, "status/position", 6))
    first = form["optimizer"]["adamw"]["state"]["$items"][0][1]
    swapped = copy.deepcopy(form)
    swapped["optimizer"]["adamw"]["state"]["$items"][0][1] = {**first, "exp_avg": first["step"]}
    with pytest.raises(TrainingError, match=r"state-2: .* optimizer\.adamw\.state\.0 does not fit its parameter"):
        resumed(run, tmp_path / "shapes", swapped)


def leaves(form: Any, place: str = "") -> Iterator[str]:
    """Every field; of a list the first and the last."""
    names = form if isinstance(form, dict) else sorted({0, len(form) - 1}) if isinstance(form, list) and form else ()
    for name in names:
        inside = f"{place}/{name}" if place else str(name)
        yield inside
        yield from leaves(form[name], inside)


def test_no_forged_field_raises_another_error(run, tmp_path):
    random, form, refused = Random(0), read(run), 0
    places = [place for place in leaves(form) if not place.startswith("settings")]
    others = [MISSING, None, "x", -1, 10**30, float("nan"), [], {}, [[1]], {"$tensor": "no"}, True]
    for number, place in enumerate(random.sample(places, 80)):
        try:
            resumed(run, tmp_path / str(number), put(form, place, random.choice(others)))
        except HeadwayError as error:
            refused += "state-2" in str(error)
        shutil.rmtree(tmp_path / str(number))
    assert refused > 40


def test_without_the_schema_the_error_is_a_key_error(run, tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "check_schema", lambda *args, **options: None)
    with pytest.raises(KeyError):
        resumed(run, tmp_path / "run", put(read(run), "stepper/accumulate", MISSING))


def test_a_step_dump_with_a_wrong_field_is_refused(tmp_path):
    from headway.training.step_dump import replay

    with pytest.raises(TrainingError, match="autopsy-2"):
        toy.toy_fit(tmp_path, optimizer="adamw", lr=1e20, warmup=0)
    path = tmp_path / "training" / "autopsy-2"
    path.rename(path.with_name("state-2"))  # where `forge` looks
    form = read(tmp_path)
    for place, message in {
        "facts/step": "facts: missing key 'step'",
        "batch/where": "batch: missing key 'where'",
    }.items():
        folder = forge(tmp_path, put(form, place, MISSING))
        with pytest.raises(TrainingError, match=rf"state\.json: {message}"):
            replay(folder, toy.ToyModel(), loss=toy.toy_loss, device=torch.device("cpu"))
