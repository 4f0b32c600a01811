"""The package itself: importing it is cheap, its packages import only what they may, and no file names a machine."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import headway

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "src"
ABSOLUTE_PATH = re.compile(rb"(?<![\w.~-])/(?:work|root|home)(?:/|\b)")

FORBIDDEN = [
    ("layers", "models"),
    ("layers", "preprocess"),
    ("layers", "checkpoints"),
    ("models", "families"),
    ("models", "checkpoints"),
    ("checkpoints", "models"),
    ("checkpoints", "families"),
    ("checkpoints", "layers"),
    ("preprocess", "data"),
    ("data", "tasks"),
    ("tasks", "training"),
    ("training", "bundle"),
    ("bundle", "serving"),
    ("serving", "cli"),
]


def run_python(*arguments: str, path: Path = SOURCE, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(path)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=cwd)


def lint_imports(*, path: Path = SOURCE, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("importlinter", reason="import-linter is not installed (pip install 'headway[dev]')")
    start = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    config = str(REPOSITORY / "pyproject.toml")
    return run_python("-c", start, "--no-cache", "--config", config, path=path, cwd=cwd)


def test_importing_headway_does_not_import_torch() -> None:
    found = run_python("-c", "import sys, headway; print('torch' in sys.modules)")
    assert (found.stdout.strip(), found.returncode) == ("False", 0), found.stderr


def test_the_version_agrees_with_pyproject() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert headway.__version__ == project["version"]


def test_packages_import_only_what_they_may() -> None:
    checked = lint_imports()
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_forbidden_import_is_found(tmp_path: Path) -> None:
    for package, imported in FORBIDDEN:
        for name in (package, imported):
            folder = tmp_path / "headway" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "__init__.py").touch()
        module = tmp_path / "headway" / package / f"imports_{imported}.py"
        module.write_text(f"import headway.{imported}\n", encoding="utf-8")
    (tmp_path / "headway" / "__init__.py").touch()
    checked = lint_imports(path=tmp_path, cwd=tmp_path)
    assert checked.returncode == 1, checked.stdout + checked.stderr
    found = {(a, b) for a, b in FORBIDDEN if f"headway.{a}.imports_{b} -> headway.{b} " in checked.stdout}
    assert found == set(FORBIDDEN)


def test_the_tree_names_no_absolute_path_of_a_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, cwd=REPOSITORY)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    files = [REPOSITORY / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    offenders = [str(file) for file in files if file.is_file() and ABSOLUTE_PATH.search(file.read_bytes())]
    assert files and not offenders


def test_the_scan_for_absolute_paths_can_find_one() -> None:
    assert ABSOLUTE_PATH.search(b'open("/' + b'home/someone/x")')
    assert not ABSOLUTE_PATH.search(b"https://example.org/home/ and network/work")


def test_train_is_the_function_also_after_its_package_is_imported() -> None:
    import headway
    from headway.training.settings import Settings

    assert headway.train is headway.train and headway.train.__name__ == "train" and callable(headway.train)
    assert Settings.__module__ == "headway.training.settings"
