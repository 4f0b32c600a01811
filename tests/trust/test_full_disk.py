"""TRUST 49: a disk without space, or without inodes, at every stage of a run and of every command that writes. One
clear error with the path and the bytes needed; what was there before is intact, and the run goes on once there is
space."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.bad_files import sound
from support.commands import headway
from support.small_disk import LACKS, Lack, NoMountError, SmallDisk, small_disk
from torture.full_disk import STAGES, full_from

import headway as package
from headway import jobs
from headway.cli import main
from headway.data import store_writer
from headway.errors import DiskError
from headway.explain import explain
from headway.files import is_present
from headway.jobs import calibrate, convert, report
from headway.jobs.pictures import Drawn
from headway.jobs.run_folder import PLAN, run_file
from headway.jobs.verify import compare
from headway.training import loop
from headway.training.log import draw_curves
from headway.training.state import states, verify

SMALL: dict[str, Any] = {
    "model.width": 16, "model.layers": 1, "model.heads": 2, "eval_every": 1, "batch": 8, "save_every": 1, "vocab": 300,
    "log_every": 1, "task.convolutions": 0,  # a state fits into the small file system
}  # fmt: skip
KILOBYTES, INODES = 1500, 150


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        with small_disk(tmp_path / "disk", kilobytes=KILOBYTES, inodes=INODES) as mounted:
            yield mounted
    except NoMountError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a disk with space."""
    folder = tmp_path_factory.mktemp("full-disk")
    (folder / "x.csv").write_text(sound("classify", "csv"), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "draw_curves", lambda *_: None)
        train(folder, folder / "run")
    return folder


def train(place: Path, out: Path) -> None:
    jobs.train("classify", place / "x.csv", out=out, steps=2, settings={**SMALL, "keep_states": True})


def one_line(error: DiskError, folder: Path) -> None:
    message = str(error)
    assert message.startswith(str(folder)) and "\n" not in message, message
    assert "No space left on device): " in message and " bytes are needed and " in message, message


@pytest.mark.parametrize("lack", [LACKS[0], pytest.param(LACKS[1], marks=pytest.mark.slow)])
@pytest.mark.parametrize("stage", STAGES)
def test_a_run_stops_with_one_error_and_goes_on_when_there_is_space(
    whole: Path, disk: SmallDisk, lack: Lack, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writer, "PROGRESS_BYTES", 500)
    run = disk.folder / "run"
    with monkeypatch.context() as patch:
        patch.setattr(loop, "draw_curves", draw_curves if stage == "curves" else lambda *_: None)
        full_from(stage, lambda: disk.fill(lack), set_attribute=patch.setattr)
        with pytest.raises(DiskError) as caught:
            train(whole, run)
    one_line(caught.value, run)
    if lack == "inodes":
        assert "no free inodes" in str(caught.value)
    assert all(verify(path) is None for path in states(run / "training"))
    disk.free()
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    if is_present(run_file(run, PLAN)):
        jobs.resume(run)
    else:
        train(whole, run)
    different = {part: found for part, found in compare(whole / "run", run).items() if found is not None}
    assert not different
    assert {path.name for path in run.iterdir()} == {path.name for path in (whole / "run").iterdir()}
    assert not list(run.rglob("*.partial"))


def test_a_lack_of_inodes_at_some_stages(whole: Path, disk: SmallDisk) -> None:
    for stage in ("preparing, first example", "second state", "final save"):
        with pytest.MonkeyPatch.context() as patch:
            test_a_run_stops_with_one_error_and_goes_on_when_there_is_space(whole, disk, "inodes", stage, patch)
        shutil.rmtree(disk.folder / "run")


def test_prepared_examples_stay_if_the_disk_is_full(
    whole: Path, disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writer, "PROGRESS_BYTES", 500)
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    run, calls = disk.folder / "run", list[int]()
    with monkeypatch.context() as patch:
        full_from("preparing, progress", lambda: disk.fill("bytes"), set_attribute=patch.setattr)
        with pytest.raises(DiskError, match="give the same command again"):
            train(whole, run)
    disk.free()
    add = store_writer.StoreWriter.add

    def counted(self: store_writer.StoreWriter, example: Any) -> None:
        calls.append(self.count)
        add(self, example)

    monkeypatch.setattr(store_writer.StoreWriter, "add", counted)
    train(whole, run)
    assert calls and calls[0] > 0, "it did not continue from the saved progress"


@pytest.mark.parametrize("lack", LACKS)
def test_convert_and_calibrate_leave_a_clear_error(whole: Path, disk: SmallDisk, lack: Lack) -> None:
    for command in (["convert", whole / "run", disk.folder / "out", "--to", "bf16"],
                    ["calibrate", whole / "run", disk.folder / "out"]):  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            owner = convert if command[0] == "convert" else calibrate
            save = convert.write_along

            def full(*args: Any, save: Any = save) -> None:
                disk.fill(lack)
                save(*args)

            patch.setattr(owner, "write_along", full)
            failed = headway(*command, cwd=whole)
        assert failed.returncode == 2 and failed.stderr.startswith(f"error: {disk.folder / 'out'}"), failed
        assert "bytes are needed" in failed.stderr and failed.stderr.count("\n") == 1, failed
        disk.free()
        assert headway(*command, cwd=whole).returncode == 0
        package.load(disk.folder / "out")
        for path in (disk.folder / "out").iterdir():
            path.unlink()


@pytest.mark.parametrize("lack", LACKS)
def test_a_page_or_figure_is_written_whole_or_not_at_all(whole: Path, disk: SmallDisk, lack: Lack) -> None:
    explained = explain(whole / "run", "Guest 3 asked for tea.")
    page, figure = disk.folder / "explain.html", disk.folder / "heads.png"
    page.write_text("an earlier page")
    disk.fill(lack)
    for write, path in ((explained.save, page), (lambda path: explained.draw("attention", path=path), figure)):
        with pytest.raises(DiskError, match="bytes are needed") as caught:
            write(path)
        assert str(caught.value).startswith(str(path))
    assert page.read_text() == "an earlier page" and not figure.exists()
    disk.free()
    explained.save(page)
    assert page.read_text().endswith("</html>\n")
    assert not list(disk.folder.glob(".*"))


@pytest.mark.parametrize("lack", LACKS)
def test_a_report_or_picture_that_cannot_be_written_is_an_error(disk: SmallDisk, lack: Lack) -> None:
    table, picture = disk.folder / "report" / "mistakes.csv", disk.folder / "picture.png"
    drawn = Drawn(["a square"], [[Image.new("RGB", (8, 8))]], seed=0)
    disk.fill(lack)
    for write, path in (
        (lambda: report._write_csv(table, [["a"] * 100] * 100), table),
        (lambda: drawn.save(picture), picture),
    ):
        with pytest.raises(DiskError, match="bytes are needed") as caught:
            write()
        assert str(caught.value).startswith(str(path)) and not path.exists()
    disk.free()
    report._write_csv(table, [["=a"]])
    drawn.save(picture)
    assert table.read_text() == "'=a\n" and picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_predictions_that_cannot_be_written_are_an_error(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = io.StringIO()
    monkeypatch.setattr(sys, "argv", ["headway", "run", str(whole / "run"), "tea", "noise", "--json"])
    monkeypatch.setattr(sys, "stderr", errors)
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as end:
            main()
        full.flush()  # nothing is left in the buffer
    assert end.value.code == 2
    assert errors.getvalue() == "error: standard output cannot be written (No space left on device)\n"
