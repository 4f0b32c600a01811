"""Every format gives the same rows."""

import csv
import importlib
import json
import subprocess
import sys

import pytest
from support.data_files import CLASSIFY, PAIR, fields, write

from headway.data.read import detect_layout, read
from headway.errors import DataError

GOOD = [
    {"text": "a fine day, really", "label": "pos"},
    {"text": "no good", "label": "neg"},
    {"text": "so so", "label": "neg"},
]

SAME = {
    "header.csv": 'text,label\n"a fine day, really",pos\nno good,neg\nso so,neg\n',
    "synonyms.csv": 'id,sentiment,review\n1,pos,"a fine day, really"\n2,neg,no good\n3,neg,so so\n',
    "bare.csv": '"a fine day, really",pos\nno good,neg\nso so,neg\n',
    "semicolons.csv": "text;label\na fine day, really;pos\nno good;neg\nso so;neg\n",
    "header.tsv": "label\ttext\npos\ta fine day, really\nneg\tno good\nneg\tso so\n",
    "bare.tsv": "a fine day, really\tpos\nno good\tneg\nso so\tneg\n",
    "tabs.txt": "a fine day, really\tpos\nno good\tneg\nso so\tneg\n",
    "label_first.txt": "pos a fine day, really\nneg no good\nneg so so\n",
    "crlf.csv": 'text,label\r\n"a fine day, really",pos\r\nno good,neg\r\nso so,neg\r\n',
    "no_last_newline.tsv": "a fine day, really\tpos\nno good\tneg\nso so\tneg",
    "rows.jsonl": "\n".join(json.dumps(row) for row in GOOD),
    "more.jsonl": "\n".join(json.dumps(row | {"id": 3}) for row in GOOD),
    "lines.json": "\n".join(json.dumps(row) for row in GOOD),
    "array.json": json.dumps(GOOD),
    "pretty.json": json.dumps(GOOD, indent=2),
    "under_data.json": json.dumps({"version": 1, "data": GOOD, "more": [1]}),
}


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("name", SAME)
def test_the_same_examples_in_every_format(tmp_path, name, zipped):
    path = write(tmp_path, name + (".gz" if zipped else ""), SAME[name])
    assert fields(path) == GOOD


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["header.csv", "array.json", "rows.jsonl", "label_first.txt"])
def test_bom_and_utf16_encodings(tmp_path, name, encoding):
    assert fields(write(tmp_path, name, SAME[name].encode(encoding))) == GOOD


def test_where_is_file_and_line_even_after_a_cell_of_two_lines(tmp_path):
    path = write(tmp_path, "two.csv", 'text,label\n"one\ntwo",a\nthree,b\n')
    rows = list(read(path, fields=CLASSIFY))
    assert [(row.where, row.fields["text"]) for row in rows] == [(f"{path}:2", "one\ntwo"), (f"{path}:4", "three")]


def test_json_array_names_lines(tmp_path):
    path = write(tmp_path, "pretty.json", json.dumps(GOOD, indent=2))
    assert [row.where for row in read(path, fields=CLASSIFY)] == [f"{path}:{line}" for line in (2, 6, 10)]


def test_blank_lines_are_skipped_and_counted(tmp_path):
    for name, content in {
        "a.csv": "text,label\n\nx,1\n \ny,2\n", "b.txt": "1 x\n\n2 y\n\n",
        "c.jsonl": '\n{"text":"x","label":1}\n \n{"text":"y","label":2}'
    }.items():  # fmt: skip
        rows = read(write(tmp_path, name, content), fields=CLASSIFY)
        assert [row.fields for row in rows] == [{"text": "x", "label": "1"}, {"text": "y", "label": "2"}]
        assert rows.skipped == {"blank lines": 2}


def test_plain_text_is_one_example_per_line(tmp_path):
    path = write(tmp_path, "poem.txt", "one\ttab\n\ntwo, three\n")
    assert fields(path, ("text",)) == [{"text": "one\ttab"}, {"text": "two, three"}]


def test_quotes_in_tab_separated_files_are_characters(tmp_path):
    assert fields(write(tmp_path, "q.tsv", '"Hi," she said\t1\n"Bye"\t0\nhm\t0\n'))[0]["text"] == '"Hi," she said'


def test_columns_by_name_and_number_take_precedence(tmp_path):
    path = write(tmp_path, "odd.csv", "text,title,label,grade\nx,t,0,good\ny,u,1,bad\n")
    assert fields(path, columns={"text": "title", "label": "4"})[0] == {"text": "t", "label": "good"}


def test_a_missing_column_lists_the_columns(tmp_path):
    path = write(tmp_path, "odd.csv", "texte,label\nx,a\ny,b\n")
    with pytest.raises(DataError, match=r'no column "txte".*"texte", "label".*Did you mean "texte"'):
        read(path, fields=CLASSIFY, columns={"text": "txte"})
    path = write(tmp_path, "pairs.jsonl", '{"one": "x", "two": "y", "three": "z"}')
    with pytest.raises(DataError, match=r'no column for "source".*"one", "two", "three"'):
        read(path, fields=PAIR)


