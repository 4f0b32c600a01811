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


def changed(diff: str) -> list[str]:
    return re.findall(r"^\+\+\+ b/(\S+)$", diff, flags=re.MULTILINE)


def test_every_example_is_small_and_has_a_test() -> None:
    assert len(DIFFS) == len(re.findall("^## ", PAGE, flags=re.MULTILINE)) == 3
    for diff in DIFFS:
        files = changed(diff)
        assert 1 <= sum(name.startswith("src/") for name in files) <= MAX_SOURCE_FILES, files
        assert any(Path(name).name.startswith("test_") for name in files), files


def test_every_example_applies_and_passes_its_tests(tmp_path: Path) -> None:
    """All of them at once, in a copy of the tree."""
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
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
