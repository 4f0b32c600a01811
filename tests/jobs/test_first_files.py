"""A first file of one's own, as spreadsheets and colleagues write it: check, train, run and evaluate read it alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.commands import headway

from headway import jobs
from headway.errors import ConfigError

SMALL = ["--set", "model.width=16", "--set", "model.layers=1", "--set", "model.heads=2", "--steps", "2"]
GERMAN = ["Drucker startet nicht", "Bildschirm flackert", "Tür schließt nicht", "Größerer Monitor"]
FRENCH = ["panne de chauffage", "fuite sous l'évier", "porte bloquée", "clé perdue"]


def german(folder: Path) -> Path:
    lines = [
        f"{GERMAN[i % 4]} Nr. {i};{i % 4 * 10 + i / 7:.2f}".replace(".", ",").replace("Nr,", "Nr.") for i in range(80)
    ]
    lines[7], lines[30] = "Kein Wert;", "Auch keiner; "
    path = folder / "tickets.csv"
    path.write_bytes("\r\n".join(["Beschreibung;Minuten", *lines]).encode("cp1252"))
    return path


def french(folder: Path) -> Path:
    lines = [f"{FRENCH[i % 4]} n° {i};{'plomberie' if i % 4 == 1 else 'bâtiment'}" for i in range(80)]
    lines[5] = "sans catégorie;"
    path = folder / "pannes.csv"
    path.write_text("\n".join(["Libellé;Catégorie", *lines]), encoding="utf-8-sig")
    return path


def test_a_german_file_with_decimal_commas_in_cp1252(tmp_path: Path) -> None:
    path, given = german(tmp_path), ["--encoding", "cp1252"]
    refused = headway("check", "classify", path, cwd=tmp_path)
    assert refused.returncode == 2 and "--encoding cp1252" in refused.stderr
    checked = headway("check", "classify", path, *given, cwd=tmp_path).stdout
    trained = headway("train", "classify", path, *given, *SMALL, "--out", "m", cwd=tmp_path).stdout
    for line in (
        "2 rows without a label (",
        "tickets.csv:9, 32)",
        "a number, with a decimal comma",
        "text = Beschreibung",
    ):
        assert line in checked and line in trained, trained
    numbers = [re.search(r"numbers .*", said) for said in (checked, trained)]
    assert numbers[0] and numbers[1] and numbers[0][0] == numbers[1][0]
    assert '"value"' in headway("run", "m", "Drucker für Frau Müller", cwd=tmp_path).stdout
    evaluated = headway("evaluate", "m", path, *given, cwd=tmp_path).stdout
    assert "on 78 examples of tickets.csv" in evaluated and "skipped: 2 rows without a label" in evaluated
    (tmp_path / "points.csv").write_text("Beschreibung;Minuten\nDrucker;2.5\nTür;3.5\n")
    wrong = headway("evaluate", "m", "points.csv", cwd=tmp_path)
    assert wrong.returncode == 2 and "points.csv:2: label: '2.5' is not a finite number with \",\"" in wrong.stderr


def test_a_french_file_with_labels(tmp_path: Path) -> None:
    path = french(tmp_path)
    trained = headway("train", "classify", path, *SMALL, "--set", "eval_rows=4", "--out", "m", cwd=tmp_path)
    assert trained.returncode == 0 and "1 rows without a label (" in trained.stdout and "'' " not in trained.stdout
    assert re.search(r"evaluating   on 4 of \d+ held-out examples, drawn at random", trained.stdout), trained.stdout
    assert "plomberie" in headway("run", "m", "fuite d'eau", cwd=tmp_path).stdout


def test_a_mark_of_decimals_that_is_given(tmp_path: Path) -> None:
    rows = "".join(f'some text {i},"{1 + i},{100 + i}"\n' for i in range(60))
    (tmp_path / "x.csv").write_text("Listing,Price\n" + rows)
    unclear = headway("check", "classify", "x.csv", cwd=tmp_path)
    assert unclear.returncode == 2 and '--decimal ","' in unclear.stderr
    found = {mark: headway("check", "classify", "x.csv", "--decimal", mark, cwd=tmp_path).stdout for mark in ",."}
    assert "numbers      1.1 to 60.16" in found[","] and "numbers      1100 to 6.016e+04" in found["."]


def test_columns_are_named_in_python_as_on_the_command_line() -> None:
    rows = [
        {"id": f"a b {i}", "note": f"this is note {i}", "kind": "ab"[i % 2], "other": "xy"[i % 2]} for i in range(40)
    ]
    report = jobs.check("classify", rows, text="note", label="other")
    assert set(report.labels) == {"x", "y"} and "text = note, label = other" in report.extra["data"]
    pair = jobs.check("classify", rows, text=["note", "id"], label="kind")
    assert "text_pair = id" in pair.extra["data"]
    with pytest.raises(ConfigError, match="text: given twice"):
        jobs.check("classify", rows, text="note", columns={"text": "id"})


def test_a_data_file_in_the_place_of_a_model_is_named(tmp_path: Path) -> None:
    french(tmp_path)
    done = headway("run", "pannes.csv", "some text", cwd=tmp_path)
    assert done.returncode == 2 and "pannes.csv is a data file, not a model" in done.stderr
    assert "headway run MODEL --file pannes.csv" in done.stderr


def test_the_page_of_a_check_names_what_was_skipped(tmp_path: Path) -> None:
    done = headway("check", "classify", french(tmp_path), *SMALL[:6], "--html", "page.html", cwd=tmp_path)
    assert done.returncode == 0 and "pannes.csv:7)" in (tmp_path / "page.html").read_text()
