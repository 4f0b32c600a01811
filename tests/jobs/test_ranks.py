"""Two processes started by torchrun train what one trains, from the same folder, though one of them dies on the way and
torchrun starts both anew; and only the first one speaks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import headway

HERE = Path(__file__).parent
LOG = Path("training") / "metrics.jsonl"


def test_two_ranks_train_what_one_does(tmp_path: Path) -> None:
    rows = [f"i {'love' if i % 2 else 'hate'} number {i}\t{'good' if i % 2 else 'bad'}" for i in range(120)]
    (tmp_path / "mine.tsv").write_text("\n".join(rows) + "\n")
    small = ["model.width=32", "model.layers=1", "model.heads=2", "model.dropout=0.0", "task.vocab=200", "eval_every=2"]
    small += ["save_every=1", "log_every=1"]
    train = ["train", "classify", "mine.tsv", "--steps", "4", "--recipe", "classic"]
    train += [part for setting in small for part in ("--set", setting)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    torchrun += ["--max-restarts", "1", "--monitor-interval", "0.1", str(HERE / "mortal_headway.py")]
    outputs = {}
    for name, starter in {"one": [sys.executable, "-m", "headway"], "two": torchrun}.items():
        done = subprocess.run([*starter, *train, "--out", name], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        outputs[name] = done.stdout
    assert outputs["one"].count("examples     ") == 1 and outputs["two"].count("examples     ") == 2  # lives
    assert all(output.count("saved in") == 1 for output in outputs.values())
    logs = [[json.loads(line) for line in (tmp_path / name / LOG).read_text().splitlines()] for name in outputs]
    for name in ("loss", "norm", "scores"):
        told = [[(entry["step"], entry[name]) for entry in log if name in entry] for log in logs]
        assert len(told[0]) == (2 if name == "scores" else 4)
        for (step, expected), (same, found) in zip(*told, strict=True):
            assert step == same and found == pytest.approx(expected, abs=1e-5), name
    one, two = (headway.load(tmp_path / name).model.state_dict() for name in ("one", "two"))
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-5, rtol=1e-4)
