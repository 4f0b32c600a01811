"""Run folders written by earlier versions open, give the recorded numbers and resume; public names still exist.

tests/folders/README.md says how the folders were made.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from support import subjects
from typer.testing import CliRunner

import headway
from headway.cli import app

ALL = Path(__file__).resolve().parent / "folders"
FOLDERS = ALL / "before_recut"
RECORDED = json.loads((FOLDERS / "recorded.json").read_text(encoding="utf-8"))
MODELS = list(RECORDED["folders"])
LATER = ALL / "before_compose"
RECORDED_LATER = json.loads((LATER / "recorded.json").read_text(encoding="utf-8"))
TOLERANCE = 1e-5


def assert_close(found: Any, recorded: Any) -> None:
    """Equal, floats within the tolerance."""
    if isinstance(recorded, dict):
        assert found.keys() == recorded.keys()
        for key in recorded:
            assert_close(found[key], recorded[key])
    elif isinstance(recorded, list):
        assert len(found) == len(recorded)
        for one, other in zip(found, recorded, strict=True):
            assert_close(one, other)
    elif isinstance(recorded, float):
        assert found == pytest.approx(recorded, abs=TOLERANCE)
    else:
        assert found == recorded


@pytest.mark.parametrize("name", list(RECORDED_LATER["folders"]))
def test_a_folder_of_the_last_version_gives_the_recorded_answers(name: str, tmp_path: Path) -> None:
    """As it is, and once it has been saved again."""
    recorded = RECORDED_LATER["folders"][name]
    bundle = headway.load(LATER / name)
    for each in (bundle, headway.load(bundle.save(tmp_path / name))):
        answers = [
            np.asarray(answer).tolist() if hasattr(answer, "mode") else answer  # a picture
            for answer in each(recorded["inputs"], **recorded["options"])
        ]
        if isinstance(answers[0], torch.Tensor):
            answers = [answer.tolist() for answer in answers]
        assert_close(answers, recorded["answers"])


def forward_arguments(name: str) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The input the recorded logits were computed from."""
    if name == "classify_image":
        return torch.linspace(-1, 1, 2 * 3 * 64).reshape(2, 3, 8, 8), {}
    ids = torch.tensor([[5, 9, 14, 7, 30], [11, 40, 6, 52, 8]])
    return ids, {"decoder_ids": ids[:, :3] + 1} if name in ("translate", "bahdanau_gru") else {}


@pytest.mark.parametrize("name", MODELS)
def test_an_old_folder_gives_the_recorded_answers(name: str) -> None:
    recorded = RECORDED["folders"][name]
    inputs = recorded["inputs"]
    if name == "classify_image":
        inputs = [FOLDERS / path for path in inputs]
    assert_close(headway.load(FOLDERS / name)(inputs, **recorded["options"]), recorded["answers"])


@pytest.mark.parametrize("name", MODELS)
def test_an_old_folder_gives_the_recorded_logits(name: str) -> None:
    recorded = RECORDED["folders"][name]
    bundle = headway.load(FOLDERS / name)
    inputs, options = forward_arguments(name)
    with torch.no_grad(), headway.inspect.record(bundle.model, "*.weights") as seen:
        logits = bundle.model(inputs, **options).logits
    torch.testing.assert_close(logits, torch.tensor(recorded["logits"]), atol=TOLERANCE, rtol=0)
    assert {tap: [list(value.shape) for value in values] for tap, values in seen.items()} == recorded["weights"]


@pytest.mark.parametrize("name", MODELS)
def test_an_old_folder_is_saved_and_opened_again(name: str, tmp_path: Path) -> None:
    bundle = headway.load(FOLDERS / name)
    again = headway.load(bundle.save(tmp_path / name))
    inputs, options = forward_arguments(name)
    with torch.no_grad():
        assert torch.equal(again.model(inputs, **options).logits, bundle.model(inputs, **options).logits)


@pytest.mark.parametrize("name", MODELS)
def test_the_taps_of_an_old_folder_keep_their_names(name: str) -> None:
    modules = dict(headway.load(FOLDERS / name).model.named_modules())
    missing = [tap for tap in RECORDED["folders"][name]["taps"] if tap not in modules]
    assert not missing


@pytest.mark.parametrize("name", list(RECORDED["taps"]))
def test_the_taps_of_published_families_keep_their_names(name: str) -> None:
    modules = dict(subjects.make(name).model.named_modules())
    missing = [tap for tap in RECORDED["taps"][name] if tap not in modules]
    assert not missing


@pytest.mark.parametrize(
    ("folder", "everything", "model"), [(FOLDERS, RECORDED, "classify"), (LATER, RECORDED_LATER, "classify_parts")]
)
def test_an_unfinished_old_run_resumes(
    folder: Path, everything: dict[str, Any], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its saved step, to the scores and answers that the old version came to."""

    class Steps:
        count = 0

        def on_step(self, *details: Any) -> None:
            self.count += 1

    shutil.copytree(folder / "unfinished", tmp_path / "run")
    shutil.copy(folder / "messages.tsv", tmp_path)
    monkeypatch.chdir(tmp_path)  # the run names its data by a relative path
    steps, recorded = Steps(), everything["resumed"]
    trained = headway.resume("run", callbacks=[steps])
    assert (steps.count, trained.result.steps) == (8, recorded["steps"])
    assert_close(trained.scores, recorded["scores"])
    assert_close(headway.load("run")(everything["folders"][model]["inputs"]), recorded["answers"])


@pytest.mark.parametrize("task", list(RECORDED["settings"]["task"]))
def test_recorded_settings_are_still_accepted(task: str, little_data: None) -> None:
    """Every `--set` key, with its section in front, with the default it had."""
    settings = {
        f"{section}.{name}": json.dumps(value)
        for section, values in [
            ("train", RECORDED["settings"]["train"]),
            ("model", RECORDED["settings"]["model"] | {"width": 16, "layers": 1, "heads": 2}),
            ("task", RECORDED["settings"]["task"][task]),
        ]
        for name, value in values.items()
        if name not in ("epochs", "minutes")  # exactly one of these and steps may be given
    } | {"train.steps": "1"}
    arguments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    result = CliRunner().invoke(app, ["check", task, *arguments])
    assert result.exit_code == 0, result.output


def test_recorded_command_line_options_still_exist() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, recorded in RECORDED["options"].items():
        options = {option for parameter in commands[name].params for option in parameter.opts}
        assert set(recorded) <= options, f"{name}: {set(recorded) - options}"
