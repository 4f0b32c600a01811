"""The diffs of docs/extend.md apply to this tree, touch few source files, and pass the tests they bring."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = (REPOSITORY / "docs" / "extend.md").read_text(encoding="utf-8")
DIFFS = re.findall(r"^```diff\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
MAX_SOURCE_FILES = 3
# the task of the page, which no command knows: `run` shows and writes its numbers, and `explain` says where one is from
COMMANDS = '''
import csv
import math

import pytest
from support.commands import headway
from support.untrained import of_task


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    of_task("count-words", folder / "model")
    return folder


def test_its_prediction_is_a_line_and_a_column(folder):
    line = headway("run", "model", "one two three", cwd=folder).stdout.strip()
    done = headway("run", "model", "one two three", "--out", "found.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    with (folder / "found.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [{"input": "one two three", "prediction": line}]
    assert math.isfinite(float(line))


def test_it_is_explained(folder):
    done = headway("explain", "model", "one two three", "--terminal", cwd=folder)
    assert done.returncode == 0, done.stderr
    answer = headway("run", "model", "one two three", cwd=folder).stdout.strip()
    assert "one two three" in done.stdout and f"answer   {answer}" in done.stdout
    done = headway("explain", "model", "one two three", "--out", "page.html", cwd=folder)
    assert done.returncode == 0 and "count-words" in (folder / "page.html").read_text()


def test_what_explain_needs_of_a_task(folder, monkeypatch):
    """The control: without the one method that gives the arrays of an input, it says so."""
    from headway.tasks.count_words import CountWords

    monkeypatch.delattr(CountWords, "read")
    done = headway("explain", "model", "one two three", "--terminal", cwd=folder)
    assert done.returncode and "task count-words has no method `read`" in done.stderr
'''


def changed(diff: str) -> list[str]:
    return re.findall(r"^\+\+\+ b/(\S+)$", diff, flags=re.MULTILINE)


def test_every_example_is_small_and_has_a_test() -> None:
    assert len(DIFFS) == len(re.findall("^## ", PAGE, flags=re.MULTILINE)) == 3
    for diff in DIFFS:
        files = changed(diff)
        assert 1 <= sum(name.startswith("src/") for name in files) <= MAX_SOURCE_FILES, files
        assert any(Path(name).name.startswith("test_") for name in files), files


def test_every_example_applies_and_passes_its_tests(tmp_path: Path) -> None:
    """All of them at once, in a copy of the tree; the task is run and explained, too."""
    if shutil.which("git") is None:
        pytest.skip("the diffs are applied by git, which is not installed")
    for name in ("src", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "folders")
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=ignored)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    for number, diff in enumerate(DIFFS):
        applied = subprocess.run(["git", "apply", "-"], input=diff, cwd=tmp_path, capture_output=True, text=True)
        assert applied.returncode == 0, f"example {number + 1} of docs/extend.md: {applied.stderr}"
    tests = [name for diff in DIFFS for name in changed(diff) if Path(name).name.startswith("test_")]
    (tmp_path / "tests" / "test_toy_commands.py").write_text(COMMANDS)
    tests.append("tests/test_toy_commands.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
