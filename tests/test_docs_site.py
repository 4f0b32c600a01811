"""The site of `make docs`: pages generated from the code are complete, every page is in the navigation, and the theme
loads nothing from another host. `make docs` itself needs mkdocs, which the tests do not install."""

import dataclasses
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from headway.cli import app
from headway.generation.settings import GenerationSettings
from headway.tasks import TASKS
from headway.training.settings import Settings

REPOSITORY = Path(__file__).resolve().parent.parent
CONFIG = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
NAVIGATION = re.findall(r"^ +- .*: (\S+\.md)$", CONFIG, flags=re.M)


@pytest.fixture(scope="module")
def reference() -> Any:
    spec = importlib.util.spec_from_file_location("reference", REPOSITORY / "docs" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(reference: Any) -> dict[str, str]:
    found: dict[str, str] = reference.pages()
    return found


def test_every_command_and_option_is_in_the_reference(pages: dict[str, str]) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    sections = dict(re.findall(r"^## (\S+)\n\n```text\n(.*?)^```", pages["reference/commands.md"], flags=re.M | re.S))
    assert sections.keys() == commands.keys()
    for name, command in commands.items():
        missing = [option for each in command.params for option in each.opts if option not in sections[name]]
        assert not [option for option in missing if option.startswith("--")], name


def test_every_setting_is_in_the_reference(pages: dict[str, str]) -> None:
    text = pages["reference/settings.md"]
    for kind in (Settings, GenerationSettings):
        for field in dataclasses.fields(kind):
            assert f"| `{field.name}` |" in text, field.name
    assert "| `clip` | `float` | `1.0` | largest global gradient norm; 0 = never clipped |" in text
    assert "| `top_k` |" in text and "Sample from the k most probable tokens" in text  # of the option, not a comment
    assert all(f"### {name}\n" in text for name in TASKS)


def test_the_comment_of_a_field_is_its_own(reference: Any) -> None:
    comments = reference.field_comments(Settings)
    assert comments["keep"] == "resumable states on disk"
    assert "log_every" not in comments and "lr" not in comments  # which have none


def test_the_python_reference_has_signatures_and_docstrings(pages: dict[str, str]) -> None:
    text = pages["reference/python.md"]
    assert "## headway.train\n" in text and "## headway.load\n" in text and "### headway.inspect.record\n" in text
    assert "## headway.explain\n\n```python\nexplain(" in text  # a package that is callable
    assert "<factory>" not in text and ": '" not in text


def test_every_page_is_in_the_navigation_once(pages: dict[str, str]) -> None:
    docs = REPOSITORY / "docs"
    assert sorted(NAVIGATION) == sorted({*pages, *(str(page.relative_to(docs)) for page in docs.rglob("*.md"))})
    kinds = re.findall(r"^  - (.*?):", CONFIG.split("nav:\n")[-1], flags=re.M)
    assert kinds == ["Home", "Tutorials", "How-to guides", "Reference", "Explanation"]


def test_the_site_loads_nothing_from_another_host() -> None:
    assert re.search(r"^  font: false", CONFIG, flags=re.M)
    assert not re.search(r"https?://", CONFIG)
