"""`headway runs` and `headway compare-runs`: what run folders say about runs, hostile ones included."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.commands import headway

from headway import jobs
from headway.errors import InputError
from headway.jobs.compare_runs import compare
from headway.jobs.runs import curves, list_runs, log_entries, run_state, run_summary
from headway.locks import is_locked, lock

OLD = Path(__file__).parents[1] / "folders" / "before_recut" / "unfinished"


def make_run(
    folder: Path, *, lr: float = 0.1, scores: dict[str, float] | None = None, log: list[Any] | None = None, **plan: Any
) -> Path:
    training = folder / "training"
    training.mkdir(parents=True)
    whole = {"task": "classify", "data": ["../d/mail.csv"], "recipe": "modern", "train": {"steps": 20, "lr": lr}}
    (training / "plan.json").write_text(json.dumps({**whole, **plan}))
    entries = [{"step": 10, "loss": 2.0, "seconds": 30.0}, {"step": 10, "scores": {"accuracy": 0.5}}]
    (training / "metrics.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in log or entries))
    if scores is not None:
        (training / "scores.json").write_text(json.dumps(scores))
    return folder


def test_states(tmp_path: Path) -> None:
    done = make_run(tmp_path / "done", scores={"accuracy": 0.9})
    begun = make_run(tmp_path / "begun")
    assert (run_state(done), run_state(begun)) == ("finished", "stopped")
    path = begun / "training" / "lock"
    with lock(path):
        assert run_state(begun) == "running" and is_locked(path)
        assert run_summary(begun).scores == {"accuracy": 0.5}  # the last evaluation
    assert run_state(begun) == "stopped"
    path.write_text("123")  # a process that was killed leaves the file, without its lock
    assert run_state(begun) == "dead" and not is_locked(path)
    with lock(path):  # and the next one takes it
        assert run_state(begun) == "running"


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_process_that_is_killed_is_dead(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    path = run / "training" / "lock"
    program = "import sys, time, pathlib\nfrom headway.locks import lock\nwith lock(pathlib.Path(sys.argv[1])):\n"
    program += "    print('locked', flush=True)\n    time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == b"locked\n"
            assert run_state(run) == "running"
        finally:
            child.kill()
    assert run_state(run) == "dead"


def test_a_run_is_running_until_its_scores_are_saved(tmp_path: Path) -> None:
    rows = [f"text {n} is {'good' if n % 2 else 'bad'},{'yes' if n % 2 else 'no'}" for n in range(60)]
    (tmp_path / "data.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    seen: dict[str, str] = {}
    small = {"model.width": 16, "model.layers": 1, "model.heads": 2, "vocab": 100}
    jobs.train(
        "classify", tmp_path / "data.csv", out=tmp_path / "run", steps=1, settings=small,
        say=lambda line: seen.update({line.split()[0]: run_state(tmp_path / "run")}),
    )  # fmt: skip
    assert seen["trained"] == "running" and run_state(tmp_path / "run") == "finished"
    found = run_summary(tmp_path / "run")
    assert found.is_final and found.score is not None and found.score[0] == "accuracy" and found.baseline
    assert found.parameters and found.step == 1 and found.data == ("data.csv",)


def test_looking_at_a_lock_does_not_keep_others_from_it(tmp_path: Path) -> None:
    import threading

    path, stop = tmp_path / "lock", threading.Event()
    path.write_text("1")

    def look() -> None:
        while not stop.is_set():
            is_locked(path)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(50):
            with lock(path):
                pass
            path.write_text("1")
    finally:
        stop.set()
        watcher.join()


def test_a_summary(tmp_path: Path) -> None:
    run = make_run(tmp_path / "r", scores={"accuracy": 0.9, "loss": 0.3}, start="/models/MiniLM")
    baselines = [{"name": "always", "scores": {"accuracy": 0.2}}, {"name": "TF-IDF", "scores": {"accuracy": 0.85}}]
    (run / "training" / "baselines.json").write_text(json.dumps({"baselines": [*baselines, 3, {"name": 5}]}))
    found = run_summary(run)
    assert (found.task, found.data, found.start, found.step, found.seconds) == (
        "classify", ("mail.csv",), "/models/MiniLM", 10, 30.0,
    )  # fmt: skip
    assert found.score == ("accuracy", 0.9) and found.is_final and found.length == {"steps": 20}
    assert found.baseline == {"always": 0.2, "TF-IDF": 0.85} and found.parameters is None
    real = run_summary(OLD)
    assert (real.state, real.task, real.step, real.parameters) == ("stopped", "classify", 8, 5106)
    assert curves(OLD)["training loss"][0][0] == 2


def test_lists_are_sorted_and_nothing_stops_them(tmp_path: Path) -> None:
    for number, name in enumerate(["old", "deep/down/new", "newer"]):
        run = make_run(tmp_path / name, scores={"accuracy": 0.1})
        for file in (run / "training").iterdir():
            os.utime(file, (1e9 + number, 1e9 + number))
    bad = tmp_path / "bad" / "training"
    bad.mkdir(parents=True)
    (bad / "plan.json").write_text('{"task": ')
    os.utime(bad / "plan.json", (1, 1))
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / ".hidden").mkdir()
    shutil.copytree(tmp_path / "old", tmp_path / ".hidden" / "x")
    found = list_runs(tmp_path)
    assert [run.folder.name for run in found] == ["newer", "new", "old", "bad"]
    assert found[-1].state == "unreadable" and "plan.json" in found[-1].problem
    with pytest.raises(InputError, match="no such folder"):
        list_runs(tmp_path / "nowhere")


HOSTILE = {
    "types": {"task": 5, "data": "x", "train": [], "start": {"a": 1}, "recipe": None},
    "names": {"task": "a\x1b[31m\u202eb", "data": ["x\n\ny.csv"], "train": {"steps": float("1e400")}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_plans(name: str, tmp_path: Path) -> None:
    log = [{"step": "9", "loss": "x"}, {"step": -5, "scores": 3}, {"step": True, "scores": {"accuracy": "high"}}, [1]]
    make_run(tmp_path / "x", log=log, **HOSTILE[name])
    found = run_summary(tmp_path / "x")
    assert found.step == 0 and found.scores == {} and found.length == {}
    done = headway("runs", ".", cwd=tmp_path)
    assert done.returncode == 0 and "\x1b" not in done.stdout and "\u202e" not in done.stdout
    assert len(done.stdout.splitlines()) == 2


def test_links_out_of_a_run_are_not_read(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (tmp_path / "secret").write_text('{"step": 99}\n')
    (run / "training" / "metrics.jsonl").unlink()
    (run / "training" / "metrics.jsonl").symlink_to(tmp_path / "secret")
    assert run_summary(run).state == "unreadable"
    with pytest.raises(OSError, match="leaves the folder"):
        list(log_entries(run))


def test_the_end_of_a_long_log(tmp_path: Path) -> None:
    log = [{"step": step, "loss": 1.0, "pad": "x" * 200} for step in range(1, 3000)]
    run = make_run(tmp_path / "run", log=log)
    with (run / "training" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3000, "lo')  # being written
    assert run_summary(run).step == 2999 and len(curves(run)["training loss"]) == 2999


def test_the_table(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "one", scores={"accuracy": 0.91})
    make_run(tmp_path / "runs" / "two", start="hub/MiniLM")
    done = headway("runs", cwd=tmp_path)
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["run", "state", "task", "data", "model", "score", "steps", "changed"]
    by_name = {row.split()[0]: row for row in rows}
    assert "finished  classify  mail.csv" in by_name["one"] and "accuracy 0.91" in by_name["one"]
    assert "stopped" in by_name["two"] and "from MiniLM" in by_name["two"] and "10/20" in by_name["two"]
    listed = json.loads(headway("runs", "--json", cwd=tmp_path).stdout)
    assert {each["folder"]: each["state"] for each in listed} == {"runs/one": "finished", "runs/two": "stopped"}
    (tmp_path / "empty").mkdir()
    assert "no runs" in headway("runs", "empty", cwd=tmp_path).stdout


def test_runs_side_by_side(tmp_path: Path) -> None:
    make_run(tmp_path / "r" / "a", scores={"accuracy": 0.9})
    make_run(tmp_path / "r" / "b<i>", lr=0.2, log=[{"step": step, "loss": 5.0 / step} for step in range(1, 2000)])
    done = headway("compare-runs", "r/a", "r/b<i>", "-o", "page.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ["train.lr", "0.1", "0.2"] in [line.split() for line in done.stdout.splitlines()]
    assert ["accuracy", "0.9000", "–"] in [line.split() for line in done.stdout.splitlines()]
    assert "train.steps" not in done.stdout and "the scores of b<i> are those of its last evaluation" in done.stdout
    page = (tmp_path / "page.html").read_text()
    assert "b&lt;i&gt;" in page and "<i>" not in page and page.count("<polyline") == 4
    assert max(len(part) for part in page.split('points="')) < 20_000  # long curves are thinned
    assert headway("compare-runs", "r/a", "r/b<i>", "-o", "c.png", cwd=tmp_path).returncode == 0
    with Image.open(tmp_path / "c.png") as picture:
        assert picture.width > 500
    same = compare([tmp_path / "r" / "a", tmp_path / "r" / "a"])
    assert same.settings == {}


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    (tmp_path / "b").mkdir()
    assert "b: holds no run" in headway("compare-runs", "a", "b", cwd=tmp_path).stderr
    assert "two or more" in headway("compare-runs", "a", cwd=tmp_path).stderr
    assert ".html or .png" in headway("compare-runs", "a", "a", "-o", "x.txt", cwd=tmp_path).stderr
    make_run(tmp_path / "c", task="tag")
    assert "not comparable" in headway("compare-runs", "a", "c", cwd=tmp_path).stdout
