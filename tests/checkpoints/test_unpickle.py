"""A folder whose weights are pickles: refused with the command that converts it, and converted without running anything
or taking more memory than its tensors."""

import builtins
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from families.test_configs import BERT, make
from safetensors.torch import load_file
from support.commands import headway as command
from torch import Tensor

import headway
from headway.checkpoints import TensorFiles, hub, resolve, unpickle
from headway.checkpoints.header import PICKLED, PICKLED_INDEX
from headway.errors import CheckpointError
from headway.jobs.convert import convert


@pytest.fixture
def published(tmp_path: Path) -> tuple[Path, dict[str, Tensor]]:
    """A model folder with pytorch_model.bin alone, and its tensors."""
    folder = make(tmp_path / "model", BERT)
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    weights.unlink()
    (folder / "checksums.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]))
    torch.save(tensors, folder / PICKLED)
    (folder / "training_args.bin").write_bytes(b"\x80\x04N.")
    return folder, tensors


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pickle is opened here, where the child process is not the subject: it would import torch again."""

    def unpickled(path: Path, folder: Path) -> tuple[dict[str, Any], TensorFiles]:
        unpickle._child(path, folder)
        return json.loads((folder / unpickle.VALUES).read_text()), TensorFiles(folder)

    monkeypatch.setattr(unpickle, "_limit_memory", lambda more: None)
    monkeypatch.setattr(unpickle, "unpickled", unpickled)


def test_the_refusal_says_the_command_that_converts(published: tuple[Path, dict[str, Tensor]]) -> None:
    folder, tensors = published
    told = command("info", folder, cwd=folder.parent)
    assert told.returncode != 0
    line = f"headway convert {folder} NEW_FOLDER --to fp32 --allow-pickle"
    assert line in " ".join(told.stderr.split())
    out = folder.parent / "out"
    done = command(*line.replace("NEW_FOLDER", str(out)).split()[1:], cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    assert {name: tensor.shape for name, tensor in load_file(out / "model.safetensors").items()} == {
        name: tensor.shape for name, tensor in tensors.items()
    }
    model = headway.load(out)
    assert model.processor.tokenizer is not None
    for name, tensor in load_file(out / "model.safetensors").items():
        assert torch.equal(tensor, tensors[name]), name


@pytest.mark.usefixtures("in_this_process")
def test_shards_and_every_name_of_a_tensor(published: tuple[Path, dict[str, Tensor]]) -> None:
    folder, tensors = published
    (folder / PICKLED).unlink()
    names = sorted(tensors)
    shards = {"pytorch_model-00001-of-00002.bin": names[::2], "pytorch_model-00002-of-00002.bin": names[1::2]}
    for shard, held in shards.items():
        torch.save({name: tensors[name] for name in held}, folder / shard)
    weight_map = {name: shard for shard, held in shards.items() for name in held}
    (folder / PICKLED_INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    with pytest.raises(CheckpointError, match="--allow-pickle"):
        headway.load(folder)
    convert(folder, folder.parent / "out", to="fp32", allow_pickle=True)
    written = TensorFiles(folder.parent / "out")
    assert set(written) == set(tensors) and all(torch.equal(written[name], tensors[name]) for name in tensors)
    (folder / PICKLED_INDEX).write_text(json.dumps({"weight_map": weight_map | {"more": names and next(iter(shards))}}))
    with pytest.raises(CheckpointError, match="'more' is listed"):
        convert(folder, folder.parent / "again", to="fp32", allow_pickle=True)
    (folder / next(iter(shards))).unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        convert(folder, folder.parent / "again", to="fp32", allow_pickle=True)
    assert not (folder.parent / "again" / "config.json").exists()


class Canary:
    """Calls a function when it is unpickled."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def test_code_in_a_folder_never_runs(published: tuple[Path, dict[str, Tensor]]) -> None:
    folder, tensors = published
    sign = folder.parent / "ran"
    torch.save(tensors | {"more": Canary(os.system, f"touch {sign}")}, folder / PICKLED)
    with pytest.raises(CheckpointError, match=r"it names posix\.system, which is not a part of a tensor"):
        convert(folder, folder.parent / "out", to="fp32", allow_pickle=True)
    assert not sign.exists() and not (folder.parent / "out" / "config.json").exists()
    torch.load(folder / PICKLED, weights_only=False)
    assert sign.exists(), "the canary runs where a pickle is opened with its code"


def zipped(path: Path, *, compress: int = zipfile.ZIP_STORED, **changes: Callable[[bytes], bytes]) -> None:
    """torch's file of one tensor, with some of its parts changed."""
    torch.save({"a": torch.ones(4)}, path.with_suffix(".good"))
    with zipfile.ZipFile(path.with_suffix(".good")) as good, zipfile.ZipFile(path, "w", compress) as bad:
        for name in good.namelist():
            change = changes.get(name.rsplit("/", 1)[-1].split(".")[0], bytes)
            bad.writestr(name, change(good.read(name)))


def nested(leaf: Any) -> Any:
    for _ in range(60):
        leaf = {"a": leaf, "b": leaf}
    return leaf


def circle() -> dict[str, Any]:
    out: dict[str, Any] = {}
    out["again"] = out
    return out


BIG = torch.ones(2**14)
MANY = b"J\xff\xff\xff\x3f"  # a pickle's whole number 2^30 - 1; b"K\x04" is its 4
HOSTILE: dict[str, Callable[[Path], object]] = {
    "eval": lambda path: torch.save({"a": Canary(builtins.eval, "1 / 0")}, path),
    "strides that overlap": lambda path: torch.save({"a": torch.ones(1).expand(2**40)}, path),
    "one storage, many names": lambda path: torch.save({f"n{i}": BIG for i in range(100)}, path),
    "larger than its storage": lambda path: zipped(path, data=lambda old: old.replace(b"K\x04\x85", MANY + b"\x85")),
    "a zip bomb": lambda path: zipped(path, compress=zipfile.ZIP_DEFLATED, **{"0": lambda old: bytes(2**26)}),
    "no data, but a size": lambda path: torch.save({"a": torch.empty(2**40, device="meta")}, path),
    "sparse": lambda path: torch.save({"a": torch.eye(9).to_sparse()}, path),
    "2^60 paths": lambda path: torch.save(nested(1), path),
    "2^60 empty dicts": lambda path: torch.save(nested({}), path),
    "a circle": lambda path: torch.save(circle(), path),
    "not a pickle": lambda path: path.write_bytes(b"hello"),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_hostile_pickle_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / PICKLED
    HOSTILE[kind](path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpickle, "_limit_memory", lambda more: None)
        with pytest.raises((CheckpointError, RuntimeError, RecursionError, pickle.UnpicklingError, KeyError)):
            unpickle._child(path, tmp_path)
    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize("shape", ["zip", "before 1.6"])
def test_a_good_pickle_is_read(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpickle, "_limit_memory", lambda more: None)
    weight = torch.arange(12.0).view(3, 4)
    state = {"a": weight, "b": weight, "c": weight.T, "d": torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))}
    torch.save(state, tmp_path / PICKLED, _use_new_zipfile_serialization=shape == "zip")
    unpickle._child(tmp_path / PICKLED, tmp_path)
    read = load_file(tmp_path / "model.safetensors")
    assert read.keys() == state.keys() and all(torch.equal(read[name], state[name]) for name in state)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x80\x02c__builtin__\nbytearray\n" + MANY + b"\x85R.", marks=pytest.mark.slow),
        "a storage larger than the file",
    ],
)
def test_memory_is_limited(content: bytes | str, tmp_path: Path) -> None:
    path = tmp_path / PICKLED
    if isinstance(content, str):
        torch.save({"a": torch.ones(4)}, path, _use_new_zipfile_serialization=False)
        content = path.read_bytes().replace(b"K\x04", MANY)
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="memory"):
        unpickle.unpickled(path, tmp_path)


