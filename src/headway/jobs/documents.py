"""Documents whose text is replaced and whose structure stays: lines, subtitles (SRT, WebVTT), Markdown and .docx.

A document is literal text with slots between it. Each slot holds one text; a model's answer to it takes its place.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headway.data.text_reader import read_text
from headway.errors import DataError, InputError

if TYPE_CHECKING:
    from headway.jobs.word_document import WordDocument

DOCX = ".docx"
CLOCK = "-->"  # between the times of a cue
TAGS = re.compile(r"<[^<>\n]*>|\{\\[^{}\n]*\}")  # of subtitles: <i>, <00:01.000>, {\an8}
FIXED = re.compile(rf"^\s*[-–—]\s*|{TAGS.pattern}")  # in the line of a speaker
FENCE = re.compile(r" {0,3}(```+|~~~+)")
MARKER = re.compile(r"\s*(?:(?:>|[-*+]|\d{1,9}[.)]|#{1,6}|\[[ xX]\])(?:\s+|$))*")  # of quotes, lists, headings, tasks
UNTOUCHED = re.compile(r"\s*(?:<|\[[^\]]+\]:\s|(?:[-*_=]\s*){3,}$|[|\s:-]*-[|\s:-]*\|[|\s:-]*$)")  # HTML, links, rules
SPANS = re.compile(
    r"(`+)(?:.|\n)*?\1|!?\[|\]\([^)\s]*(?:\s+\"[^\"]*\")?\)|\]\[[^\]]*\]|<[^<>\s]+>|https?://[^\s)>]+|\|"
)
OTHERS = {  # suffix -> what such a file is, and what to do
    **dict.fromkeys((".pdf", ".ps", ".djvu"), "a page layout; save its text as .txt or .md"),
    **dict.fromkeys((".doc", ".odt", ".rtf", ".pages"), "a text document of another format; save it as .docx or .txt"),
    **dict.fromkeys((".ppt", ".pptx", ".odp", ".key"), "a presentation; save its text as .txt or .md"),
    **dict.fromkeys((".xls", ".ods"), "a spreadsheet of another format; save it as .xlsx or .csv"),
    **dict.fromkeys((".epub", ".mobi"), "an e-book; save its text as .txt or .md"),
    **dict.fromkeys((".html", ".htm"), "a page with markup; save it as .md or .txt"),
}


@dataclass(frozen=True)
class Slot:
    text: str
    lines: int = 1  # that the answer is wrapped to


@dataclass
class ParsedDocument:
    read: Callable[[str], str] = str  # a text as it stands in the file -> the text
    write: Callable[[str], str] = str  # and back
    literals: list[str] = field(default_factory=lambda: [""])  # one more than slots
    slots: list[Slot] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [slot.text for slot in self.slots]

    def keep(self, text: str) -> None:
        self.literals[-1] += text

    def add(self, text: str, *, lines: int = 1) -> None:
        """A slot for a text, without the space around it; a text without a letter or digit stays."""
        body = text.strip()
        if not any(character.isalnum() for character in body):
            return self.keep(text)
        start = text.index(body)
        self.keep(text[:start])
        self.slots.append(Slot(self.read(re.sub(r"\s*\n\s*", " ", body)), lines))
        self.literals.append(text[start + len(body) :])

    def add_around(self, text: str, fixed: re.Pattern[str]) -> None:
        """Slots for what is between the parts of a text that stay as they are."""
        end = 0
        for match in fixed.finditer(text):
            self.add(text[end : match.start()])
            self.keep(match[0])
            end = match.end()
        self.add(text[end:])

    def rendered(self, answers: Sequence[str]) -> bytes:
        """The file with an answer in each slot, on as many lines as the text had."""
        found = [self.write(wrapped(answer, slot.lines)) for slot, answer in zip(self.slots, answers, strict=True)]
        pairs = zip(self.literals, [*found, ""], strict=True)
        text = "".join(part for pair in pairs for part in pair)
        if any("\r\n" in literal for literal in self.literals):
            text = re.sub(r"\r?\n", "\r\n", text)
        return text.encode(errors="backslashreplace")


def wrapped(text: str, lines: int) -> str:
    """The words on at most this many lines of about one length."""
    words, out = text.split(), list[str]()
    for left in range(lines, 0, -1):
        size, line = len(" ".join(words)) / left, list[str]()
        while words and (not line or left == 1 or len(" ".join([*line, words[0]])) <= size + len(words[0]) / 2):
            line.append(words.pop(0))
        out += [" ".join(line)] if line else []
    return "\n".join(out)


def is_document(path: Path) -> bool:
    """Whether a file has texts in a structure that is kept."""
    return path.suffix.lower() in (DOCX, *PARSERS)


def read_document(path: Path, *, encoding: str | None = None) -> ParsedDocument | WordDocument:
    """A file that is not one of these is one of lines. DataError for one without text."""
    refuse_other(path)
    if path.suffix.lower() == DOCX:
        from headway.jobs.word_document import WordDocument

        found: ParsedDocument | WordDocument = WordDocument(path)
    else:
        parse = PARSERS.get(path.suffix.lower(), of_lines)
        found = parse("".join(read_text(path, encoding=encoding)))
    if not found.texts and is_document(path):
        raise DataError(f"{path}: it has no text of a {path.suffix.lower()} file")
    return found


def refuse_other(path: Path) -> None:
    """InputError for a document that would be read as something else."""
    if (known := OTHERS.get(path.suffix.lower())) is not None:
        raise InputError(f"{path}: {path.suffix.lower()} is {known}")


def split_lines(content: str) -> list[str]:
    """The lines with their ends."""
    return re.findall(r"[^\n]*\n|[^\n]+$", content)


def of_lines(content: str) -> ParsedDocument:
    out = ParsedDocument()
    for line in split_lines(content):
        out.add(line)
    return out


# ---------------------------------------------------------------------------------------- subtitles


def of_srt(content: str) -> ParsedDocument:
    return _of_cues(content, ParsedDocument(write=lambda text: text.replace(CLOCK, "->")))


def of_vtt(content: str) -> ParsedDocument:
    escaped = ParsedDocument(read=html.unescape, write=lambda text: html.escape(text, quote=False))
    return _of_cues(content, escaped, other_blocks=("WEBVTT", "NOTE", "STYLE", "REGION"))


def _of_cues(content: str, out: ParsedDocument, *, other_blocks: tuple[str, ...] = ()) -> ParsedDocument:
    """Numbers, names, times, styles and comments stay. The lines of a cue are one text, unless they have tags or are
    of several speakers."""
    lines, cue, is_first, is_other = split_lines(content) if CLOCK in content else [], list[str](), True, False

    def end_cue() -> None:
        text = "".join(cue)
        speakers = sum(line.lstrip().startswith(("-", "–", "—")) for line in cue)
        if TAGS.search(text) or speakers > 1:
            for line in cue:
                out.add_around(line, FIXED)
        else:
            out.add(text, lines=len(cue))
        cue.clear()

    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        is_blank = not line.strip()
        is_other = not is_blank and (is_other or (is_first and bool(other_blocks) and line.startswith(other_blocks)))
        if is_blank or is_other or CLOCK in line or CLOCK in following:
            end_cue()
            out.keep(line)
        else:
            cue.append(line)
        is_first = is_blank
    end_cue()
    return out


# ---------------------------------------------------------------------------------------- Markdown


def of_markdown(content: str) -> ParsedDocument:
    """Headings, lists, quotes and tables stay, code and HTML too. The lines of a paragraph are one text, which is
    divided where code, a link or an address is inside it."""
    out, paragraph, fence = ParsedDocument(), "", ""
    lines = split_lines(content)
    header = _front_matter(lines)

    def end_paragraph() -> None:
        nonlocal paragraph
        out.add_around(paragraph, SPANS)
        paragraph = ""

    for number, line in enumerate(lines):
        opened = FENCE.match(line)
        code = bool(fence or opened or number < header)
        if opened and not fence:
            fence = opened[1]
        elif opened and opened[1].startswith(fence) and not line[opened.end() :].strip():
            fence = ""
        indented = re.match(r" {4}|\t", line) and not paragraph and not MARKER.fullmatch(line)
        begins = MARKER.match(line)
        assert begins is not None
        if code or indented or not line.strip() or UNTOUCHED.match(line):
            end_paragraph()
            out.keep(line)
            continue
        if begins[0].strip() or line.lstrip().startswith("|"):
            end_paragraph()
            out.keep(begins[0])
            line = line[begins.end() :]
        paragraph = f"{paragraph.rstrip()} {line.lstrip()}" if paragraph else line
        if begins[0].lstrip().startswith("#") or line.lstrip().startswith("|") or re.search(r"(  |\\)\r?\n$", line):
            end_paragraph()
    end_paragraph()
    return out


def _front_matter(lines: Sequence[str]) -> int:
    """Lines of settings between two rules at the beginning."""
    if not lines or lines[0].rstrip() not in ("---", "+++"):
        return 0
    ends = (number for number, line in enumerate(lines[1:], 2) if line.rstrip() == lines[0].rstrip())
    return next(ends, 0)


PARSERS: dict[str, Callable[[str], ParsedDocument]] = {
    ".srt": of_srt,
    ".vtt": of_vtt,
    ".md": of_markdown,
    ".markdown": of_markdown,
}
