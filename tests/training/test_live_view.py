"""The live view of `headway train` on a pseudo-terminal: within 80 columns, and a clean screen after Ctrl-C."""

import os
import re
import select
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console
from torch import nn

from headway.training.progress import ProgressLine, sparkline
from headway.training.protocols import Status

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals")

PROGRAM = """
import sys, tempfile, time
import torch
from torch import nn
from headway.data.batch import Batch, Loss
from headway.training.loop import fit
from headway.training.progress import ProgressLine
from headway.training.settings import Settings
import numpy as np

class Source:
    fingerprint = "x"
    def epoch(self, number): return [np.array([n]) for n in range(1000)]
    def load(self, indices, epoch):
        time.sleep(0.01)
        return Batch({"inputs": torch.ones(1, 2)}, {}, count=1, where=[])

def loss(model, batch): return Loss(model(batch.inputs["inputs"]).square().sum())

with tempfile.TemporaryDirectory() as folder:
    settings = Settings(steps=100_000, log_every=2, eval_every=20, lr=0.01)
    result = fit(nn.Linear(2, 1), Source(), loss=loss, settings=settings, folder=folder, score="exactness",
                 evaluate=lambda model: {"exactness": 0.5}, callbacks=[ProgressLine(unit="tokens", score="exactness")])
print("stopped by", result.stopped_by)
"""
CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def test_on_a_terminal_of_80_columns_until_ctrl_c() -> None:
    import pty

    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "LINES": "24", "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    )
    os.close(theirs)
    shown, signalled, deadline = b"", False, time.monotonic() + 100
    while time.monotonic() < deadline:
        if not select.select([ours], [], [], 0.1)[0]:
            continue
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        shown += part
        if not signalled and "best 0.5 at step" in shown.decode(errors="replace"):
            child.send_signal(signal.SIGINT)
            signalled = True
    assert child.wait(timeout=30) == 0, shown.decode(errors="replace")[-2000:]
    os.close(ours)
    text = shown.decode()
    lines = [line for each in re.split(r"[\r\n]", text) if (line := CONTROL.sub("", each))]
    assert "stopped by SIGINT" in lines[-1]
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is shown again
    assert max(map(len, lines)) <= 80
    assert any(re.search(r"step \d[\d,]*/100,000 .* left$", line) for line in lines)
    assert any(line[0] in "▁▂▃▄▅▆▇█" and "loss " in line and "exactness 0.5" in line for line in lines)
    assert any("tokens/s" in line and "elapsed" in line for line in lines)
    assert any(line.startswith("step 20: exactness 0.5") for line in lines)  # evaluations stay above the view


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    view = ProgressLine(unit="tokens", score="bleu")
    view.console = Console(force_terminal=True, width=width, file=open(os.devnull, "w"))  # noqa: SIM115 - closed below
    view.status = Status(nn.Identity(), step=123_456, steps=1_000_000, elapsed=360_000.0, best=31.25, best_step=120_000)
    view.on_log(view.status, {"loss": 2.5, "speed": 1234567.0, "lr": 0.001})
    view.on_log(view.status, {"loss": 1.5, "speed": 1234567.0, "lr": 0.001})
    view.scores = {"bleu": 31.2}
    with view.console.capture() as drawn:
        view.console.print(view.view())
    lines = [CONTROL.sub("", line) for line in drawn.get().splitlines()]
    assert len(lines) == 3 and max(map(len, lines)) <= width
    assert "12%" in lines[0] and lines[1].startswith("█▁ loss 1.5")
    assert width < 80 or "bleu 31.2 (best 31.25 at step 120,000)" in lines[1]
    view.console.file.close()


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")
    line = ProgressLine(every=0.0)
    status = Status(nn.Identity(), step=1, steps=4, elapsed=1.0)
    line.on_start(status)
    line.on_log(status, {"loss": 2.5})
    line.on_end(status)
    assert line.live is None and capsys.readouterr().out == "step 1/4  loss 2.5000  0:03 left\n"


def test_sparklines() -> None:
    assert sparkline([1.0], 10) == "" and sparkline([2.0, 2.0, 2.0], 10) == "▁▁▁"
    assert sparkline([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 8) == "█▇▆▅▄▃▂▁"
    assert sparkline([1000.0, 3.0, 2.0, 1.0], 4)[1:] == "▃▂▁"  # one large value does not flatten the rest
    assert len(sparkline([float(n) for n in range(1000)], 30)) == 30
    assert sparkline([float("nan"), 1.0, float("inf"), 2.0], 5) == "▁█"
