"""Pages in a real browser: every step drawn, everything by keyboard too, nothing leaves the page."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import pages
from support.browser import errors, near, requests

from headway.explain.explanation import Explanation
from headway.explain.story import Story

ENTER = "\ue007"
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


@pytest.mark.parametrize("name", STORIES)
def test_every_step_of_every_kind_of_story_is_drawn(name: str, show: Open) -> None:
    page = show(STORIES[name]())
    errors(page), requests(page)
    page.refresh()
    found = [node.get_attribute("id") for node in page.find_elements("css selector", "details.step")]
    for section in found:
        assert near(page, section).find_element("class name", "body").text.strip(), section
    assert errors(page) == [] and requests(page) == set()


def test_sections_come_in_order_fold_and_open_by_keyboard(show: Open) -> None:
    page = show(pages.decoder_story())
    nodes = page.find_elements("css selector", "details.step")
    assert page.execute_script("return arguments[0].map(node => node.id)", nodes) == ["example-0", *SECTIONS]
    for node in nodes:
        node.find_element("tag name", "summary").send_keys(ENTER)
    bodies = "return arguments[0].map(node => node.querySelector('.body').checkVisibility())"
    assert page.execute_script(bodies, nodes) == [False] * 8
    nodes[3].find_element("tag name", "summary").send_keys(ENTER)
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
    shown = [node.text for node in page.find_elements("css selector", "#tokens .token bdi")]
    assert shown[:3] == [text.replace(" ", "␣") for text in pages.HOSTILE[:3]]
    assert shown[4] == "⟨202E⟩evil" and shown[8:11] == ["⟨0000⟩", "⏎", "⟨D800⟩"]
    assert page.find_element("css selector", "#tokens .token bdi").get_attribute("dir") == "auto"


def test_a_hostile_text_is_shown_as_it_is_without_reversing_the_line(show: Open) -> None:
    text = "one\u202etwo <b>\U0001f469\u200d\U0001f467</b>"
    bytes_of_one = ("<0xF0>", "\u200d")  # a token that is part of a character, one that cannot be seen
    story = pages.decoder_story(words=bytes_of_one, count=2)
    story = replace(story, title=text, sequences={"text": replace(story.sequences["text"], text=text)})
    page = show(story)
    near(page, "tokens")
    shown = text.replace("\u202e", "⟨202E⟩")
    assert page.find_element("tag name", "h1").text == page.find_element("tag name", "blockquote").text == shown
    assert f"2 tokens from {len(text)} characters" in page.find_element("css selector", "#tokens .caption").text
    chips = [node.text for node in page.find_elements("css selector", "#tokens .token bdi")]
    assert chips == ["<0xF0>", "⟨200D⟩"]


def test_a_phone_needs_no_horizontal_scrolling(show: Open) -> None:
    phone = {"width": 375, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    page = None
    try:
        for story in (pages.decoder_story(), pages.translator_story(), pages.decoder_story(words=("w" * 60, "<a>"))):
            page = show(story)
            page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
            page.refresh()
            for node in page.find_elements("css selector", "details.step"):
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
        page.find_element("id", "theme").click()
        assert paper() > 600 and pixel() != dark
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_in_a_notebook_the_page_shows_itself(browser: Any, tmp_path: Path) -> None:
    shown = Explanation(pages.decoder_story())._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<!doctype html><meta charset=utf-8>{shown}", encoding="utf-8")
    browser.get((tmp_path / "notebook.html").as_uri())
    errors(browser)
    try:
        browser.switch_to.frame(browser.find_element("tag name", "iframe"))
        near(browser, "byhand")
        assert browser.find_element("id", "check").text.startswith("✓")
    finally:
        browser.switch_to.default_content()
    assert errors(browser) == []
