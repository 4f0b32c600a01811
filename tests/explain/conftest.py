"""One browser for all pages, and a way to show a story in it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import chromium

from headway.explain.page import render
from headway.explain.story import Story


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Callable[[Story], Any]:
    def show(story: Story) -> Any:
        (tmp_path / "page.html").write_text(render(story), encoding="utf-8")
        browser.get((tmp_path / "page.html").as_uri())
        return browser

    return show
