"""TRUST 50 and 51: names, labels, cells and error texts of foreign origin reach a terminal, a card or a log only with
their control characters escaped; `--json` is JSON, and a score that is not finite is an error."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support.commands import Result, headway

from headway import jobs
from headway.checkpoints import TensorFiles, hub, save_tensors
from headway.errors import HeadwayError
from headway.inspect.pictures import draw_confusion
from headway.preprocess.chat import render
from headway.printable import PROSE, printable, printable_json
from headway.training import loop
from headway.training.log import draw_curves

ESCAPES = "\x1b[31m\x1b]0;owned\x07\x9b2J\u202e\u2066\u200b\u2028\x7f\r"
UTF8 = f"da{ESCAPES}\nerror: fake"  # also a line break
HOSTILE = UTF8 + os.fsdecode(bytes([0xE9]))  # and a byte that is not UTF-8
LABELS = (f"calm{ESCAPES}", f"angry{ESCAPES} $x_")
SMALL = ["--set", "model.width=16", "--set", "model.layers=1", "--set", "model.heads=2", "--set", "task.vocab=300"]


def assert_clean(text: str, *, keep: str = "\n") -> None:
    """Nothing in it acts on a terminal, and it can be written."""
    bad = [letter for letter in text if not letter.isprintable() and letter not in keep]
    assert not bad, (bad, text[:500])
    text.encode("utf-8")


def clean(result: Result, *, code: int = 0, keep: str = "\n") -> Result:
    assert result.returncode == code, result.stdout[-500:] + result.stderr[-1500:]
    assert_clean(result.stdout, keep=keep)
    assert_clean(result.stderr)
    assert not [line for line in (result.stdout + result.stderr).splitlines() if line.startswith("error: fake")]
    return result


def strict_json(text: str) -> Any:
    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    assert_clean(text)
    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names") / HOSTILE
    folder.mkdir()
    rows = [{"text": f"message {i}", f"la{ESCAPES}bel": LABELS[i % 2]} for i in range(40)]
    path = folder / f"{HOSTILE}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


COLUMNS = ["--label", f"la{ESCAPES}bel", "--text", "text"]


@pytest.fixture(scope="module")
def run(data: Path) -> tuple[Path, Result]:
    folder = data.parents[1] / f"run {UTF8}"
    more = [*SMALL, "--steps", "2", "--set", "eval_every=1", "--set", "batch=8"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "draw_curves", draw_curves)
        done = headway("train", "classify", data, "--out", folder, *COLUMNS, *more, cwd=data.parent)
    return folder, done


def test_one_function_escapes_everything_that_is_not_printable() -> None:
    assert printable(f"a{ESCAPES}b\n\udce9") == (
        r"a\x1b[31m\x1b]0;owned\x07\x9b2J\u202e\u2066\u200b\u2028\x7f\rb\n\udce9"
    )
    text = "naïve 日本\u3000\u200d👩\u200d🚀\n\tשלום\u200f"
    assert printable(text, keep=PROSE) == text
    assert printable("\x1b[1m\u202e", keep=PROSE) == r"\x1b[1m\u202e"
    value = {f"k{ESCAPES}": [f"v\n\U000e0001{ESCAPES}", 1.5, None]}
    out = printable_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(out) == value
    assert_clean(out)


def test_training_prints_and_writes_nothing_raw(run: tuple[Path, Result]) -> None:
    folder, done = run
    clean(done)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert_clean(card)
    for name in ("metrics.jsonl", "plan.json"):
        assert_clean((folder / "training" / name).read_text(encoding="utf-8"))
    assert (folder / "training" / "curves.png").exists()


def test_check_evaluate_run_info_and_explain_print_nothing_raw(run: tuple[Path, Result], data: Path) -> None:
    folder, _ = run
    assert r"\x1b[31m" in clean(headway("check", "classify", data, *COLUMNS, *SMALL, cwd=data.parent)).stdout
    clean(headway("evaluate", folder, data, *COLUMNS, cwd=data.parent))
    clean(headway("run", folder, "message 1", cwd=data.parent), keep="\n\t")
    clean(headway("run", folder, "--file", data, *COLUMNS, cwd=data.parent), keep="\n\t")
    clean(headway("info", folder, cwd=data.parent))
    clean(headway("explain", folder, f"message {ESCAPES}", "--terminal", cwd=data.parent))
    out = data.parent / f"{HOSTILE}.html"
    clean(headway("explain", folder, f"message {ESCAPES}", "-o", out, cwd=data.parent))
    page = out.read_text(encoding="utf-8")
    assert "\x1b" not in page and "\x9b" not in page.split("<title>")[1].split("</title>")[0]


@pytest.mark.parametrize(
    "command",
    [
        ["check", "classify", HOSTILE], ["check", "classify", "DATA", "--label", HOSTILE], ["train", HOSTILE],
        ["train", "classify", HOSTILE], ["train", "classify", "DATA", "--out", HOSTILE],
        ["train", "classify", "DATA", "--set", f"{HOSTILE}=1"],
        ["train", "classify", "DATA", "--start", HOSTILE], ["train", "classify", "DATA", "--resume", "--out", HOSTILE],
        ["evaluate", HOSTILE], ["evaluate", "RUN", HOSTILE], ["run", HOSTILE, "x"], ["run", "RUN", "--file", HOSTILE],
        ["run", "RUN", "x", "--json-schema", HOSTILE], ["info", HOSTILE], ["explain", HOSTILE, "x"],
        ["explain", "RUN", "x", "--png", HOSTILE], ["explain", "RUN", "x", "--against", HOSTILE],
        ["convert", HOSTILE, "out", "--to", "int8"], ["convert", "RUN", "out", "--to", HOSTILE], ["chat", HOSTILE],
        ["calibrate", HOSTILE, "out"], ["bench", HOSTILE], ["replay", HOSTILE], ["plan", "--params", HOSTILE],
        ["verify-resume", "classify", HOSTILE], [f"--{HOSTILE}"], [HOSTILE], ["run", f"--{HOSTILE}"],
    ],
    ids=lambda command: " ".join(command).replace(HOSTILE, "HOSTILE"),
)  # fmt: skip
def test_errors_print_nothing_raw(
    command: list[str], run: tuple[Path, Result], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    named = [{"DATA": data, "RUN": run[0]}.get(word, word) for word in command]
    clean(headway(*named, cwd=tmp_path), code=2)


def test_errors_of_files_hubs_and_templates_are_one_clean_line(
    run: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def message(call: Any) -> str:
        with pytest.raises(HeadwayError) as caught:
            call()
        assert_clean(str(caught.value), keep="")
        return str(caught.value)

    shutil.copytree(run[0], tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    for change in ({f"key{ESCAPES}": 1}, {"model_type": HOSTILE}, {"architectures": [f"x{ESCAPES}"]}):
        (tmp_path / "run" / "config.json").write_text(json.dumps(config | change))
        message(lambda: jobs.info.model_info(tmp_path / "run"))
    (tmp_path / "x.safetensors").write_bytes(hostile_header())
    message(lambda: TensorFiles(tmp_path / "x.safetensors"))
    (tmp_path / f"{HOSTILE}.bin").write_bytes(b"\x80\x04")
    message(lambda: TensorFiles(tmp_path / f"{HOSTILE}.bin"))
    message(lambda: render(f"{{{{ raise_exception({HOSTILE!r}) }}}}", {}))
    message(lambda: render(f"{{% {ESCAPES} %}}", {}))

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError(f"the hub says {HOSTILE}")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fails)
    assert "the hub says" in message(lambda: hub.resolve("owner/name"))


def hostile_header() -> bytes:
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    text = json.dumps({f"tensor {ESCAPES}": entry}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return len(text).to_bytes(8, "little") + text + bytes(4)


def test_control_an_error_without_the_function_is_raw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Control: the same command with the protection removed prints the escape sequence."""
    for place in ("headway.errors", "headway.cli.options", "headway.cli"):
        monkeypatch.setattr(f"{place}.printable", lambda text, **_: text)
    done = headway("info", f"x{ESCAPES}", cwd=tmp_path)
    with pytest.raises(AssertionError):
        assert_clean(done.stderr)


