"""Two processes started by torchrun do what one does, and only the first one speaks. They train, though one of them
dies on the way and torchrun starts both anew; they evaluate and answer; and what is refused is refused by both."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support import untrained

import headway
from headway.cli import main

HERE = Path(__file__).parent
LOG = Path("training") / "metrics.jsonl"
SMALL = ["model.width=32", "model.layers=1", "model.heads=2", "model.dropout=0.0", "task.vocab=200", "eval_every=2"]
SETTINGS = [*SMALL, "save_every=1", "log_every=1"]
TRAIN = ["train", "classify", "mine.tsv", "--steps", "4", "--recipe", "classic"]
TRAIN += [part for setting in SETTINGS for part in ("--set", setting)]
USE = [  # sampling, beam search over inputs sorted by length, and classification
    [
        "run",
        "decoder",
        "--file",
        "prompts.txt",
        "--max-new-tokens",
        "6",
        "--temperature",
        "1",
        "--seed",
        "7",
        "--json",
    ],
    ["run", "translator", "--file", "prompts.txt", "--max-new-tokens", "4", "--json"],
    ["run", "one", "--file", "prompts.txt"],
    ["evaluate", "decoder", "prompts.txt", "--json"],
    ["evaluate", "translator", "pairs.tsv", "--beams", "2", "--json"],
    ["evaluate", "one", "mine.tsv"],
]
REFUSED = ["run", "decoder", "--file", "long.txt", "--max-new-tokens", "6"]


@pytest.mark.slow  # a minute; test_distributed.py and test_fsdp.py train on two ranks in every run
def test_two_ranks_do_what_one_does(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    alone = [output_of(command, monkeypatch, capsys) for command in [[*TRAIN, "--out", "one"], *USE]]
    Path("commands.json").write_text(json.dumps([[*TRAIN, "--out", "two"], *USE, [*TRAIN, "--out", "sure"], REFUSED]))
    path = os.pathsep.join([str(HERE.parent), *sys.path])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    torchrun += [
        "--max-restarts",
        "1",
        "--monitor-interval",
        "0.1",
        str(HERE / "distributed_commands.py"),
        "commands.json",
    ]
    done = subprocess.run(torchrun, env=env, capture_output=True, text=True)
    first_life, *outputs = done.stdout.split("== 0\n")[1:]
    assert len(outputs) == 1, done.stderr
    told = re.split(r"== \d+\n", outputs[0])
    assert len(told) == len(USE) + 3, done.stderr

    assert alone[0].count("examples     ") == first_life.count("examples     ") == told[0].count("examples     ") == 1
    assert alone[0].count("saved in") == told[0].count("saved in") == 1
    trained_alike()

    for number, command in enumerate(USE, 1):
        assert told[number] == alone[number] != "", command
        one, two = (json.loads(Path(f"done-{number}-{rank}.json").read_text()) for rank in (0, 1))
        assert sum(two) > 0 and all(own - other in (0, 1) for own, other in zip(one, two, strict=True)), command

    # Line 70 is the second process's; the first one says why, and none of the answers that it has found beside it.
    assert done.returncode == 1 and told[-1] == ""
    assert len(re.findall("^error: .* tokens", done.stderr, re.M)) == 2, done.stderr


def write_files(folder: Path) -> None:
    rows = [f"i {'love' if i % 2 else 'hate'} number {i}\t{'good' if i % 2 else 'bad'}" for i in range(150)]
    (folder / "mine.tsv").write_text("\n".join(rows) + "\n")
    (folder / "pairs.tsv").write_text("\n".join(f"import {i}\tstatement {i * i}" for i in range(70)) + "\n")
    prompts = [f"hello {i} {'import ' * (i % 7)}" for i in range(130)]
    (folder / "prompts.txt").write_text("\n".join(prompts) + "\n")
    (folder / "long.txt").write_text("\n".join([*prompts[:69], "hello " * 300, *prompts[70:]]) + "\n")
    untrained.language_model(folder / "decoder")
    untrained.translator(folder / "translator")


def output_of(command: list[str], monkeypatch: Any, capsys: Any) -> str:
    monkeypatch.setattr(sys, "argv", ["headway", *command])
    capsys.readouterr()
    try:
        main()
    except SystemExit as end:
        assert not end.code, capsys.readouterr()
    return str(capsys.readouterr().out)


def trained_alike() -> None:
    logs = [[json.loads(line) for line in (Path(name) / LOG).read_text().splitlines()] for name in ("one", "two")]
    for name in ("loss", "norm", "scores"):
        told = [[(entry["step"], entry[name]) for entry in log if name in entry] for log in logs]
        assert len(told[0]) == (2 if name == "scores" else 4)
        for (step, expected), (same, found) in zip(*told, strict=True):
            assert step == same and found == pytest.approx(expected, abs=1e-5), name
    one, two = (headway.load(Path(name)).model.state_dict() for name in ("one", "two"))
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-5, rtol=1e-4)
    killed, sure = ((Path(name) / "model.safetensors").read_bytes() for name in ("two", "sure"))
    assert killed == sure
