"""A story as one self-contained HTML file: styles, scripts and data inside, no network requests.

The content-security policy allows only this page's own script and style, by their hashes, so that a hostile token
cannot load or send anything; and the scripts insert data as text nodes, never as markup."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from string import Template

from headway.explain.story import Story
from headway.printable import PROSE, as_html

SCRIPTS = (  # in loading order
    *("dom", "words", "format", "tensor", "maths", "colour", "tip", "table", "heat", "state", "section", "head"),
    *("tokens", "positions", "embedding", "byhand", "product", "weigh", "lines", "heads", "stream", "why", "output"),
    *("generation", "example", "main"),
)
STYLES = ("page", "figures")
UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def render(story: Story) -> str:
    script, style = _joined("js", SCRIPTS), _joined("css", STYLES)
    title, data = as_html(story.title, keep=PROSE), _embedded(story.to_json())
    return Template(_asset("page.html")).substitute(
        policy=policy_of(), title=title, style=style, script=script, story=data
    )


def policy_of() -> str:
    """The content-security policy of every page."""
    script, style = _joined("js", SCRIPTS), _joined("css", STYLES)
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _embedded(json_text: str) -> str:
    """The same JSON, with every character that an HTML parser could take for markup as a \\u escape."""
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", json_text)


@cache
def _joined(kind: str, names: tuple[str, ...]) -> str:
    return "\n".join(_asset(f"{name}.{kind}") for name in names)


@cache
def _asset(name: str) -> str:
    return files("headway.explain").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
