"""Weight files as a mapping: lazy, whole, confined to their folder, and never a pickle."""

import io
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support.watch import PICKLES, Canary

from headway.checkpoints import TensorFiles, save_tensors
from headway.errors import CheckpointError
from headway.files import sha256

INDEX = "model.safetensors.index.json"


def weights() -> dict[str, torch.Tensor]:
    return {"a.weight": torch.randn(4, 3), "a.bias": torch.randn(4), "b.weight": torch.randn(2, 5).bfloat16()}


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A folder of two shards that agree with their index."""
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"a": torch.ones(2)}, folder / "one.safetensors")
    save_file({"b": torch.zeros(3)}, folder / "two.safetensors")
    write_index(folder, {"a": "one.safetensors", "b": "two.safetensors"})
    return folder


def write_index(folder: Path, weight_map: Any) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}), encoding="utf-8")


@pytest.mark.parametrize("shard_bytes", [10**9, 50])
def test_a_saved_folder_reads_back_the_same(shard_bytes: int, tmp_path: Path) -> None:
    saved = weights()
    save_tensors(tmp_path, saved, shard_bytes=shard_bytes)
    with TensorFiles(tmp_path) as files:
        assert set(files) == set(files.names) == set(saved)
        assert len(files) == 3
        assert (len(files.files) > 1) == (shard_bytes == 50)
        assert files.nbytes == sum(tensor.nbytes for tensor in saved.values())
        assert files.metadata == {"format": "pt"}
        assert files.checksums() == {file.name: sha256(file) for file in files.files}
        for name, tensor in saved.items():
            assert files[name].dtype == tensor.dtype
            assert torch.equal(files[name], tensor)
            assert files.info(name).shape == tuple(tensor.shape)
        assert files.info("b.weight").dtype == "BF16"


def test_a_file_or_an_index_can_be_named(sharded: Path) -> None:
    assert set(TensorFiles(sharded / "one.safetensors")) == {"a"}
    assert set(TensorFiles(sharded / INDEX)) == {"a", "b"}


def test_a_tensor_is_read_on_access(sharded: Path) -> None:
    files = TensorFiles(sharded)
    (sharded / "two.safetensors").unlink()
    assert "b" in files and files.info("b").shape == (3,)
    assert torch.equal(files["a"], torch.ones(2))
    with pytest.raises(CheckpointError, match=r"two\.safetensors: tensor 'b' cannot be read"):
        files["b"]


def test_an_unknown_name_is_a_key_error(sharded: Path) -> None:
    files = TensorFiles(sharded)
    assert "none" not in files and files.get("none") is None
    with pytest.raises(KeyError):
        files["none"]


def test_tensors_outlive_the_files(sharded: Path) -> None:
    files = TensorFiles(sharded)
    tensor = files["a"]
    files.close()
    assert torch.equal(tensor, torch.ones(2))
    assert torch.equal(files["b"], torch.zeros(3))


@pytest.mark.parametrize(
    "shard",
    ["../outside.safetensors", "sub/../../outside.safetensors", "..\\outside.safetensors", "", "one\0.safetensors"],
)
def test_a_shard_name_that_leaves_the_folder_is_refused(shard: str, sharded: Path) -> None:
    shutil.copy(sharded / "one.safetensors", sharded.parent / "outside.safetensors")
    write_index(sharded, {"a": shard})
    with pytest.raises(CheckpointError, match=f"{INDEX}: shard .* is not a plain file name"):
        TensorFiles(sharded)


def test_an_absolute_shard_name_is_refused(sharded: Path) -> None:
    write_index(sharded, {"a": str(sharded / "one.safetensors")})
    with pytest.raises(CheckpointError, match="not a plain file name"):
        TensorFiles(sharded)


def test_a_link_that_leaves_the_folder_is_refused(sharded: Path) -> None:
    outside = sharded.parent / "outside.safetensors"
    (sharded / "one.safetensors").rename(outside)
    (sharded / "one.safetensors").symlink_to(outside)
    with pytest.raises(
        CheckpointError, match=r"shard 'one\.safetensors' cannot be read \(a link that leaves the folder"
    ):
        TensorFiles(sharded)


def test_a_link_inside_the_folder_is_fine(sharded: Path) -> None:
    (sharded / "one.safetensors").rename(sharded / "real.safetensors")
    (sharded / "one.safetensors").symlink_to("real.safetensors")
    assert set(TensorFiles(sharded)) == {"a", "b"}


def test_the_links_of_the_hub_cache_are_fine(sharded: Path, tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--owner--name"
    snapshot = repository / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for blobs, file in [(repository / "blobs", "one.safetensors"), (tmp_path / "hub" / "blobs", "two.safetensors")]:
        blobs.mkdir()
        (sharded / file).rename(blobs / "hash")
        (snapshot / file).symlink_to(blobs / "hash")
    (sharded / INDEX).rename(snapshot / INDEX)
    assert set(TensorFiles(snapshot)) == {"a", "b"}
    (snapshot / "two.safetensors").unlink()
    shutil.copy(snapshot / "one.safetensors", tmp_path / "elsewhere")
    (snapshot / "two.safetensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="leaves the folder"):
        TensorFiles(snapshot)


@pytest.mark.parametrize(
    ("weight_map", "complaint"),
    [
        ({"a": "one.safetensors", "b": "three.safetensors"}, r"shard 'three\.safetensors' is missing"),
        ({"a": "two.safetensors", "b": "two.safetensors"}, r"tensor 'a' is listed in two\.safetensors"),
        ({"a": "one.safetensors", "c": "two.safetensors"}, r"tensor 'c' is listed in two\.safetensors"),
        ({"a": "pytorch_model.bin"}, "is missing"),
        ({"a": 3}, "weight_map must map"),
        (["one.safetensors"], "weight_map must map"),
        ({}, "weight_map must map"),
        (None, "weight_map must map"),
    ],
)
def test_an_index_that_disagrees_is_refused(weight_map: Any, complaint: str, sharded: Path) -> None:
    write_index(sharded, weight_map)
    with pytest.raises(CheckpointError, match=complaint):
        TensorFiles(sharded)


def test_a_tensor_in_two_shards_is_refused(sharded: Path) -> None:
    save_file({"a": torch.ones(2), "b": torch.zeros(3)}, sharded / "two.safetensors")
    with pytest.raises(CheckpointError, match=r"two\.safetensors: tensor 'a' is also in one\.safetensors"):
        TensorFiles(sharded)


def test_a_key_given_twice_in_the_index_is_refused(sharded: Path) -> None:
    (sharded / INDEX).write_text('{"weight_map": {"a": "one.safetensors", "a": "two.safetensors"}}', encoding="utf-8")
    with pytest.raises(CheckpointError, match="key 'a' is given twice"):
        TensorFiles(sharded)


def test_a_tensor_the_index_forgot_is_still_seen(sharded: Path) -> None:
    save_file({"b": torch.zeros(3), "extra": torch.zeros(1)}, sharded / "two.safetensors")
    assert set(TensorFiles(sharded)) == {"a", "b", "extra"}


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor"):
        TensorFiles(tmp_path)
    with pytest.raises(CheckpointError, match="no such file"):
        TensorFiles(tmp_path / "none")


# protocol 0 is plain text without a signature: refused as weights, but not recognised as a pickle
@pytest.mark.parametrize("kind", [kind for kind in PICKLES if kind != "pickle 0"])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "last.ckpt", "model.safetensors"])
@pytest.mark.parametrize("named", ["folder", "file"])
def test_a_pickle_is_refused_and_never_opened(kind: str, name: str, named: str, tmp_path: Path) -> None:
    folder, sign = tmp_path / "model", tmp_path / "sign"
    folder.mkdir()
    (folder / name).write_bytes(PICKLES[kind](Canary(sign)))
    with pytest.raises(CheckpointError, match="is a pickle") as refusal:
        TensorFiles(folder if named == "folder" else folder / name)
    how = "headway convert" if name == "pytorch_model.bin" else "save_file"
    assert how in str(refusal.value) and name in str(refusal.value)
    assert not sign.exists()


def test_a_pickle_as_a_shard_is_refused(sharded: Path) -> None:
    sign = sharded.parent / "sign"
    for name in ("one.safetensors", "one.bin"):
        (sharded / name).write_bytes(pickle.dumps(Canary(sign)))
        write_index(sharded, {"a": name})
        with pytest.raises(CheckpointError, match="is a pickle"):
            TensorFiles(sharded)
    assert not sign.exists()


@pytest.mark.parametrize("kind", PICKLES)
def test_the_canary_runs_where_pickles_are_opened(kind: str, tmp_path: Path) -> None:
    content = io.BytesIO(PICKLES[kind](Canary(tmp_path / "sign")))
    if kind.startswith("torch"):
        torch.load(content, weights_only=False)
    else:
        pickle.load(content)
    assert (tmp_path / "sign").exists()


def test_a_pickle_beside_safetensors_is_left_alone(tmp_path: Path) -> None:
    save_tensors(tmp_path, {"a": torch.ones(2)})
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Canary(tmp_path / "sign")))
    assert torch.equal(TensorFiles(tmp_path)["a"], torch.ones(2))
    assert not (tmp_path / "sign").exists()


@pytest.mark.parametrize("length", [0x80, 0x4B50])
def test_a_header_length_that_looks_like_a_pickle_is_read(length: int, write_raw: Callable[..., Path]) -> None:
    text = json.dumps({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    path = write_raw(text.ljust(length), b"\x07")
    assert path.read_bytes().startswith((b"\x80", b"PK"))
    assert TensorFiles(path)["a"].tolist() == [7]
