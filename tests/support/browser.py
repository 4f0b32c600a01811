"""A page in a real Chromium: going to a step, choosing, pointing, and what the browser says and sends."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900",
         "--force-prefers-reduced-motion", "--no-first-run", "--disable-background-networking")  # fmt: skip


@contextmanager
def chromium() -> Iterator[Any]:
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is not installed (pip install 'headway[dev]')"
    )
    found, driver = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if not (found and driver):
        pytest.skip("no chromium and chromedriver here (make browser)")
    options = webdriver.ChromeOptions()
    options.binary_location = found
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    browser.execute_cdp_cmd("Network.enable", {})
    try:
        yield browser
    finally:
        browser.quit()


def near(browser: Any, section: str) -> Any:
    """Scrolls to a section, as a reader does, and waits until it is drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    node = browser.find_element("id", section)
    browser.execute_script("arguments[0].scrollIntoView()", node)
    WebDriverWait(browser, 60, 0.02).until(lambda _: node.find_element("class name", "body").get_property("children"))
    settle(browser)
    return node


def choose(browser: Any, **wanted: int) -> None:
    from selenium.webdriver.support.ui import Select

    for name, value in wanted.items():
        Select(browser.find_element("id", f"pick-{name}")).select_by_value(str(value))
    settle(browser)


def settle(browser: Any) -> None:
    """Until all is drawn: what has come into view after the frame in which it is seen, the rest when there is time."""
    browser.execute_async_script(
        """
        const done = arguments[0];
        const drawn = () => pending.size === 0 && steps.every((each) => !each.node.open || (each.drawn && !each.stale));
        const look = () => (drawn() ? requestAnimationFrame(done) : setTimeout(look, 20));
        requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(look, 30)));"""
    )


def hover(browser: Any, node: Any, *, x: int = 0, y: int = 0) -> str:
    """What the tip says where the pointer is: so far from the middle of a node."""
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser, duration=0).move_to_element_with_offset(node, x, y).perform()
    return tip(browser)


def point_at(browser: Any, canvas: Any, row: int, column: int) -> str:
    """What the tip says of one cell of a heat map."""
    rows, columns = int(canvas.get_attribute("height")), int(canvas.get_attribute("width"))
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    box = canvas.rect
    x, y = ((column + 0.5) / columns - 0.5) * box["width"], ((row + 0.5) / rows - 0.5) * box["height"]
    return hover(browser, canvas, x=round(x), y=round(y))


def tip(browser: Any) -> str:
    return browser.find_element("id", "tip").text


def value_in(text: str) -> float:
    found = re.search(r"= (−?[\d.]+)(?:×10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?", text)
    power = (found[2] or "0").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    return float(found[1].replace("−", "-")) * 10.0 ** int(power)


def column_of(browser: Any, table: str, number: int) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map(row => [...row.cells].at(arguments[1]).innerText)"
    return [text.strip().replace("−", "-") for text in browser.execute_script(script, f"#{table} tbody tr", number)]


def errors(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def requests(browser: Any) -> set[str]:
    found = "\n".join(entry["message"] for entry in browser.get_log("performance"))
    sent = re.findall(r'"Network\.requestWillBeSent".*?"url":"([^"]+)"', found)
    return {url for url in sent if not url.startswith(("file:", "data:"))}
