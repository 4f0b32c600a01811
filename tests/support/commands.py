"""`headway` commands in this process: what a subprocess gives, without importing torch again for each."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from headway.cli import main


@dataclass(frozen=True)
class Result:
    returncode: int
    stdout: str
    stderr: str


def headway(*args: str | Path, cwd: Path, input: str = "") -> Result:
    """Runs one command in the folder `cwd`, with `input` on its standard input."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", ["headway", *map(str, args)]),
        mock.patch.object(sys, "stdin", io.StringIO(input)),
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return Result(code, out.getvalue(), err.getvalue())
