"""Entities of kinds that are named when the model is called: choice among spans, windows, errors, commands, server."""

import itertools
import json
from pathlib import Path
from random import Random

import pytest
from support.commands import headway as command
from support.gliner_files import golden, write_folder
from support.server import running

import headway
from headway.bundle import Bundle
from headway.data.row import Row
from headway.errors import ConfigError, InputError
from headway.tasks.entities_by_name import EntitiesByName, FoundEntity, split_words, without_overlaps

TEXT = "Marie Curie was born in Warsaw."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = golden()
    return write_folder(
        tmp_path_factory.mktemp("gliner") / "tiny", next(iter(found["cases"].values())), found["tokenizer"]
    )


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Bundle:
    return headway.load(folder)


def overlap(a: FoundEntity, b: FoundEntity, *, nested: bool) -> bool:
    """Of two spans: whether they share a word; with `nested`, unless one has all words of the other."""
    ours, theirs = set(range(a.start, a.end)), set(range(b.start, b.end))
    return bool(ours & theirs) and not (nested and (ours <= theirs or theirs <= ours))


@pytest.mark.parametrize("nested", [False, True])
def test_better_spans_come_first(nested: bool) -> None:
    chance = Random(0)
    for _ in range(50):
        places = {(start := chance.randrange(12), start + chance.randint(1, 5)) for _ in range(chance.randint(0, 25))}
        found = [FoundEntity(start, end, "x", chance.random()) for start, end in sorted(places)]
        kept: list[FoundEntity] = []
        for each in sorted(found, key=lambda each: -each.score):
            if not any(overlap(each, other, nested=nested) for other in kept):
                kept.append(each)
        got = without_overlaps(found, nested=nested)
        assert sorted(got) == sorted(kept) and [each.start for each in got] == sorted(each.start for each in kept)


def test_words_and_characters() -> None:
    text, spans = split_words("Ann-Marie's  e_mail: é", 1)
    assert [text[a:b] for a, b in spans] == ["Ann-Marie", "'", "s", "e_mail", ":", "é"]
    text, spans = split_words(["New York", "is", "big"], 1)
    assert text == "New York is big" and [text[a:b] for a, b in spans] == ["New York", "is", "big"]
    with pytest.raises(InputError, match="input 2: expected a text or a list of words, found int"):
        split_words(3, 2)


def test_a_prediction_has_the_characters_of_the_text(bundle: Bundle) -> None:
    found = bundle(TEXT, labels=["person", "city"], threshold=0.3)["entities"]
    assert found and all(TEXT[each["start"] : each["end"]] == each["text"] for each in found)
    assert {each["label"] for each in found} <= {"person", "city"} and all(each["score"] > 0.3 for each in found)
    assert bundle(TEXT, labels="person, city,person", threshold=0.3)["entities"] == found
    assert bundle(TEXT, labels=["person", "city"], threshold=1.0) == {"entities": []}
    assert bundle("", labels=["person"]) == {"entities": []} and bundle([], labels=["person"]) == []


def test_a_marker_in_a_text_is_plain_text(bundle: Bundle) -> None:
    task = bundle.find_task()
    assert isinstance(task, EntitiesByName)
    (read,) = task.readings(["<<ENT>>", "Marie"], ["<<SEP>>"], where="")
    ids = [task.tokenizer.id(token) for token in ("<<ENT>>", "<<SEP>>")]
    assert [read.ids.count(each) for each in ids] == [1, 1]


def test_a_long_text_is_read_in_windows(bundle: Bundle) -> None:
    """Each span has the score of one window, which is that of the window's words alone; every word is predicted in
    one."""
    task = bundle.find_task()
    assert isinstance(task, EntitiesByName) and task.max_words == 30
    words = [*itertools.islice(itertools.cycle(["Marie", "was", "born", "in", "Warsaw", "and"]), 70)]
    readings = task.readings(words, ["person"], where="")
    assert [word for each in readings for word in each.window.predicted] == list(range(70))
    assert all(len(each.window.words) <= 30 and len(each.ids) <= task.limit for each in readings if task.limit)
    found = bundle(" ".join(words), labels=["person"], threshold=0.0, nested=True)
    assert found["windows"] == len(readings) > 1
    starts = [0, *itertools.accumulate(len(word) + 1 for word in words)]
    scores = {(starts.index(each["start"]), each["end"]): each["score"] for each in found["entities"]}
    compared = 0
    for each in readings:
        own = each.window.words
        alone = bundle(" ".join(words[own.start : own.stop]), labels=["person"], threshold=0.0, nested=True)
        for one in alone["entities"]:
            place = starts.index(one["start"] + starts[own.start]), one["end"] + starts[own.start]
            if place in scores and place[0] in each.window.predicted:
                assert scores[place] == pytest.approx(one["score"], abs=1e-5)
                compared += 1
    assert {start for start, _ in scores} == set(range(70)) and compared > 35


