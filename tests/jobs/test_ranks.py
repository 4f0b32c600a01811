"""Two processes started by torchrun train what one trains, from the same folder, and only one of them speaks."""

import os
import subprocess
import sys
from pathlib import Path

import torch

import headway


def test_two_ranks_train_what_one_does(tmp_path: Path) -> None:
    rows = [f"i {'love' if i % 2 else 'hate'} number {i}\t{'good' if i % 2 else 'bad'}" for i in range(120)]
    (tmp_path / "mine.tsv").write_text("\n".join(rows) + "\n")
    small = ["model.width=32", "model.layers=1", "model.heads=2", "model.dropout=0.0", "task.vocab=200", "eval_every=0"]
    train = ["-m", "headway", "train", "classify", "mine.tsv", "--steps", "4", "--recipe", "classic"]
    train += [part for setting in small for part in ("--set", setting)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    outputs = {}
    for name, starter in {"one": [sys.executable], "two": torchrun}.items():
        done = subprocess.run([*starter, *train, "--out", name], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        outputs[name] = done.stdout
    assert outputs["two"].count("examples     ") == outputs["one"].count("examples     ") == 1
    one, two = (headway.load(tmp_path / name).model.state_dict() for name in ("one", "two"))
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-5, rtol=1e-4)
