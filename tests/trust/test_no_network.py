"""TRUST 33 by the system's own account: strace lists every socket of train, run, evaluate, explain, check and info,
with all their child processes and threads. None but local ones (AF_UNIX) is opened."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.bad_files import sound

strace = shutil.which("strace")
pytestmark = pytest.mark.skipif(strace is None, reason="strace is not installed (apt-get install strace)")

COMMANDS = """
import sys
from headway.cli import main
for line in sys.argv[1].split(";"):
    sys.argv = ["headway", *line.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (line, end.code)
"""


def sockets(program: str, *arguments: str, log: Path) -> list[str]:
    """The families of all sockets that the program and its children open, other than local ones."""
    traced = [str(strace), "-f", "--seccomp-bpf", "-qq", "-e", "trace=socket,connect", "-o", str(log)]
    done = subprocess.run([*traced, sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    if "PTRACE_TRACEME" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr.strip()[:100]}")
    assert done.returncode == 0, done.stderr[-2000:]
    found = re.findall(r"(?:socket\(|sa_family=)(AF_\w+)", log.read_text())
    return [family for family in found if family != "AF_UNIX"]


def test_no_command_opens_a_socket(tmp_path: Path) -> None:
    data, out = tmp_path / "x.csv", tmp_path / "out"
    data.write_text(sound("classify", "csv"), encoding="utf-8")
    small = "--set model.width=16 --set model.layers=1 --set model.heads=2 --set task.vocab=300 --set eval_every=0"
    commands = [
        f"check classify {data} {small}", f"train classify {data} --out {out} --steps 1 {small}", f"run {out} tea",
        f"evaluate {out} {data}", f"explain {out} tea -o {tmp_path / 'x.html'}", f"info {out}",
    ]  # fmt: skip
    assert sockets(COMMANDS, ";".join(commands), log=tmp_path / "log") == []


@pytest.mark.parametrize("child", [False, True])
def test_control_a_socket_is_noticed_also_in_a_child(child: bool, tmp_path: Path) -> None:
    opens = "import socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM).connect_ex(('127.0.0.1', 9))"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {opens!r}])" if child else opens
    assert "AF_INET" in sockets(program, log=tmp_path / "log")
