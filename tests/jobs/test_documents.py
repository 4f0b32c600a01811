"""Documents keep their structure while their texts are replaced."""

import zipfile
from pathlib import Path

import pytest
from support.commands import headway
from support.sounds import tone, wav
from support.untrained import of_task

from headway.errors import DataError, InputError
from headway.jobs.documents import read_document, wrapped
from headway.printable import PROSE, printable

SRT = """1
00:00:01,000 --> 00:00:03,000
one line
and another

2
00:00:04,000 --> 00:00:06,500
<i>slanted</i>

3
00:00:07,000 --> 00:00:08,000
- who is it?
- nobody

4
00:00:09,000 --> 00:00:10,000
♪
"""
VTT = """WEBVTT a title

NOTE of two
lines

STYLE
::cue { color: red }

name
00:01.000 --> 00:02.000 align:start
NOTE &amp; <b>text</b>
"""
MARKDOWN = """---
title: x
---

# head

a paragraph of
two lines with `code` and [a link](http://x.y/z).

- item
  continued
- [ ] task

```python
print("x")
```

| cell | two |
|---|:-:|
| three | four |

> quoted

<div>html</div>

    code
"""
WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:z="urn:z" z:Ignorable="z"'
BODY = (
    f"<w:document {WORD}><w:body><w:p><w:pPr><w:b/></w:pPr><w:r><w:t>a &lt; b </w:t></w:r><w:r><w:i/><w:t/>"
    '<w:t xml:space="preserve">and on</w:t><w:tab/><w:t>after</w:t></w:r></w:p><w:p/>'
    "<w:tbl><w:p><w:t>in a cell</w:t></w:p></w:tbl></w:body></w:document>"
)


def docx(path: Path, body: str = BODY) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("word/document.xml", body)
        file.writestr("word/media/image1.png", b"\x89PNG")
    return path


def shouted(path: Path, content: str | None = None) -> str:
    """The document with its texts in capitals."""
    if content is not None:
        path.write_text(content, newline="")
    document = read_document(path)
    return document.rendered([text.upper() for text in document.texts]).decode()


def test_subtitles_keep_cues_numbers_and_times(tmp_path: Path) -> None:
    document = read_document(_written(tmp_path / "a.srt", SRT))
    assert document.texts == ["one line and another", "slanted", "who is it?", "nobody"]
    assert document.rendered(document.texts).decode() == SRT
    found = shouted(tmp_path / "a.srt")
    assert found == SRT.replace("one line\nand another", "ONE LINE\nAND ANOTHER").replace("slanted", "SLANTED").replace(
        "who is it?\n- nobody", "WHO IS IT?\n- NOBODY"
    )
    hostile = document.rendered(["a --> b\n\nc", "", "d", "e"]).decode()
    assert hostile.count("-->") == 4 and "a -> b c" in hostile.replace("\n", " ")
    assert shouted(tmp_path / "b.srt", SRT.replace("\n", "\r\n")) == found.replace("\n", "\r\n")


def test_webvtt_keeps_notes_styles_names_and_settings(tmp_path: Path) -> None:
    document = read_document(_written(tmp_path / "a.vtt", VTT))
    assert document.texts == ["NOTE &", "text"]
    assert document.rendered(document.texts).decode() == VTT
    assert "<b>&lt;i&gt;</b>" in document.rendered(["x", "<i>"]).decode()


def test_markdown_keeps_marks_code_links_and_tables(tmp_path: Path) -> None:
    document = read_document(_written(tmp_path / "a.md", MARKDOWN))
    expected = ["head", "a paragraph of two lines with", "and", "a link", "item continued", "task"]
    assert document.texts == [*expected, "cell", "two", "three", "four", "quoted"]
    joined = MARKDOWN.replace("of\ntwo", "of two").replace("item\n  continued", "item continued")
    assert document.rendered(document.texts).decode() == joined
    assert 'print("x")' in shouted(tmp_path / "a.md") and "| THREE | FOUR |" in shouted(tmp_path / "a.md")


def test_word_documents_change_in_their_letters_alone(tmp_path: Path) -> None:
    document = read_document(docx(tmp_path / "a.docx"))
    assert document.texts == ["a < b and on", "after", "in a cell"]
    (tmp_path / "b.docx").write_bytes(document.rendered(["x & y\x01", "z", "cell"]))
    with zipfile.ZipFile(tmp_path / "b.docx") as file:
        found, picture = file.read("word/document.xml").decode(), file.read("word/media/image1.png")
    changed = (
        BODY.replace("a &lt; b ", "x &amp; y").replace("and on", "").replace("after", "z").replace("in a cell", "cell")
    )
    assert found == changed and picture == b"\x89PNG"
    assert read_document(tmp_path / "b.docx").texts == ["x & y", "z", "cell"]


