"""Child processes import nothing from the working folder: modules named like every import of Headway's lie there."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import headway
from headway.limited_process import child_environment

SOURCE = Path(headway.__file__).parent
# Every kind of child. A notebook has the working folder on its path, as this has; a script without a guard runs once.
DRIVER = """
import importlib, multiprocessing.forkserver, multiprocessing.popen_forkserver, multiprocessing.popen_spawn_posix
import os, subprocess, sys
from pathlib import Path
import torch
from headway import limited_process
from headway.checkpoints.unpickle import unpickled
from headway.serving.runs_process import command, environment
if sys.argv[1] == "unsafe":
    limited_process.SAFE_PATH, limited_process.SAFE_ENVIRONMENT = (), {}
torch.save({"a": torch.ones(2)}, sys.argv[2] + "/a.pt")
sys.path.insert(0, "")
print("parent", os.getpid())
done = subprocess.run(command(["--version"]), env=environment(), capture_output=True)
print("command", done.returncode)
print("multiprocessing", [start.exitcode for start in (
    limited_process.start_process(importlib.import_module, "typer"),
    limited_process.start_process(importlib.import_module, "rich", preload=["jinja2"]),
) if start.join() is None])
script = Path(limited_process.__file__).parent / "preprocess" / "chat_sandbox.py"
kept = limited_process.KeptProcess(script, memory=1 << 30)
for run in (limited_process.run_limited, None):
    try:
        run(script, {}, seconds=5, memory=1 << 30) if run else kept.run({}, seconds=5)
    except limited_process.CrashError as error:
        print("limited", error)
try:
    print("unpickled", [*unpickled(Path(sys.argv[2]) / "a.pt", Path(sys.argv[2]))[1]])
except Exception as error:
    print("unpickled", error)
"""
PROCESSES = {"subprocess", "multiprocessing", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"} | {
    f"os.{name}" for name in ("system", "popen", "fork", "execv", "execve", "execvp", "spawnv", "posix_spawn")
}
STARTED = {  # module → calls that start a process, and why that is no Python with the working folder on its path
    "checkpoints/unpickle.py": {"subprocess.run": "python_command"},
    "serving/runs_process.py": dict.fromkeys(("subprocess.Popen", "asyncio.create_subprocess_exec"), "python_command"),
    "serving/vllm_engine.py": {"subprocess.Popen": "child_environment"},
    "jobs/verify.py": {"multiprocessing.Pipe": "starts none"},
}  # fmt: skip


def first_level_imports() -> set[str]:
    found = set()
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - {"headway", "__future__"}


def planted(folder: Path) -> Path:
    """Each notes the process that imported it, and ends that."""
    log = folder / "log"
    folder.mkdir()
    for name in first_level_imports():
        text = (
            f"import posix\nopen({str(log)!r}, 'a').write(f'{name} {{posix.getpid()}}\\n')\nraise ImportError('canary')"
        )
        (folder / f"{name}.py").write_text(text)
    return log


def fired(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def run_driver(tmp_path: Path, kind: str) -> tuple[str, list[list[str]]]:
    log = planted(tmp_path / kind)
    command = [sys.executable, "-P", "-c", DRIVER, kind, str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(command, cwd=log.parent, capture_output=True, text=True, env=environment, timeout=300)
    return done.stdout + done.stderr, fired(log)


def test_trust_59_no_child_imports_from_the_working_folder(tmp_path: Path) -> None:
    shown, canaries = run_driver(tmp_path, "safe")
    assert not canaries, shown
    assert "command 0" in shown and "multiprocessing [0, 0]" in shown and "unpickled ['a']" in shown, shown
    assert shown.count("limited") == 2, shown


def test_control_59_without_the_option_every_kind_of_child_does(tmp_path: Path) -> None:
    shown, canaries = run_driver(tmp_path, "unsafe")
    parent = shown.split("parent ")[1].split()[0]
    children = {pid for _, pid in canaries if pid != parent}
    assert len(children) >= 4, (shown, canaries)  # command, unpickled, and two that multiprocessing starts
    assert "command 1" in shown and "canary" in shown.split("unpickled")[1]


def test_trust_59_python_dash_m_imports_only_what_python_itself_does(tmp_path: Path) -> None:
    """`python -m` has the working folder on its path from its start: some modules are imported before any of ours."""
    log = planted(tmp_path / "here")
    (log.parent / "empty.py").write_text("")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    options: dict = {"cwd": log.parent, "capture_output": True, "text": True, "env": environment}
    for _ in range(8):  # each ends at the first
        subprocess.run([sys.executable, "-m", "empty"], **options)
        for name, _ in fired(log):
            (log.parent / f"{name}.py").unlink(missing_ok=True)
    log.unlink(missing_ok=True)
    done = subprocess.run([sys.executable, "-m", "headway", "--version"], **options)
    assert done.returncode == 0 and not fired(log), (done.stderr, fired(log))
    assert (log.parent / "typing.py").exists() and (log.parent / "torch.py").exists()


def processes_started(folder: Path) -> dict[str, set[str]]:
    out: dict[str, set[str]] = {}
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name in PROCESSES or name.partition(".")[0] in PROCESSES:
                    out.setdefault(file.relative_to(folder).as_posix(), set()).add(name)
            elif isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable":
                out.setdefault(file.relative_to(folder).as_posix(), set()).add("sys.executable")
    return out


def test_processes_are_started_in_one_way() -> None:
    started = processes_started(SOURCE)
    del started["limited_process.py"]
    assert started == {module: set(calls) for module, calls in STARTED.items()}, (
        "start Python with headway.limited_process (python_command, child_environment, start_process)"
    )
    for module, calls in STARTED.items():
        text = (SOURCE / module).read_text(encoding="utf-8")
        assert all(how in text for how in calls.values() if " " not in how), module


def test_a_process_that_is_started_otherwise_is_found(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text("import subprocess, sys\nsubprocess.run([sys.executable, 'x.py'])\n")
    assert processes_started(tmp_path) == {"new.py": {"subprocess.run", "sys.executable"}}


def test_the_environment_of_children_is_safe() -> None:
    assert child_environment()["PYTHONSAFEPATH"] == "1"
