"""A state that was written by other hands, with checksums that agree, is refused by file and field; and nothing that is
put in its place brings another error than ours."""

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
    """Stopped after its second step, by which time every part of a state has something in it."""
    folder = tmp_path_factory.mktemp("run")

    class Full:
        def on_save(self, status, path) -> None:
            if status.step == 2:
                shutil.copytree(folder, folder / "kept")

    toy.toy_fit(folder, save_every=1, eval_every=1, callbacks=[Full()], **RUN)
    return folder / "kept"


def forge(folder: Path, form: Any) -> Path:
    """Put another state.json in, with a manifest that bears it out."""
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
    """The form with one field changed, or gone."""
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
    "status": (MISSING, "status is missing"),
    "status/step": (MISSING, "status.step is missing"),
    "status/position": ("3", "status.position is '3', where a whole number"),
    "status/epoch": (-1, "status.epoch is -1, where a whole number"),
    "status/model": ("os", "status.model is not a field of a state"),
    "stepper": ([], "stepper is a list, where an object is needed"),
    "stepper/accumulate": (10**12, "stepper.accumulate is 1000000000000, where a whole number"),
    "stepper/scale/value": (0, "stepper.scale.value is 0, where a number above 0"),
    "spikes/norms": ({"a": 1}, "spikes.norms is a dict, where a list is needed"),
    "ranks/0/window/sums": (None, "ranks.0.window.sums is None, where an object is needed"),
    "ranks/0/rng/python": (5, "ranks.0.rng.python is 5, where a tuple is needed"),
    "ranks/0/rng/numpy/state": ({}, "ranks.0.rng is not what a random stream is put back by"),
    "settings": (3.5, "settings is 3.5, where an object is needed"),
    "average/mean": (MISSING, "average.mean is missing"),
    "optimizer/muon/param_groups/0/lr": ("high", "optimizer.muon.param_groups.0 is a dict, where an object with name"),
    "journal": (None, "journal is None, where a whole number"),
}


@pytest.mark.parametrize("place", CASES)
def test_a_forged_field_is_named(run, tmp_path, place):
    value, said = CASES[place]
    with pytest.raises(TrainingError) as caught:
        resumed(run, tmp_path / "run", put(read(run), place, value))
    text = str(caught.value)
    assert text.startswith(f"{tmp_path}/run/training/state-2/state.json: {said}") and "Remove state-2" in text


def test_a_place_beyond_the_epoch_and_an_optimiser_of_other_shapes(run, tmp_path):
    form = read(run)
    with pytest.raises(TrainingError, match=r"state\.json: status\.position is 6, in an epoch of 6 batches"):
        resumed(run, tmp_path / "place", put(form, "status/position", 6))
    first = form["optimizer"]["adamw"]["state"]["$items"][0][1]
    swapped = copy.deepcopy(form)
    swapped["optimizer"]["adamw"]["state"]["$items"][0][1] = {**first, "exp_avg": first["step"]}
    with pytest.raises(TrainingError, match=r"state-2: .* optimizer\.adamw\.state\.0 is not what adamw keeps"):
        resumed(run, tmp_path / "shapes", swapped)


def leaves(form: Any, place: str = "") -> Iterator[str]:
    """Every field; of a list the first and the last."""
    names = form if isinstance(form, dict) else sorted({0, len(form) - 1}) if isinstance(form, list) and form else ()
    for name in names:
        inside = f"{place}/{name}" if place else str(name)
        yield inside
        yield from leaves(form[name], inside)


def test_no_forged_field_brings_another_error(run, tmp_path):
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


def test_without_the_form_the_error_is_python_s(run, tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "require", lambda *args, **options: None)
    with pytest.raises(KeyError):
        resumed(run, tmp_path / "run", put(read(run), "stepper/accumulate", MISSING))


def test_an_autopsy_of_another_form_is_refused(tmp_path):
    from headway.training.step_dump import replay

    with pytest.raises(TrainingError, match="autopsy-2"):
        toy.toy_fit(tmp_path, optimizer="adamw", lr=1e20, warmup=0)
    path = tmp_path / "training" / "autopsy-2"
    path.rename(path.with_name("state-2"))  # where `forge` looks
    form = read(tmp_path)
    for place, said in {"facts/step": "facts.step is missing", "batch/where": "batch.where is missing"}.items():
        folder = forge(tmp_path, put(form, place, MISSING))
        with pytest.raises(TrainingError, match=rf"state\.json: {said}"):
            replay(folder, toy.ToyModel(), loss=toy.toy_loss, device=torch.device("cpu"))
