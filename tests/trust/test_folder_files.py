"""TRUST 47: any file of a run or model folder is replaced by a pipe, a device, a folder, a link out of it or hostile
content. Each command that uses the folder ends with a clear error, or as with the sound folder where it does not need
the file; nothing outside is opened or changed, and nothing is waited for."""

from __future__ import annotations

import os
import re
import shutil
import time
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
from support.bad_files import sound
from support.commands import Result, headway
from support.hostile_files import FAULTS, KINDS, opened_below, released

from headway import jobs
from headway.checkpoints.saved import CHECKSUMS
from headway.checkpoints.sentence import sentence_settings
from headway.errors import CheckpointError
from headway.loading import load
from headway.training import loop

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")

SECONDS = 2  # of computing, for each command
SMALL: dict[str, Any] = {
    "model.width": 16, "model.layers": 1, "model.heads": 2, "eval_every": 1, "batch": 8, "save_every": 1, "vocab": 300,
}  # fmt: skip
COMMANDS = {
    "info": ["info", "run"],
    "run": ["run", "run", "Guest 3 asked for tea."],
    "evaluate": ["evaluate", "run", "x.csv"],
    "evaluate its run": ["evaluate", "run"],
    "resume": ["train", "classify", "--resume", "--out", "run"],
}
NEEDED = {  # files without which a command has no answer
    "config.json": set(COMMANDS),
    "model.safetensors": set(COMMANDS),
    "tokenizer.json": set(COMMANDS),
    "headway.json": set(COMMANDS),
    "tokenizer_config.json": set(COMMANDS),
    "training/plan.json": {"evaluate its run", "resume"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a run with every file that a run writes."""
    place = tmp_path_factory.mktemp("folder-files")
    (place / "x.csv").write_text(sound("classify", "csv"), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        jobs.train("classify", "x.csv", out="run", steps=3, settings={**SMALL, "keep_states": True})
    (place / "run" / "training" / "lock").write_text("1")  # of a process that was killed
    return place


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all else."""
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def healthy(place: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """What each command prints for the sound folder."""
    found = {}
    for command, words in COMMANDS.items():
        copy = tmp_path_factory.mktemp("healthy") / "place"
        shutil.copytree(place, copy)
        found[command] = headway(*words, cwd=copy)
        assert found[command].returncode == 0, found[command].stderr
    return found


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def scores_of(result: Result) -> list[str]:
    """The lines that do not depend on the clock or on repaired files."""
    return [line for line in result.stdout.splitlines() if line.startswith(("accuracy", "loss", "f1", "{", "["))]


def attempt(place: Path, folder: Path, name: str, fault: str, *, command: str, healthy: Result) -> None:
    """Uses a copy of the place in which one file is replaced; asserts what must hold."""
    shutil.copytree(place, folder / "place")
    outside = folder / "outside"
    outside.mkdir()
    target = folder / "place" / "run" / name
    if name != CHECKSUMS:  # which would end every trial
        (folder / "place" / "run" / CHECKSUMS).unlink()
    FAULTS[fault](target, outside)
    before, began = snapshot(outside), time.process_time()
    with released(target) as waited, opened_below(outside) as opened:
        result = headway(*COMMANDS[command], cwd=folder / "place")
    seconds, case = time.process_time() - began, f"{name}, {fault}, {command}:\n{result.stdout}{result.stderr}"
    assert not waited and seconds < SECONDS, f"{seconds:.1f} s: {case}"
    assert not opened and snapshot(outside) == before, f"{opened}: {case}"
    if result.returncode:
        error = result.stderr.splitlines()[-1]
        assert result.returncode == 2 and error.startswith("error: "), case
        assert Path(name).name in error or str(Path(name).parent.name) in error, case
        assert len(error) < 1000 and error.isprintable(), case
    else:
        unknown_keys = name == "tokenizer_config.json" and fault in ("infinite number", "other fields")
        assert unknown_keys or command not in NEEDED.get(name, ()), f"not noticed: {case}"
        warned = any(line.startswith("warning: ") and name in line for line in result.stdout.splitlines())
        assert warned or scores_of(result) == scores_of(healthy), case
    shutil.rmtree(folder)


def cases(place: Path) -> list[tuple[str, str, str]]:
    return list(product(files_of(place / "run"), FAULTS, COMMANDS))


def test_the_run_has_the_files(place: Path) -> None:
    names = set(files_of(place / "run"))
    assert {*NEEDED, "README.md", "training/lock", "training/metrics.jsonl", "training/best.safetensors"} <= names
    assert {"training/initial.json", "training/scores.json", "training/examples/index.json"} <= names
    assert {"training/state-3/manifest.json", "training/state-3/optimizer.safetensors"} <= names


def run_cases(chosen: list[tuple[str, str, str]], place: Path, healthy: dict[str, Result], folder: Path) -> None:
    for number, (name, fault, command) in enumerate(chosen):
        attempt(place, folder / str(number), name, fault, command=command, healthy=healthy[command])


def test_a_sample_of_the_grid(place: Path, healthy: dict[str, Result], tmp_path: Path) -> None:
    """Every file with two faults, each with a command that reads it; over all files every fault occurs."""
    kinds, faults, commands, chosen = cycle(KINDS), cycle(FAULTS), cycle(COMMANDS), []
    for name in files_of(place / "run"):
        for fault in (next(kinds), next(faults)):
            chosen.append((name, fault, "resume" if name.startswith("training/") else next(commands)))
    assert {fault for _, fault, _ in chosen} == set(FAULTS)
    run_cases(chosen, place, healthy, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_whole_grid(place: Path, healthy: dict[str, Result], tmp_path: Path, fault: str, command: str) -> None:
    run_cases([(name, fault, command) for name in files_of(place / "run")], place, healthy, tmp_path)


OPTIONAL = [
    "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "modules.json", "processor_config.json",
]  # fmt: skip


@pytest.mark.parametrize("name", OPTIONAL)
def test_optional_files_are_read_with_the_same_care(place: Path, tmp_path: Path, name: str) -> None:
    """Also a dangling link: it is not taken for an absent file."""
    for number, fault in enumerate(KINDS):
        folder, outside = tmp_path / str(number), tmp_path / f"outside-{number}"
        shutil.copytree(place / "run", folder)
        outside.mkdir()
        (folder / name).write_text("{}")
        (folder / CHECKSUMS).unlink()
        KINDS[fault](folder / name, outside)
        with released(folder / name) as waited, pytest.raises(CheckpointError, match=re.escape(name)):
            sentence_settings(folder) if name == "modules.json" else load(folder)
        assert not waited and not (outside / "created").exists(), fault


def test_a_model_in_the_hub_cache_loads(place: Path, tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "0123", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for path in (place / "run").iterdir():
        if path.is_file():
            shutil.copy(path, blobs / f"hash-of-{path.name}")
            (snapshot / path.name).symlink_to(f"../../blobs/hash-of-{path.name}")
    assert load(snapshot)("Guest 3 asked for tea.") == load(place / "run")("Guest 3 asked for tea.")
    assert headway("info", snapshot, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("name", ["training", "adapter"])
def test_a_run_does_not_write_into_a_linked_folder(place: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(place, tmp_path / "place")
    outside, inner = tmp_path / "outside", tmp_path / "place" / "run" / name
    shutil.move(inner, outside) if inner.exists() else outside.mkdir()
    inner.symlink_to(outside)
    before = snapshot(outside)
    result = headway(*COMMANDS["resume"], cwd=tmp_path / "place")
    assert result.returncode == 2 and f"{name}" in result.stderr and "link that leaves the folder" in result.stderr
    assert snapshot(outside) == before


def test_a_linked_draft_is_not_emptied(place: Path, tmp_path: Path) -> None:
    """An unfinished store is removed and written again; if its folder is a link, only the link is removed."""
    shutil.copytree(place, tmp_path / "place")
    training, mine = tmp_path / "place" / "run" / "training", tmp_path / "mine"
    mine.mkdir()
    (mine / "precious").write_text("mine")
    shutil.rmtree(training / "examples")
    (training / ".examples-draft").symlink_to(mine)
    assert headway(*COMMANDS["resume"], cwd=tmp_path / "place").returncode == 0
    assert (mine / "precious").read_text() == "mine" and (training / "examples" / "index.json").is_file()