def test_pickles_of_the_hub_are_downloaded_only_where_they_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(hub, "_download", lambda name, revision, patterns: asked.append(patterns) or tmp_path)
    resolve("owner/name")
    assert asked == [hub.DATA_ONLY] and not any(".bin" in pattern for pattern in hub.DATA_ONLY)
    resolve("owner/name", pickles=True)
    assert asked[1:] == [hub.DATA_ONLY, ["pytorch_model*.bin"]]
    (tmp_path / "model.safetensors").touch()
    resolve("owner/name", pickles=True)
    assert asked[3:] == [hub.DATA_ONLY]


def test_a_link_out_of_the_folder_is_not_copied(published: tuple[Path, dict[str, Tensor]], tmp_path: Path) -> None:
    folder, _ = published
    secret = tmp_path / "secret.txt"
    shutil.copyfile(folder / "vocab.txt", secret)
    (folder / "vocab.txt").unlink()
    (folder / "vocab.txt").symlink_to(secret)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpickle, "unpickled", lambda path, place: ({}, _saved(place)))
        with pytest.raises(CheckpointError, match="leaves the folder"):
            unpickle.unpickled_folder(folder, tmp_path / "out")


def _saved(place: Path) -> TensorFiles:
    unpickle.save_tensors(place, {"a": torch.ones(1)})
    return TensorFiles(place)
