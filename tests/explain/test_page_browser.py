"""Pages in a real browser: every number where it should be, everything by keyboard too, nothing leaves the page."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import pages

from headway.explain.explanation import Explanation
from headway.explain.page import render
from headway.explain.story import Story

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (pip install 'headway[dev]')")
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver here (make browser)")
SECTIONS = ["tokens", "embedding", "byhand", "heads", "stream", "output", "generation"]
STORIES = {
    "decoder": pages.decoder_story,
    "few layers kept": lambda: pages.decoder_story(keep=1),
    "hostile": lambda: pages.decoder_story(words=pages.HOSTILE),
    "translator": pages.translator_story,
    "vision": pages.picture_story,
    "seed": pages.seed_story,
    **{kind: lambda kind=kind: pages.encoder_story(kind) for kind in ("classes", "tags", "span", "fill", "vector")},
}

Open = Callable[[Story], Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900",
                 "--force-prefers-reduced-motion", "--no-first-run", "--disable-background-networking"):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.execute_cdp_cmd("Network.enable", {})
    yield driver
    driver.quit()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Open:
    def show(story: Story) -> Any:
        (tmp_path / "page.html").write_text(render(story), encoding="utf-8")
        browser.get((tmp_path / "page.html").as_uri())
        return browser

    return show


def near(browser: Any, section: str) -> Any:
    """Scrolls to a section, as a reader does, and waits until it is drawn."""
    node = browser.find_element(By.ID, section)
    browser.execute_script("arguments[0].scrollIntoView()", node)
    WebDriverWait(browser, 60, 0.02).until(lambda _: node.find_element(By.CLASS_NAME, "body").get_property("children"))
    return node


def choose(browser: Any, **wanted: int) -> None:
    for name, value in wanted.items():
        Select(browser.find_element(By.ID, f"pick-{name}")).select_by_value(str(value))
    settle(browser)


def settle(browser: Any) -> None:
    """Until what has come into view is drawn: that happens after the frame in which it is seen."""
    browser.execute_async_script(
        "const done = arguments[0];"
        "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => requestAnimationFrame(done), 30)))"
    )


def point_at(browser: Any, canvas: Any, row: int, column: int) -> str:
    """What the tip says of one cell of a heat map."""
    rows, columns = int(canvas.get_attribute("height")), int(canvas.get_attribute("width"))
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    box = canvas.rect
    x, y = ((column + 0.5) / columns - 0.5) * box["width"], ((row + 0.5) / rows - 0.5) * box["height"]
    ActionChains(browser, duration=0).move_to_element_with_offset(canvas, round(x), round(y)).perform()
    return tip(browser)


def tip(browser: Any) -> str:
    return browser.find_element(By.ID, "tip").text


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


# ---------------------------------------------------------------------------------------- whole pages


@pytest.mark.parametrize("name", STORIES)
def test_every_step_of_every_kind_of_story_is_drawn(name: str, show: Open) -> None:
    page = show(STORIES[name]())
    errors(page), requests(page)
    page.refresh()
    found = [node.get_attribute("id") for node in page.find_elements(By.CSS_SELECTOR, "details.step")]
    for section in found:
        assert near(page, section).find_element(By.CLASS_NAME, "body").text.strip(), section
    assert errors(page) == [] and requests(page) == set()


def test_sections_come_in_order_fold_and_open_by_keyboard(show: Open) -> None:
    page = show(pages.decoder_story())
    nodes = page.find_elements(By.CSS_SELECTOR, "details.step")
    assert page.execute_script("return arguments[0].map(node => node.id)", nodes) == ["example-0", *SECTIONS]
    for node in nodes:
        node.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    bodies = "return arguments[0].map(node => node.querySelector('.body').checkVisibility())"
    assert page.execute_script(bodies, nodes) == [False] * 8
    nodes[3].find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert page.execute_script(bodies, nodes) == [False] * 3 + [True] + [False] * 4


def test_no_request_could_leave_even_if_a_script_tried(show: Open) -> None:
    """The negative control of the test above: the policy is what stops it, and the browser says so."""
    page = show(pages.decoder_story())
    script = "fetch('http://127.0.0.1:9/x').then(() => arguments[0]('sent'), () => arguments[0]('refused'))"
    assert page.execute_async_script(script) == "refused"
    assert any("Content Security Policy" in entry["message"] for entry in page.get_log("browser"))


def test_hostile_tokens_are_text(show: Open) -> None:
    story = pages.decoder_story(words=pages.HOSTILE)
    page = show(story)
    for section in SECTIONS:
        near(page, section)
    assert page.title == story.title
    assert page.execute_script("return [document.images.length, document.scripts.length]") == [0, 2]
    shown = [node.text for node in page.find_elements(By.CSS_SELECTOR, "#tokens .token bdi")]
    assert shown[:3] == [text.replace(" ", "␣") for text in pages.HOSTILE[:3]]
    assert shown[4] == "⟨202E⟩evil" and shown[8:11] == ["⟨0000⟩", "⏎", "⟨D800⟩"]
    assert page.find_element(By.CSS_SELECTOR, "#tokens .token bdi").get_attribute("dir") == "auto"


def test_a_phone_needs_no_sideways_scrolling(show: Open) -> None:
    phone = {"width": 375, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    page = None
    try:
        for story in (pages.decoder_story(), pages.translator_story(), pages.decoder_story(words=("w" * 60, "<a>"))):
            page = show(story)
            page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
            page.refresh()
            for node in page.find_elements(By.CSS_SELECTOR, "details.step"):
                near(page, node.get_attribute("id"))
            assert page.execute_script("return document.documentElement.scrollWidth") <= 375
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_dark_follows_the_reader_and_the_button(show: Open) -> None:
    page = show(pages.decoder_story())

    def paper() -> int:
        colour = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    def pixel() -> list[int]:
        near(page, "heads")
        return page.execute_script(
            "return [...document.querySelector('.thumb canvas').getContext('2d').getImageData(0, 0, 1, 1).data]"
        )

    try:
        page.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        )
        assert paper() < 150
        dark = pixel()
        page.find_element(By.ID, "theme").click()
        assert paper() > 600 and pixel() != dark
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


# ---------------------------------------------------------------------------------------- the numbers


def test_pointing_shows_name_shape_index_and_value(show: Open) -> None:
    story = pages.decoder_story()
    page = show(story)
    near(page, "heads")
    for layer, head, row, column in [(0, 0, 5, 2), (2, 3, 13, 0)]:
        choose(page, layer=layer, head=head)
        text = point_at(page, page.find_element(By.CSS_SELECTOR, "#large .frame canvas"), row, column)
        assert text.startswith(f"weights[{head}, {row}, {column}] = ") and "shape 4 × 14 × 14" in text
        assert value_in(text) == pytest.approx(float(story.attention[layer].weights[head, row, column]), rel=1e-5)
    assert "masked" in point_at(page, page.find_element(By.CSS_SELECTOR, "#large .frame canvas"), 2, 5)


def test_embeddings_and_angles_are_the_storys(show: Open) -> None:
    story = pages.decoder_story()
    page = show(story)
    section = near(page, "embedding")
    text = point_at(page, section.find_elements(By.CSS_SELECTOR, ".frame canvas")[0], 3, 7)
    assert value_in(text) == pytest.approx(float(story.embedding[0].token[3, 7]), rel=1e-5)
    choose(page, layer=0, head=0, query=9)
    ActionChains(page, duration=0).move_to_element(section.find_elements(By.CSS_SELECTOR, ".dials svg")[2]).perform()
    assert tip(page).startswith("angles[9, 2] = ")
    assert value_in(tip(page)) == pytest.approx(float(story.embedding[0].position.angles[9, 2]), rel=1e-5)


@pytest.mark.parametrize("make", [pages.decoder_story, pages.translator_story])
def test_the_pages_own_arithmetic_is_the_models(make: Callable[[], Story], show: Open) -> None:
    story = make()
    page = show(story)
    near(page, "byhand")
    for layer, attention in enumerate(story.attention):
        head, query = layer % attention.heads, attention.weights.shape[1] - 1
        choose(page, layer=layer, head=head, query=query)
        q, k = attention.q[head, query], attention.k[head * attention.kv_heads // attention.heads]
        np.testing.assert_allclose([float(x) for x in column_of(page, "every-key", 1)], k @ q, atol=0.006)
        weights = [float(x) for x in column_of(page, "every-key", -1)]
        np.testing.assert_allclose(weights, attention.weights[head, query], atol=6e-5)
        assert float(page.find_element(By.ID, "check").get_attribute("data-worst")) < 1e-5


def test_wrong_recorded_weights_would_be_seen(show: Open) -> None:
    story = pages.decoder_story(layers=1)
    story.attention[0].weights[:] = story.attention[0].weights[:, :, ::-1]
    page = show(story)
    near(page, "byhand")
    assert page.find_element(By.ID, "check").text.startswith("≠")


def test_the_notes_own_example(show: Open) -> None:
    page = show(pages.seed_story())
    near(page, "byhand")
    choose(page, key=0)
    assert page.find_element(By.ID, "total").text.endswith("score 26.05")
    fits = [row.text.split()[4:] for row in page.find_elements(By.CSS_SELECTOR, "#byhand details tbody tr")]
    assert [" ".join(words) for words in fits] == [
        "match ✓", "strong match ✓", "strong match ✓", "minor mismatch ✗", "match ✓", "match ✓"
    ]  # fmt: skip
    choose(page, key=1)
    assert page.find_element(By.ID, "total").text.endswith("score −4.5")


def test_temperature_top_k_and_top_p(show: Open) -> None:
    story = pages.decoder_story()
    page = show(story)
    near(page, "output")
    logits = np.array([each.logit for each in story.output.rows[0].candidates])

    def slide(name: str, value: float) -> list[str]:
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        page.execute_script(script, page.find_element(By.ID, f"slide-{name}"), value)
        return column_of(page, "candidates", -1)

    hot = np.exp(logits / 1.5) / np.exp(logits / 1.5).sum()
    assert abs(float(slide("temperature", 1.5)[0].strip("%")) / 100 - hot[0]) < 0.006
    slide("temperature", 1)
    three = slide("k", 3)
    assert [text == "out" for text in three[:12]] == [False] * 3 + [True] * 9
    slide("k", 21)
    share = np.exp(logits) / np.exp(logits).sum()
    fewest = int(np.searchsorted(share.cumsum(), 0.9) + 1)
    assert [text == "out" for text in slide("p", 0.9)[:12]] == [i >= fewest for i in range(12)]


def test_generation_steps_by_button_and_by_key(show: Open) -> None:
    story = pages.decoder_story()
    page = show(story)
    near(page, "generation")
    button = page.find_element(By.ID, "next-step")
    button.click()
    button.send_keys(Keys.ARROW_RIGHT)
    assert "step 3 of 5" in page.find_element(By.ID, "player").text
    assert len(page.find_elements(By.CSS_SELECTOR, "#written .piece")) == 14 + 2 + 1


def test_arrow_keys_read_a_matrix_and_enter_follows(show: Open) -> None:
    story = pages.decoder_story()
    page = show(story)
    near(page, "heads")
    choose(page, layer=1, head=2, query=6, key=3)
    canvas = page.find_element(By.CSS_SELECTOR, "#large .frame canvas")
    page.execute_script("arguments[0].focus()", canvas)
    canvas.send_keys(Keys.ARROW_DOWN, Keys.ARROW_LEFT)
    said = page.find_element(By.ID, "say").get_attribute("textContent")
    assert said.startswith("weights[2, 7, 2] = ")
    canvas.send_keys(Keys.ENTER)
    assert page.find_element(By.ID, "pick-query").get_property("value") == "7"
    assert page.find_element(By.ID, "pick-key").get_property("value") == "2"
    page.switch_to.active_element.send_keys(Keys.ARROW_DOWN)  # the picture was drawn again and is still in focus
    assert page.find_element(By.ID, "say").get_attribute("textContent").startswith("weights[2, 8, 2] = ")


def test_arrow_keys_walk_tables_and_clocks(show: Open) -> None:
    story = pages.decoder_story()
    page = show(story)
    near(page, "embedding")
    choose(page, layer=0, head=1, query=5)
    for place, first, second in (
        ("#embedding .dials svg", "angles[5, 0]", "angles[5, 1]"),
        ("#every-key td", "q · k", "scaled"),
    ):
        page.find_element(By.ID, "pick-head").send_keys(Keys.TAB)  # from here on the keyboard is what is used
        page.execute_script("arguments[0].focus()", page.find_element(By.CSS_SELECTOR, place))
        assert tip(page).startswith(first)
        page.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
        assert tip(page).startswith(second)


def test_pressing_tokens_heads_and_rows_follows_them(show: Open) -> None:
    page = show(pages.decoder_story())
    near(page, "tokens")
    page.find_elements(By.CSS_SELECTOR, "#tokens .token")[4].click()
    assert page.find_element(By.ID, "pick-query").get_property("value") == "4"
    near(page, "heads")
    page.find_elements(By.CSS_SELECTOR, ".thumb")[6].click()  # four heads a layer: layer 1, head 2
    assert page.find_element(By.ID, "large-name").text == "layer 1, head 2"
    near(page, "stream")
    page.find_elements(By.CSS_SELECTOR, "#ranking button")[1].click()
    assert page.find_element(By.ID, "pick-layer").get_property("value") == "0"


def test_cross_attention_shows_its_alignment(show: Open) -> None:
    story = pages.translator_story()
    page = show(story)
    near(page, "heads")
    choose(page, layer=3)
    mean = story.attention[3].weights.mean(0)
    text = point_at(page, page.find_element(By.CSS_SELECTOR, "#alignment canvas"), 1, 4)
    assert value_in(text) == pytest.approx(float(mean[1, 4]), rel=1e-4)
    pairs = [node.text for node in page.find_elements(By.CSS_SELECTOR, "#alignment li")]
    read = [token.text.replace(" ", "␣") for token in story.sequences["source"].tokens]
    assert [pair.split(" ← ")[1] for pair in pairs] == [read[i] for i in mean.argmax(1)]


def test_in_a_notebook_the_page_shows_itself(browser: Any, tmp_path: Path) -> None:
    shown = Explanation(pages.decoder_story())._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<!doctype html><meta charset=utf-8>{shown}", encoding="utf-8")
    browser.get((tmp_path / "notebook.html").as_uri())
    errors(browser)
    try:
        browser.switch_to.frame(browser.find_element(By.TAG_NAME, "iframe"))
        near(browser, "byhand")
        assert browser.find_element(By.ID, "check").text.startswith("✓")
    finally:
        browser.switch_to.default_content()
    assert errors(browser) == []


def test_a_tag_is_shown_for_each_token(show: Open) -> None:
    page = show(pages.encoder_story("tags"))
    near(page, "output")
    page.find_elements(By.CSS_SELECTOR, "#output .token")[3].click()
    assert page.find_element(By.CSS_SELECTOR, "#output .who").text == "Scores of ␣time"


def test_twelve_layers_of_twelve_heads_are_quick(show: Open) -> None:
    """First paint under 1 s and a choice under 100 ms: in the browser's own processor time, which does not count the
    waiting on a busy machine, and three times as much, for the slowest of them."""
    page = show(pages.encoder_story("classes"))
    page.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        metrics = page.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return 1000 * next(each["value"] for each in metrics if each["name"] == "TaskDuration")

    show(pages.decoder_story(layers=12, heads=12, count=64, size=64, keep=2))
    assert 0 < spent() < 3000
    choices = """
        const select = document.getElementById("pick-head");
        for (let head = 1; head < 6; head++) {
          select.value = head;
          select.dispatchEvent(new Event("change"));
          document.body.getBoundingClientRect();
        }"""
    for section in ("byhand", "heads", "stream"):
        near(page, section)
        before = spent()
        page.execute_script(choices)
        assert 0 < (spent() - before) / 5 < 300, section
