"""A large page in a real browser: 12 layers of 12 heads over 64 tokens are drawn and changed without waiting.

What is counted is the processor time of the page's own thread, which a busy machine does not lengthen: of the script,
the styles, the layout and the painting up to the frame that shows the change. What is drawn later, out of sight, when
the browser has nothing else to do, is kept from running."""

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import pages

from headway.explain.story import Story

FIRST, CHANGE = 1000, 100  # ms
ROUNDS = 5
NO_IDLING = "window.requestIdleCallback = () => 0"
GO = """
    const [place, done] = arguments;
    document.querySelector(place).scrollIntoView();
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => requestAnimationFrame(done), 50)));"""
CHANGED = """
    const [name, done] = arguments;
    const select = document.getElementById(`pick-${name}`);
    select.value = (Number(select.value) + 1) % select.length;
    select.dispatchEvent(new Event("change"));
    requestAnimationFrame(() => setTimeout(done));"""


@pytest.fixture
def spent(browser: Any) -> Iterator[Callable[[], float]]:
    """The milliseconds that the page's thread has worked so far."""
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": NO_IDLING})

    def spent() -> float:
        metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return 1000 * next(each["value"] for each in metrics if each["name"] == "TaskDuration")

    yield spent
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
    browser.execute_cdp_cmd("Performance.disable", {})


def large() -> Story:
    return pages.decoder_story(layers=12, heads=12, count=64, size=64, keep=2)


def test_the_first_paint_of_a_large_page(show: Callable[[Story], Any], spent: Callable[[], float]) -> None:
    times = []
    for _ in range(3):
        page = show(large())
        page.execute_async_script(GO, "#tokens")
        times.append(spent())  # a new page is counted from its beginning
    assert page.execute_script("return performance.getEntriesByName('first-contentful-paint').length") == 1
    assert 0 < statistics.median(times) < FIRST, times


@pytest.mark.parametrize(
    ("section", "place"),
    [("#byhand", "h3"), ("#byhand", "#every-key"), ("#heads", ".grid"), ("#heads", "#large"), ("#stream", "#ranking")],
)
def test_a_change_of_a_large_page(
    section: str, place: str, show: Callable[[Story], Any], spent: Callable[[], float]
) -> None:
    page = show(large())
    page.execute_async_script(GO, section)
    page.execute_async_script(GO, f"{section} {place}")
    for name in ("layer", "head", "query", "key"):
        times = []
        for _ in range(ROUNDS):
            before = spent()
            page.execute_async_script(CHANGED, name)
            times.append(spent() - before)
        assert 0 < statistics.median(times) < CHANGE, (name, times)
