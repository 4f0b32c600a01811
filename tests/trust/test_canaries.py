"""TRUST 23–28 and 33: no file makes code run, every value in a file is validated, the network is not used. Each file
that Headway writes is replaced by a canary, a pickle that leaves a trace when opened, and is used again."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from support.bad_files import example, sound
from support.watch import PICKLES, Canary, watched

import headway
from headway import jobs
from headway.checkpoints.saved import CHECKSUMS, update_checksums
from headway.checkpoints.sentence import sentence_settings
from headway.errors import CheckpointError, ConfigError, HeadwayError
from headway.jobs.info import model_info
from headway.training import loop

SMALL: dict[str, Any] = {
    "model.width": 16, "model.layers": 1, "model.heads": 2, "eval_every": 1, "batch": 8, "save_every": 1, "vocab": 300,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with every file that a run writes."""
    folder = tmp_path_factory.mktemp("canaries") / "run"
    data = folder.parent / "x.csv"
    data.write_text(sound("classify", "csv"), encoding="utf-8")
    jobs.train("classify", data, out=folder, steps=2, settings={**SMALL, "keep_states": True})
    return folder


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is resumed once for each of its files; none of them needs the picture."""
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / CHECKSUMS).unlink()
    return tmp_path / "run"


def opened_again(folder: Path, name: str) -> str:
    """The outcome of using a file of a run again: the model is run, or the run is resumed."""
    try:
        if name.startswith("training/"):
            return f"done: {jobs.resume(folder).result.steps} steps"
        return f"done: {model_info(folder)['family']} {list(jobs.run(folder, ['Guest 3 asked for tea.']))}"
    except HeadwayError as error:
        return f"refused: {error}"


def reseal(folder: Path) -> None:
    """Makes the manifests of states agree with their files again, as an attacker would."""
    import hashlib

    for manifest in folder.rglob("manifest.json"):
        try:
            content = json.loads(manifest.read_bytes())
        except (ValueError, RecursionError):
            continue
        for name, entry in content.get("files", {}).items() if isinstance(content, dict) else ():
            data = (manifest.parent / name).read_bytes()
            entry.update({"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
        manifest.write_text(json.dumps(content))


def replaced(run: Path, folder: Path, name: str, content: bytes) -> Path:
    shutil.copytree(run, folder)
    (folder / name).write_bytes(content)
    reseal(folder)
    if name != CHECKSUMS:
        update_checksums(folder)
    return folder


def test_no_file_of_a_run_is_ever_unpickled(run: Path, tmp_path: Path) -> None:
    """Each file becomes a pickle of some kind, with matching checksums, and is used again; no canary runs."""
    sign, names = tmp_path / "sang", files_of(run)
    assert {"config.json", "model.safetensors", "headway.json", "tokenizer.json", "training/plan.json"} <= set(names)
    assert any(name.startswith("training/state-") for name in names)
    for name, make in zip(names, cycle(PICKLES.values()), strict=False):
        folder = replaced(run, tmp_path / "run", name, make(Canary(sign)))
        with watched(folder) as seen:
            answer = opened_again(folder, name)
        assert not sign.exists() and not seen, (name, seen, answer)
        if name in ("model.safetensors", "config.json", "headway.json", "tokenizer.json", "training/plan.json"):
            assert answer.startswith("refused"), (name, answer)
        shutil.rmtree(folder)


def test_the_canary_runs_where_pickles_are_opened_and_is_noticed(tmp_path: Path) -> None:
    for number, (kind, make) in enumerate(PICKLES.items()):
        path = tmp_path / f"{number}.bin"
        path.write_bytes(make(Canary(tmp_path / f"sang {number}")))
        with watched(tmp_path) as seen:
            torch.load(path, weights_only=False) if kind.startswith("torch") else pickle.loads(path.read_bytes())
        assert (tmp_path / f"sang {number}").exists()
        assert any("pickle.find_class" in event for event in seen), kind


HOSTILE = {
    "nothing": b"",
    "zeros": bytes(2000),
    "a list": b"[]",
    "null": b"null",
    "deep": b"[" * 100_000,
    "deeper objects": b'{"a":' * 50_000,
    "a number": b"1e999",
    "a huge number": b'{"model_type": ' + b"9" * 5000 + b"}",
    "a key twice": b'{"task": "classify", "task": "os"}',
    "other fields": b'{"a": {"b": [1, 2, {"c": null}]}}',
    "half a surrogate": b'{"model_type": "\\ud800", "task": "\\ud800", "options": {}}',
}


def test_no_file_of_a_run_raises_another_error(run: Path, tmp_path: Path) -> None:
    """Damaged or hostile, it is refused by a HeadwayError or is not needed, also with matching checksums."""
    contents = cycle(HOSTILE.items())
    for name in files_of(run):
        for _ in range(1 if name.startswith("training/") else 3):
            kind, content = next(contents)
            folder = replaced(run, tmp_path / "run", name, content)
            assert re.match("done|refused: .", opened_again(folder, name)), (name, kind)
            shutil.rmtree(folder)


# ---------------------------------------------------------------------------------------- 24: names of code

CODE = {
    "auto_map": {"AutoModel": "evil.Model", "AutoConfig": "evil--evil.Config"},
    "architectures": ["os.system"],
    "model_type": "../evil",
    "trust_remote_code": True,
    "tokenizer_class": "evil.Tokenizer",
    "custom_pipelines": {"x": {"impl": "evil.Pipe"}},
    "_attn_implementation": "evil/kernel",
}
EVIL = "from pathlib import Path\nPath(__file__).with_name('sang').mkdir()\nclass Model: ...\n"


@pytest.mark.parametrize("key", CODE)
def test_code_that_a_config_names_is_not_imported(key: str, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("evil.py", "__init__.py", "modeling_evil.py", "tokenization_evil.py", "sitecustomize.py"):
        (copy / name).write_text(EVIL)
    for file in ("config.json", "tokenizer_config.json", "headway.json"):
        (copy / file).write_text(json.dumps(json.loads((copy / file).read_text()) | {key: CODE[key]}))
    monkeypatch.chdir(copy)  # where `import evil` would find it
    monkeypatch.syspath_prepend(str(copy))
    before = set(sys.modules)
    with watched(copy) as seen:
        try:
            headway.load(copy)
        except HeadwayError as error:
            assert str(error)
    assert not seen and not list(copy.rglob("sang"))
    assert not [name for name in set(sys.modules) - before if "evil" in name]


NO_TASKS = ["os", "os.system", "../evil", "headway.cli", "Task", "classify\0", ["classify"], {}, None]


@pytest.mark.parametrize("task", NO_TASKS)
def test_a_task_that_is_none_is_refused(task: Any, copy: Path) -> None:
    (copy / "headway.json").write_text(json.dumps({"task": task, "options": {}}))
    with pytest.raises(HeadwayError):
        headway.load(copy)


@pytest.mark.parametrize(
    ("option", "value"),
    [("limit", "16"), ("limit", -1), ("limit", 10**30), ("limit", 0.5), ("labels", "ab"), ("labels", [1, 2]),
     ("lowercase", "yes"), ("label_smoothing", "x"), ("label_smoothing", float("nan")), ("overflow", ["error"]),
     ("overflow", "ignore"), ("code", "import os"), ("tokenizer", "x"), ("counts", {"a": 1})],
)  # fmt: skip
def test_a_task_s_options_are_checked_by_name(option: str, value: Any, copy: Path) -> None:
    content = json.loads((copy / "headway.json").read_text())
    content["options"][option] = value
    (copy / "headway.json").write_text(json.dumps(content))
    with pytest.raises(HeadwayError, match=option):
        headway.load(copy)


# ---------------------------------------------------------------------------------------- paths


@pytest.mark.parametrize("path", ["..", "../outside", "/etc", "a/../../outside", "1\0", "x" * 5000, "link"])
def test_a_module_s_path_stays_in_its_folder(path: str, tmp_path: Path) -> None:
    model, outside = tmp_path / "model", tmp_path / "outside"
    for folder in (model, outside):
        folder.mkdir()
    (outside / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (model / "link").symlink_to(outside)
    modules = [{"type": "sentence_transformers.models.Pooling", "path": path}]
    (model / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match=r"modules\.json: .* is outside the folder"):
        sentence_settings(model)
    (model / "modules.json").write_text(json.dumps([modules[0] | {"path": "1_Pooling"}]))
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    assert sentence_settings(model).pooling == "first"


def test_saving_does_not_write_through_links(copy: Path, tmp_path: Path) -> None:
    bundle = headway.load(copy)
    victims = []
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "headway.json"):
        victim = tmp_path / f"victim {name}"
        victim.write_text("mine")
        (copy / name).unlink()
        (copy / name).symlink_to(victim)
        victims.append(victim)
    bundle.save(copy)
    assert [victim.read_text() for victim in victims] == ["mine"] * len(victims)
    assert headway.load(copy).task is not None


# ---------------------------------------------------------------------------------------- 33: the network

OFFLINE = """
import sys
called = []
def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind", "socket.sendto"):
        called.append(event)
        raise RuntimeError(f"the network was used: {event} {arguments}")
