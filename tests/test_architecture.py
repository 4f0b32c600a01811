"""The diagrams of docs/architecture.md are in the order of the calls, and CONTRIBUTING.md names every package."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.call_order import CallOrder, of_request, of_training

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FUNCTION = re.compile(r"(\w+/\w+\.py|bundle\.py) ([\w.]+)")
ANSWER = "serving/openai_completions.py CompletionAnswer.whole"  # it begins before the answer is there


def diagram(heading: str) -> list[str]:
    """The functions of the diagram below a heading, in order."""
    text = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0].split("```")[1]
    return [" ".join(names) for names in FUNCTION.findall(text)]


def first_out_of_order(shown: list[str], entered: list[str]) -> str | None:
    """The first of `shown` that is not in `entered` behind the one before it."""
    rest = iter(entered)
    return next((name for name in shown if not any(name in each for each in rest)), None)


def test_every_function_of_the_diagrams_exists() -> None:
    for heading in ("A training example", "A request"):
        shown = diagram(heading)
        assert len(shown) > 15
        for name in shown:
            path, function = name.split()
            source = (ROOT / "src" / "headway" / path).read_text(encoding="utf-8")
            for part in function.split("."):
                assert re.search(rf"(def|class) {part}\b", source), f"docs/architecture.md: {name}"


def test_the_layout_names_every_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "src" / "headway").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `src/headway/(\w+)` \|", text, re.MULTILINE)) == packages


def test_the_pages_without_tutorials_have_30_000_words() -> None:
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in (ROOT / "docs").glob("*.md")) <= 30_000


@pytest.mark.slow
@pytest.mark.parametrize(("heading", "of"), [("A training example", of_training), ("A request", of_request)])
def test_the_order_is_that_of_the_calls(heading: str, of: Callable[[Path], CallOrder], tmp_path: Path) -> None:
    shown = [name for name in diagram(heading) if name != ANSWER]
    entered = [name for _, _, name in of(tmp_path).calls]
    assert first_out_of_order(shown, entered) is None
    assert first_out_of_order(shown[::-1], entered) is not None, "control"
