"""A state on disk is complete or absent, verified by checksums, and never a pickle."""

import errno
import json
import os
import resource
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from headway import files
from headway.errors import DiskError, TrainingError
from headway.training import rng, state
from headway.training.state import (
    load_latest,
    load_state,
    load_tensors,
    lock_folder,
    remove_partial,
    save_state,
    save_tensors,
    states,
    verify,
)
from headway.training.state_diff import first_difference
from headway.training.tensor_tree import TensorCollector, flatten, tied_names, unflatten


def example(step: int) -> dict:
    return {
        "model": {"weight": torch.arange(12.0).reshape(3, 4) + step, "bias": torch.zeros(4)},
        "optimizer": {"state": {0: {"step": torch.tensor(float(step)), "mean": torch.ones(3)}}, "betas": (0.9, 0.99)},
        "ranks": [{"rng": rng.capture()}],
        "status": {"step": step, "best": None, "name": "x"},
    }


def equal(left, right) -> bool:
    return first_difference(left, right) is None


@pytest.fixture
def two(tmp_path) -> Path:
    for step in (10, 20):
        save_state(tmp_path, step, example(step), keep=2)
    return tmp_path


def test_round_trip(two):
    loaded = load_latest(two)
    assert loaded.warnings == [] and loaded.path.name == "state-20"
    expected = example(20)
    expected["ranks"][0]["rng"] = loaded.state["ranks"][0]["rng"]
    assert equal(loaded.state, expected)


def test_random_states_survive_json(tmp_path):
    import random

    import numpy as np

    rng.seed_all(3)
    random.gauss(0, 1)  # leaves half a pair behind, which is part of the state
    np.random.randn()
    save_state(tmp_path, 1, {"rng": rng.capture()}, keep=1)
    drawn = random.gauss(0, 1), np.random.randn(), float(torch.rand(())), random.random()
    rng.restore(load_latest(tmp_path).state["rng"])
    assert (random.gauss(0, 1), np.random.randn(), float(torch.rand(())), random.random()) == drawn


def test_only_safetensors_and_json(two):
    suffixes = {path.suffix for path in (two / "state-20").iterdir()}
    assert suffixes == {".safetensors", ".json"}
    with pytest.raises(TrainingError, match=r"status\.thing: an object cannot be saved"):
        save_state(two, 30, {"status": {"thing": object()}}, keep=2)
    assert [path.name for path in states(two)] == ["state-20", "state-10"]


def test_ties_and_views_are_stored_once():
    table = torch.rand(5, 3)
    tree = {"embed": table, "out": table, "row": table[1], "turned": table.T}
    collector = TensorCollector()
    form = json.loads(json.dumps(flatten(tree, "model", collector)))
    assert list(collector.tensors) == ["model.embed", "model.row", "model.turned"]
    assert collector.bytes == table.nbytes * 2 + table[1].nbytes
    assert equal(unflatten(form, collector.tensors), tree)
    assert tied_names({"embed": table, "out": table, "row": table[1]}) == [["embed", "out"]]


