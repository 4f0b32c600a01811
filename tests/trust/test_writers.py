"""Two writers at once, writers killed at every call that changes the disk, and finished models with a damaged file."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.commands import headway
from support.untrained import of_task
from torture.all_writers import WRITERS
from torture.writers import Writer, calls, killed, paused, sweep

from headway import loading
from headway.bundle import TASK_FILE
from headway.checkpoints import saved
from headway.checkpoints.saved import CHECKSUMS, MODEL_FILES, verified
from headway.errors import CheckpointError, ConfigError, HeadwayError
from headway.families import GLINER_FILE
from headway.generation.defaults import FILE as GENERATION_FILE
from headway.jobs import predictions_file, preparation
from headway.jobs.preparation import locked_run
from headway.preprocess import image_processor, processor, text_files

POINTS = 3  # calls of each writer in `make test`, spread over all; `make torture` draws any


def run(*arguments: str | Path, code: int = 0) -> str:
    """What a command printed as errors."""
    found = headway(*arguments, cwd=Path.cwd())
    assert found.returncode == code, found.stderr
    return found.stderr


def named(name: str) -> Writer:
    return next(writer for writer in WRITERS if writer.name == name)


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_what_was_told_is_saved_is_there_and_whole(writer: Writer, tmp_path: Path) -> None:
    whole = calls(writer, tmp_path / "whole")
    points = {round(part * (whole - 1) / (POINTS - 1)) + 1 for part in range(POINTS)}
    sweep(writer, tmp_path, points, ways=(paused,))
    sweep(writer, tmp_path, {whole - 3}, ways=(killed,))  # where it renames


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_at_every_call(writer: Writer, tmp_path: Path) -> None:
    sweep(writer, tmp_path, range(1, calls(writer, tmp_path / "whole") + 1))


@contextmanager
def one_name(path: Path, *, new: bool = False) -> Iterator[Path]:
    """As files were written before: under one temporary name, replacing whatever there is."""
    temporary = path.with_name(f".{path.name}.partial")
    temporary.unlink(missing_ok=True)
    yield temporary
    os.replace(temporary, path)


@contextmanager
def in_place(folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


def test_control_one_temporary_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions_file, "atomic_write", one_name)
    writer = named("predictions")
    with pytest.raises((AssertionError, FileNotFoundError), match=r"told|saved|nobody|left"):
        sweep(writer, tmp_path, range(1, calls(writer, tmp_path / "whole") + 1), ways=(paused,))


def test_control_a_folder_written_in_place_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torture.all_writers.save_folder", in_place)
    with pytest.raises((AssertionError, HeadwayError), match=r"mixture|no such file|neither"):
        sweep(named("a new model folder"), tmp_path, range(8, 40, 4), ways=(killed,))


def test_control_leftovers_that_are_not_removed_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.files.remove_leftovers", lambda folder, alone=False: None)
    with pytest.raises(AssertionError, match="is left"):
        sweep(named("a file"), tmp_path, [4], ways=(killed,))


def test_the_second_table_is_refused_and_the_first_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "x.csv"
    refused = pytest.raises(HeadwayError, match="another process has written it meanwhile")
    with refused, predictions_file.writer(out, None) as slow:
        slow([{"text": "slow"}])
        with predictions_file.writer(out, None) as fast:
            fast([{"text": "fast"}])
    assert out.read_text() == "text\nfast\n" and [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_one_run_at_a_time_begins_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, found = tmp_path / "run", list[str]()

    def second() -> None:
        try:
            with locked_run(folder, resume=False):
                found.append("began")
        except HeadwayError as error:
            found.append(str(error))

    with locked_run(folder, resume=False) as is_new, locked_run(folder, resume=False):  # its own lock is no obstacle
        assert is_new
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        assert folder.exists()
    assert "is training in this folder" in found[0]
    (tmp_path / "run").mkdir(exist_ok=True)
    second()
    assert found[1] == "began" and not list(folder.iterdir()), "nothing is left of a run that did not begin"
    (folder / "training").mkdir()
    (folder / "training" / "plan.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds an earlier run"), locked_run(folder, resume=False):
        pass
    monkeypatch.setattr(preparation, "lock_folder", in_place)  # control: without the lock both begin
    shutil.rmtree(folder)
    with locked_run(folder, resume=False):
        second()
    assert found[2] == "began"


# ---------------------------------------------------------------------------------------- finished models


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return of_task("classify", tmp_path_factory.mktemp("saved") / "model")


def damages(path: Path) -> Iterator[str]:
    """Each kind of damage to the file, one after the other."""
    content = path.read_bytes()
    middle = len(content) // 2
    kinds = {
        "a flipped bit": content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :],
        "a zeroed block": content[:middle] + bytes(min(16, len(content) - middle)) + content[middle + 16 :],
        "a truncation": content[:middle],
        "missing": None,
    }
    for kind, damaged in kinds.items():
        path.unlink() if damaged is None else path.write_bytes(damaged)
        yield kind
        path.write_bytes(content)


@pytest.mark.parametrize("at_once", [1 << 30, 0], ids=["before", "in threads"])
def test_any_damage_to_any_file_is_named(model: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(saved, "AT_ONCE", at_once)
    for path in sorted(path for path in model.rglob("*") if path.is_file()):
        for kind in damages(path):
            if (path.name, kind) == (CHECKSUMS, "missing"):  # as a folder of an earlier version
                continue
            with pytest.raises(CheckpointError, match=path.name), verified(model):
                pass
    loading.load(model)


def test_control_without_verifying_damage_is_not_seen(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in damages(model / "model.safetensors"):
        if kind == "a flipped bit":
            with pytest.raises(CheckpointError, match="its content is not what was saved"):
                loading.load(model)
            loading.load(model, verify=False)
            assert "--no-verify" in run("run", model, "a", code=2)
            run("run", model, "a", "--no-verify")
    (model / "headway.json").rename(model / "aside")
    (model / "aside").rename(model / "headway.json")
    run("run", model, "a")


def test_an_added_file_is_named_and_a_change_on_purpose_is_accepted(model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(model, tmp_path / "model")
    (folder / "notes.json").write_text("{}")
    loading.load(folder)
    (folder / "generation_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"generation_config\.json: not one of the files that were saved"):
        loading.load(folder)
    assert "--update-checksums" in run("run", folder, "a", code=2)
    run("info", folder, "--update-checksums")
    run("run", folder, "a")
    (folder / CHECKSUMS).unlink()
    loading.load(folder)  # as one of an earlier version


def test_the_list_of_a_models_files_is_complete() -> None:
    read = {"config.json", GLINER_FILE, GENERATION_FILE, TASK_FILE, loading.ADAPTER_FILE}
    read |= {*text_files.TOKENIZER_FILES, *text_files.COMPANION_FILES, text_files.CHARACTER_FILE}
    read |= {image_processor.NAME, processor.PROCESSOR_FILE, processor.COMBINED_FILE}
    assert read <= {*MODEL_FILES}


def test_a_hostile_folder_of_a_save_is_not_moved_through(model: Path, tmp_path: Path) -> None:
    folder, private = shutil.copytree(model, tmp_path / "model"), tmp_path / "private"
    shutil.copytree(model, private)
    (folder / saved.COMMIT).symlink_to(private)
    with pytest.raises(HeadwayError, match=saved.COMMIT):
        loading.load(folder)
    assert (private / "config.json").exists()
