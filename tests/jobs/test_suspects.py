"""Planted label errors are found, and clean data has few suspects."""

import json
import random
import re

import numpy as np
import pytest
from support.commands import headway

from headway.errors import InputError
from headway.jobs import make_plan
from headway.jobs.suspects import find_suspects, judge

TOPICS = {
    "sport": "match goal team coach league player season win",
    "food": "soup bread cheese oven recipe spice dinner salt",
    "code": "python loop function compile bug server commit test",
}


def texts(count, seed=0):
    chance = random.Random(seed)
    common = ["the", "a", "we", "saw", "with", "and", "then", "some", "very", "new", "old", "today"]
    for number in range(count):
        topic = chance.choice(list(TOPICS))
        words = chance.sample(TOPICS[topic].split(), 3) + chance.sample(common, 4)
        chance.shuffle(words)
        yield {"text": f"{' '.join(words)} {number}", "label": topic}


def planted(rows, share, seed=1):
    """Rows with a share of labels replaced by another, and the numbers of those rows from 1."""
    chance, out, wrong = random.Random(seed), [], set()
    for number, row in enumerate(rows, 1):
        if chance.random() < share:
            row = {**row, "label": chance.choice([label for label in TOPICS if label != row["label"]])}
            wrong.add(number)
        out.append(row)
    return out, wrong


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def lines_of(found):
    return [int(each.where.rsplit(":", 1)[1]) for each in found]


def test_planted_errors_are_first(tmp_path):
    rows, wrong = planted(list(texts(400)), 0.08)
    suspects = find_suspects(make_plan("classify", write(tmp_path / "x.jsonl", rows)))
    top = lines_of(suspects.found)[: len(wrong)]
    precision = len(set(top) & wrong) / len(top)
    assert len(wrong) > 20 and precision >= 0.9, precision
    true = {number: row["label"] for number, row in enumerate(texts(400), 1)}
    assert all(true[line] == each.suggested for line, each in zip(top, suspects.found, strict=False) if line in wrong)
    assert 0.85 < suspects.agreement < 0.95


def test_clean_data_has_few_suspects(tmp_path):
    suspects = find_suspects(make_plan("classify", write(tmp_path / "x.jsonl", texts(400))))
    assert len(suspects.found) <= 4 and suspects.agreement > 0.98


def test_random_labels_are_no_better_than_chance(tmp_path):
    """Negative control: where labels do not follow from texts, the list points at nothing in particular."""
    chance = random.Random(3)
    rows = [{**row, "label": chance.choice(list(TOPICS))} for row in texts(300)]
    changed, wrong = planted(rows, 0.1, seed=4)
    found = lines_of(find_suspects(make_plan("classify", write(tmp_path / "x.jsonl", changed))).found)[: len(wrong)]
    assert len(set(found) & wrong) / len(found) < 0.35


def test_wrong_tags(tmp_path):
    rows = [{"words": row["text"].split()[:7]} for row in texts(250)]
    kind = {word: topic for topic, words in TOPICS.items() for word in words.split()}
    for row in rows:
        row["tags"] = [kind.get(word, "O") for word in row["words"]]
    wrong = {}
    for number in range(5, 250, 25):
        at = next(i for i, tag in enumerate(rows[number]["tags"]) if tag != "O")
        wrong[number + 1] = rows[number]["words"][at]
        rows[number]["tags"][at] = "O"
    found = find_suspects(make_plan("tag", write(tmp_path / "x.jsonl", rows))).found[: len(wrong)]
    hits = [each for each in found if wrong.get(int(each.where.rsplit(":", 1)[1])) == each.word]
    assert len(hits) >= 0.9 * len(wrong)
    assert all(each.label == "O" and each.suggested == kind[each.word] for each in hits)


def test_command_lists_and_writes_them(tmp_path):
    rows, _ = planted(list(texts(150)), 0.06)
    for number, row in enumerate(rows):
        row["label"] = row["label"].replace("code", "<script>alert(1)</script>")
        row["text"] += " and more" * (number % 4)
    write(tmp_path / "x.jsonl", rows)
    result = headway("check", "classify", "x.jsonl", "--suspect", "--top", "3", "--html", "page.html", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    shown = [line for line in result.stdout.splitlines() if line.startswith("  x.jsonl:")]
    assert len(shown) == 3 and "→" in shown[0] and "%" in shown[0]
    page = (tmp_path / "page.html").read_text()
    assert "Suspect labels" in page and "<script" not in page and "&lt;script&gt;" in page
    assert "<svg" in page and "tokens of text" in page
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_tasks_without_labels_are_refused(tmp_path):
    with pytest.raises(InputError, match="task generate has none"):
        find_suspects(make_plan("generate"))
    numbers = [{"text": row["text"], "label": number / 7} for number, row in enumerate(texts(60))]
    with pytest.raises(InputError, match="regression"):
        find_suspects(make_plan("classify", write(tmp_path / "n.jsonl", numbers)))
    with pytest.raises(InputError, match="two labels"):
        find_suspects(make_plan("classify", write(tmp_path / "o.jsonl", [{"text": "a b", "label": "x"}] * 9)))


def test_rule_of_confident_learning():
    chances = np.array([[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.1, 0.9], [0.95, 0.05], [0.6, 0.4]])
    given = np.array([0, 0, 1, 1, 1, 1])
    chosen, suggested, agreement = judge(chances, given)
    assert chosen == [4]  # 0.6 is below the mean of 0.85 that label 0 has where it is given, and ahead by 0.2 only
    assert suggested[4] == 0 and agreement == 4 / 6