def test_what_is_no_such_document_is_refused(tmp_path: Path) -> None:
    for name, content in (("a.srt", "no cues"), ("a.docx", "no zip"), ("a.md", "```\ncode\n```\n")):
        with pytest.raises(DataError, match=name):
            read_document(_written(tmp_path / name, content))
    bomb = f'<!DOCTYPE d [<!ENTITY a "x">]><w:document {WORD}><w:p><w:t>&a;</w:t></w:p></w:document>'
    with pytest.raises(DataError, match="document type"):
        read_document(docx(tmp_path / "bomb.docx", bomb))
    for name in ("a.pdf", "a.doc", "a.odt", "a.rtf", "a.html", "a.xls", "a.epub"):
        with pytest.raises(InputError, match=rf"{name}: \.\w+ is .*; save"):
            read_document(tmp_path / name)


def test_words_are_wrapped_to_lines_of_about_one_length() -> None:
    assert wrapped("a few words on two lines", 2) == "a few words\non two lines"
    assert wrapped("word", 3) == "word" and wrapped("", 2) == ""
    assert wrapped("a\n\nb", 1) == "a b"


def _written(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def test_documents_of_the_command_line(translator: Path, tmp_path: Path) -> None:
    """To standard output, a file or a folder; never over another file."""
    (tmp_path / "in").mkdir()
    _written(tmp_path / "in" / "a.srt", SRT)
    docx(tmp_path / "in" / "b.docx")
    run = ["run", translator, "--max-new-tokens", "3", "--file"]
    shown = headway(*run, "in/a.srt", cwd=tmp_path)
    assert shown.returncode == 0 and [line for line in SRT.splitlines() if "-->" in line] == [
        line for line in shown.stdout.splitlines() if "-->" in line
    ]
    saved = headway(*run, "in", "--out", "out", cwd=tmp_path)
    assert saved.returncode == 0 and "a.srt: 4 texts" in saved.stdout
    assert printable((tmp_path / "out" / "a.srt").read_text(), keep=PROSE) == shown.stdout
    assert len(read_document(tmp_path / "out" / "b.docx").texts) <= 3
    for refused, message in (
        (["in", "--out", "out"], "there is such a file already"),
        (["in/a.srt", "--out", "x.vtt"], "give a .srt file"),
        (["in", "--out", "x.srt"], "written to a folder"),
        (["in"], "give --out"),
        (["x.pdf"], "no such file"),
    ):
        found = headway(*run, *refused, cwd=tmp_path)
        assert found.returncode == 2 and message in found.stderr
    (tmp_path / "x.pdf").write_bytes(b"%PDF-1.4")
    assert ".pdf is a page layout" in headway(*run, "x.pdf", cwd=tmp_path).stderr


def test_a_line_of_the_output_belongs_to_that_of_the_input(translator: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("3 May\n\n  \n4 June 1998\n\n")
    run = ["run", translator, "--max-new-tokens", "3", "--file", "in.txt"]
    assert headway(*run, "--out", "out.txt", cwd=tmp_path).returncode == 0
    lines = (tmp_path / "out.txt").read_text().split("\n")
    assert [bool(line.strip()) for line in lines] == [True, False, False, True, False, False]
    assert [bool(line) for line in headway(*run, cwd=tmp_path).stdout.splitlines()] == [True, False, False, True, False]


def test_transcripts_of_several_recordings_are_files_of_a_folder(tmp_path: Path) -> None:
    of_task("transcribe", tmp_path / "model", target_limit=6)
    for name in ("one", "two"):
        wav(tmp_path / f"{name}.wav", tone(0.5))
    run = ["run", "model", "one.wav", "two.wav", "--format", "srt"]
    assert headway(*run, "--out", "cues", cwd=tmp_path).returncode == 0
    assert sorted(path.name for path in (tmp_path / "cues").iterdir()) == ["one.srt", "two.srt"]
    assert "folder" in headway(*run, "--out", "all.srt", cwd=tmp_path).stderr
    one = headway("run", "model", "one.wav", "--out", "one.vtt", cwd=tmp_path)
    assert one.returncode == 0 and (tmp_path / "one.vtt").read_text().startswith("WEBVTT")
    assert headway("run", "model", "one.wav", "--out", "x.doc", cwd=tmp_path).returncode == 2
