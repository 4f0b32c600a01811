"""Runs on the page: a training as a person sees it in a real Chromium; the log as events; uploads; who may train."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from support.browser import chromium, errors
from support.server import Running, running

from headway.errors import ConfigError
from headway.jobs import make_plan
from headway.models.recipes import SIZES, Recipe, SizeName
from headway.serving.api_errors import ApiError
from headway.serving.runs_data import Uploads, safe_name
from headway.serving.runs_log import LogReader
from headway.serving.runs_process import Processes, Record, born, has_open, lock_holder
from headway.serving.runs_table import RunTable, run_table

ROWS = "text\tlabel\n" + "".join(
    f"the {'red' if i % 2 else 'blue'} one, {i}\t{'a' if i % 2 else 'b'}\n" for i in range(60)
)
BIG = 100_000_000


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server without a model, whose page may train."""
    table = RunTable(tmp_path_factory.mktemp("runs"), train=True)
    with running(runs=table) as found:
        yield found
        for record in table.processes.records().values():
            if record.is_alive():
                os.kill(record.pid, signal.SIGKILL)


def folder_of(server: Running) -> Path:
    assert server.server.runs is not None
    return server.server.runs.folder


def until(found: Any, *, seconds: float = 180) -> Any:
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return value


# ---------------------------------------------------------------------------------------- a training, in a browser


def test_a_training_is_started_reloaded_stopped_resumed_and_tried(studio: Running) -> None:
    with chromium() as browser:

        def text() -> str:
            return browser.execute_script("return document.querySelector('main').innerText")

        def press(name: str) -> None:
            found = f"[...document.querySelectorAll('main button')].find((each) => each.innerText === '{name}')"
            until(lambda: browser.execute_script(f"return {found}"))
            browser.execute_script(f"{found}.click()")

        def drawn() -> int:
            script = "return document.querySelectorAll('.chart path.line')[0]?.getAttribute('d').length ?? 0"
            return browser.execute_script(script)

        def state() -> str:
            return browser.execute_script("return document.querySelector('.state')?.textContent")

        browser.get(f"{studio.url}/#/train")
        until(lambda: "New training" in text())
        drop = """const files = new DataTransfer();
            files.items.add(new File([arguments[0]], 'my data.tsv'));
            const zone = document.querySelector('.drop');
            zone.dispatchEvent(new DragEvent('drop', {dataTransfer: files, bubbles: true}))"""
        browser.execute_script(drop, ROWS)
        until(lambda: "Checked" in text() or "did not work" in text())
        assert "2 labels" in text() and (folder_of(studio) / "uploads" / "my_data.tsv").read_text() == ROWS
        script = """const set = (label, value) => {
              const input = [...document.querySelectorAll('label')].find((each) => each.innerText === label).control;
              input.value = value;
              input.dispatchEvent(new Event('input')); input.dispatchEvent(new Event('change'));
            };
            set('Name of the run', 'colours'); set('Size', 'tiny'); set('Length', 'steps');
            set('How many', arguments[0])"""
        browser.execute_script(script, BIG)
        press("Start training")
        until(lambda: drawn() > 60)
        assert state() == "running" and "colours" in browser.title

        browser.refresh()  # in the middle of it: all of the curve again, and on it goes
        until(lambda: state() == "running" and drawn() > 60)
        before = studio.get("/studio/runs/colours").json()["step"]
        until(lambda: studio.get("/studio/runs/colours").json()["step"] > before)
        press("Stop")
        until(lambda: state() == "stopped")
        step = studio.get("/studio/runs/colours").json()["step"]
        (entry,) = studio.get("/studio/runs").json()["runs"]
        assert entry["resumable"] and not entry["stoppable"] and 0 < step < BIG
        assert not errors(browser)

        # a second device extends it; this page, which was not reloaded, shows it
        reply = studio.post("/studio/runs/colours/resume", {"steps": 10_000_000_000})
        assert reply.status == 400 and reply.error["param"] == "steps"
        assert studio.post("/studio/runs/colours/resume", {"steps": step + 5}).status == 200
        assert studio.post("/studio/runs/colours/resume", {}).status == 409, "it runs"
        until(lambda: state() == "finished")
        assert json.loads((folder_of(studio) / "colours/training/scores.json").read_text())
        press("Try it")
        until(lambda: "Classify" in text())
        press("Classify")
        until(lambda: browser.execute_script("return document.querySelectorAll('.bar').length") == 2)
        assert [each["id"] for each in studio.get("/v1/models").json()["data"]] == ["colours"]