def test_columns_of_an_unknown_header_are_detected_by_content(tmp_path):
    path = write(tmp_path, "h.csv", "remark,grade\n" + "".join(f"this is remark {i},{'ab'[i % 2]}\n" for i in range(9)))
    layout = detect_layout(path, CLASSIFY)
    assert layout.header and layout.mapping == {"text": "remark", "label": "grade"}
    assert str(layout) == "table, separated by commas, with a header, utf-8: text = remark, label = grade"


def test_a_first_example_with_a_unique_label_is_not_a_header(tmp_path):
    assert len(fields(write(tmp_path, "a.tsv", "good\tpos\nbad\tneg\nworse\tneg\n"))) == 3
    labels = [f"name{i // 2 if i < 20 else i}" for i in range(50)]  # many occur once
    lines = "".join(f"say it {i}\t{label}\n" for i, label in enumerate(labels))
    assert len(fields(write(tmp_path, "b.tsv", "what is this\trare\n" + lines))) == 51


def test_a_first_pair_is_not_a_header(tmp_path):
    assert fields(write(tmp_path, "p.tsv", "hello\tbonjour\nthanks\tmerci\n"), PAIR)[0] == {
        "source": "hello",
        "target": "bonjour",
    }


def test_sorted_labels_do_not_confuse_detection(tmp_path):
    path = write(tmp_path, "s.tsv", "".join(f"remark number {i}\t{int(i > 300)}\n" for i in range(400)))
    assert detect_layout(path, CLASSIFY).mapping == {"text": "1", "label": "2"}


def test_lists_of_sentences_and_alternatives(tmp_path):
    path = write(tmp_path, "s.jsonl", json.dumps({"source": ["One.", "Two."], "target": ["first", "second"]}))
    assert fields(path, PAIR) == [{"source": "One. Two.", "target": "first", "targets": ["first", "second"]}]


# --- parallel files, folders, CoNLL, SQuAD, Parquet


def test_parallel_files(tmp_path):
    pair = [write(tmp_path, "train.fr", "un\n\ndeux\n\n"), write(tmp_path, "train.xx.gz", "one\n\ntwo\n\n")]
    rows = read(pair, fields=PAIR)
    assert [row.fields for row in rows] == [{"source": "un", "target": "one"}, {"source": "deux", "target": "two"}]
    assert rows.skipped == {"blank lines": 2}


def test_parallel_files_of_different_length_are_refused(tmp_path):
    pair = [write(tmp_path, "a.en", "one\ntwo\nthree"), write(tmp_path, "a.de", "eins\nzwei\n")]
    with pytest.raises(DataError, match=r"a\.en has 3 lines but .*a\.de has 2"):
        list(read(pair, fields=PAIR))


def test_folder_with_parallel_parts_reads_train_and_english_first(tmp_path):
    for name, content in {
        "train.de": "eins",
        "train.en": "one",
        "val.de": "zwei",
        "val.en": "two",
        "README.md": "#",
    }.items():
        write(tmp_path, name, content)
    assert fields(tmp_path, PAIR) == [{"source": "one", "target": "eins"}]
    assert fields(tmp_path, PAIR, columns={"source": "de"}) == [{"source": "eins", "target": "one"}]


def test_two_tables_are_concatenated(tmp_path):
    pair = [write(tmp_path, "1.tsv", "source\ttarget\na\tb\n"), write(tmp_path, "2.tsv", "source\ttarget\nc\td\n")]
    assert [row["source"] for row in fields(pair, PAIR)] == ["a", "c"]
    pair[1].write_text("target\tid\tsource\nd\t1\tc\n")  # in another order
    assert [row["source"] for row in fields(pair, PAIR)] == ["a", "c"]
    pair[1].write_text("goal\tsource\nc\td\n")
    with pytest.raises(DataError, match=r"2\.tsv:1: the header differs"):
        fields(pair, PAIR)


@pytest.mark.parametrize("below", ["", "train/"])
def test_folder_of_texts_per_label(tmp_path, below):
    write(tmp_path, f"{below}pos/1.txt", "fine\nday\n")
    write(tmp_path, f"{below}neg/2.txt", "no")
    write(tmp_path, f"{below}neg/3.txt", "")
    rows = read(tmp_path, fields=CLASSIFY)
    assert [row.fields for row in rows] == [{"text": "no", "label": "neg"}, {"text": "fine\nday", "label": "pos"}]
    assert rows.skipped == {"empty files": 1}


