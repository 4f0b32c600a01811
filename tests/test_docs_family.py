"""The walk-through of adding a family shows code that is really there, and commands that really run."""

import re
import textwrap
from pathlib import Path

import pytest

from headway.checkpoints import rules
from headway.families.family import Keys

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = (REPOSITORY / "docs" / "add-a-family.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n# (\S+)\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r'^```\n\.venv/bin/python -c "\n(.*?)"\n```$', PAGE, flags=re.DOTALL | re.MULTILINE)


def shown(snippet: str, source: str) -> bool:
    """Whether the lines follow each other in the source, whatever their common indentation."""
    wanted = textwrap.dedent(snippet).rstrip("\n").split("\n")
    lines = source.split("\n")
    chunks = (lines[at : at + len(wanted)] for at in range(len(lines) - len(wanted) + 1))
    return any(textwrap.dedent("\n".join(chunk)).split("\n") == wanted for chunk in chunks)


@pytest.mark.parametrize(("file", "snippet"), SNIPPETS, ids=[f"{file} {i}" for i, (file, _) in enumerate(SNIPPETS)])
def test_every_snippet_is_in_the_file_it_names(file: str, snippet: str) -> None:
    source = (REPOSITORY / file).read_text(encoding="utf-8")
    assert shown(snippet, source), f"{file} no longer has:\n{snippet}"
    assert not shown(snippet.replace("=", "==", 1).replace(":", ";", 1).replace(",", ".", 1), source)


def test_every_block_is_checked() -> None:
    assert len(SNIPPETS) == PAGE.count("```python") == 8
    assert len(COMMANDS) == PAGE.count("python -c") == 2


@pytest.mark.parametrize("command", COMMANDS, ids=["theirs", "ours"])
def test_every_command_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "transformers" in command:
        pytest.importorskip("transformers", reason="the reference library is a test-only dependency")
    monkeypatch.chdir(tmp_path)
    exec(command, {})
    printed = capsys.readouterr().out
    assert "q_lin" in printed or "stack.blocks.0.attention.query.weight" in printed


def test_the_words_in_the_tables_exist() -> None:
    for name in re.findall(r"`keys\.(\w+)", PAGE):
        assert callable(getattr(Keys, name)), name
    table = PAGE[PAGE.index("| rule |") : PAGE.index("A rule for a part")]
    names = [
        name for row in re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    ]
    assert len(names) == 9
    for name in names:
        assert callable(getattr(rules, name)), name
