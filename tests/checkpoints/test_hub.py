"""From what was typed to a folder: local paths need no network, hub ids say plainly why they fail."""

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from headway.checkpoints import resolve
from headway.errors import CheckpointError


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Any attempt to connect, or to look up a name, is refused and noted."""
    attempts: list[Any] = []

    def refuse(*arguments: Any, **options: Any) -> None:
        attempts.append(arguments)
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return attempts


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_a_local_folder_is_itself(tmp_path: Path) -> None:
    assert resolve(tmp_path) == resolve(str(tmp_path)) == tmp_path


def test_a_local_file_is_its_folder(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    assert resolve(tmp_path / "model.safetensors") == tmp_path


def test_a_local_folder_wins_over_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve("owner/name") == Path("owner/name")


@pytest.mark.parametrize(
    "text",
    [
        "./none",
        "../none",
        "/none/at/all",
        "a/b/c",
        "a\\b",
        "~/none-here",
        "runs/",
        "",
        "owner/..",
        "a b",
        "x\0y",
        "n" * 999 + "!",
    ],
)
def test_a_missing_path_is_no_hub_id(
    text: str, no_network: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where none of them exists
    with pytest.raises(CheckpointError, match="no such folder"):
        resolve(text)
    assert not no_network


def test_a_missing_path_object_is_no_hub_id(
    no_network: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="no such folder"):
        resolve(Path("owner/name"))
    assert not no_network


@pytest.mark.parametrize("text", ["gpt2", "owner/name", "owner/name@refs/pr/1"])
def test_offline_says_so_and_opens_no_socket(
    text: str, monkeypatch: pytest.MonkeyPatch, empty_cache: Path, no_network: list[Any]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE is set") as refusal:
        resolve(text)
    assert text in str(refusal.value)
    assert not no_network


def test_online_the_guard_against_the_network_works(
    monkeypatch: pytest.MonkeyPatch, empty_cache: Path, no_network: list[Any]
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(CheckpointError, match="owner/name"):
        resolve("owner/name")
    assert no_network


def test_offline_a_cached_snapshot_is_found(
    monkeypatch: pytest.MonkeyPatch, empty_cache: Path, no_network: list[Any]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    repository = empty_cache / "models--owner--name"
    commit = "0123456789" * 4
    (repository / "snapshots" / commit).mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit, encoding="utf-8")
    assert resolve("owner/name") == repository / "snapshots" / commit
    assert not no_network


def test_only_data_is_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    requested: dict[str, Any] = {}

    def snapshot_download(repository: str, **options: Any) -> str:
        requested.update(options, repository=repository)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert resolve("owner/name@v1.0") == tmp_path
    assert (requested["repository"], requested["revision"]) == ("owner/name", "v1.0")
    files = ["model.safetensors", "config.json", "vocab.txt", "spiece.model", "source.spm", "chat_template.jinja"]
    others = ["pytorch_model.bin", "modeling.py", "x.pt", "x.ckpt", "model.onnx", "tf_model.h5", "handler.pkl"]
    kept = huggingface_hub.utils.filter_repo_objects(files + others, allow_patterns=requested["allow_patterns"])
    assert list(kept) == files


RESPONSE: Any = SimpleNamespace(headers={}, status_code=404, request=None)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (errors.GatedRepoError("no", response=RESPONSE), "gated"),
        (errors.RepositoryNotFoundError("no", response=RESPONSE), "not found on the hub"),
        (errors.RevisionNotFoundError("no", response=RESPONSE), "but not that revision"),
        (errors.LocalEntryNotFoundError("no route"), "cannot be reached.*no route"),
        (OSError(28, os.strerror(28)), "the download failed.*No space left"),
    ],
)
def test_a_failure_of_the_hub_is_explained(failure: Exception, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot_download(*arguments: Any, **options: Any) -> str:
        raise failure

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(CheckpointError, match=f"owner/name: .*{reason}") as refusal:
        resolve("owner/name")
    assert refusal.value.__cause__ is failure
