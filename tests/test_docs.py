"""Every command and Python block that the README and the pages show is run, in order, in one folder."""

import contextlib
import io
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import typer
from PIL import Image
from support.commands import headway

from headway.cli import app, main
from headway.tasks.draw_scores import SampleSizes

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = [
    "README.md",
    "docs/train.md",
    "docs/python.md",
    "docs/generate.md",
    "docs/explain.md",
    "docs/speed.md",
    "docs/draw.md",
    "docs/vision.md",
    "docs/speech.md",
    "docs/vectors.md",
    "docs/chat.md",
    "docs/story.md",
    *(str(page.relative_to(REPOSITORY)) for page in sorted((REPOSITORY / "docs" / "tutorials").glob("*.md"))),
]
# pages whose commands take hosts, hours or faults
NAMED = ["docs/trust.md", "docs/distributed.md", "docs/results.md", "docs/serving.md", "docs/published.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
MARKED = re.compile(r"\[(MASK|[a-z]+)\]")  # words of an input
PLACEHOLDER = re.compile(r"\[|…|\b(TASK|MODEL|DATA|INPUT|DIR|FOLDER)\b")


def blocks(page: str) -> list[tuple[str, str]]:
    return [(kind, text) for kind, text in FENCE.findall((REPOSITORY / page).read_text(encoding="utf-8"))]


def shortened(line: str) -> str:
    """Trainings take two steps of a tiny model on little data and draw no curves."""
    if line.startswith("headway train") and "--steps" in line and "--start" not in line:
        line += " --set model.width=32 --set model.layers=2 --set model.heads=2"
    if line.startswith("headway compare "):  # it trains in a process of its own, which has no little data
        line = re.sub(r"--(models|budget|seeds|each) \S+", "", line).replace(" translate", " translate dates.tsv")
        line += " --models modern --each 1s --set target_limit=8"
    if re.match(r"headway train (translate|summarize)", line):
        line += " --set target_limit=8"
    return re.sub(r"--steps \d+", f"--steps {3 if '--resume' in line else 2}", line)


def save_pictures(folder: Path) -> None:
    """Forty of two labels: bright above, or bright below."""
    for number in range(1, 41):
        label = "cat" if number % 2 else "dog"
        values = np.full((24, 20, 3), 3 * number, np.uint8)
        values[:12] += np.uint8(120 if label == "cat" else 0)
        (folder / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(values).save(folder / label / f"{number}.png")


def save_boxes(folder: Path) -> None:
    """Thirty pictures, each with a bright square: Pascal VOC."""
    for name in ("Annotations", "JPEGImages"):
        (folder / name).mkdir(parents=True)
    for number in range(1, 31):
        values, left = np.full((48, 64, 3), 60 + number, np.uint8), number % 10 * 4
        values[10:30, left : left + 20] = 200
        Image.fromarray(values).save(folder / "JPEGImages" / f"{number}.png")
        box = f"<xmin>{left}</xmin><ymin>10</ymin><xmax>{left + 20}</xmax><ymax>30</ymax>"
        size = "<size><width>64</width><height>48</height></size>"
        label = "RBC" if number % 2 else "WBC"
        (folder / "Annotations" / f"{number}.xml").write_text(
            f"<annotation>{size}<object><name>{label}</name><bndbox>{box}</bndbox></object></annotation>"
        )


def save_talks(folder: Path) -> None:
    """Conversations, preferred answers, and answers marked as good or bad."""
    rows: dict[str, list[dict[str, Any]]] = {"talks": [], "preferences": [], "ratings": []}
    for i in range(30):
        asked, good, bad = f"How many are {i} and {i + 1}?", f"They are {2 * i + 1}.", "Who knows?"
        messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": good}]
        rows["talks"].append({"messages": messages})
        rows["preferences"].append({"prompt": asked, "chosen": good, "rejected": bad})
        rows["ratings"].append({"prompt": asked, "completion": good if i % 2 else bad, "label": bool(i % 2)})
    for name, found in rows.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, found)) + "\n")


def exit_code(line: str) -> int:
    """Of the command, in this process: a page's commands need torch imported only once. `>` is the shell's."""
    command, _, target = line.partition(" > ")
    with (
        mock.patch.object(sys, "argv", shlex.split(command)),
        mock.patch.object(sys, "stdin", io.StringIO("Who are you?\n")),  # said in a chat
        open(target.strip(), "w") if target else contextlib.nullcontext(sys.stdout) as out,
        contextlib.redirect_stdout(out),
    ):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
    return 0


