"""The texts of a .docx file (Office Open XML, ECMA-376): its paragraphs, divided at tabs and line breaks, in the body,
headers, footers and notes. Only their characters are replaced in the XML, so that everything else stays as it is; the
letters of a text take the style of its beginning."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from xml.parsers import expat
from xml.sax.saxutils import escape

from headway.data.text_reader import DEFAULT
from headway.errors import DataError
from headway.files import open_file

PARTS = re.compile(r"word/(document|header\d*|footer\d*|footnotes|endnotes)\.xml")
WORDS = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
BREAKS = {f"{WORDS} {name}" for name in ("p", "br", "tab", "cr")}
UNKNOWN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML does not have
Place = tuple[int, int]  # of the bytes of one run of letters


class WordDocument:
    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open_file(path) as file:
                self.data = file.read()
            with zipfile.ZipFile(io.BytesIO(self.data)) as archive:
                infos = [info for info in archive.infolist() if PARTS.fullmatch(info.filename)]
                if sum(info.file_size for info in infos) > DEFAULT.unpack_free:
                    raise DataError(f"{path}: its text unpacks to more than {DEFAULT.unpack_free >> 20} MB")
                self.parts = {info.filename: archive.read(info) for info in infos}
            self.runs = {name: _runs(content) for name, content in self.parts.items()}
        except (zipfile.BadZipFile, expat.ExpatError, NotImplementedError, RuntimeError, EOFError) as error:
            raise DataError(f"{path}: not a .docx file, or damaged ({error})") from error
        texts = {name: [_text(self.parts[name], places) for places in runs] for name, runs in self.runs.items()}
        self.filled = {name: [any(map(str.isalnum, text)) for text in each] for name, each in texts.items()}
        self.texts = [text.strip() for each in texts.values() for text in each if any(map(str.isalnum, text))]

    def rendered(self, answers: Sequence[str]) -> bytes:
        left, parts = iter(answers), dict[str, bytes]()
        for name, runs in self.runs.items():
            kept = [places for places, is_filled in zip(runs, self.filled[name], strict=True) if is_filled]
            parts[name] = _replaced(self.parts[name], kept, list(islice(left, len(kept))))
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(self.data)) as old, zipfile.ZipFile(out, "w") as new:
            for info in old.infolist():
                new.writestr(info, parts[info.filename] if info.filename in parts else old.read(info))
        return out.getvalue()


def _runs(content: bytes) -> list[list[Place]]:
    """The places of the letters of each text."""
    parser, out, begun = expat.ParserCreate(namespace_separator=" "), list[list[Place]](), -1
    out.append([])

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal begun
        if name in BREAKS:
            out.append([])
        elif name == f"{WORDS} t":
            begun = content.index(b">", parser.CurrentByteIndex) + 1

    def end(name: str) -> None:
        if name == f"{WORDS} t" and begun < parser.CurrentByteIndex:
            out[-1].append((begun, parser.CurrentByteIndex))
        elif name == f"{WORDS} p":
            out.append([])

    def refuse(*declared: object) -> None:
        raise expat.ExpatError("it declares a document type")

    parser.StartElementHandler, parser.EndElementHandler, parser.StartDoctypeDeclHandler = start, end, refuse
    parser.Parse(content, True)
    return [places for places in out if places]


def _text(content: bytes, places: Sequence[Place]) -> str:
    escaped = b"".join(content[start:end] for start, end in places)
    return "".join(_unescaped(escaped))


def _unescaped(data: bytes) -> list[str]:
    out, parser = list[str](), expat.ParserCreate()
    parser.CharacterDataHandler = out.append
    parser.Parse(b"<t>" + data + b"</t>", True)
    return out


def _replaced(content: bytes, runs: Sequence[Sequence[Place]], answers: Sequence[str]) -> bytes:
    """With each answer in the first place of its text, and nothing in the others."""
    out, at = list[bytes](), 0
    for places, answer in zip(runs, answers, strict=True):
        text = _text(content, places)
        before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
        words = before + escape(UNKNOWN.sub("", " ".join(answer.split()))) + after
        for number, (start, end) in enumerate(places):
            out += [content[at:start], words.encode() if not number else b""]
            at = end
    return b"".join([*out, content[at:]])
