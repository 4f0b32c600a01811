"""Writing: what was there before survives every failure, and what was written is what the field reads."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from headway.checkpoints import TensorFiles, save_json, save_tensors
from headway.checkpoints import save as save_module
from headway.errors import CheckpointError, DiskError

INDEX = "model.safetensors.index.json"


def listing(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_one_file_when_it_fits(tmp_path: Path) -> None:
    save_tensors(tmp_path / "new" / "model", {"a": torch.arange(4)})
    assert listing(tmp_path / "new" / "model") == {"model.safetensors"}
    assert torch.equal(load_file(tmp_path / "new" / "model" / "model.safetensors")["a"], torch.arange(4))


def test_shards_when_it_does_not(tmp_path: Path) -> None:
    tensors = {f"layer.{i}": torch.full((10,), float(i)) for i in range(5)}
    save_tensors(tmp_path, tensors, shard_bytes=100, metadata={"format": "pt", "step": "3"})
    shards = {f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)}
    assert listing(tmp_path) == {INDEX, *shards}
    index = json.loads((tmp_path / INDEX).read_text(encoding="utf-8"))
    assert index["metadata"] == {"total_size": 200}
    assert set(index["weight_map"].values()) == shards
    files = TensorFiles(tmp_path)
    assert files.metadata == {"format": "pt", "step": "3"}
    assert all(torch.equal(files[name], tensor) for name, tensor in tensors.items())


def test_a_tensor_larger_than_a_shard_gets_its_own(tmp_path: Path) -> None:
    save_tensors(tmp_path, {"a": torch.ones(1), "b": torch.ones(100), "c": torch.ones(1)}, shard_bytes=8)
    assert len(TensorFiles(tmp_path).files) == 3


def test_a_header_stays_readable_however_many_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save_module, "MAX_JSON", 4000)
    save_tensors(tmp_path, {f"t{i}": torch.zeros(1) for i in range(30)})
    files = TensorFiles(tmp_path)
    assert len(files) == 30 and len(files.files) > 1
    for file in files.files:
        assert int.from_bytes(file.read_bytes()[:8], "little") < 4000


def test_shared_views_and_strides_are_saved_by_value(tmp_path: Path) -> None:
    base = torch.arange(12.0)
    tensors = {
        "whole": base,
        "same": base,
        "head": base[:4],
        "tail": base[8:],
        "transposed": base.view(3, 4).t(),
        "trained": torch.nn.Parameter(torch.ones(2)),
    }
    save_tensors(tmp_path, tensors)
    files = TensorFiles(tmp_path)
    assert all(torch.equal(files[name], tensor) for name, tensor in tensors.items())


def test_the_same_tensors_make_the_same_bytes(tmp_path: Path) -> None:
    tensors = {"b": torch.ones(3), "a": torch.zeros(2, dtype=torch.int64)}
    save_tensors(tmp_path / "one", tensors)
    save_tensors(tmp_path / "two", {name: tensor.clone() for name, tensor in tensors.items()})
    assert TensorFiles(tmp_path / "one").checksums() == TensorFiles(tmp_path / "two").checksums()


@pytest.mark.parametrize("before", [10**9, 50, 90])
@pytest.mark.parametrize("after", [10**9, 50])
def test_saving_again_leaves_nothing_of_the_first(before: int, after: int, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    save_tensors(tmp_path, {f"old{i}": torch.zeros(10) for i in range(4)}, shard_bytes=before)
    save_tensors(tmp_path, {f"new{i}": torch.ones(10) for i in range(3)}, shard_bytes=after)
    files = TensorFiles(tmp_path)
    assert set(files) == {"new0", "new1", "new2"}
    expected = {file.name for file in files.files} | {"config.json"} | ({INDEX} if after == 50 else set())
    assert listing(tmp_path) == expected


def test_a_mapped_file_can_be_saved_over(tmp_path: Path) -> None:
    save_tensors(tmp_path, {"a": torch.arange(5.0)})
    save_tensors(tmp_path, TensorFiles(tmp_path))
    mapped = TensorFiles(tmp_path)["a"]
    save_tensors(tmp_path, {"a": torch.zeros(5)})
    assert torch.equal(mapped, torch.arange(5.0))
    assert torch.equal(TensorFiles(tmp_path)["a"], torch.zeros(5))


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(2, device="meta"), torch.ones(2, dtype=torch.complex128), torch.eye(2).to_sparse()],
    ids=["meta", "complex128", "sparse"],
)
def test_what_the_format_cannot_hold_is_refused_by_name(tensor: torch.Tensor, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tensor 'odd' cannot be saved"):
        save_tensors(tmp_path, {"fine": torch.ones(1), "odd": tensor})
    assert listing(tmp_path) == set()


def test_the_weights_are_as_readable_as_their_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    save_tensors(tmp_path, {"a": torch.ones(1)})
    assert stat.S_IMODE((tmp_path / "model.safetensors").stat().st_mode) == 0o644


SAVE_TOO_MUCH = """
import os, resource, sys, torch
from headway.checkpoints import TensorFiles, save_tensors
from headway.errors import DiskError

