"""The studio in a real Chromium: each card as a person uses it, the page's size, requests and accessibility."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import untrained
from support.browser import chromium, errors, requests
from support.server import Running, running
from support.sounds import tone, wav

import headway
from headway.preprocess.image import open_image
from headway.serving.runs_table import RunTable
from headway.serving.studio import ASSETS
from headway.tasks import find
from headway.tasks.classify import Classify

HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def folders(task_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("studio")
    wanted = {name: path for name, path in task_folders.items() if name != "summarize"}
    found = {**wanted, "detect": untrained.of_task("detect", folder / "detect", queries=5)}
    rows = list(find("classify").builtin.rows(split="train", size=24))
    for row in rows:
        row.fields["label"] = HOSTILE if row.fields["label"] == rows[0].fields["label"] else row.fields["label"]
    task = Classify.from_data(Classify.scan(rows), tokenizer=None, options={"vocab": 300})
    return {**found, "hostile": untrained._saved(task, folder / "hostile")}


@pytest.fixture(scope="module")
def studio(
    folders: dict[str, Path], language_model: Path, translator: Path, embedder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Running]:  # fmt: skip
    table = RunTable(tmp_path_factory.mktemp("runs"), train=True)
    with running(*folders.values(), language_model, translator, embedder, runs=table) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


class Page:
    """What a person does: opens a section, fills in fields by their labels, presses buttons by their names."""

    def __init__(self, browser: Any, url: str) -> None:
        self.browser, self.url = browser, url

    def open(self, path: str = "/") -> None:
        self.browser.get("about:blank")
        self.browser.get(f"{self.url}/#{path}")
        self.wait("document.querySelector('.view .card, .view .notice')")

    def wait(self, condition: str, *, seconds: float = 30) -> Any:
        end = time.monotonic() + seconds
        while not (found := self.browser.execute_script(f"return {condition}")):
            assert time.monotonic() < end, f"{condition}\n{self.text()}"
            time.sleep(0.02)
        return found

    def text(self, selector: str = "main") -> str:
        return self.browser.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText).join('\\n')", selector
        )

    def field(self, label: str) -> Any:
        script = """return [...document.querySelectorAll('label')].find((each) => each.textContent === arguments[0])
            ?.control"""
        return self.browser.execute_script(script, label)

    def write(self, label: str, text: str) -> None:
        field = self.field(label)
        field.clear()
        field.send_keys(text)

    def press(self, name: str) -> None:
        script = """[...document.querySelectorAll('main button, main a.button')].findLast((each) =>
            each.innerText === arguments[0] && !each.hidden && !each.disabled).click()"""
        self.browser.execute_script(script, name)

    def answer(self) -> str:
        """Waits for the answer of a card."""
        self.wait("document.querySelector('[data-state=done]')")
        return self.text(".answer")


@pytest.fixture
def page(browser: Any, studio: Running) -> Page:
    browser.get_log("browser")  # what the test before has left
    return Page(browser, studio.url)


def test_the_page_is_small_paints_at_once_and_stays_on_its_origin(page: Page, studio: Running) -> None:
    browser = page.browser
    requests(browser)
    paints = []
    while len(paints) < 5 and not (paints and min(paints) <= 500):  # a busy machine delays some of them
        page.open()
        paints += browser.execute_script(
            "return performance.getEntriesByType('paint').slice(0, 1).map((e) => e.startTime)"
        )
    assert min(paints) <= 500, paints
    assert sum(map(len, ASSETS.values())) <= 200_000, "every file of the page together"
    sent = browser.execute_script(
        "return performance.getEntriesByType('resource').reduce((sum, each) => sum + each.transferSize, 0)"
    )
    assert 10_000 < sent <= 200_000
    assert studio.get("/static/cards/tag.js").status == 200 and studio.get("/static/cards").status == 404
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map((each) => each.name)")
    assert len(loaded) > 8 and all(url.startswith(studio.url) for url in loaded), loaded
    found = requests(browser)
    assert found and all(url.startswith((studio.url, "about:", "blob:")) for url in found), found
    assert not errors(browser)


def test_cards_of_text(page: Page, folders: dict[str, Path], translator: Path) -> None:
    requests(page.browser)
    page.open("/models/classify")
    page.write("Text", "please cancel my order")
    page.press("Classify")
    best = headway.load(folders["classify"])("please cancel my order")["label"]
    assert page.answer().startswith(best) and "%" in page.answer()

    page.open("/models/tag")
    text = "Zoë 🙂 Lovelace met Charles in London."
    page.browser.execute_script("arguments[0].value = arguments[1]", page.field("Text"), text)
    page.press("Find entities")
    page.answer()
    wanted = [each["text"] for each in headway.load(folders["tag"])(text)["entities"]]
    marked = page.browser.execute_script(
        "return [...document.querySelectorAll('mark')].map((each) => each.firstChild.textContent)"
    )
    assert wanted and marked == wanted, "places count characters, not UTF-16 units"

    page.open("/models/answer")
    page.write("Passage", "Ada lives in Leeds.")
    page.write("Question", "Where does Ada live?")
    page.press("Answer")
    page.answer()
    given = {"question": "Where does Ada live?", "context": "Ada lives in Leeds."}
    assert page.text(".found") == headway.load(folders["answer"])(given)["answer"].strip()

    page.open("/models/translator")
    page.write("Source text", "the 3rd of May")
    page.browser.execute_script("arguments[0].value = 5", page.field("Most tokens"))
    page.field("Source text").send_keys("\ue009\ue007")  # Ctrl+Enter
    page.answer()
    wanted = headway.load(translator)("the 3rd of May", max_new_tokens=5)
    assert " ".join(page.text(".answer .result").split()) == " ".join(wanted.split())
    page.press("Show alignment")
    page.wait("document.querySelectorAll('.answer rect.cell').length > 3")

    page.open("/models/fill")
    page.press("Fill in")
    assert "%" in page.answer()
    page.open("/models/embedder")
    page.write("Second text", "How do I reset my password?")
    page.press("Compare")
    assert page.answer().startswith("1.000 similarity")
    assert not errors(page.browser)
    assert all(url.startswith((page.url, "about:", "blob:")) for url in requests(page.browser))


def test_generation_streams_with_probabilities(page: Page) -> None:
    browser = page.browser
    page.open("/models/language_model")
    page.write("Prompt", "hello")
    page.press("Generate")
    page.answer()
    tokens = page.wait("document.querySelectorAll('.token').length")
    assert 1 < tokens <= 100
    browser.execute_script("document.querySelector('.tokens').focus()")
    browser.switch_to.active_element.send_keys("\ue014\ue014")  # to the second token
    shown = page.text("#tip").splitlines()
    assert len(shown) >= 5 and all("%" in line for line in shown)
    assert page.browser.execute_script("return document.querySelectorAll('.token')[1].classList.contains('at')")

    page.open("/models/chat")
    browser.execute_script("arguments[0].value = 8", page.field("Most tokens"))
    page.field("Message").send_keys("hello\n")
    page.wait("document.querySelector('.turn.assistant[aria-busy=false]')")
    assert page.text(".turn.user") == "hello" and page.text(".turn.assistant .tokens").strip()
    address = page.browser.execute_script("return document.querySelector('.foot a').href")
    assert not errors(browser)
    page.browser.get(address)
    assert "hello" in page.browser.page_source


def test_a_request_is_copied_as_it_was_sent_and_explained(page: Page, studio: Running, capsys: Any) -> None:
    page.open("/models/classify")
    copied = "window.copied = []; navigator.clipboard.writeText = async (text) => void window.copied.push(text)"
    page.browser.execute_script(copied)
    text = """it's "quoted" \\ and ünï"""
    page.browser.execute_script("arguments[0].value = arguments[1]", page.field("Text"), text)
    page.press("Classify")
    page.answer()
    page.press("Copy as curl")
    page.press("Copy as Python")
    curl, python = page.wait("window.copied.length === 2 && window.copied")
    exec(compile(python, "copied", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.strip() == str(studio.post("/models/classify", {"inputs": text}).json())
    import shlex

    words = shlex.split(curl.replace("\\\n", " "))
    assert words[0] == "curl" and words[2] == f"{studio.url}/models/classify"
    assert json.loads(words[words.index("-d") + 1]) == {"inputs": text}
    explained = studio.get(page.browser.execute_script("return document.querySelector('.foot a').pathname"))
    assert explained.status == 200 and "quoted" in explained.body.decode()


def test_cards_of_pictures_and_sound(page: Page, tmp_path: Path, folders: dict[str, Path]) -> None:
    picture, sound = tmp_path / "picture.png", wav(tmp_path / "sound.wav", tone(0.3))
    open_image(find("classify-image").builtin.rows(split="test", size=1)[0].fields["image"]).save(picture)
    page.open("/models/classify-image")
    page.press("Classify")
    assert "Choose a picture." in page.text() and page.field("Picture").get_attribute("aria-invalid") == "true"
    page.field("Picture").send_keys(str(picture))
    page.press("Classify")
    assert page.answer().startswith(headway.load(folders["classify-image"])(picture)["label"])

    page.open("/models/detect")
    page.field("Picture").send_keys(str(picture))
    page.press("Find objects")
    page.answer()
    page.browser.execute_script(
        "const it = document.querySelector('[type=range]'); it.value = 0.05; it.dispatchEvent(new Event('input'))"
    )
    boxes = page.browser.execute_script("return document.querySelectorAll('.box rect').length")
    listed = page.browser.execute_script("return document.querySelectorAll('.found-list li.quiet').length")
    assert boxes or listed, "boxes, or that there are none"

    page.open("/models/transcribe")
    page.field("Recording").send_keys(str(sound))
    page.press("Transcribe")
    assert page.answer()
    page.open("/models/draw")
    page.press("Draw")
    page.answer()
    assert page.wait("document.querySelector('.drawing').naturalWidth") > 0
    assert not errors(page.browser)


def test_what_a_model_says_stays_text_and_errors_are_shown(page: Page, studio: Running) -> None:
    page.open("/models/hostile")
    page.write("Text", HOSTILE)
    page.press("Classify")
    assert HOSTILE in page.answer()
    assert page.browser.execute_script("return [document.images.length, document.title]") == [
        0,
        "hostile · Models · Headway",
    ]
    assert not any("innerHTML" in data.decode() or "insertAdjacentHTML" in data.decode() for data in ASSETS.values())

    page.open("/models/language_model")
    page.write("Prompt", "hello " * 200)
    page.press("Generate")
    page.wait("document.querySelector('.field-error:not([hidden])')")
    assert "context" in page.text(".field-error"), "at the field that the server names"
    page.open("/models/nothing")
    assert "No such model" in page.text()
    page.open(f"/runs/{HOSTILE.replace('/', '')}")
    assert "there is no run" in page.text() and page.browser.execute_script("return document.images.length") == 0
    page.browser.get_log("browser")  # the 400 and the 404 above


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_have_contrast_in_both_schemes() -> None:
    """WCAG AA: 4.5 for text, 3 for controls."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and contrast("#777777", "#ffffff") < 4.5
    css = ASSETS["page.css"].decode()
    schemes = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part)) for part in css.split("@media")[:2]]
    assert [len(scheme) for scheme in schemes] == [20, 20]
    for scheme in schemes:
        texts = ("text", "muted", "accent", "good", "bad", "warn", *(f"c{n}" for n in range(6)))
        pairs = [(text, ground) for text in texts for ground in ("bg", "surface", "sunken")]
        pairs += [("text", "tint"), ("muted", "tint"), ("text", "bad-tint"), ("on-accent", "accent")]
        assert not [pair for pair in pairs if contrast(scheme[pair[0]], scheme[pair[1]]) < 4.5]
        assert contrast(scheme["control"], scheme["surface"]) >= 3


UNNAMED = """
const named = (each) => each.getAttribute('aria-label') || each.labels?.length || each.innerText?.trim() || each.title
  || document.getElementById(each.getAttribute('aria-labelledby'));
const seen = [...document.querySelectorAll('a, button, input, textarea, select, summary, img, svg, progress, dialog')];
const bad = seen.filter((each) => each.checkVisibility() && !each.closest('[aria-hidden=true]')
  && !(each.tagName === 'IMG' ? each.hasAttribute('alt') : named(each)));
const ids = [...document.querySelectorAll('[id]')].map((each) => each.id);
const dangling = [...document.querySelectorAll('[aria-describedby]')].filter((each) =>
  !document.getElementById(each.getAttribute('aria-describedby')));
return [bad.map((each) => each.outerHTML.slice(0, 120)), ids.filter((id, at) => ids.indexOf(id) !== at),
  dangling.length, document.querySelectorAll('main, h1').length,
  document.documentElement.scrollWidth > innerWidth ? document.documentElement.scrollWidth : 0];
"""


def test_every_control_has_a_name_and_fits_a_phone(page: Page) -> None:
    browser = page.browser
    sections = ["/models/chat", "/models/detect", "/models/draw", "/models/transcribe", "/runs", "/train", "/compare/x"]
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        for section in sections:
            page.open(section)
            assert browser.execute_script(UNNAMED) == [[], [], 0, 2, 0], section
        browser.execute_script("document.querySelector('main').append(document.createElement('button'))")
        assert len(browser.execute_script(UNNAMED)[0]) == 1, "the check can fail"
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    page.open("/models/classify")
    browser.execute_script("document.body.focus()")
    for _ in range(30):  # with the keyboard alone: skip link, navigation, list, form
        browser.switch_to.active_element.send_keys("\ue004")
        if browser.switch_to.active_element.text == "Classify":
            break
    browser.switch_to.active_element.send_keys("\ue00d")
    assert "%" in page.answer()
    assert "Answer ready" in page.wait("document.getElementById('status').textContent")