# ---------------------------------------------------------------------------------------- states


def made_run(folder: Path, *, lock: str | None = None, scores: bool = False, log: str = "") -> Path:
    training = folder / "training"
    training.mkdir(parents=True)
    (training / "plan.json").write_text(json.dumps({"task": "classify", "train": {"steps": 10}}))
    (training / "metrics.jsonl").write_text(log)
    if lock is not None:
        (training / "lock").write_text(lock)
    if scores:
        (training / "scores.json").write_text('{"accuracy": 0.5}')
    return folder


def test_states_of_runs_by_folder_and_process(tmp_path: Path) -> None:
    table = RunTable(tmp_path, train=True)
    made_run(tmp_path / "killed", lock="999999", log='{"step": 5, "loss": 1.0}\n')
    made_run(tmp_path / "ended", scores=True)
    made_run(tmp_path / "below" / "halted")
    made_run(tmp_path / "broken")
    made_run(tmp_path / "torn")
    (tmp_path / "torn" / "training" / "plan.json").write_text("{")
    processes = table.processes
    processes.start("broken", ["no-such-command"], task="classify")
    processes.start("never", ["no-such-command"], task="tag")
    until(lambda: all(record.exit is not None for record in processes.records().values()))
    found = {run.name: run for run in table.all()}
    assert {name: run.state for name, run in found.items()} == {
        "killed": "dead", "ended": "finished", "below/halted": "stopped", "broken": "failed", "never": "failed",
        "torn": "unreadable",
    }  # fmt: skip
    assert found["killed"].facts()["progress"] == 0.5 and found["never"].facts()["task"] == "tag"
    assert "no-such-command" in processes.output("never", 1000)
    assert [name for name, run in found.items() if run.facts()["resumable"]] and not found["torn"].facts()["resumable"]
    with pytest.raises(ApiError, match="did you mean 'ended'"):
        table.find("endet")
    for name in ("../ended", "/etc", "ended/../ended", ".studio", ""):
        with pytest.raises(ApiError):
            table.find(name)


def test_a_process_id_that_is_used_again_is_not_the_training(tmp_path: Path) -> None:
    own = os.getpid()
    assert Record(own, born(own), 0.0, "tag").is_alive()
    assert not Record(own, "1", 0.0, "tag").is_alive() and not Record(own, born(own), 0.0, "tag", exit=0).is_alive()
    lock = tmp_path / "training" / "lock"
    lock.parent.mkdir()
    lock.write_text(str(own))
    assert lock_holder(lock) is None, "this process does not have it open"
    with open(lock) as file:
        assert has_open(own, lock) and lock_holder(lock) == own, file.name
    with pytest.raises(ApiError, match="stop it where it was started"):
        Processes(tmp_path / ".studio").stop("x", lock=lock)


# ---------------------------------------------------------------------------------------- the log as events


def entries(reader: LogReader) -> list[int]:
    part = reader.read()
    return [] if part is None else [entry["step"] for entry in part.entries]


def test_a_log_is_read_on_from_any_place_and_again_after_it_was_truncated(tmp_path: Path) -> None:
    lines = [f'{{"step": {step}, "loss": 0.5}}\n' for step in range(6)]
    folder = made_run(tmp_path / "run", log="".join(lines[:2]))
    log = folder / "training" / "metrics.jsonl"
    reader = LogReader(folder)
    first = reader.read()
    assert first is not None and len(first.entries) == 2 and not first.more and reader.read() is None
    with open(log, "a") as file:
        file.write(lines[2] + '{"step": 3, "lo')
        file.flush()
        assert entries(reader) == [2], "the line that is being written is not read"
        file.write('ss": NaN}\nnot json\n' + lines[4])
    assert entries(reader) == [4], "damaged lines are left out"
    assert entries(LogReader(folder, first.place)) == [2, 4]
    log.write_text(
        "".join(lines[:1]) + '{"step": 1, "loss": 0.9}\n' + "".join(lines[2:6])
    )  # resumed, and longer by now
    again = LogReader(folder, first.place)
    assert entries(again) == [0, 1, 2, 3, 4, 5] and again.is_reset
    for place in ("x", "-1-0", "999999999999999-0000000000000000", "5-" + "0" * 16):
        assert entries(LogReader(folder, place)) == [0, 1, 2, 3, 4, 5], place


