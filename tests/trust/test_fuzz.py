"""A small part of `make fuzz`, from a fixed seed: all readers, and controls that show a fault would be found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fuzz.campaign import Target, fire
from fuzz.mutate import lied
from fuzz.targets import TARGETS

from headway.data.truncation import TruncationCounter
from headway.errors import DataError

INPUTS = {"few": 4_000, "many": 12_000}  # in all, shared out as `make fuzz` does


@pytest.mark.parametrize("budget", ["few", pytest.param("many", marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_only_headway_errors(target: Target, budget: str, tmp_path: Path) -> None:
    inputs = round(INPUTS[budget] * target.share / sum(each.share for each in TARGETS))
    outcome = fire(target, inputs=max(inputs, 150), seed=1, folder=tmp_path)
    assert not outcome.crashes, "\n".join(crash.trace for crash in outcome.crashes.values())
    assert outcome.read, "a target that is always answered alike is not being tested"
    if target.name == "store index":  # used or prepared again, see `read_store`
        assert outcome.ways == 2 and outcome.read == outcome.inputs
    elif target.name == "store progress":  # the same examples, or an error that the progress file is damaged
        assert outcome.ways == 2 and outcome.refused
    else:
        assert outcome.refused and outcome.ways > 5


def planted(path: Path) -> object:
    """A reader that fails on a nested list under one key, without validation."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: bad JSON") from error
    return {key: [part + 1 for part in parts] for key, parts in value.items()} if isinstance(value, dict) else None


def test_a_planted_fault_is_found_and_its_input_kept(tmp_path: Path) -> None:
    target = Target("planted", "x.json", [b'{"sizes": [1, 2], "more": [3]}'], planted, lied)
    outcome = fire(target, inputs=500, seed=1, folder=tmp_path)
    assert outcome.crashes
    for crash in outcome.crashes.values():
        (tmp_path / "x.json").write_bytes(crash.data)
        with pytest.raises((TypeError, AttributeError)):
            planted(tmp_path / "x.json")


def unchecked(counter: TruncationCounter, state: Any) -> bool:
    counter.seen, counter.cut, counter.limit, counter.worst = (
        state[part] for part in ("seen", "cut", "limit", "worst")
    )
    return True


PLANTED = [
    ("store index", "headway.data.store.is_intact", lambda *_: True),
    ("store index", "headway.data.truncation.TruncationCounter.load_state_dict", unchecked),
    ("store progress", "headway.data.store_writer.is_intact", lambda *_: True),
]


@pytest.mark.parametrize("file,name,replacement", PLANTED, ids=lambda part: part if isinstance(part, str) else "")
def test_a_store_without_validation_is_found(
    file: str, name: str, replacement: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    target = next(target for target in TARGETS if target.name == file)
    target.read(_written(tmp_path / target.file, target.seeds[0]))  # what it is compared with is prepared soundly
    monkeypatch.setattr(name, replacement)
    assert fire(target, inputs=150, seed=1, folder=tmp_path).crashes


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_the_same_seed_makes_the_same_inputs(tmp_path: Path) -> None:
    target = next(target for target in TARGETS if target.name == "CSV")
    one, two, other = (fire(target, inputs=150, seed=seed, folder=tmp_path) for seed in (3, 3, 4))
    assert (
        (one.refused, one.read, one.ways)
        == (two.refused, two.read, two.ways)
        != (other.refused, other.read, other.ways)
    )


@pytest.mark.slow
def test_the_runner_counts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fuzz.run", "--inputs", "300", "--seed", "1", "--only", "config", "modules.json"]
    tests = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": tests}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1].split()
    assert last[:3] == ["in", "all", "300"] and last[-1] == "0"