def test_mistakes_are_named(bundle: Bundle) -> None:
    for labels in (None, [], ""):
        with pytest.raises(InputError, match="labels: name the kinds of entities to find"):
            bundle(TEXT, labels=labels)
    for labels in (["person", ""], "person,,city", [3], {"person": 1}):
        with pytest.raises(InputError, match="labels: expected names, none of them empty"):
            bundle(TEXT, labels=labels)
    with pytest.raises(InputError, match=r"labels: 70 of them take \d+ of the model's 128 tokens.*give fewer"):
        bundle(TEXT, labels=[f"kind {number}" for number in range(70)])
    with pytest.raises(InputError, match="threshold is 2: it must be from 0 to 1"):
        bundle(TEXT, labels=["person"], threshold=2)
    with pytest.raises(InputError, match="task entities has no option 'label'; did you mean 'labels'"):
        bundle(TEXT, label=["person"])
    with pytest.raises(ConfigError, match="entities by name are found by a published model"):
        bundle.find_task().config("small", "modern")  # type: ignore[arg-type]


def test_a_word_over_the_limit_is_counted(bundle: Bundle) -> None:
    with pytest.warns(UserWarning, match=r"one word: 1 of 2 cut to \d+ tokens"):
        bundle("Marie " + "9" * 500, labels=["person"])


def test_the_types_of_the_data_are_the_labels(bundle: Bundle) -> None:
    words = ["Marie", "Curie", "was", "born", "in", "Warsaw"]
    tags = ["B-person", "I-person", "O", "O", "O", "B-city"]
    rows = [Row({"words": words, "tags": tags}, "x:1"), Row({"words": ["Marie"], "tags": ["O"]}, "x:2")]
    task = bundle.find_task()
    found = task.predictions(bundle.model, rows)
    assert isinstance(task, EntitiesByName) and found.scores().keys() == {"precision", "recall", "f1"}
    named = bundle([words], labels=["city", "person"])[0]["entities"]
    joined = " ".join(words)
    assert [joined[each["start"] : each["end"]] for each in named] == [each["text"] for each in named]
    guessed = sum(tag.startswith("B-") for tag in found.found[0])  # type: ignore[attr-defined]
    assert guessed == len(named) > 0


def test_commands(folder: Path, tmp_path: Path) -> None:
    shown = command("run", folder, TEXT, "--labels", "person,city", "--threshold", "0.3", "--json", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["answer"] == headway.load(folder)(TEXT, labels=["person", "city"], threshold=0.3)
    nested = command("run", folder, TEXT, "--labels", "person,city", "--nested", cwd=tmp_path)
    assert json.loads(nested.stdout) == headway.load(folder)(TEXT, labels=["person", "city"], nested=True)
    missing = command("run", folder, TEXT, cwd=tmp_path)
    assert missing.returncode != 0 and "such as --labels person,city" in missing.stderr
    table = command("run", folder, TEXT, "--labels", "person", "--out", "found.jsonl", cwd=tmp_path)
    assert table.returncode == 0 and "person" in (tmp_path / "found.jsonl").read_text()
    assert "span-scorer" in command("info", folder, cwd=tmp_path).stdout
    refused = command("explain", folder, TEXT, cwd=tmp_path)
    assert refused.returncode != 0 and "explain does not support task entities" in refused.stderr
    train = command("train", "tag", "--start", folder, "--steps", "1", "--out", "run", cwd=tmp_path)
    assert train.returncode != 0 and "task tag starts from a text encoder" in train.stderr


def test_int8_weights(folder: Path, tmp_path: Path) -> None:
    made = command("convert", folder, "small", "--to", "int8", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "already holds a model" in command("convert", folder, "small", "--to", "int8", cwd=tmp_path).stderr
    small, labels = headway.load(tmp_path / "small"), ["person", "city"]
    assert small.weights == "int8" and small(TEXT, labels=labels, threshold=0.0)["entities"]


def test_the_server_takes_candidate_labels(folder: Path) -> None:
    with running(f"tiny={folder}") as server:
        options = {"candidate_labels": ["person", "city"], "threshold": 0.3}
        reply = server.post("/models/tiny", {"inputs": TEXT, "parameters": options})
        wanted = headway.load(folder)(TEXT, labels=["person", "city"], threshold=0.3)["entities"]
        assert reply.status == 200, reply.body
        found = reply.json()
        assert [(e["start"], e["end"], e["word"], e["entity_group"]) for e in found] == [
            (e["start"], e["end"], e["text"], e["label"]) for e in wanted
        ]
        assert [e["score"] for e in found] == pytest.approx([e["score"] for e in wanted], abs=1e-6)
        missing = server.post("/models/tiny", {"inputs": TEXT})
        assert missing.status in (400, 422) and "candidate_labels" in missing.body.decode()