def events(server: Running, name: str, **headers: str) -> list[tuple[str, Any, str]]:
    """(event, data, id) of the stream of a run that is not active."""
    reply = server.get(f"/studio/runs/{name}/events", **headers)
    assert reply.status == 200 and reply.headers["content-type"].startswith("text/event-stream")
    found = []
    for block in reply.body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"]), fields.get("id", "")))
    return found


def test_events_are_resumed_by_the_last_id(studio: Running) -> None:
    folder = made_run(folder_of(studio) / "gone", lock="999999", log='{"step": 1, "loss": 1.0}\n')
    found = events(studio, "gone")
    assert [name for name, _, _ in found] == ["entries", "run", "end"] and found[1][1]["state"] == "dead"
    with open(folder / "training" / "metrics.jsonl", "a") as file:
        file.write('{"step": 2, "loss": 0.5}\n')
    again = events(studio, "gone", Last_Event_ID=found[0][2])
    assert [entry["step"] for entry in again[0][1]] == [2]
    assert [name for name, _, _ in events(studio, "gone", Last_Event_ID="nonsense")][:2] == ["reset", "entries"]
    assert studio.get("/studio/runs/none/events").status == 404


# ---------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("a.csv", "a.csv"), ("../../etc/pass wd.txt", "pass_wd.txt"), ("C:\\x\\y.tsv", "y.tsv"),
     (".hidden.csv", "hidden.csv"), ("-rf.csv", "rf.csv"), ("a\0\n.csv", "a_.csv"),
     ("a" * 200 + ".csv", "a" * 96 + ".csv")],
)  # fmt: skip
def test_upload_names_are_plain_file_names(given: str, wanted: str) -> None:
    assert safe_name(given) == wanted


def test_uploads_are_bounded_and_stay_in_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "..", "...", "/", "csv", ".csv"):
        with pytest.raises(ApiError):
            safe_name(name)
    uploads = Uploads(tmp_path)
    assert [uploads.save("a.csv", b"1"), uploads.save("a.csv", b"2")] == ["a.csv", "a-2.csv"]
    assert (tmp_path / "uploads" / "a.csv").read_bytes() == b"1", "nothing is replaced"
    (tmp_path / "uploads" / "link.csv").symlink_to("/etc/passwd")
    for name in ("link.csv", "../uploads/a.csv", "/etc/passwd"):
        with pytest.raises(ApiError, match="no data file"):
            uploads.find(name, param="data")
    monkeypatch.setattr("headway.serving.runs_data.MOST_BYTES", 5)
    with pytest.raises(ApiError, match="bytes"):
        uploads.save("b.csv", b"1234")
    monkeypatch.setattr("headway.serving.runs_data.MOST_FILES", 2)
    with pytest.raises(ApiError, match="limit"):
        uploads.save("b.csv", b"1")
    uploads.remove("a.csv")
    assert list(uploads.all()) == ["a-2.csv"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "uploads").symlink_to(tmp_path / "uploads")
    with pytest.raises(ApiError, match="link"):
        Uploads(tmp_path / "other").save("c.csv", b"1")


@pytest.mark.parametrize(
    ("change", "param"),
    [({"name": "../x"}, "name"), ({"name": "-x"}, "name"), ({"name": "uploads"}, "name"), ({"name": "a/b"}, "name"),
     ({"task": "clasify"}, "task"), ({"data": "/etc/passwd"}, "data"), ({"data": "../x.csv"}, "data"),
     ({"steps": 0}, "steps"), ({"steps": 10**12}, "steps"), ({"steps": 1, "epochs": 1}, "steps"),
     ({"minutes": -1.0}, "minutes"), ({"lr": 100.0}, "lr"), ({"start": "owner/model"}, "start"),
     ({"start": "/tmp"}, "start"), ({"size": "huge"}, "size"), ({"device": "x"}, "device"), ({"seed": -1}, "seed"),
     ({"settings": {"report": "wandb"}}, "settings"), ({"columns": {"text": "a" * 300}}, "columns.text")],
)  # fmt: skip
def test_what_is_wrong_with_a_training_is_named_and_nothing_is_started(
    studio: Running, change: Any, param: str
) -> None:
    before = set(folder_of(studio).iterdir())
    reply = studio.post("/studio/runs", {"name": "new", "task": "classify", **change})
    assert reply.status in (400, 404) and reply.error["param"] == param, reply.body
    assert set(folder_of(studio).iterdir()) == before