def test_conll_with_tabs_spaces_and_docstart(tmp_path):
    expected = [{"words": ["EU", "rejects"], "tags": ["B-ORG", "O"]}, {"words": ["Peter"], "tags": ["B-PER"]}]
    for name, content in {
        "t.conll": "EU\tB-ORG\nrejects\tO\n\t\nPeter\tB-PER\n",
        "s.txt": "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n\nPeter NNP I-NP B-PER\n\n\n",
    }.items():
        assert fields(write(tmp_path, name, content), ("words", "tags")) == expected
    commented = "# id = 1\n# a remark of several words\nEU B-ORG\n# O\n\n# id = 2\nPeter B-PER\n"
    read_back = fields(write(tmp_path, "comments.conll", commented), ("words", "tags"))
    assert read_back[0] == {"words": ["EU", "#"], "tags": ["B-ORG", "O"]} and read_back[1]["words"] == ["Peter"]
    path = write(tmp_path, "bad.conll", "EU\tB-ORG\nrejects\n")
    with pytest.raises(DataError, match=r"bad\.conll:2: .*1 columns where 2"):
        fields(path, ("words", "tags"))


def test_conll_u(tmp_path):
    """Words and universal tags; multiword tokens and empty nodes are left out; other columns can be chosen."""
    content = (
        "# sent_id = 1\n# text = Vámonos al mar\n"
        "1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_\n1\tVamos\tir\tVERB\tV\t_\t0\troot\t_\t_\n"
        "2\tnos\tnosotros\tPRON\tP\t_\t1\tobj\t_\t_\n2.1\tya\t_\tADV\tA\t_\t_\t_\t_\t_\n"
        "3\tmar\tmar\tNOUN\tN\t_\t1\tobl\t_\t_\n\n# sent_id = 2\n1\tSí\tsí\tINTJ\tI\t_\t0\troot\t_\t_\n"
    )
    for name in ("x.conllu", "x.txt"):
        path = write(tmp_path, name, content)
        expected = [
            {"words": ["Vamos", "nos", "mar"], "tags": ["VERB", "PRON", "NOUN"]},
            {"words": ["Sí"], "tags": ["INTJ"]},
        ]
        assert fields(path, ("words", "tags")) == expected
    rows = read(path, fields=("words", "tags"), columns={"tags": "5"})
    assert [row.fields["tags"] for row in rows] == [["V", "P", "N"], ["I"]]
    assert rows.skipped == {"comments": 3, "multiword tokens and empty nodes": 2}


def test_words_and_tags_must_match_in_number(tmp_path):
    path = write(
        tmp_path, "w.jsonl", '{"tokens": ["a", "b"], "ner_tags": [0, 1]}\n{"tokens": ["a"], "ner_tags": [0, 1]}'
    )
    rows = read(path, fields=("words", "tags"))
    assert next(rows).fields == {"words": ["a", "b"], "tags": ["0", "1"]}
    with pytest.raises(DataError, match=r"w\.jsonl:2: tags: 2 tags for 1 words"):
        next(rows)


def squad(**more):
    asked = {"question": "Who?", "id": "q1", "answers": [{"text": "Bob", "answer_start": 0}]} | more
    return json.dumps(
        {"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": "Bob came.", "qas": [asked]}]}]}
    )


def test_squad(tmp_path):
    names = ("question", "context", "answers")
    found = fields(write(tmp_path, "one.json", squad()), names)
    assert found == [
        {"question": "Who?", "context": "Bob came.", "answers": [("Bob", 0)], "id": "q1", "impossible": False}
    ]
    found = fields(write(tmp_path, "two.json", squad(answers=[], is_impossible=True)), names)
    assert found[0]["impossible"] is True and found[0]["answers"] == []
    with pytest.raises(DataError, match=r"bad\.json:1: answers: give each a text and a whole number"):
        fields(write(tmp_path, "bad.json", squad(answers=[{"text": "Bob", "answer_start": "0"}])), names)


def test_parquet(tmp_path):
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    parquet.write_table(arrow.Table.from_pylist(GOOD), path)
    assert fields(path) == GOOD
    with pytest.raises(DataError, match=r"y\.parquet:1: the Parquet file is damaged"):
        fields(write(tmp_path, "y.parquet", b"PAR1 no more"))


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(DataError, match=r"headway\[parquet\]"):
        read(write(tmp_path, "x.parquet", b"PAR1...."), fields=CLASSIFY)


def test_reading_is_lazy(tmp_path):
    path = write(tmp_path, "lazy.jsonl", '{"text": "x", "label": 1}\n' * 1000 + "{")
    assert next(read(path, fields=CLASSIFY)).fields["text"] == "x"


def test_rows_match_the_csv_module(tmp_path):
    texts = ['a "b" c', "x,y", "", "line\nbreak", 'ends "', "ü,\u2028z", "  spaced "]
    path = tmp_path / "w.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["text", "label"], *([text, str(i % 3)] for i, text in enumerate(texts))])
    assert [row["text"] for row in fields(path)] == texts


def test_no_torch():
    probe = (
        "import sys, headway.data.read, headway.data.check, headway.data.batch_sampler, headway.data.store;"
        "import headway.data.stream, headway.data.split;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