def test_titles_and_labels_of_pictures(tmp_path: Path) -> None:
    figure = draw_confusion(torch.eye(2).numpy(), labels=LABELS, title=f"{HOSTILE} $", path=tmp_path / "x.svg")
    texts = [text.get_text() for axes in figure.axes for text in axes.get_xticklabels()]
    assert texts[:2] and all(text.isprintable() for text in texts)
    assert_clean(figure.get_suptitle())
    assert_clean((tmp_path / "x.svg").read_text())


# ---------------------------------------------------------------------------------------- 51


def test_every_json_output_is_strict_json(run: tuple[Path, Result], data: Path, tmp_path: Path) -> None:
    folder, _ = run
    reading = [*COLUMNS, "--json"]
    for command in (
        ["check", "classify", data, *SMALL, *reading], ["evaluate", folder, data, *reading],
        ["info", folder, "--json"], ["plan", "--params", "7B", "--json"],
        ["calibrate", folder, tmp_path / "calibrated", data, *reading],
        ["convert", folder, tmp_path / "int8", "--to", "int8", "--json"],
        ["bench", folder, "--prompt-tokens", "4", "--json"],
    ):  # fmt: skip
        assert strict_json(clean(headway(*command, cwd=tmp_path)).stdout) not in ({}, []), command
    for command in (["run", folder, "a", "b", "--json"], ["run", folder, "--file", data, *reading]):
        lines = clean(headway(*command, cwd=tmp_path)).stdout.splitlines()
        assert len(lines) >= 2 and all("answer" in strict_json(line) for line in lines)


def test_weights_that_are_not_finite_are_an_error(run: tuple[Path, Result], data: Path, tmp_path: Path) -> None:
    shutil.copytree(run[0], tmp_path / "run")
    state = dict(TensorFiles(run[0]).items())
    state |= {name: torch.full_like(value, float("nan")) for name, value in state.items() if value.is_floating_point()}
    save_tensors(tmp_path / "run", state)
    (tmp_path / "run" / "checksums.json").unlink()
    for command in (["evaluate", tmp_path / "run", data, *COLUMNS], ["run", tmp_path / "run", "message 1"]):
        for more in ([], ["--json"]):
            done = clean(headway(*command, *more, cwd=tmp_path), code=2)
            assert "finite" in done.stderr and "nan" not in done.stdout.lower(), done
