"""`--help` of every command: sentences, within 80 columns; of `run MODEL`, the options of that model alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from support.commands import headway
from support.untrained import language_model, of_task, translator

from headway.cli import app

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
OPTION = re.compile(r"^  (?:-\w, )?--([a-z][\w-]*)", re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_in_sentences_and_80_columns(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = headway(name, "--help", cwd=tmp_path)
    assert shown.returncode == 0 and max(map(len, shown.stdout.splitlines())) <= 80
    assert not re.search(r"<\w+|None|annotation", shown.stdout), "a type of Python is shown"
    texts = [COMMANDS[name].help, *(parameter.help for parameter in COMMANDS[name].params)]
    for text in texts:
        assert text and text[0].isupper() and text.endswith("."), text
        assert text.count("(") == text.count(")") and "  " not in text, text
    titles = re.findall(r"^([A-Z][\w ,]*):$", shown.stdout, re.MULTILINE)
    assert len(titles) == len(set(titles)) and titles[-1] == "Options"


def test_the_list_of_commands_is_in_whole_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = headway("--help", cwd=tmp_path).stdout
    assert "..." not in shown.partition("Train:")[2] and max(map(len, shown.splitlines())) <= 80
    assert "leakage,\n                 truncation, memory and time." in shown


def options(folder: Path, *arguments: str | Path) -> set[str]:
    return set(OPTION.findall(headway("run", *arguments, "--help", cwd=folder).stdout))


def test_run_shows_the_options_of_the_model(tmp_path: Path) -> None:
    of_task("classify", tmp_path / "classify")
    language_model(tmp_path / "generate")
    everything, labels, text = (options(tmp_path, *model) for model in ([], ["classify"], ["generate"]))
    assert {"threshold", "file", "json", "label"} <= labels and not labels & {
        "temperature",
        "beams",
        "complete",
        "steps",
    }
    assert {"temperature", "beams", "complete", "count"} <= text and not text & {"threshold", "guidance", "picture"}
    assert labels | text < everything and {"guidance", "picture", "words"} <= everything - labels - text
    shown = headway("run", "classify", "--help", cwd=tmp_path).stdout
    assert "These are the options of classify (classify)" in shown
    (tmp_path / "classify" / "config.json").write_text("{")  # cannot be opened
    assert options(tmp_path, "classify") == everything == options(tmp_path, "owner/name")


def test_a_translator_has_a_glossary_and_others_say_that_they_do_not_translate(tmp_path: Path) -> None:
    translator(tmp_path / "translate")
    of_task("classify", tmp_path / "classify")
    (tmp_path / "terms.tsv").write_text("a\tb\n")
    assert "glossary" in options(tmp_path, "translate") and "glossary" not in options(tmp_path, "classify")
    done = headway("run", "translate", "a day", "--glossary", "terms.tsv", "--max-new-tokens", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    other = headway("run", "classify", "a day", "--glossary", "terms.tsv", cwd=tmp_path)
    assert other.returncode == 2 and "does not translate, so --glossary does not apply" in other.stderr
