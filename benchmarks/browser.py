"""A page in a real Chromium, timed by the page's own clock: its first paint, and what a choice and a hover cost,
from the event until the frame that shows it has been drawn."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PAINT = "return performance.getEntriesByType('paint').find(each => each.name === 'first-contentful-paint')?.startTime"
SHOW = """
    const [id, done] = arguments;
    document.getElementById(id).scrollIntoView();
    setTimeout(() => requestAnimationFrame(() => setTimeout(done, 300)), 300);"""
ACTIONS = {  # what a reader does: the choice that is changed
    "another head": "head",
    "another layer": "layer",
    "another token": "query",
    "another key": "key",
    "hover": "hover",
}
TIMED = """
    const [what, repeats, section, done] = arguments;
    const change = (n) => {
      const select = document.getElementById(`pick-${what}`);
      select.value = (Number(select.value) + 1 + n % 3) % select.length;
      select.dispatchEvent(new Event("change"));
    };
    const hover = (n) => {
      const canvas = document.querySelector(`#${section} canvas`) ?? document.querySelector("canvas");
      const box = canvas.getBoundingClientRect();
      const at = { clientX: box.left + box.width * (0.1 + 0.08 * (n % 10)), clientY: box.top + box.height / 2 };
      canvas.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, ...at }));
    };
    const drawn = () => new Promise((resolve) => requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => resolve(performance.now());
      port2.postMessage(0);
    }));
    (async () => {
      const times = [];
      for (let n = 0; n < repeats; n++) {
        await new Promise((resolve) => setTimeout(resolve, 300));
        const began = performance.now();
        (what === "hover" ? hover : change)(n);
        times.push((await drawn()) - began);
      }
      done(times);
    })().catch((error) => done(String(error)));"""


@contextmanager
def chromium() -> Iterator[Any]:
    from selenium import webdriver

    found, driver = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if not (found and driver):
        raise SystemExit("no chromium and chromedriver here: make browser")
    options = webdriver.ChromeOptions()
    options.binary_location = found
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900",
                 "--force-prefers-reduced-motion", "--no-first-run", "--disable-background-networking"):  # fmt: skip
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    browser.set_script_timeout(300)
    try:
        yield browser
    finally:
        browser.quit()


def page_times(page: Path, *, repeats: int) -> Iterator[str]:
    """A line for the first paint, one for each section, and the slowest of all medians."""
    with chromium() as browser:
        paints = []
        for _ in range(repeats):
            browser.get(page.as_uri())
            browser.execute_async_script(SHOW, "tokens")
            paints.append(browser.execute_script(PAINT))
        yield f"first paint {min(paints):.0f} ms (median {statistics.median(paints):.0f})"
        slowest = 0.0
        for section in ("byhand", "heads", "stream"):
            browser.execute_async_script(SHOW, section)
            told = []
            for name, what in ACTIONS.items():
                times = browser.execute_async_script(TIMED, what, 2 * repeats, section)
                middle = statistics.median(times)
                slowest = max(slowest, middle)
                told.append(f"{name} {min(times):.0f} ms (median {middle:.0f})")
            yield f"at {section:<7} " + ", ".join(told)
        yield f"slowest interaction, event → next frame, median: {slowest:.0f} ms"
