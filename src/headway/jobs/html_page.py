"""Pages of reports: one HTML file without scripts and without anything from elsewhere, light or dark as the reader's
system is. Text from data enters only through `text`, which escapes it; a content-security policy allows the page's own
style and pictures inside it, nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from headway.printable import PROSE, as_html

LONGEST = 2000  # characters of a text from data
SHADES = 10  # of cells of a matrix: classes h0 to h10

STYLE = """
:root{color-scheme:light dark;--ink:#1c1d21;--soft:#5b5f6a;--line:#d9dbe1;--page:#fff;--card:#f5f6f8;--bar:#3f6fc4;
--shade:63,111,196;--bad:#b3261e;--good:#1b7a3d}
@media(prefers-color-scheme:dark){:root{--ink:#e8e9ed;--soft:#a2a7b3;--line:#3a3d46;--page:#16171b;--card:#202229;
--bar:#7ea6f0;--shade:126,166,240;--bad:#ff8a80;--good:#7fd69b}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:0 auto;padding:1rem;color:var(--ink);
background:var(--page);overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}
p.why,.soft,dt{color:var(--soft)}p.why{margin:.2rem 0 .6rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:.25rem .7rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
td:first-child,th:first-child{text-align:left}th{font-weight:600}
table.texts td,table.texts th{text-align:left;white-space:normal;vertical-align:top}
table.matrix td{text-align:center;padding:.2rem .45rem}table.matrix th{font-weight:400;overflow-wrap:break-word}
table.matrix thead th{vertical-align:bottom;max-width:7rem;white-space:normal}
.big{display:flex;flex-wrap:wrap;gap:.6rem;margin:1rem 0;padding:0;list-style:none}
.big li{background:var(--card);border-radius:.5rem;padding:.5rem .9rem}.big b{display:block;font-size:1.35rem}
svg{display:block;width:100%;max-width:34rem;height:auto}svg text{fill:var(--soft);font:12px system-ui,sans-serif}
.grid{stroke:var(--line)}.bar{fill:var(--bar)}.diagonal{stroke:var(--soft);stroke-dasharray:4 4}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.dot{opacity:.7}
.legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:.4rem 0}
.key{display:inline-block;width:1rem;height:.25rem;margin-right:.4rem;vertical-align:middle}
.cards{list-style:none;padding:0}
.cards>li{background:var(--card);border-radius:.5rem;padding:.6rem .9rem;margin:.6rem 0}
.cards dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem .9rem;margin:.3rem 0 0}
.cards dd{margin:0;white-space:pre-wrap}.cards p{margin:0}dd.wanted{color:var(--good)}dd.found{color:var(--bad)}
img{max-width:100%;height:auto;border-radius:.3rem}
@media(max-width:34rem){.cards dl{grid-template-columns:1fr}.cards dt{margin-top:.3rem}}
"""
COLOURS = ("#3f6fc4", "#d9822b", "#2e9e5b", "#c23b6e", "#7b57c9", "#1b98a6", "#9a7b1c", "#7a7f8c")
STYLE += "".join(
    f".line.s{n}{{stroke:{c}}}.dot.s{n}{{fill:{c}}}.key.s{n}{{background:{c}}}" for n, c in enumerate(COLOURS)
)
STYLE += "".join(f".h{n}{{background:rgba(var(--shade),{0.75 * n / SHADES:.3f})}}" for n in range(1, SHADES + 1))


def page(title: str, sections: Iterable[str]) -> str:
    """The whole file."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{as_html(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><h1>{text(title)}</h1>\n{chr(10).join(filter(None, sections))}\n</body></html>\n"
    )


def text(value: Any) -> str:
    """Text from anywhere as HTML, shortened if it is very long."""
    content = str(value)
    content = content if len(content) <= LONGEST else f"{content[:LONGEST]} … ({len(content):,} characters)"
    return as_html(content, keep=PROSE)


def section(title: str, content: str, *, why: str = "") -> str:
    """Empty without content."""
    about = f'<p class="why">{text(why)}</p>' if why else ""
    return f"<section><h2>{text(title)}</h2>{about}{content}</section>" if content else ""


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]], *, kind: str = "") -> str:
    top = "".join(f"<th>{text(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table class="{kind}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def matrix(labels: Sequence[str], counts: Any) -> str:
    """A square of counts, rows and columns named; a cell's shade is its share of the row."""
    top = "<th></th>" + "".join(f"<th>{text(label)}</th>" for label in labels)
    rows = []
    for label, row in zip(labels, counts, strict=True):
        total = max(int(sum(row)), 1)
        cells = "".join(f'<td class="h{round(SHADES * int(n) / total)}">{int(n) or ""}</td>' for n in row)
        rows.append(f"<tr><th>{text(label)}</th>{cells}</tr>")
    body = "".join(rows)
    return f'<div class="scroll"><table class="matrix"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def headline(values: Iterable[tuple[str, str]]) -> str:
    """The few numbers that matter most, large."""
    return (
        '<ul class="big">' + "".join(f"<li><b>{text(value)}</b>{text(name)}</li>" for name, value in values) + "</ul>"
    )


def picture(content: bytes, *, about: str, kind: str = "png") -> str:
    return f'<img alt="{text(about)}" src="data:image/{kind};base64,{base64.b64encode(content).decode()}">'
