"""TRUST 64: text from data in cards, pages and tables is text, whatever it is made of: each format has one escaper."""

import ast
import csv
import html
import io
import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from support.commands import headway as run_headway

import headway
from headway.printable import as_cell, as_code_block, as_html, as_markdown, printable

SOURCE = Path(headway.__file__).parent
HOSTILE = [
    r"\[x\](https://evil.example)", "[x](https://evil.example)", "![x](//evil.example/x.png)", r"\\[x](javascript:1)",
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "https://evil.example", "www.evil.example",
    "me@evil.example", "`a` `` b", r"\`a`", "a | b", r"a \| b", "# title", "- item", "1. item", "> quote", "*a* __b__",
    "$x$", "[x]: https://evil.example", "[^1]", "&lt;b&gt; &#91;x&#93;(y)", "---", "===", "```", "a\n\n# b", "\\",
    "<https://evil.example>", r"<https\://evil.example>", "\\<b>", "![][x]", "_a_ a_b_c _", "[x][y]", "(c) ~x~", "+ a",
]  # fmt: skip
PIECES = st.sampled_from(
    [*r"\`*_{}[]()<>#+-.!|~$^=:@&;/" + '"' + "'", "a", " ", "1", "http", "www", "://", "\n", "![", "](", "é", "\x1b"]
)
TEXTS = st.lists(PIECES, max_size=14).map("".join)
CONTEXTS = ("{}", "- {}", "{} (a table)", "**Warning:** {}.", "- a\n- {}", "| a | {} |", "| {} | b |")
ADDRESS = re.compile(r"https?://|www\.\w|\w@\w", re.IGNORECASE)


def tokens(text: str) -> list[Token]:
    parsed = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    return [inner for token in parsed for inner in [token, *(token.children or [])]]


def assert_inert(text: str, escaped: str) -> None:
    shown = " ".join(printable(text, keep="\n\t").split())
    for context in CONTEXTS:
        head = "| x | y |\n|---|---|\n" if context.startswith("|") else ""
        found, plain = (tokens(head + context.format(part)) for part in (escaped, "a"))
        kinds, expected = ([token.type for token in each if token.type not in ("text", "text_special", "html_inline")]
                           for each in (found, plain))  # fmt: skip
        if shown:
            assert kinds == expected, (context, escaped, kinds)
        for token in found:
            if token.type == "html_inline":
                assert token.content == "<!-- -->"
            elif token.type == "text":  # what readers that make links of addresses look at
                assert not ADDRESS.search(token.content), escaped
        told = "".join(token.content for token in found if token.type == "text")
        assert shown in told or not shown, (context, told, shown)


@pytest.mark.parametrize("text", HOSTILE)
def test_trust_64_hostile_text_in_a_card_is_text(text: str) -> None:
    assert_inert(text, as_markdown(text))


@given(TEXTS)
@settings(max_examples=60, deadline=None)
def test_any_text_in_a_card_is_text(text: str) -> None:
    assert_inert(text, as_markdown(text))


def test_control_64_without_backslashes_escaped_there_is_a_link() -> None:
    found = as_markdown(HOSTILE[0]).replace("\\\\", "\\")
    assert any(token.type == "link_open" for token in tokens(found.replace("<!-- -->", "")))
    with pytest.raises(AssertionError):
        assert_inert("https://evil.example", "https://evil.example")


@given(TEXTS)
@settings(max_examples=50, deadline=None)
def test_a_block_of_code_is_not_left(text: str) -> None:
    block = as_code_block(["headway run", text])
    found = tokens("\n".join([*block, "after"]))
    assert [token.type for token in found][:2] == ["fence", "paragraph_open"]
    assert found[0].content == f"headway run\n{printable(text)}\n"


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.values: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.values += [value for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


@given(TEXTS)
@settings(max_examples=50, deadline=None)
def test_any_text_in_a_page_is_text(text: str) -> None:
    reader = Reader()
    reader.feed(f'<p title="{as_html(text)}">{as_html(text)}</p>')
    reader.close()
    assert reader.tags == ["p"] and reader.text == printable(text) and reader.values == [printable(text)]


@pytest.mark.parametrize(
    "text", ["=1+1", "+x", "-x", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1+1", "＠x", '=HYPERLINK("x")']
)
def test_a_cell_is_no_formula(text: str) -> None:
    out = io.StringIO(newline="")
    csv.writer(out).writerow([as_cell(text), "a"])
    (row,) = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert row == [f"'{text}", "a"]
    assert unicodedata.normalize("NFKC", row[0])[0] not in "=+-@\t\r\n"
    assert as_cell("-1.5e3") == "-1.5e3" and as_cell(-2) == -2 and as_cell("a=b") == "a=b"


ESCAPERS = {  # module → what escapes in it, and why it is not one of the functions of printable.py
    "printable.py": {"html.escape"},
    "explain/explanation.py": {"html.escape"},  # a page within a page
    "jobs/documents.py": {"html.escape"},  # the text of a document that is translated, in place of its own
    "jobs/word_document.py": {"escape"},
    "tasks/transcripts.py": {"html.escape"},  # WebVTT, which has three of HTML's characters
}


def test_every_format_has_one_escaper() -> None:
    found: dict[str, set[str]] = {}
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("html.escape", "escape", "saxutils.escape"):
                found.setdefault(file.relative_to(SOURCE).as_posix(), set()).add(ast.unparse(node.func))
    assert found == ESCAPERS
    assert html.escape  # the name that is looked for


def test_the_card_of_a_run_on_hostile_names(tmp_path: Path) -> None:
    folder = tmp_path / "[x](https:"
    folder.mkdir()
    name = r"\[x\](https:evil) www.evil.example `a` _b_.csv"
    labels = (r"\[y\](https://evil.example)", "![z](https://evil.example/a.png)")
    rows = "".join(f'"message {n}","{labels[n % 2 if n < 39 else 0]}"\n' for n in range(40))
    (folder / name).write_text("text,label\n" + rows + '"message 1","<b>rare</b> www.evil.example"\n')
    small = ["--set", "model.width=16", "--set", "model.layers=1", "--set", "model.heads=2", "--set", "task.vocab=300"]
    done = run_headway("train", "classify", folder / name, "--steps", "2", "--out", "run", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8").partition("---\n# ")[2]
    found = tokens(card)
    assert not [
        token.type for token in found if "link" in token.type or token.type == "image" or token.type == "em_open"
    ]
    assert all(token.content == "<!-- -->" for token in found if "html" in token.type)
    assert "evil" in card
