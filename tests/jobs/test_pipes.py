"""`run --file` reads standard input and pipes; other files of the user must be regular ones."""

import os
import threading
from pathlib import Path

import pytest

from headway.cli.generation_options import read_schema
from headway.errors import ConfigError, InputError
from headway.jobs.overrides import from_file
from headway.jobs.pipes import regular_file

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")


def test_a_regular_file_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a")
    with regular_file(tmp_path / "x.txt") as path:
        assert path == tmp_path / "x.txt"


def test_a_pipe_is_read_to_its_end_and_named_in_errors(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    keep = os.open(pipe, os.O_RDWR)  # as process substitution: the writer is there before the reader
    writer = threading.Thread(target=lambda: (os.write(keep, b"one\ntwo\n" * 20_000), os.close(keep)))
    writer.start()
    with pytest.raises(InputError) as caught, regular_file(pipe) as path:
        assert path != pipe and path.read_text() == "one\ntwo\n" * 20_000
        raise InputError(f"{path}:3: odd")
    writer.join()
    assert str(caught.value) == f"{pipe}:3: odd" and not path.exists()


def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="nothing was written to this pipe"), regular_file(tmp_path / "pipe"):
        pass


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "input").write_text("one\n")
    with (tmp_path / "input").open() as given:
        monkeypatch.setattr("sys.stdin", given)
        with regular_file(Path("-")) as path:
            assert path.read_text() == "one\n"


def test_settings_and_schemas_are_regular_files(tmp_path: Path) -> None:
    for name, read in (("settings.json", from_file), ("settings.toml", from_file), ("schema.json", read_schema)):
        os.mkfifo(tmp_path / name)
        with pytest.raises(ConfigError, match=f"{name}.*a named pipe"):
            read(tmp_path / name)
        (tmp_path / name).unlink()
        (tmp_path / name).symlink_to("/dev/zero")
        with pytest.raises(ConfigError, match=f"{name}.*a device"):
            read(tmp_path / name)
