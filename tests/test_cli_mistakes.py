"""Ordinary mistakes get one clear line, from the command line and from Python."""

import re
import sys
from pathlib import Path

import pytest
import torch
from support import untrained
from typer.testing import CliRunner

import headway
from headway.cli import app, main
from headway.distributed import pick_device
from headway.errors import ConfigError, HeadwayError, InputError
from headway.jobs.run_config import make_plan, unusual_settings
from headway.jobs.run_folder import require_writable

ROWS = "".join(f"i {'love' if i % 2 else 'hate'} number {i}\t{'good' if i % 2 else 'bad'}\n" for i in range(80))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "mine.tsv").write_text(ROWS)
    (tmp_path / "file").write_text("")
    (tmp_path / "runs").mkdir()
    (tmp_path / "book.xlsx").write_bytes(b"PK\x03\x04" + bytes(60))
    (tmp_path / "book.zip").write_bytes(b"PK\x03\x04" + bytes(60))
    (tmp_path / "book.docx").write_bytes(b"PK\x03\x04" + bytes(60))
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.7\n")
    return tmp_path


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            ["train", "classify", "mine.tsv", "--out", "file/run"],
            "file/run: cannot be written, because .*file is a file",
        ),
        (["train", "classify", "mine.tsv", "--out", "/proc/run"], r"/proc/run: cannot be written \(No such file"),
        (["train", "classify", "mine.tsv", "--set", "device=cudo"], "device: 'cudo' is not a device such as auto, cpu"),
        (
            ["train", "classify", "mine.tsv", "--set", "learning_rate=1"],
            "'learning_rate' is not known; did you mean 'lr'",
        ),
        (["train", "classify", "mine.tsv", "--set", "batch_size=1"], "'batch_size' is not known; did you mean 'batch'"),
        (["check", "classify", "book.docx"], "book.docx: an office document; save its table as CSV"),
        (["check", "classify", "book.xlsx"], r"book.xlsx: not an Excel workbook \(.xlsx\), or a damaged one"),
        (["check", "classify", "book.zip"], "book.zip: not a zip archive, or a damaged one"),
        (["check", "classify", "*.csv"], r"\*.csv: no file matches this pattern"),
        (["check", "classify", "paper.pdf"], "paper.pdf: a PDF document; extract its text"),
        (["run", "runs/nothing", "x"], "runs/nothing: no such folder$"),
        (["run", "owner/nothing", "x"], "owner/nothing: no such local folder; as a hub id, the hub is offline"),
        (["run", "./nothing", "x"], "nothing: no such folder"),
    ],
)
def test_one_line_names_the_mistake(
    args: list[str], says: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["headway", *args])
    with pytest.raises(SystemExit) as end:
        main()
    shown = capsys.readouterr().err
    assert end.value.code == 2 and shown.startswith("error: ") and shown.count("\n") == 1
    assert re.search(says, shown.strip()), shown
    assert not (here / "runs" / "classify").exists()


def test_cuda_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device: 'cuda', but this machine has no CUDA device"):
        pick_device("cuda")
    assert pick_device("cpu") == torch.device("cpu")


def test_a_model_folder_is_not_data(tmp_path: Path) -> None:
    untrained.language_model(tmp_path / "model")
    for command in (["check", "generate"], ["train", "generate", "--out", str(tmp_path / "run")]):
        told = CliRunner().invoke(app, [*command, str(tmp_path / "model")])
        assert isinstance(told.exception, HeadwayError) and "a model folder, not data" in str(told.exception)


def test_a_probe_of_the_output_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    require_writable(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())


def test_a_learning_rate_that_diverges_is_warned_of() -> None:
    assert unusual_settings(make_plan("classify", settings={"lr": 100}).settings()) == [
        "lr is 100: above 1 the loss diverges; usual values are 0.00001 to 0.05"
    ]
    assert not unusual_settings(make_plan("classify").settings())


def test_an_input_that_is_no_text(tmp_path: Path) -> None:
    untrained.language_model(tmp_path)
    model = headway.load(tmp_path)
    with pytest.raises(InputError, match=r"input 1: task generate takes a text, not int \(123\)"):
        model(123)
    with pytest.raises(InputError, match=r"input 2: task generate takes a text, not NoneType"):
        model(["a", None])
