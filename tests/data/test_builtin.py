"""The built-in data: deterministic, with disjoint train and test sets, and valid for each task."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from datetime import date, datetime

import numpy as np
import pytest

from headway import tasks
from headway.data.builtin.captions import COLOURS
from headway.data.builtin.manual import sentences
from headway.data.builtin.pool import Builtin, Generated
from headway.data.row import Row
from headway.errors import ConfigError

SETS: dict[str, Builtin] = {name: tasks.find(name).builtin for name in tasks.TASKS}
GENERATED = {name: each for name, each in SETS.items() if isinstance(each, Generated)}

# ruff: noqa: SIM905 - a list of words reads best as words

FIELDS = {
    "translate": {"source", "target"},
    "summarize": {"source", "target"},
    "classify": {"text", "label"},
    "tag": {"words", "tags"},
    "answer": {"question", "context", "answers"},
    "generate": {"text"},
    "fill": {"text", "sentences"},
    "embed": {"a", "b"},
    "vectors": {"text"},
    "classify-image": {"image", "label"},
    "draw": {"image", "caption", "label"},
    "chat": {"messages"},
    "detect": {"image", "boxes", "size"},
    "transcribe": {"audio", "text"},
}
TEST_FIELDS = {"vectors": {"a", "b", "c", "d", "section"}}  # where they are not those of training rows


def identity(row: Row) -> str:
    def compact(value: object) -> object:
        return hashlib.sha256(value.tobytes()).digest() if isinstance(value, np.ndarray) else value

    return repr({name: compact(value) for name, value in row.fields.items()})


def digest(task: str) -> str:
    rows = SETS[task].rows(size=10) + SETS[task].rows(split="test", size=10)
    return hashlib.sha256("\n".join(map(identity, rows)).encode()).hexdigest()


@pytest.fixture(scope="module")
def train() -> dict[str, list[Row]]:
    return {task: SETS[task].rows() for task in SETS}


@pytest.fixture(scope="module")
def test() -> dict[str, list[Row]]:
    return {task: SETS[task].rows(split="test") for task in SETS}


def test_fields_sizes_and_locations(train: dict[str, list[Row]], test: dict[str, list[Row]]) -> None:
    assert set(SETS) == set(FIELDS)
    for task in SETS:
        assert all(row.fields.keys() == FIELDS[task] for row in train[task])
        assert all(row.fields.keys() == TEST_FIELDS.get(task, FIELDS[task]) for row in test[task])
        assert train[task][0].where == f"builtin/{task}/train:1" and test[task][4].where == f"builtin/{task}/test:5"
    for task, recipe in GENERATED.items():
        assert (len(train[task]), len(test[task])) == (recipe.train, recipe.test)
    assert (len(train["translate"]), len(test["translate"])) == (12_000, 1_000)
    assert all(len(SETS[task].rows(size=7)) == 7 for task in SETS)


def test_test_rows_are_never_training_rows(train: dict[str, list[Row]], test: dict[str, list[Row]]) -> None:
    for task in SETS:
        trained = {identity(row) for row in train[task]}
        assert len(trained) == len(train[task]), f"{task}: a row twice"
        for seed, rows in ((0, test[task]), (5, SETS[task].rows(split="test", size=10, seed=5))):
            assert not trained & {identity(row) for row in rows}, f"{task}, seed {seed}"


def test_test_groups_are_not_in_train(train: dict[str, list[Row]], test: dict[str, list[Row]]) -> None:
    for task, field in (("translate", "target"), ("answer", "context"), ("embed", "b")):
        known = {row.fields[field].lower() for row in train[task]}
        assert not known & {row.fields[field].lower() for row in test[task]}, task
    paragraphs = [
        {" ".join(p.split()) for row in part["generate"] for p in re.split(r"\n\s*\n", row.fields["text"])}
        for part in (train, test)
    ]
    assert not [p for p in paragraphs[0] & paragraphs[1] if len(p) > 40]


def test_same_in_another_process_and_other_with_another_seed() -> None:
    script = "import sys\nfrom test_builtin import digest\nprint(*map(digest, sys.argv[1:]))"
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "12"}
    command = [sys.executable, "-c", script, *SETS]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=60)
    assert found.stdout.split() == [digest(task) for task in SETS]
    for task in GENERATED:
        assert identity(SETS[task].rows(size=5)[0]) != identity(SETS[task].rows(size=5, seed=1)[0])


FORMATS = [
    "%d %B %Y", "%d %b %Y", "%B %d %Y", "%b %d %Y", "%Y %d %B", "%Y %B %d", "%A %d %B %Y", "%a %b %d %Y",
    "%d.%m.%Y", "%d. %m. %Y", "%Y/%m/%d", "%Y%m%d", "%d-%b-%Y",
]  # fmt: skip
SPELLED = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth twenty-first twenty-second twenty-third twenty-fourth "
    "twenty-fifth twenty-sixth twenty-seventh twenty-eighth twenty-ninth thirtieth thirty-first"
).split()


def read_date(written: str) -> set[date]:
    """Every date that the standard library parses from the text."""
    text = written.lower()
    for number, word in reversed(list(enumerate(SPELLED, start=1))):
        text = re.sub(rf"\b(?<!-){word}\b", str(number), text)
    text = re.sub(r"\b(\d+)(st|nd|rd|th)\b", r"\1", text)
    text = re.sub(r"\b(the|of)\b|,|(?<=[a-z])\.", " ", text)
    text = " ".join(text.split())
    found = set()
    for form in FORMATS:
        try:
            found.add(datetime.strptime(text, form).date())
        except ValueError:
            continue
    return found


def test_dates_mean_their_iso_form_and_nothing_else(train: dict[str, list[Row]]) -> None:
    assert read_date("the twenty-first of June 1987") == {date(1987, 6, 21)}
    rows = train["translate"][:4000]
    for row in rows:
        assert read_date(row.fields["source"]) == {date.fromisoformat(row.fields["target"])}, row
    shapes = {re.sub(r"\d+", "9", re.sub(r"[a-z]+", "a", row.fields["source"].lower())) for row in rows}
    assert len(shapes) >= 14


def test_weekdays_are_right(train: dict[str, list[Row]]) -> None:
    checked = 0
    for row in train["translate"]:
        named = re.match(r"(mon|tue|wed|thu|fri|sat|sun)", row.fields["source"].lower())
        if named:
            assert date.fromisoformat(row.fields["target"]).strftime("%a").lower() == named[1]
            checked += 1
    assert checked > 1000


def test_summaries_follow_from_their_sources(train: dict[str, list[Row]]) -> None:
    kinds: Counter[str] = Counter()
    for row in train["summarize"]:
        source, target = row.fields["source"], row.fields["target"]
        assert len(target) < len(source) and "\n" not in target
        if " met " in source:
            kinds["match"] += 1
            home, away = re.match(r"(\w+) met (\w+) in", source).groups()
            last = (re.findall(r"\b(\d)-(\d)\b", source) or [("0", "0")])[-1]
            goals = dict(zip((home, away), map(int, last), strict=True))
            beat = re.fullmatch(r"(\w+) beat (\w+) (\d)-(\d)\.", target)
            if beat:
                assert (goals[beat[1]], goals[beat[2]]) == (int(beat[3]), int(beat[4])) and beat[3] > beat[4]
            else:
                assert target == f"{home} and {away} drew {last[0]}-{last[0]}." and last[0] == last[1]
        elif "degrees" in source:
            kinds["weather"] += 1
            assert f", {max(map(int, re.findall(r'(-?[0-9]+) degrees', source)))} degrees" in target
        else:
            kinds["log"] += 1
            assert re.search(r"\d\d:\d\d", source.split("\n")[-1])[0] in target
            assert ("stopped" in source) == ("failed" in target)
    assert min(kinds.values()) > 2000 and len(kinds) == 3


def test_labels_are_balanced(train: dict[str, list[Row]], test: dict[str, list[Row]]) -> None:
    for task in ("classify", "classify-image"):
        counts = Counter(row.fields["label"] for row in train[task])
        assert len(counts) >= 4 and max(counts.values()) < 1.3 * min(counts.values())
        assert counts.keys() == {row.fields["label"] for row in test[task]}


def test_one_word_does_not_determine_the_label(train: dict[str, list[Row]], test: dict[str, list[Row]]) -> None:
    """Not trivial: a classifier by the best single word is often wrong. Learnable: word counts together are good."""
    counts: dict[str, Counter[str]] = {}
    for row in train["classify"]:
        for word in set(re.findall(r"\w+", row.fields["text"].lower())):
            counts.setdefault(row.fields["label"], Counter())[word] += 1
    total = Counter(row.fields["label"] for row in train["classify"])

    def bayes(text: str) -> str:
        words = set(re.findall(r"\w+", text.lower()))
        return max(counts, key=lambda k: sum(np.log((counts[k][w] + 0.5) / (total[k] + 1)) for w in words))

    def first_word(text: str) -> str:
        word = re.findall(r"\w+", text.lower())[0]
        return max(counts, key=lambda k: counts[k][word])

    def accuracy(guess: object) -> float:
        return float(np.mean([guess(row.fields["text"]) == row.fields["label"] for row in test["classify"]]))

    assert accuracy(bayes) > 0.9 and accuracy(first_word) < 0.6


def test_tags_are_well_formed(train: dict[str, list[Row]]) -> None:
    kinds: Counter[str] = Counter()
    as_names: dict[str, set[str]] = {}
    for row in train["tag"]:
        words, tags = row.fields["words"], row.fields["tags"]
        assert len(words) == len(tags) and all(words) and not any(" " in word for word in words)
        for before, tag, word in zip(["O", *tags], tags, words, strict=False):
            assert re.fullmatch(r"O|[BI]-(PER|LOC|ORG|DATE|AMOUNT)", tag)
            if tag.startswith("I-"):
                assert before in (f"B-{tag[2:]}", tag)
            kinds[tag[2:]] += tag.startswith("B-")
            as_names.setdefault(word, set()).add(tag[2:])
    assert all(kinds[kind] > 500 for kind in ("PER", "LOC", "ORG", "DATE", "AMOUNT"))
    assert as_names["Jordan"] >= {"PER", "LOC"} and as_names["April"] >= {"PER", "DATE"}


def test_answer_spans_match_their_text(train: dict[str, list[Row]]) -> None:
    rows = train["answer"]
    for row in rows:
        for text, start in row.fields["answers"]:
            assert text and row.fields["context"][start : start + len(text)] == text
    share = sum(not row.fields["answers"] for row in rows) / len(rows)
    assert 0.17 < share < 0.23


def test_answers_are_the_right_ones(train: dict[str, list[Row]]) -> None:
    """The sentence around the answer names what the question names; an unanswerable question has no such sentence."""
    for row in train["answer"]:
        question, context = row.fields["question"], row.fields["context"]
        said = context.split(". ")
        room = re.fullmatch(r"How many (\w+) are in the (\w+)\?", question)
        fitting = [
            s for s in said if room and s.startswith(f"In the {room[2]} ") and s.rstrip(".").endswith(f" {room[1]}")
        ]
        if room and not row.fields["answers"]:
            assert not fitting
        for text, start in row.fields["answers"]:
            sentence = context[context.rfind(". ", 0, start) + 1 : (context + " ").find(". ", start)]
            subjects = [room[2]] if room else re.findall(r"[A-Z]\w+ [A-Z]\w+", question)[-1:]
            assert subjects and subjects[0].removeprefix("Does ") in sentence, (question, sentence)
            assert not room or (len(fitting) == 1 and text in fitting[0])


def test_manual_is_prose_in_order(train: dict[str, list[Row]]) -> None:
    assert sum(len(row.fields["text"]) for row in train["generate"]) > 200_000
    for row in train["fill"]:
        assert row.fields["text"] == " ".join(row.fields["sentences"])
        assert all(s == s.strip() and "\n" not in s for s in row.fields["sentences"])
    assert sum(len(row.fields["sentences"]) > 3 for row in train["fill"]) > 30
    assert sentences("Head\n****\n\nOne is here.  Two is\nthere.\n\n>>> 1 + x\n") == [
        "Head",
        "One is here.",
        "Two is there.",
    ]


def test_pairs_differ_in_words(train: dict[str, list[Row]]) -> None:
    assert all(row.fields["a"].lower() != row.fields["b"].lower() for row in train["embed"])
    assert sum("." in row.fields["a"] and " " not in row.fields["a"] for row in train["embed"]) > 200  # functions


def test_images_are_not_blank(train: dict[str, list[Row]]) -> None:
    by_label: dict[str, list[float]] = {}
    for row in train["classify-image"][:600]:
        image = row.fields["image"]
        assert image.shape == (32, 32, 3) and image.dtype == np.uint8
        by_label.setdefault(row.fields["label"], []).append(float(image.std(axis=(0, 1)).max()))
    assert all(min(spread) > 12 for spread in by_label.values())


def test_captions_say_what_is_drawn(train: dict[str, list[Row]]) -> None:
    extents: dict[tuple[str, str], list[int]] = {}
    for row in train["draw"][:300]:
        image, words = row.fields["image"].astype(int), row.fields["caption"].split()
        ground = words[words.index("on") + 1]
        ink, shape = words[words.index("on") - 2 : words.index("on")]
        assert shape == row.fields["label"] and image.shape == (32, 32, 3)
        distance = {name: np.abs(image - colour).sum(-1) for name, colour in COLOURS.items()}
        nearest = np.array(list(COLOURS))[np.argmin(list(distance.values()), axis=0)]  # (row, column): a colour's name
        names, counts = np.unique(nearest, return_counts=True)
        assert set(names[counts > 6]) >= {ink, ground}, row.fields["caption"]
        drawn = np.argwhere(nearest == ink).mean(0)
        if "left" in words or "right" in words:
            assert (drawn[1] < 16) == ("left" in words)
        if "top" in words or "bottom" in words:
            assert (drawn[0] < 16) == ("top" in words)
        extents.setdefault((shape, words[1]), []).append(int(np.ptp(np.argwhere(nearest == ink), axis=0).max()))
    for shape in {shape for shape, _ in extents}:
        assert max(extents[shape, "small"]) < min(extents[shape, "large"])


def test_dialogues_alternate_and_recall_names(train: dict[str, list[Row]]) -> None:
    recalled = 0
    for row in train["chat"]:
        messages = row.fields["messages"]
        assert [m["role"] for m in messages] == ["user", "assistant"] * (len(messages) // 2) and len(messages) >= 2
        assert all(set(m) == {"role", "content"} and m["content"] for m in messages)
        for asked, told in zip(messages[::2], messages[1::2], strict=True):
            numbers = re.findall(r"\d+", asked["content"])
            if numbers:
                assert told["content"].endswith(f"is {sum(map(int, numbers))}.")
        name = re.fullmatch(r"You are (\w+)\.", messages[-1]["content"])
        if name:
            recalled += 1
            assert name[1] in messages[0]["content"]
    assert recalled > 1000


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ConfigError, match="train, test"):
        SETS["tag"].rows(split="validation")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="at least one"):
        SETS["tag"].rows(size=0)
    for task in SETS.keys() - GENERATED.keys():
        with pytest.raises(ConfigError, match="too many"):
            SETS[task].rows(size=100_000)
