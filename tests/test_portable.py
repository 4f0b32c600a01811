"""Importing works where POSIX-only modules are absent, and what uses them has a fallback."""

import subprocess
import sys
from pathlib import Path

WITHOUT_POSIX = """
import ast, contextlib, importlib, pkgutil, sys
from pathlib import Path

import headway

BLOCKED = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "readline")
root = Path(headway.__file__).parent
# Libraries first: on this system they may use what is blocked below.
for file in root.rglob("*.py"):
    for node in ast.walk(ast.parse(file.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for name in names:
            if not name.startswith("headway"):
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
sys.modules.update(dict.fromkeys(BLOCKED))  # None: an import raises ModuleNotFoundError

names = [module.name for module in pkgutil.walk_packages(headway.__path__, "headway.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)

from headway.locks import LockedError, lock
from headway.memory import peak_memory

path = Path(sys.argv[1]) / "lock"
with lock(path):
    assert path.with_name("lock.held").exists(), "the fallback was not used"
    try:
        with lock(path):
            raise AssertionError("two holders")
    except LockedError:
        pass
assert not path.with_name("lock.held").exists()
with lock(path):
    pass
peak = peak_memory()
assert peak is None or peak > 50 * 2**20, peak
print(len(names))
"""


def test_every_module_imports_and_fallbacks_work_without_posix_modules(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_POSIX, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 200
