"""A story as one HTML file that needs nothing else: styles, scripts and numbers inside, no request ever.

The content-security policy admits this page's own script and style by their hashes and nothing besides, so that even
a hostile token could not load or send anything; and the page's scripts make text nodes of data, never markup."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from importlib.resources import files
from string import Template

from headway.explain.story import Story

SCRIPTS = (  # in the order in which they are read; each is one idea
    *("dom", "words", "format", "tensor", "maths", "colour", "tip", "table", "heat", "state", "section", "head"),
    *("tokens", "positions", "embedding", "byhand", "product", "weigh", "lines", "heads", "stream", "why", "output"),
    *("generation", "example", "main"),
)
STYLES = ("page", "figures")
UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def render(story: Story) -> str:
    script, style = _joined("js", SCRIPTS), _joined("css", STYLES)
    title = story.title.encode("utf-8", "replace").decode()  # half a character pair cannot be written
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(_asset("page.html")).substitute(
        policy=policy, title=html.escape(title), style=style, script=script, story=_embedded(story.to_json())
    )


def _embedded(json_text: str) -> str:
    """The same JSON, with every character that an HTML parser could take for markup written as its number."""
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", json_text)


@cache
def _joined(kind: str, names: tuple[str, ...]) -> str:
    return "\n".join(_asset(f"{name}.{kind}") for name in names)


@cache
def _asset(name: str) -> str:
    return files("headway.explain").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
