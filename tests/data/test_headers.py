"""Which first rows are headers, and which columns are the source and the target."""

from pathlib import Path

import pytest

from headway.data.read import detect_layout
from headway.data.row import Layout

CLASSIFY, TRANSLATE, EMBED = ("text", "label"), ("source", "target"), ("a", "b")
PHRASES = ["the first of all texts", "one more of the texts", "a third one, to be sure", "and this is the last"]


def layout(folder: Path, fields: tuple[str, ...], lines: list[str], name: str = "x.tsv") -> Layout:
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return detect_layout(folder / name, fields)


def below(header: str, gap: str = "\t") -> list[str]:
    """A header above rows of phrases without commas."""
    width = len(header.split(gap))
    return [header, *(gap.join(f"{text.replace(',', '')} {i}" for i in range(width)) for text in PHRASES)]


@pytest.mark.parametrize(
    ("fields", "header"),
    [
        (TRANSLATE, "source_text\ttarget_text"),
        (TRANSLATE, "Source Text\tTarget Text"),
        (TRANSLATE, "text_en\ttext_es"),
        (TRANSLATE, "fr\tes"),
        (TRANSLATE, "pt-BR\tuk"),
        (TRANSLATE, "src_sent\ttrg_sent"),
        (EMBED, "text_a\ttext_b"),
        (EMBED, "text\ttext_pair"),
        (("text",), "phrase"),
        (("text",), "Comment Text"),
        (("text",), "post_body"),
    ],
)
def test_names_above_phrases_are_a_header(fields: tuple[str, ...], header: str, tmp_path: Path) -> None:
    found = layout(tmp_path, fields, below(header))
    assert found.header and tuple(found.columns) == tuple(header.split("\t"))
    assert list(found.mapping.values()) == header.split("\t")


def test_names_above_numbers_are_a_header(tmp_path: Path) -> None:
    lines = ["comment_id,Comment Text", "17,a fine day", "18,no good at all"]
    found = layout(tmp_path, ("text",), lines, "x.csv")
    assert found.header and found.mapping == {"text": "Comment Text"}


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        (CLASSIFY, ["hide new secretions from the parental units\t0", "contains no wit\t0", "lovely\t1", "fun\t1"]),
        (CLASSIFY, ["lovely\tpositive", "contains no wit\tnegative", "a fine film to see\tpositive", "dull\tnegative"]),
        (CLASSIFY, ["I never saw\tneutral", *(f"say it {i}\tlabel {i // 2 if i < 4 else i}" for i in range(9))]),
        (CLASSIFY, ["question\tDESC", "How did it develop ?\tDESC", "Who was Galileo ?\tHUM", "Why ?\tDESC"]),
        (TRANSLATE, ["hi\tsalut", "how are you today\tcomment allez vous", "I am very well\tje vais bien"]),
        (TRANSLATE, ["no\tne", "yes\tano", "good day\tdobry den", "where\tkde"]),
        (TRANSLATE, ["one hundred\t100", "two hundred\t200", "three\t3"]),
        (TRANSLATE, ["a text\tun texte", "a house by the sea\tune maison", "the red car\tla voiture rouge"]),
        (("text",), ["apple", "pear", "word", "plum"]),
        (("text",), ["phrase", "word", "sentences", "plum"]),
        (("text",), ["Preface", "It was a dark night and it rained.", "Nobody came to the door."]),
        (EMBED, ["a dog runs\tan animal moves", "a man sleeps\tsomeone rests", "the sun\ta star"]),
    ],
)  # fmt: skip
def test_a_first_row_of_data_is_not_a_header(fields: tuple[str, ...], lines: list[str], tmp_path: Path) -> None:
    assert not layout(tmp_path, fields, lines).header


def test_lines_of_a_label_and_a_text_have_no_header(tmp_path: Path) -> None:
    lines = ["DESC:manner How did serfdom develop ?", "HUM:ind Who was Galileo ?"] * 3
    found = layout(tmp_path, CLASSIFY, lines, "x.txt")
    assert found.format == "label and text a line" and not found.header


@pytest.mark.parametrize("header", ["fr,en", "es,en", "de,en", "en,de", "de,fr", "pt-BR,en", "id,en"])
def test_two_languages_keep_the_order_of_their_columns(header: str, tmp_path: Path) -> None:
    found = layout(tmp_path, TRANSLATE, below(header, ","), "x.csv")
    assert found.mapping == dict(zip(TRANSLATE, header.split(","), strict=True))


def test_identifiers_are_no_language_and_named_columns_come_first(tmp_path: Path) -> None:
    rows = [f"{i},la maison {i},the house {i}" for i in range(4)]
    assert layout(tmp_path, TRANSLATE, ["id,fr,en", *rows], "x.csv").mapping == {"source": "fr", "target": "en"}
    (tmp_path / "y.csv").write_text("\n".join(["en,fr,de", *rows]) + "\n")
    assert detect_layout(tmp_path / "y.csv", TRANSLATE, {"source": "fr", "target": "en"}).mapping["target"] == "en"
    assert layout(tmp_path, TRANSLATE, below("it,is,source,target", ","), "z.csv").mapping == {
        "source": "source", "target": "target"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("header", "source", "target"),
    [
        ("body,abstract", "body", "abstract"),
        ("abstract,body", "body", "abstract"),
        ("paper,abstract", "paper", "abstract"),
        ("report,abstract", "report", "abstract"),
        ("content,abstract", "content", "abstract"),
        ("article,abstract", "article", "abstract"),
        ("abstract,summary", "abstract", "summary"),
        ("abstract,title", "abstract", "title"),
        ("id,abstract,tldr", "abstract", "tldr"),
    ],
)
def test_an_abstract_is_the_target_of_a_longer_text(header: str, source: str, target: str, tmp_path: Path) -> None:
    found = layout(tmp_path, TRANSLATE, below(header, ","), "x.csv")
    assert found.mapping == {"source": source, "target": target}
