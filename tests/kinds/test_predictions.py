"""Each kind of prediction as a line of a terminal and as columns of a table; the direction of scores."""

import json

import pytest

from headway.kinds import predictions as kinds
from headway.tasks import TASKS, find

DETAILS = {"text": "a", "finished_by": "eos", "score": -0.5}
ONE, TWO = ({"token": t, "id": 1, "score": score, "text": "x"} for t, score in (("a", 0.5), ("b", 0.25)))
TOKENS = [{"token": "a", "score": 0.5}, {"token": "b", "score": 0.25}]
NEAR = [{"word": "queen", "cosine": 0.5}, {"word": "man", "cosine": 0.25}]
TAGGED = {"words": ["a"], "tags": ["O"], "entities": []}
SEVERAL = {"prediction": ["a", "b"], "score": 0.125, "candidates": [TOKENS, TOKENS[1:]]}


@pytest.mark.parametrize(
    ("kind", "answer", "columns"),
    [
        (kinds.TextPrediction(), "a text", {"prediction": "a text"}),
        (kinds.TextPrediction(), DETAILS, {"prediction": "a", "score": -0.5}),
        (kinds.TextPrediction(), [DETAILS, {**DETAILS, "text": "b"}], {"prediction": ["a", "b"]}),
        (kinds.LabelPrediction(), {"label": "x", "score": 0.9, "scores": {}}, {"prediction": "x", "score": 0.9}),
        (kinds.EntitiesPrediction(), TAGGED, {"prediction": ["O"], "words": ["a"], "entities": []}),
        (kinds.EntitiesPrediction(), {"entities": []}, {"prediction": {"entities": []}}),
        (kinds.WordsPrediction(), [ONE, TWO], {"prediction": "a", "score": 0.5, "candidates": TOKENS}),
        (kinds.WordsPrediction(), [[ONE, TWO], [TWO]], SEVERAL),
        (kinds.NeighboursPrediction(), NEAR, {"prediction": NEAR}),
        (kinds.VectorPrediction(), [0.5, 0.25], {"prediction": [0.5, 0.25]}),
        (kinds.NumberPrediction(), {"value": 2.0}, {"prediction": 2.0}),
        (kinds.NumberPrediction(), 2.5, {"prediction": 2.5}),
        (kinds.TranscriptPrediction(), {"text": "a", "segments": []}, {"prediction": "a"}),
        (kinds.SpanPrediction(), [{"answer": "a"}, {"answer": ""}], {"prediction": ["a", ""]}),
    ],
)
def test_columns_of_a_table(kind: kinds.PredictionKind, answer: object, columns: dict[str, object]) -> None:
    assert kind.columns(answer) == columns


@pytest.mark.parametrize(
    ("kind", "answer", "line"),
    [
        (kinds.TextPrediction(), DETAILS, "a"),
        (kinds.TextPrediction(), [DETAILS, {**DETAILS, "text": "b"}], "[1] a\n[2] b"),
        (kinds.TranscriptPrediction(), {"text": "a", "segments": []}, "a"),
        (kinds.LabelPrediction(), {"label": "é\x1b"}, json.dumps({"label": "é\x1b"}, ensure_ascii=False)),
        (kinds.VectorPrediction(), [0.5] * 7, f"7 numbers: {'0.5000 ' * 6}… (all of them: --json)"),
        (kinds.VectorPrediction(), 0.25, "0.25"),
        (kinds.NeighboursPrediction(), NEAR, "queen  0.5000\nman    0.2500"),
        (kinds.NeighboursPrediction(), {"cosine": 0.5}, '{"cosine": 0.5}'),
    ],
)
def test_line_of_a_terminal(kind: kinds.PredictionKind, answer: object, line: str) -> None:
    assert kind.line(answer) == line


def test_answers_that_do_not_match_a_constraint() -> None:
    assert kinds.TextPrediction().unmatched([{"text": "a", "fits": False}, {"text": "b", "fits": True}]) == 1
    assert kinds.TextPrediction().unmatched("a") == kinds.LabelPrediction().unmatched({"label": "a"}) == 0


@pytest.mark.parametrize("name", TASKS)
def test_every_task_declares_its_kinds_and_a_score_with_a_direction(name: str) -> None:
    task = find(name)
    assert isinstance(task.input_kind, object) and hasattr(task, "prediction_kind")
    lower = {"generate", "chat", "fill", "transcribe", "draw"}
    if isinstance(task.metric, str):  # of classify it depends on the data
        assert kinds.is_better_higher(task.metric) == (name not in lower)