def test_the_arguments_of_a_training(studio: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list without a shell; what could begin like an option is joined to one."""
    seen: list[list[str]] = []
    monkeypatch.setattr(Processes, "start", lambda self, name, arguments, *, task: seen.append(arguments))
    assert studio.request("PUT", "/studio/data/x.tsv", ROWS.encode()).json() == {"name": "x.tsv", "bytes": len(ROWS)}
    body = {
        "name": "new",
        "task": "classify",
        "data": "x.tsv",
        "columns": {"text": "--out=/tmp"},
        "steps": 5,
        "lr": 0.01,
    }
    studio.post("/studio/runs", body)
    folder = folder_of(studio)
    assert seen == [["train", "classify", str(folder / "uploads/x.tsv"), "--text=--out=/tmp", f"--out={folder / 'new'}",
                     "--keep-states", "--steps=5", "--set=train.lr=0.01"]]  # fmt: skip
    made_run(folder / "taken")
    assert studio.post("/studio/runs", {"name": "taken", "task": "classify"}).status == 409
    assert studio.post("/studio/runs/taken/stop", {}).status == 409, "it does not run"
    assert studio.post("/studio/runs/taken/serve", {}).status == 409, "it is not finished"
    assert studio.request("DELETE", "/studio/runs/taken").status == 409, "runs are not removed"
    assert studio.request("DELETE", "/studio/data/x.tsv").status == 200


def test_every_size_and_recipe_that_the_page_offers_is_accepted(
    studio: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(Processes, "start", lambda self, name, arguments, *, task: seen.append(arguments))
    facts = studio.get("/studio").json()
    sizes, recipes = facts["sizes"], [each["name"] for each in facts["recipes"]]
    assert sizes == list(get_args(SizeName)) == list(SIZES) and recipes == list(get_args(Recipe))
    assert recipes[0] == make_plan("classify").recipe  # what the page does not send
    for name, values in {"size": sizes, "recipe": recipes}.items():
        for value in values:
            studio.post("/studio/runs", {"name": "new", "task": "classify", name: value})
            assert seen[-1][-1] == f"--{name}={value}"
        assert studio.post("/studio/runs", {"name": "new", "task": "classify", name: "other"}).status == 400
    assert len(seen) == len(sizes) + len(recipes)
    page = studio.get("/static/train.js").body.decode()
    assert "facts.recipes" in page and "facts.sizes" in page  # the lists are not written there again


# ---------------------------------------------------------------------------------------- who may train

CHANGES = [("POST", "/studio/runs"), ("POST", "/studio/runs/ended/stop"), ("POST", "/studio/runs/ended/resume"),
           ("POST", "/studio/runs/ended/serve"), ("DELETE", "/studio/runs/ended"), ("PUT", "/studio/data/x.csv"),
           ("DELETE", "/studio/data/x.csv"), ("POST", "/studio/check")]  # fmt: skip


def test_a_server_that_may_not_train_shows_runs_only(embedder: Path, tmp_path: Path) -> None:
    made_run(tmp_path / "ended", scores=True)
    bodies = {"/studio/runs": {"name": "x", "task": "tag"}, "/studio/check": {"task": "tag"}}
    with running(embedder, runs=RunTable(tmp_path, train=False)) as server:
        assert [run["name"] for run in server.get("/studio/runs").json()["runs"]] == ["ended"]
        facts = server.get("/studio").json()
        assert facts["runs"] and not facts["train"]
        for method, path in CHANGES:
            reply = server.request(method, path, bodies.get(path, {}))
            assert reply.status == 403 and "--train" in reply.error["message"], (method, path, reply.body)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ended"], "nothing was written"
    with running(embedder) as server:
        assert not server.get("/studio").json()["runs"] and server.get("/studio/runs").status == 404
        assert {server.request(m, p, bodies.get(p, {})).status for m, p in CHANGES} == {404}


def test_training_is_off_by_default_where_others_reach_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def found(folder: Path | None = None, train: bool | None = None, local: bool = True, guarded: bool = True) -> Any:
        table = run_table(folder, train=train, local=local, guarded=guarded)
        return None if table is None else table.train

    assert found() is None, "there is no folder runs"
    (tmp_path / "runs").mkdir()
    assert found() is True and found(train=False) is False
    assert found(local=False) is False, "a key for the models is none for the machine"
    assert found(local=False, guarded=False) is None
    assert found(Path("runs"), local=False, train=True) is True and found(Path("new")) is True
    (tmp_path / "file").touch()
    for wrong in (lambda: found(Path("file")), lambda: found(Path("none"), train=False)):
        with pytest.raises(ConfigError, match="--runs"):
            wrong()
    (tmp_path / "runs").rmdir()
    with pytest.raises(ConfigError, match="--train"):
        found(train=True)
