"""`calibrate`: the temperature that fits is found and goes into the weights; only how sure a model is changes."""

import math
from functools import cache
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import headway
from headway import jobs
from headway.cli import app
from headway.errors import ConfigError
from headway.jobs.calibrate import calibrate, minimum
from headway.models.ensemble import members_of
from headway.models.rehead import apply_temperature

SMALL = {"model.width": 16, "model.layers": 1, "model.heads": 2, "task.vocab": 80, "eval_every": 0}
HELD = {
    "generate": ("held.txt", "to be or not to be, that is the question; " * 100, {"context": 32, "kind": "char"}),
    "classify": ("held.tsv", "".join(f"hello {i % 40}\t{'good' if i % 3 else 'bad'}\n" for i in range(120)), {}),
    "tag": ("held.conll", "".join(f"hello O\nPeter{i} {'B-PER' if i % 3 else 'O'}\n\n" for i in range(90)), {}),
}


@pytest.fixture(scope="module", params=HELD)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[jobs.Trained, Path]:
    """A run, and a file to fit on."""
    folder = tmp_path_factory.mktemp("subject")
    name, text, more = HELD[request.param]
    (folder / name).write_text(text)
    run = jobs.train(request.param, folder / name, out=folder / "run", steps=20, settings={**SMALL, **more})
    return run, folder / name


def test_the_temperature_goes_into_the_weights(subject: tuple[jobs.Trained, Path], tmp_path: Path) -> None:
    run, held = subject
    first = calibrate(run.folder, tmp_path / "first", held)
    bundle = headway.load(tmp_path / "first")
    apply_temperature(bundle.model, 1 / 3)
    sure = bundle.save(tmp_path / "sure")
    found = calibrate(sure, tmp_path / "out", held)
    assert found.temperature == pytest.approx(3, rel=0.01)
    assert found.before == pytest.approx(jobs.evaluate(sure, held)["loss"], abs=1e-6)
    assert found.after == pytest.approx(jobs.evaluate(tmp_path / "out", held)["loss"], abs=1e-4)
    assert found.after == pytest.approx(first.after, abs=1e-4) and found.after < found.before - 0.1
    asked = torch.randint(5, 12, (2, 9))
    logits = [headway.load(folder).model(asked).logits for folder in (sure, tmp_path / "out")]
    torch.testing.assert_close(logits[1] * found.temperature, logits[0], atol=1e-4, rtol=1e-4)


def test_a_run_is_fitted_on_what_it_held_out(subject: tuple[jobs.Trained, Path], tmp_path: Path) -> None:
    run, _ = subject
    told = CliRunner().invoke(app, ["calibrate", str(run.folder), str(tmp_path / "out")])
    assert told.exit_code == 0 and f"loss         {run.scores['loss']:.4f} → " in told.stdout
    assert "temperature  " in told.stdout


def test_an_ensemble_is_divided_as_a_whole(tmp_path: Path) -> None:
    settings = {name: value for name, value in SMALL.items() if name.startswith("model.")}
    run = jobs.train("classify", out=tmp_path / "run", steps=2, settings=settings)
    before = headway.load(run.folder).model
    assert members_of(before)
    found = calibrate(run.folder, tmp_path / "out")
    asked = torch.randint(5, 60, (2, 9))
    expected = before(asked).logits / found.temperature
    torch.testing.assert_close(headway.load(tmp_path / "out").model(asked).logits, expected, atol=1e-4, rtol=1e-4)
    assert found.after == pytest.approx(jobs.evaluate(tmp_path / "out")["loss"], abs=1e-4)


@pytest.mark.parametrize("at", [-1.2, 0.0, 0.1, 0.7, 3.0])
def test_the_minimum_is_found_in_few_evaluations(at: float) -> None:
    @cache
    def valley(x: float) -> float:
        return math.cosh(x - at) + 0.1 * (x - at) ** 3 * (abs(x - at) < 0.5)

    assert minimum(valley) == pytest.approx(at, abs=0.005)
    assert valley.cache_info().misses <= 9 + 8 * abs(at)
    assert abs(minimum(lambda x: -x)) < 5, "where there is no lowest point, the search ends"


def test_what_cannot_be_calibrated_is_refused(
    language_model: Path, translator: Path, embedder: Path, tmp_path: Path
) -> None:
    for model, out, message in [
        (embedder, tmp_path / "out", "chooses among labels or tokens"),
        (translator, tmp_path / "out", "chooses among labels or tokens"),
        (language_model, tmp_path / "out", "give data that the model was not trained on"),
        (language_model, language_model, "already holds a model"),
    ]:
        with pytest.raises(ConfigError, match=message):
            calibrate(model, out)
    assert not (tmp_path / "out").exists()