sys.addaudithook(hook)
from headway.cli import main
for line in sys.argv[1].split(";"):
    sys.argv = ["headway", *line.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (line, end.code)
assert not called, called
print("quiet")
"""


@pytest.mark.skipif(shutil.which("strace") is not None, reason="test_no_network.py asks the system itself")
def test_no_command_uses_the_network(run: Path, tmp_path: Path) -> None:
    small = "--set model.width=16 --set model.layers=1 --set model.heads=2 --set task.vocab=300 --set eval_every=0"
    data = run.parent / "x.csv"
    commands = [
        f"check classify {data} {small}",
        f"train classify {data} --out {tmp_path / 'out'} --steps 1 {small}",
        f"run {tmp_path / 'out'} tea",
        f"evaluate {tmp_path / 'out'} {data}",
        f"info {tmp_path / 'out'}",
    ]
    done = subprocess.run([sys.executable, "-c", OFFLINE, ";".join(commands)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.rstrip().endswith("quiet")


def test_the_network_guard_works() -> None:
    asks = OFFLINE.split("from headway")[0] + "import socket\nsocket.create_connection(('127.0.0.1', 9))"
    done = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True)
    assert "the network was used: socket" in done.stderr


# ---------------------------------------------------------------------------------------- what others will read


def test_a_model_card_shows_what_the_data_says_and_runs_none_of_it(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    rows = [example("classify", i) for i in range(40)]
    for row in rows[::2]:
        row["label"] = f"{evil}[x](javascript:alert(1))"
    rows[0]["label"] = "one <b>only</b>"
    data = tmp_path / "x<script>alert(1)|.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    jobs.train("classify", data, out=tmp_path / "run", steps=1, settings=SMALL | {"eval_every": 0})
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "&lt;script&gt;" in card and "&lt;b&gt;only" in card
    assert not re.search(r"<(?!this folder>)", card.replace("<this folder>", "")), card


def test_config_errors_do_not_repeat_what_was_sent(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"unknown_key": "x" * 1_000_000}))
    with pytest.raises(ConfigError) as caught:
        headway.load(copy)
    assert "unknown_key" in str(caught.value) and len(str(caught.value)) < 2000