class Runs:
    """Trainings on built-in data that several pages show: each is run once and then copied."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: dict[str, Path] = {}

    def exit_code(self, line: str) -> int:
        _, _, task, *options = shlex.split(line)
        given_data = bool(options) and not options[0].startswith("--")
        if given_data or {"--start", "--resume", "--dry-run"} & set(options):
            return exit_code(line)
        out = Path(options[options.index("--out") + 1]) if "--out" in options else Path("runs") / task
        key = re.sub(r" --out \S+", "", line)
        if key not in self.made:
            if code := exit_code(line):
                return code
            shutil.copytree(out, self.folder / str(len(self.made)))
            self.made[key] = self.folder / str(len(self.made))
        else:
            shutil.copytree(self.made[key], out, dirs_exist_ok=True)
        return 0


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("page", PAGES)
def test_the_page_works_as_written(
    page: str, runs: Runs, tmp_path: Path, monkeypatch: Any, capsys: Any, little_data: None
) -> None:
    monkeypatch.setattr("headway.jobs.judges.MINUTES", 0.003)
    monkeypatch.setattr("headway.lineage.compare_report.ROWS", 4)
    monkeypatch.setattr("headway.lineage.compare_measures.LENGTHS", (8, 16))
    monkeypatch.setattr("headway.lineage.compare_measures.SPEED_INPUTS", 1)
    monkeypatch.setattr("headway.jobs.judges.SIZES", SampleSizes(chosen_by=2, judged=2, taught_by=24, compared=2))
    rows = [
        f"a {'lovely' if i % 3 else 'dreadful'} film, seen {i} times\t{'good' if i % 3 else 'bad'}" for i in range(240)
    ]
    (tmp_path / "reviews.tsv").write_text("\n".join(rows) + "\n")
    pairs = [f"text {i} is long,text {i * i % 7} is short,{'yes' if i % 3 else 'no'}" for i in range(240)]
    for name, header in (("pairs.csv", "premise,hypothesis,label"), ("tickets.csv", "subject,body,team")):
        (tmp_path / name).write_text("\n".join([header, *pairs]) + "\n")
    dates = [f"{day} May {year}\t{year}-05-{day}" for day in range(10, 20) for year in range(1990, 2000)]
    (tmp_path / "dates.tsv").write_text("\n".join(dates) + "\n")
    if page == "docs/chat.md":
        save_talks(tmp_path)
    if page == "docs/vision.md":
        save_pictures(tmp_path / "photos")
        save_boxes(tmp_path / "cells")
    prices = [f"a house of {i % 9} rooms and {i} trees,{1000 * (i % 9) + 0.5}" for i in range(240)]
    (tmp_path / "prices.csv").write_text("\n".join(["text,price", *prices]) + "\n")
    topics = [f"text {i} on {i % 3} and {i % 5},{'; '.join('abc'[: i % 4])}" for i in range(240)]
    (tmp_path / "topics.csv").write_text("\n".join(["text,label", *topics]) + "\n")
    monkeypatch.chdir(tmp_path)
    ran = 0
    for kind, text in blocks(page):
        lines = [
            line
            for line in text.splitlines()
            if line.startswith(("headway ", "printf ")) and not PLACEHOLDER.search(MARKED.sub("", line))
        ]
        for command in [text] if kind == "python" else lines:
            if kind == "python":
                exec(compile(command, page, "exec"), {"__name__": "__main__"})
            else:
                code = runs.exit_code if command.startswith("headway train ") else exit_code
                if command.startswith("printf "):
                    code = partial(subprocess.call, shell=True)
                assert code(shortened(command)) == 0, f"{page}: {command}\n{capsys.readouterr()}"
            ran += 1
    assert ran >= 2, f"{page}: nothing was run"


@pytest.mark.slow
def test_the_install_line_of_the_readme_has_what_its_commands_need() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert 'pip install -c constraints.txt ".[all]"' in (REPOSITORY / "README.md").read_text()
    assert extras["all"] == [f"headway[{','.join(name for name in extras if name not in ('all', 'docs', 'dev'))}]"]


def test_the_answer_in_the_readme(tmp_path: Path) -> None:
    """Its training as written gives the answer that it shows."""
    shown = [text.strip() for _, text in blocks("README.md")]
    train = next(text for text in shown if text.startswith("headway train"))
    run, answer = next(pair for pair in itertools.pairwise(shown) if pair[0].startswith("headway run"))
    for line in (train, run):
        done = headway(*shlex.split(line)[1:], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(answer.partition("…")[0])


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


def test_every_page_with_commands_is_tested() -> None:
    tested = {*PAGES, *NAMED, "docs/extend.md", "docs/add-a-family.md"}  # the last two by test_docs_extend and _family
    for path in (REPOSITORY / "docs").rglob("*.md"):
        page = str(path.relative_to(REPOSITORY))
        code = [kind == "python" or re.search(r"^headway ", text, re.M) for kind, text in blocks(page)]
        assert page in tested or not any(code), f"{page}: add it to the pages that this test runs"


def test_the_pages_link_to_files_that_exist() -> None:
    for page in ["README.md", "CONTRIBUTING.md", *map(str, (REPOSITORY / "docs").rglob("*.md"))]:
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
    text = "".join((REPOSITORY / page).read_text(encoding="utf-8") for page in ("docs/results.md", "dev/LOG.md"))
    for section in re.split("\n##+ ", text)[1:]:
        if re.search(r"\d", section) and "|" in section:
            assert "```" in section or "`" in section, f"no command in: {section.splitlines()[0]}"