old = {f"old{i}": torch.zeros(100) for i in range(4)}
new = {"small": torch.ones(10)} | {f"new{i}": torch.ones(200_000) for i in range(2)}
for name, shard_bytes in [("single", 10**7), ("sharded", 1000)]:
    folder = os.path.join(sys.argv[1], name)
    save_tensors(folder, old, shard_bytes=shard_bytes)
    before = sorted(os.listdir(folder))
    if sys.argv[2] == "small files":
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    try:
        save_tensors(folder, new, shard_bytes=shard_bytes)
        print("went through")
    except DiskError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert sorted(os.listdir(folder)) == before, os.listdir(folder)
    files = TensorFiles(folder)
    assert sorted(files) == sorted(old) and not any(files[name].any() for name in files)
"""


def check_survival(run: subprocess.CompletedProcess[str], folder: Path, *, complaint: str) -> None:
    assert run.returncode == 0, run.stdout + run.stderr
    single, sharded = run.stdout.strip().splitlines()
    assert f"{folder / 'single' / 'model.safetensors'}: cannot be written ({complaint}" in single
    assert "1,600,040 bytes are needed and" in single
    assert f"{folder / 'sharded' / 'model-00002-of-00003.safetensors'}: cannot be written ({complaint}" in sharded
    assert "800,000 bytes are needed and" in sharded


@pytest.mark.skipif(sys.platform != "linux", reason="limits a file's size the POSIX way")
def test_a_failed_write_leaves_the_old_weights(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAVE_TOO_MUCH, str(tmp_path), "small files"]
    check_survival(subprocess.run(command, capture_output=True, text=True), tmp_path, complaint="File too large")


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare to mount a small disk")
def test_a_full_disk_leaves_the_old_weights(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o size=256k tmpfs "$0" && "$@"'
    privately = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(tmp_path)]
    if subprocess.run([*privately, "true"], capture_output=True).returncode != 0:
        pytest.skip("this system does not allow a private mount")
    command = [*privately, sys.executable, "-c", SAVE_TOO_MUCH, str(tmp_path), "small disk"]
    check_survival(subprocess.run(command, capture_output=True, text=True), tmp_path, complaint="No space left")


def test_a_failure_between_renames_is_never_a_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tensors(tmp_path, {f"t{i}": torch.zeros(10) for i in range(3)}, shard_bytes=50)
    rename, done = os.replace, []

    def fail_at_the_second(source: Path, target: Path) -> None:
        if done:
            raise OSError(5, "Input/output error")
        done.append(target)
        rename(source, target)

    monkeypatch.setattr(os, "replace", fail_at_the_second)
    with pytest.raises(DiskError, match="Input/output error"):
        save_tensors(tmp_path, {f"t{i}": torch.ones(10) for i in range(3)}, shard_bytes=50)
    assert done
    with pytest.raises(CheckpointError, match="neither"):
        TensorFiles(tmp_path)


def test_json_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config.json"
    save_json(path, {"b": "é", "a": [1]})
    assert path.read_text(encoding="utf-8") == '{\n  "b": "é",\n  "a": [\n    1\n  ]\n}\n'
    save_json(path, {"b": 1, "a": 2}, sort_keys=True)
    before = path.read_text(encoding="utf-8")
    assert before.index('"a"') < before.index('"b"')
    for value in ({"a": float("nan")}, {"a": {1, 2}}):
        with pytest.raises(CheckpointError, match=r"deep.config\.json: not representable in JSON"):
            save_json(path, value)
    assert path.read_text(encoding="utf-8") == before
    assert listing(path.parent) == {"config.json"}


def test_a_folder_that_cannot_be_made_is_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match="cannot be written"):
        save_json(tmp_path / "file" / "config.json", {})
