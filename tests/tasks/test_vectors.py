"""`vectors`: what can be asked, how it is scored, and the command from text to answers."""

from pathlib import Path

import numpy as np
import pytest
from support.commands import headway

from headway.data.word_questions import read_questions
from headway.errors import DataError, InputError
from headway.preprocess.words import split_words, word_tokenizer
from headway.tasks.vectors import Vectors, spearman
from headway.tasks.word_expressions import parse_expression

SENTENCES = [
    "the {x} of the {place} lost {his} {thing}",
    "{he} said the {x} had {his} {thing} near the {place}",
    "a {x} with {his} {thing} came and {he} saw {himself} in the {place}",
]
PEOPLE = {
    ("man", "woman"): ("street", "coat"),
    ("uncle", "aunt"): ("village", "nephew"),
    ("king", "queen"): ("palace", "crown"),
    ("boy", "girl"): ("school", "toy"),
}


def text() -> str:
    """A corpus in which gender and role are used alike for every word."""
    lines = []
    for number in range(900):
        (male, female), (place, thing) = list(PEOPLE.items())[number % 4]
        he = number // 4 % 2 == 0
        forms = {"he": "he", "his": "his", "himself": "himself"}
        if not he:
            forms = {"he": "she", "his": "her", "himself": "herself"}
        line = SENTENCES[number // 8 % 3]
        lines.append(line.format(x=male if he else female, place=place, thing=thing, **forms))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    (folder / "corpus.txt").write_text(text())
    done = headway(
        "train", "vectors", "corpus.txt", "--epochs", "30", "--set", "dimensions=24", "--set", "threads=1", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert "30 epochs" in done.stdout and "words/s" in done.stdout
    return folder


def nearest(run: Path, expression: str) -> str:
    return headway("run", "runs/vectors", expression, cwd=run).stdout.split()[0]


def test_woman_is_man_plus_aunt_minus_uncle_and_the_reversed_sum_is_not(run: Path) -> None:
    """The seed says (man + uncle) - aunt = woman, which has the two the wrong way round."""
    assert nearest(run, "man + aunt - uncle") == "woman"
    assert nearest(run, "uncle : aunt :: man") == "woman"
    assert nearest(run, "man + uncle - aunt") != "woman"
    reversed_sum = headway("run", "runs/vectors", "man + uncle - aunt", cwd=run).stdout
    right_sum = headway("run", "runs/vectors", "man + aunt - uncle", cwd=run).stdout
    cosine = {name: dict(line.split() for line in out.splitlines()) for name, out in
              {"right": right_sum, "reversed": reversed_sum}.items()}  # fmt: skip
    assert float(cosine["right"]["woman"]) > float(cosine["reversed"].get("woman", -1)) + 0.2


def test_the_folder_files_and_picture(run: Path) -> None:
    for name in ("out.bin", "out.txt"):
        done = headway("convert", "runs/vectors", name, "--to", "word2vec", cwd=run)
        assert done.returncode == 0 and "largest difference is 0" in done.stdout
        again = headway("run", name, "king ~ queen", cwd=run)
        assert again.stdout == headway("run", "runs/vectors", "king ~ queen", cwd=run).stdout
    imported = headway("convert", "out.bin", "folder", "--to", "fp32", cwd=run)
    assert imported.returncode == 0, imported.stderr
    assert nearest(run, "king") == headway("run", "folder", "king", cwd=run).stdout.split()[0]
    drawn = headway("run", "runs/vectors", "king", "uncle", "--picture", "words.png", cwd=run)
    assert drawn.returncode == 0 and (run / "words.png").read_bytes().startswith(b"\x89PNG")


def test_evaluate_reads_analogies_and_similarities(run: Path) -> None:
    (run / "questions.txt").write_text(
        ": family\nman woman uncle aunt\nking queen boy girl\nking queen unknown unheard\n: gram1\nman boy woman girl\n"
    )
    (run / "pairs.tsv").write_text("# words\nking\tqueen\t8\nman\twoman\t7.5\nking\tof\t1\nnothing\tnever\t3\n")
    found = headway("evaluate", "runs/vectors", "questions.txt", "pairs.tsv", "--json", cwd=run)
    assert found.returncode == 0, found.stderr
    for part in ('"questions": 3.0', '"unknown": 1.0', '"semantic": 1.0', '"pairs": 3.0', '"unknown_pairs": 1.0'):
        assert part in found.stdout
    without = headway("evaluate", "runs/vectors", cwd=run)
    assert without.returncode == 2 and "questions-words.txt" in without.stderr


def test_messages_name_what_is_wrong(run: Path) -> None:
    wrong = headway("run", "runs/vectors", "kingg", cwd=run)
    assert wrong.returncode == 2 and "'kingg' is not among" in wrong.stderr and "did you mean 'king'?" in wrong.stderr
    syntax = headway("run", "runs/vectors", "king queen", cwd=run)
    assert syntax.returncode == 2 and "man : uncle :: woman" in syntax.stderr
    steps = headway("train", "vectors", "corpus.txt", "--steps", "3", "--out", "x", cwd=run)
    assert steps.returncode == 2 and "--epochs" in steps.stderr and not (run / "x").exists()
    again = headway("train", "vectors", "corpus.txt", cwd=run)
    assert again.returncode == 2 and "--resume" in again.stderr


def test_a_finished_run_is_extended_by_resume(run: Path) -> None:
    (run / "corpus.txt").touch()
    small = ["--set", "dimensions=8", "--set", "threads=1"]
    short = ["train", "vectors", "corpus.txt", *small, "--keep-states", "--out", "short"]
    assert headway(*short, "--epochs", "2", cwd=run).returncode == 0
    more = headway("train", "vectors", "--resume", "--epochs", "4", "--out", "short", cwd=run)
    assert more.returncode == 0 and "trained 4 epochs" in more.stdout, more.stderr


def test_tag_starts_from_word_vectors(run: Path) -> None:
    rows = ["king\tB-PER\nof\tO\nthe\tO\npalace\tO\n", "the\tO\nqueen\tB-PER\nlost\tO\nher\tO\ncrown\tO\n"]
    (run / "tags.conll").write_text("\n".join(rows * 10))
    done = headway(
        "train", "tag", "tags.conll", "--valid", "tags.conll", "--start", "runs/vectors", "--steps", "20", "--set",
        "lr=0.1", "--out", "tags", cwd=run,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = headway("run", "tags", "the queen lost", cwd=run)
    assert '"text": "queen"' in found.stdout, found.stdout


def test_check_and_info(run: Path) -> None:
    checked = headway("check", "vectors", "corpus.txt", cwd=run)
    assert checked.returncode == 0 and "different words that occur at least 2 times" in checked.stdout, checked.stderr
    shown = headway("info", "runs/vectors", cwd=run)
    assert shown.returncode == 0 and "vectors" in shown.stdout, shown.stderr
    explained = headway("explain", "runs/vectors", "king", cwd=run)
    assert explained.returncode == 2 and "vectors" in explained.stderr


def test_expressions() -> None:
    assert parse_expression("king", where="x").terms == (("king", 1),)
    assert parse_expression("a : b :: c", where="x").terms == (("b", 1), ("a", -1), ("c", 1))
    assert parse_expression("a-b + c - d", where="x").terms == (("a-b", 1), ("c", 1), ("d", -1))
    assert parse_expression("a ~ b", where="x").kind == "cosine"
    for wrong in ("a b", "", "a +", "a : b", "a :: b : c"):
        with pytest.raises(InputError, match="expected a word"):
            parse_expression(wrong, where="x")


def test_the_tokenizer_splits_as_the_training_does() -> None:
    line = "The U.S. naïve_one, 12,000 o'clock — Köln's straße 東京 Москва!"
    words = list(dict.fromkeys(split_words(line)))
    tokenizer = word_tokenizer(words, lowercase=True)
    assert [words[i] for i in tokenizer.encode(line)] == split_words(line)
    assert tokenizer.encode("zebra") == [tokenizer.unk_id]


def test_spearman_ranks_ties_by_their_mean() -> None:
    assert spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 15.0])) == pytest.approx(0.5)
    assert spearman(np.array([1.0, 1.0, 3.0]), np.array([2.0, 2.0, 9.0])) == pytest.approx(1.0)


def test_question_files_are_refused_by_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text("word1,word2,score\na,b,1.5\nonly two\n")
    with pytest.raises(DataError, match=r"wrong.txt:3: expected four words"):
        list(read_questions([path]))
    path.write_text("word1,word2,score\na,b,1.5\n")
    assert [row.fields for row in read_questions([path])] == [{"a": "a", "b": "b", "score": 1.5}]


def test_hierarchical_softmax_and_skip_gram_train_by_the_command(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text(text())
    done = headway(
        "train", "vectors", "corpus.txt", "--model", "skip-gram", "--set", "negatives=0", "--set", "dimensions=16",
        "--epochs", "2", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "skip-gram" in done.stdout and "hierarchical softmax" in done.stdout


def test_widths_are_checked() -> None:
    with pytest.raises(Exception, match="window is 0"):
        Vectors(tokenizer=word_tokenizer(["a"], lowercase=True), window=0)
