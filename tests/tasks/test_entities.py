"""Tags read as entities the way the CoNLL shared task's script does; every expectation is worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.tasks.entities import all_tags, entities, entity_scores, repaired

CASES = {
    "O O": [],
    "B-PER I-PER O B-LOC": [("PER", 0, 2), ("LOC", 3, 4)],
    "I-PER I-PER O": [("PER", 0, 2)],  # no B-: still an entity
    "O I-LOC": [("LOC", 1, 2)],
    "B-PER I-LOC": [("PER", 0, 1), ("LOC", 1, 2)],  # the type changes: two entities
    "B-PER I-LOC I-PER": [("PER", 0, 1), ("LOC", 1, 2), ("PER", 2, 3)],
    "B-PER B-PER I-PER": [("PER", 0, 1), ("PER", 1, 3)],
    "B-PER O I-PER": [("PER", 0, 1), ("PER", 2, 3)],
    "I-PER B-PER": [("PER", 0, 1), ("PER", 1, 2)],
    "B-PER I-PER E-PER S-PER": [("PER", 0, 3), ("PER", 3, 4)],
    "S-PER I-PER": [("PER", 0, 1), ("PER", 1, 2)],  # S- and E- are over
    "B-PER E-PER I-PER": [("PER", 0, 2), ("PER", 2, 3)],
    "E-PER E-PER": [("PER", 0, 1), ("PER", 1, 2)],
    "B I O I": [("_", 0, 2), ("_", 3, 4)],
    "B-a-b I-a-b": [("a-b", 0, 2)],
    "B-PER I-PER L-PER U-PER": [("PER", 0, 3), ("PER", 3, 4)],
    "B-PER L-PER L-PER": [("PER", 0, 2), ("PER", 2, 3)],
    "U-ORG I-ORG O L-ORG": [("ORG", 0, 1), ("ORG", 1, 2), ("ORG", 3, 4)],
    "L U B": [("L", 0, 1), ("U", 1, 2), ("_", 2, 3)],  # bare: parts of speech, but for BIES
    "PER PER O PER LOC": [("PER", 0, 2), ("PER", 3, 4), ("LOC", 4, 5)],  # no prefixes: adjacent words are one entity
    "B-PER PER PER": [("PER", 0, 3)],
    "S-PER PER": [("PER", 0, 1), ("PER", 1, 2)],
    "LABEL_0 LABEL_0 LABEL_1": [("LABEL_0", 0, 2), ("LABEL_1", 2, 3)],  # names that the files leave out: O is unknown
}


@pytest.mark.parametrize("tags", CASES)
def test_entities(tags):
    assert [tuple(entity) for entity in entities(tags.split())] == CASES[tags]


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ("O I-PER I-PER", "O B-PER I-PER"),
        ("B-PER I-LOC I-LOC", "B-PER B-LOC I-LOC"),
        ("B-PER I-PER", "B-PER I-PER"),
        ("E-PER O", "S-PER O"),
        ("L-PER O", "U-PER O"),
        ("B-PER L-PER", "B-PER L-PER"),
        ("I O", "B O"),
        ("Inf DET", "Inf DET"),
    ],
)
def test_repair(tags, wanted):
    assert repaired(tags.split()) == wanted.split()


@given(st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y", "E-X", "S-Y", "L-X", "U-Y", "X", "Y"])))
def test_repair_changes_no_entity_and_happens_once(tags):
    assert entities(repaired(tags)) == entities(tags)
    assert repaired(repaired(tags)) == repaired(tags)


def test_scores_by_hand():
    wanted = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG"]]
    found = [["B-PER", "I-PER", "O", "B-ORG"], ["B-LOC", "I-ORG"]]
    # there: PER 0-2, LOC 3-4 | ORG 1-2; proposed: PER 0-2, ORG 3-4 | LOC 0-1, ORG 1-2; right: two
    scores = entity_scores(found, wanted)
    assert scores == pytest.approx({"precision": 2 / 4, "recall": 2 / 3, "f1": 4 / 7})


def test_an_entity_half_found_is_not_found():
    assert entity_scores([["B-PER", "O"]], [["B-PER", "I-PER"]]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert entity_scores([["I-PER", "I-PER"]], [["B-PER", "I-PER"]])["f1"] == 1.0
    assert entity_scores([["O"]], [["O"]]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_each_type_has_a_beginning_and_an_inside():
    assert all_tags(["O", "B-PER", "I-LOC", "NN"]) == ["B-LOC", "B-PER", "I-LOC", "I-PER", "NN", "O"]


def test_each_type_has_every_prefix_of_its_scheme():
    assert all_tags(["O", "U-PER", "B-LOC"]) == [
        "B-LOC",
        "B-PER",
        "I-LOC",
        "I-PER",
        "L-LOC",
        "L-PER",
        "O",
        "U-LOC",
        "U-PER",
    ]
    assert all_tags(["O", "S-X"]) == ["B-X", "E-X", "I-X", "O", "S-X"]
    assert all_tags(["NN", "VB", "O"]) == ["NN", "O", "VB"]
