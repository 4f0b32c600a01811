"""A page is one self-contained file without network access, and shows data as text; a browser checks the rest."""

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from support import pages

from headway.explain import page
from headway.explain.page import render

ASSETS = Path(str(files("headway.explain") / "assets"))
STORIES = {
    "decoder": pages.decoder_story(),
    "translator": pages.translator_story(),
    "vision": pages.picture_story(),
    **{kind: pages.encoder_story(kind) for kind in ("classes", "tags", "span", "fill", "vector")},
}


def embedded(text: str) -> str:
    return re.search(r'<script type="application/json" id="story">(.*?)</script>', text, re.S)[1]


@pytest.mark.parametrize("name", STORIES)
def test_the_story_on_the_page_is_the_story(name: str) -> None:
    assert json.loads(embedded(render(STORIES[name]))) == json.loads(STORIES[name].to_json())


def test_arrays_come_back_from_the_page_bit_for_bit() -> None:
    story = pages.decoder_story()
    wire = json.loads(embedded(render(story)))["attention"][1]["weights"]
    back = np.frombuffer(base64.b64decode(wire["data"]), "<f4").reshape(wire["shape"])
    assert np.array_equal(back, story.attention[1].weights)


def test_data_cannot_end_its_script_and_can_be_written() -> None:
    text = render(pages.decoder_story(words=pages.HOSTILE))
    assert text.count("</script") == 2 and "<!--" not in text and "<img" not in text
    assert not set("<>&") & set(embedded(text))
    tokens = json.loads(embedded(text))["sequences"]["text"]["tokens"]
    assert tuple(token["text"] for token in tokens)[: len(pages.HOSTILE)] == pages.HOSTILE
    text.encode("utf-8")  # half a character would not encode


def test_the_title_is_escaped() -> None:
    story = pages.encoder_story("classes")
    hostile = type(story)(**{**vars(story), "title": "</title><script>1</script> \ud800"})
    assert "<title>&lt;/title&gt;&lt;script&gt;1&lt;/script&gt; \\ud800</title>" in render(hostile)


def test_the_policy_admits_exactly_this_script_and_style() -> None:
    text = render(pages.decoder_story())
    policy = html.unescape(re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)[1])
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for rule, tag in {"script-src": r"<script>(.*?)</script>", "style-src": r"<style>(.*?)</style>"}.items():
        inside = re.search(tag, text, re.S)[1]
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"
    assert rules["default-src"] == "'none'" and "unsafe" not in policy


def test_the_page_has_no_external_links() -> None:
    outside = set(re.findall(r"\w+://[^\s\"'`)]+", render(pages.decoder_story())))
    assert outside == {"http://www.w3.org/2000/svg"}  # the name of a namespace, never fetched
    assert not any(re.search(r"@import|url\(", style.read_text()) for style in ASSETS.glob("*.css"))


@pytest.mark.parametrize("script", sorted(ASSETS.glob("*.js")), ids=lambda path: path.stem)
def test_scripts_make_text_never_markup(script: Path) -> None:
    found = re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|"
        r"\beval\b|new Function|fetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(|localStorage",
        script.read_text(encoding="utf-8"),
    )
    assert found is None, f"{script.name} uses {found[0]}"


def test_every_script_and_style_is_on_the_page_once() -> None:
    assert sorted(page.SCRIPTS) == sorted(path.stem for path in ASSETS.glob("*.js"))
    assert sorted(page.STYLES) == sorted(path.stem for path in ASSETS.glob("*.css"))


def test_twelve_layers_of_twelve_heads_fit_the_budget() -> None:
    assert len(render(pages.decoder_story(layers=12, heads=12, count=64, size=64, keep=1))) < 5e6
