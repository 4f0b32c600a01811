"""`headway run` on files, and the predictions files of single tasks."""

import csv
import json
from pathlib import Path

import pytest
from PIL import Image
from support.commands import headway
from support.untrained import of_task

TASKS = ("classify", "chat", "tag", "fill", "classify-image")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    for task in TASKS:
        of_task(task, root / task)
    return root


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_file_given_as_a_text_is_refused(folder: Path) -> None:
    (folder / "rev.csv").write_text("text\none\n")
    for more in ([], ["--out", "refused.csv"]):
        done = headway("run", "classify", "rev.csv", *more, cwd=folder)
        assert done.returncode == 2 and "rev.csv is a file; read it with --file rev.csv" in done.stderr
    assert headway("run", "classify", "missing.csv", cwd=folder).returncode == 0  # a text


def test_every_file_is_run(folder: Path) -> None:
    (folder / "part1.csv").write_text("text,n\none,1\n")
    (folder / "part2.csv").write_text("text,m\ntwo,2\n")
    given = ["--file", "part2.csv", "--file", "part1.csv"]
    shown = headway("run", "classify", *given, "--json", cwd=folder).stdout
    assert [json.loads(line)["input"] for line in shown.splitlines()] == ["two", "one"]
    done = headway("run", "classify", "--file", "part*.csv", "--out", "parts-out.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = table(folder / "parts-out.csv")
    assert [(row["text"], row["n"], row["m"]) for row in found] == [("one", "1", ""), ("two", "", "2")]


def test_a_label_below_the_threshold_is_empty(folder: Path) -> None:
    (folder / "unsure.csv").write_text("text\none\ntwo\n")
    run = ["run", "classify", "--file", "unsure.csv", "--out"]
    for threshold, name in (("0", "all.csv"), ("1", "none.csv")):
        assert headway(*run, name, "--threshold", threshold, cwd=folder).returncode == 0
    sure, unsure = table(folder / "all.csv"), table(folder / "none.csv")
    assert all(row["prediction"] for row in sure) and [row["prediction"] for row in unsure] == ["", ""]
    assert [row["score"] for row in sure] == [row["score"] for row in unsure]
    shown = json.loads(headway("run", "classify", "one", "--threshold", "1", "--json", cwd=folder).stdout)
    assert shown["answer"]["label"] is None and 0 < shown["answer"]["score"] < 1
    assert "from 0 to 1" in headway("run", "classify", "one", "--threshold", "2", cwd=folder).stderr
    refused = headway("run", "tag", "one", "--threshold", "0.5", cwd=folder)
    assert refused.returncode == 2 and "--threshold does not apply" in refused.stderr


def test_a_chat_model_answers_the_rows_that_it_was_trained_on(folder: Path) -> None:
    rows = [{"instruction": "hi", "response": "hello"}, {"instruction": "bye", "response": "bye"}]
    (folder / "chat.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options = ["--max-new-tokens", "3"]
    done = headway("run", "chat", "--file", "chat.jsonl", "--out", "chat-out.csv", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    found = table(folder / "chat-out.csv")
    assert [[row["instruction"], row["response"]] for row in found] == [list(row.values()) for row in rows]
    assert "prediction" in found[0]


def test_other_suffixes_of_out_are_refused(folder: Path) -> None:
    done = headway("run", "classify", "a text", "--out", "talk.srt", cwd=folder)
    assert done.returncode == 2 and "--out takes .csv, .jsonl or .parquet here" in done.stderr
    assert "--format" not in done.stderr


def test_a_folder_of_pictures_is_a_row_a_picture(folder: Path) -> None:
    (folder / "pics").mkdir()
    for number in range(3):
        Image.new("RGB", (20, 20), (80 * number, 0, 0)).save(folder / f"pics/{number}.png")
    names = [str(Path("pics", f"{number}.png")) for number in range(3)]
    done = headway("run", "classify-image", "pics", "./pics/0.png", "--out", "pics-out.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert [row["input"] for row in table(folder / "pics-out.csv")] == [*names, "./pics/0.png"]
    done = headway("run", "classify-image", "--file", "pics", "--out", "pics-file.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert [row["input"] for row in table(folder / "pics-file.csv")] == names


def test_tags_are_written_with_their_words_and_entities(folder: Path) -> None:
    (folder / "names.csv").write_text("text\nAnna lives in Oslo.\n")
    done = headway("run", "tag", "--file", "names.csv", "--out", "names-out.csv", cwd=folder)
    assert "added: prediction, words, entities" in done.stdout, done.stderr
    [row] = table(folder / "names-out.csv")
    assert json.loads(row["words"]) == ["Anna", "lives", "in", "Oslo", "."]
    assert len(json.loads(row["prediction"])) == 5 and isinstance(json.loads(row["entities"]), list)


def test_masks_are_written_as_tokens(folder: Path) -> None:
    texts = ["a [MASK] here", "a [MASK] and [MASK]"]
    done = headway("run", "fill", *texts, "--out", "masks.csv", cwd=folder)
    assert "added: prediction, score, candidates" in done.stdout, done.stderr
    one, two = table(folder / "masks.csv")
    best = json.loads(one["candidates"])
    assert len(best) == 5 and best[0].keys() == {"token", "score"}
    assert one["prediction"] == best[0]["token"] and float(one["score"]) == best[0]["score"]
    first, second = (candidates[0] for candidates in json.loads(two["candidates"]))
    assert json.loads(two["prediction"]) == [first["token"], second["token"]]
    assert float(two["score"]) == pytest.approx(first["score"] * second["score"])