def test_rotation(tmp_path):
    for step in (9, 10, 100):
        save_state(tmp_path, step, example(step), keep=2)
    assert [path.name for path in states(tmp_path)] == ["state-100", "state-10"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state-10", "state-100"]


@pytest.mark.parametrize("keep", [1, 2])
def test_rotation_never_leaves_less_than_one_valid_state(tmp_path, keep):
    """Whatever happens to the newest state after it was written, there is a valid one when the next is."""
    for step in range(1, 8):
        save_state(tmp_path, step, example(step), keep=keep)
        found = states(tmp_path)
        assert len(found) <= keep and verify(found[0]) is None and load_state(found[0])["status"]["step"] == step
        if step % 2:
            flip(found[0] / "model.safetensors")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def remove(path: Path) -> None:
    path.unlink()


FILES = ("model.safetensors", "optimizer.safetensors", "ranks.safetensors", "state.json", "manifest.json")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", [flip, truncate, zero, remove])
def test_damage_falls_back_one_and_says_so(two, damage, file):
    damage(two / "state-20" / file)
    loaded = load_latest(two)
    assert loaded.path.name == "state-10" and loaded.state["status"]["step"] == 10
    assert (
        len(loaded.warnings) == 1
        and "state-20" in loaded.warnings[0]
        and "resuming from state-10" in loaded.warnings[0]
    )
    assert [path.name for path in states(two)] == ["state-10"] and (two / "state-20.damaged").is_dir()
    save_state(two, 20, example(20), keep=2)
    assert load_latest(two).path.name == "state-20"


def test_all_damaged_is_refused_again_and_again(two):
    for path in states(two):
        flip(path / "model.safetensors")
    for _ in range(2):
        with pytest.raises(TrainingError, match=r"every saved state is damaged.*state-20.*state-10"):
            load_latest(two)


def test_a_folder_without_states_is_refused(tmp_path):
    with pytest.raises(TrainingError, match="no state to resume"):
        load_latest(tmp_path)


@pytest.mark.parametrize(("module", "moment"), [(state, "write_safetensors"), (state, "sha256"), (files, "fsync")])
def test_disk_full_leaves_the_earlier_states(two, monkeypatch, module, moment):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, moment, full)
    with pytest.raises(DiskError, match=r"state-30: .*No space left.*[\d,]+ bytes are needed and [\d,]+ are free"):
        save_state(two, 30, example(30), keep=2)
    monkeypatch.undo()
    assert sorted(path.name for path in two.iterdir()) == ["state-10", "state-20"]
    assert all(verify(path) is None for path in states(two))


def test_a_really_full_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        small = {"model": {"weight": torch.zeros(100_000)}}  # 400 kB: two fit, a third does not
        save_state(disk, 1, small, keep=2)
        save_state(disk, 2, small, keep=2)
        with pytest.raises(DiskError, match=r"state-3: .*400,\d\d\d bytes are needed"):
            save_state(disk, 3, small, keep=2)
        assert [path.name for path in states(disk)] == ["state-2", "state-1"]
        assert load_latest(disk).path.name == "state-2"
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_file_too_large_for_the_disk(two):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(DiskError, match=r"state-30: .*400,\d\d\d bytes are needed"):
            save_state(two, 30, {"model": {"weight": torch.zeros(100_000)}}, keep=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert load_latest(two).path.name == "state-20" and not list(two.glob("*.partial"))


def test_an_interrupted_save_is_cleaned_up(two):
    (two / "state-30.partial").mkdir()
    (two / "state-30.partial" / "model.safetensors").write_bytes(b"half")
    assert load_latest(two).path.name == "state-20"
    remove_partial(two)
    assert sorted(path.name for path in two.iterdir()) == ["state-10", "state-20"]


def test_weights_are_replaced_atomically(tmp_path, monkeypatch):
    path = tmp_path / "best.safetensors"
    table = torch.rand(4, 2)
    digest = save_tensors(path, {"embed": table, "out": table})
    assert equal(load_tensors(path), {"embed": table, "out": table})
    assert digest == files.sha256(path) == save_tensors(path, {"embed": table, "out": table})
    monkeypatch.setattr(files, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(DiskError, match="full"):
        save_tensors(path, {"embed": table + 1})
    assert files.sha256(path) == digest and [file.name for file in tmp_path.iterdir()] == ["best.safetensors"]


def test_a_folder_is_locked_by_one_process(tmp_path):
    def other() -> None:
        with pytest.raises(TrainingError, match=f"process {os.getpid()} is training"), lock_folder(tmp_path):
            pass

    with lock_folder(tmp_path), lock_folder(tmp_path), ThreadPoolExecutor() as pool:
        pool.submit(other).result()
    with ThreadPoolExecutor() as pool, pytest.raises(BaseException, match="DID NOT RAISE"):
        pool.submit(other).result()
