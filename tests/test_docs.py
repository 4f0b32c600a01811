"""Every command and Python block that the README and the pages show is run, in order, in one folder."""

import io
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from headway.cli import app, main

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "docs/train.md", "docs/generate.md", "docs/explain.md", "docs/speed.md"]
NAMED = ["docs/trust.md", "docs/distributed.md", "docs/results.md"]  # whose commands take hosts, hours or faults
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
PLACEHOLDER = re.compile(r"\[|…|\b(TASK|MODEL|DATA|INPUT|DIR|FOLDER)\b")


def blocks(page: str) -> list[tuple[str, str]]:
    return [(kind, text) for kind, text in FENCE.findall((REPOSITORY / page).read_text(encoding="utf-8"))]


def shortened(line: str, page: str) -> str:
    """The README's trainings run as written, because it shows their outputs. Those of other pages take two steps of a
    tiny model on little data and draw no curves."""
    if page == "README.md":
        return line
    if line.startswith("headway train") and "--steps" in line and "--start" not in line:
        line += " --set model.width=32 --set model.layers=2 --set model.heads=2"
    if re.match(r"headway train (translate|summarize)", line):
        line += " --set target_limit=8"
    return re.sub(r"--steps \d+", "--steps 2", line)


def exit_code() -> int:
    """Of the command in `sys.argv`, in this process: a page's commands need torch imported only once."""
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize("page", PAGES)
def test_the_page_works_as_written(page: str, tmp_path: Path, monkeypatch: Any, capsys: Any, request: Any) -> None:
    if page != "README.md":
        request.getfixturevalue("little_data")
        monkeypatch.setattr("headway.training.loop.draw_curves", lambda *_: None)
    rows = [
        f"a {'lovely' if i % 3 else 'dreadful'} film, seen {i} times\t{'good' if i % 3 else 'bad'}" for i in range(240)
    ]
    (tmp_path / "reviews.tsv").write_text("\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    ran = 0
    for kind, text in blocks(page):
        lines = [
            line
            for line in text.splitlines()
            if line.startswith("headway ") and not PLACEHOLDER.search(line.replace("[MASK]", ""))
        ]
        for command in [text] if kind == "python" else lines:
            if kind == "python":
                exec(compile(command, page, "exec"), {"__name__": "__main__"})
            else:
                monkeypatch.setattr(sys, "stdin", io.StringIO("Who are you?\n"))  # said in a chat
                monkeypatch.setattr(sys, "argv", shlex.split(shortened(command, page)))
                assert exit_code() == 0, f"{page}: {command}\n{capsys.readouterr()}"
            ran += 1
    assert ran >= 2, f"{page}: nothing was run"


@pytest.mark.parametrize("page", NAMED)
def test_the_commands_that_are_not_run_exist(page: str) -> None:
    """With the options they are shown with, and so do the commands named in the text."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    shown = [line for _, text in blocks(page) for line in text.splitlines() if "headway " in line]
    for line in shown:
        name, *words = re.sub(r"[\[\]]", " ", line.split("headway ", 1)[1]).split()
        known = {option for parameter in commands[name].params for option in parameter.opts}
        unknown = [word for word in words if word.startswith("--") and word not in known]
        assert not unknown, f"{page}: {line}"
    named = set(re.findall(r"`headway ([a-z-]+)", (REPOSITORY / page).read_text(encoding="utf-8")))
    assert shown and named <= set(commands), f"{page}: {named - set(commands)}"


def test_the_pages_link_to_files_that_exist() -> None:
    for page in [*PAGES, *NAMED, "CONTRIBUTING.md", *map(str, (REPOSITORY / "docs").glob("*.md"))]:
        path = REPOSITORY / page
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^):]+))?\)", path.read_text(encoding="utf-8")):
            file = path.parent / target if target else path
            assert file.exists(), f"{page} links to {target}, which is not there"
            assert not anchor or anchor in anchors(file), f"{page} links to {target}#{anchor}, which is no heading"


def anchors(file: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", file.read_text(encoding="utf-8")), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_figure_in_the_results_names_its_command() -> None:
    text = (REPOSITORY / "docs" / "results.md").read_text(encoding="utf-8")
    for section in text.split("\n## ")[1:]:
        if re.search(r"\d", section) and "|" in section:
            assert "```" in section or "`" in section, f"no command in: {section.splitlines()[0]}"
