"""A small part of `make fuzz`, from a fixed seed: all readers, and controls that show a fault would be found."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzz import format_targets
from fuzz.campaign import Target, fire, started
from fuzz.mutate import damaged, lied
from fuzz.targets import TARGETS
from PIL import Image

from headway.data.paths import ARCHIVES, WORKBOOKS
from headway.data.split import DATA_SUFFIXES
from headway.data.truncation import TruncationCounter
from headway.errors import DataError
from headway.preprocess import audio, image
from headway.preprocess.audio import Sound
from headway.preprocess.image import open_image

INPUTS = {"few": 4_000, "many": 12_000}  # in all, shared out as `make fuzz` does


@pytest.mark.parametrize("budget", ["few", pytest.param("many", marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_only_headway_errors(target: Target, budget: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    inputs = round(INPUTS[budget] * target.share / sum(each.share for each in TARGETS))
    outcome = fire(target, inputs=max(inputs, 150), seed=1, folder=tmp_path)
    assert not outcome.crashes, "\n".join(crash.trace for crash in outcome.crashes.values())
    assert "Traceback" not in capfd.readouterr().err, "an exception was printed"
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


def test_every_format_of_the_code_is_a_target() -> None:
    suffixes = {suffix for target in TARGETS for suffix in Path(target.file).suffixes}
    assert suffixes >= {*DATA_SUFFIXES, *WORKBOOKS, *ARCHIVES}
    assert format_targets.pictures([*image.FORMATS]).keys() == image.FORMATS.keys()
    assert format_targets.sounds([*audio.FORMATS]).keys() == audio.FORMATS.keys()


OTHERS = [*format_targets.other_pictures().items(), *format_targets.other_sounds().items()]


@pytest.mark.parametrize(("name", "made"), OTHERS, ids=[name for name, _ in OTHERS])
def test_trust_60_no_other_format_is_decoded(name: str, made: list[bytes], capfd: pytest.CaptureFixture[str]) -> None:
    """Sound and mutated, whatever the file is called; no program is started, and nothing is printed by a decoder."""
    random = Random(name)
    started.clear()
    for data in [*made, *(damaged(random.choice(made), made, random) for _ in range(30))]:
        for read in (lambda data: open_image(data, where="a.png"), lambda data: Sound(data, 8000, "a.wav").read()):
            with suppress_known(name), pytest.raises(DataError, match=r"^a\.(png|wav): (?!.* at 0x)"):
                read(data)
    assert not started and capfd.readouterr() == ("", "")


@contextmanager
def suppress_known(name: str) -> Iterator[None]:
    """Mutation may, rarely, make a file of one of the formats that are read."""
    try:
        yield
    except pytest.fail.Exception:
        assert name == "DIB", name  # a bitmap without the header of a file


def test_control_60_without_the_list_pillow_starts_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "gs").write_text("#!/bin/sh\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", str(tmp_path / "gs"))
    started.clear()
    with pytest.raises(OSError):
        Image.open(io.BytesIO(format_targets.other_pictures()["EPS"][0])).load()
    assert "gs" in started[0]


def test_a_program_and_memory_are_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def starts(path: Path) -> object:
        return subprocess.run(["true"]).returncode

    def grows(path: Path) -> object:
        return len(b"x" * (256 << 20))

    monkeypatch.setattr("fuzz.campaign.MEMORY", 8 << 20)
    for read, reason in ((starts, "a program was started"), (grows, "the process grew by")):
        outcome = fire(Target("planted", "x.json", [b"1"], read, lied), inputs=2, seed=1, folder=tmp_path)
        assert len(outcome.crashes) == 1 and reason in next(iter(outcome.crashes.values())).trace


@pytest.mark.slow
def test_the_runner_counts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fuzz.run", "--inputs", "300", "--seed", "1", "--only", "config", "modules.json"]
    tests = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": tests}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1].split()
    assert last[:3] == ["in", "all", "300"] and last[-1] == "0"
