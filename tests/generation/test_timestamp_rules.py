"""Timestamps in the answers of a speech model: pairs, never falling, forced where they are the most probable."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from support.variants import PAIR, random_model

from headway.errors import InputError
from headway.generation import GenerationSettings, Session
from headway.generation.filters import FilterRow, Force, History
from headway.generation.timestamp_rules import RecordProbability, TimestampRules

END, FIRST, VOCAB = 10, 14, 20  # text 0–9, the end 10, other special tokens 11–13, timestamps 14–19
RULES = TimestampRules(FIRST, END, latest_start=2)


def allowed(answer: list[int], scores: torch.Tensor | None = None, rules: TimestampRules = RULES) -> list[int]:
    """Ids that may follow, where no rule but the pairs and their order forces a timestamp."""
    flat = torch.zeros(VOCAB).index_fill(0, torch.arange(FIRST, VOCAB), -9.0) if scores is None else scores
    row = FilterRow(np.array([1, *answer]), 1, len(answer), {})
    return torch.isfinite(rules(flat[None], History([row]))[0]).nonzero().flatten().tolist()


def test_an_answer_begins_with_an_early_timestamp() -> None:
    assert allowed([]) == [14, 15, 16]
    assert allowed([], rules=TimestampRules(FIRST, END)) == list(range(FIRST, VOCAB))


def test_timestamps_come_in_pairs_and_do_not_fall() -> None:
    text = list(range(FIRST))
    assert allowed([15]) == text, "text follows the start of a segment"
    assert allowed([15, 3]) == [*text, 16, 17, 18, 19], "a segment ends after it begins"
    assert allowed([15, 3, 17]) == [*range(END, FIRST), 17, 18, 19], "the end of a segment, then a start or the end"
    assert allowed([15, 3, 17, 17]) == text
    assert allowed([15, 3, 17, 18, 4]) == [*text, 19]


def test_timestamps_that_are_together_most_probable_are_chosen() -> None:
    scores = torch.full((VOCAB,), -20.0)
    scores[3], scores[17], scores[18], scores[19] = 0.0, -0.5, -1.0, -1.2
    total = torch.tensor([-0.5, -1.0, -1.2]).logsumexp(0).item()
    assert total > 0 and allowed([15, 3], scores) == [16, 17, 18, 19]
    scores[3] = total + 0.01
    assert 3 in allowed([15, 3], scores)


def test_forced_tokens_are_not_the_answers() -> None:
    rules = TimestampRules(FIRST, END, latest_start=2, forced=2)
    assert allowed([], rules=rules) == allowed([15], rules=rules) == list(range(VOCAB))
    assert allowed([11, 12], rules=rules) == [14, 15, 16]
    assert allowed([11, 12, 15], rules=rules) == list(range(FIRST))


def test_rows_do_not_depend_on_each_other() -> None:
    answers = [[], [15], [15, 3], [15, 3, 17], [14, 3, 16, 16, 2, 19]]
    rows = [FilterRow(np.array([1, *answer]), 1, len(answer), {}) for answer in answers]
    scores = torch.randn(len(rows), VOCAB)
    together = RULES(scores, History(rows))
    for number, row in enumerate(rows):
        torch.testing.assert_close(together[number], RULES(scores[number : number + 1], History([row]))[0])
    assert torch.isfinite(scores).all(), "the input is left as it is"


@pytest.fixture(scope="module")
def model() -> Any:
    return random_model(PAIR).eval()


def test_a_session_obeys_them(model: Any) -> None:
    rules, source = TimestampRules(FIRST, END, latest_start=2), [3, 5, 8]
    settings = GenerationSettings(max_new_tokens=14, eos_ids=(END,), renormalize=True, logprobs=True)
    for beams, temperature in ((1, 0.0), (3, 0.0), (1, 1.0)):
        chosen = GenerationSettings(**{**vars(settings), "beams": beams, "temperature": temperature, "seed": 1})
        session = Session(model)
        session.add([1], chosen, source=source, filters=[rules])
        found = next(event.hypothesis for event in run(session) if event.hypothesis is not None)
        stamps = [token for token in found.ids if token >= FIRST]
        assert FIRST <= found.ids[0] <= FIRST + 2 and stamps == sorted(stamps)


def run(session: Session) -> list[Any]:
    events = []
    while not session.idle:
        events += session.step()
    return events


def test_a_probability_is_recorded_before_the_filters_behind_it(model: Any) -> None:
    """Each request has its own, also where requests are chosen from together."""
    session, recorders = Session(model), []
    for source in ([3, 5], [8], [9, 2, 4]):
        recorders.append(RecordProbability(7))
        settings = GenerationSettings(max_new_tokens=3, eos_ids=())
        session.add([1], settings, source=source, filters=[recorders[-1], Force((4,), at=0)])
    run(session)
    for recorder, source in zip(recorders, ([3, 5], [8], [9, 2, 4]), strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([source]), decoder_ids=torch.tensor([[1]])).logits[0, -1]
        assert recorder.probability == pytest.approx(logits.softmax(-1)[7].item(), rel=1e-4)
    assert math.isnan(RecordProbability(7).probability)


def test_log_probabilities_after_the_filters(model: Any) -> None:
    keep = (2, 3, 4)
    banned = tuple(i for i in range(VOCAB) if i not in keep)
    settings = GenerationSettings(max_new_tokens=4, suppress_ids=banned, renormalize=True, logprobs=True)
    session = Session(model)
    session.add([1], settings, source=[3])
    found = run(session)[-1].hypothesis
    with torch.no_grad():
        logits = model(torch.tensor([[3]]), decoder_ids=torch.tensor([[1, *found.ids[:-1]]])).logits[0][:, keep]
    want = logits.log_softmax(-1).amax(-1)
    assert found.logprobs == pytest.approx(want.tolist(), abs=1e-4)
    assert found.score == pytest.approx(want.mean().item(), abs=1e-4)
    nothing = GenerationSettings(max_new_tokens=4, suppress_ids=tuple(range(VOCAB)), renormalize=True)
    session.add([1], nothing, source=[3])
    assert run(session)[-1].finished_by == "exhausted"


def test_an_encoded_source_serves_several_requests(model: Any) -> None:
    settings = GenerationSettings(max_new_tokens=5)
    with torch.no_grad():
        encoded = [model.encode(torch.tensor([source])) for source in ([3, 5, 9], [8])]
    session = Session(model)
    for source in (encoded[0], encoded[1], encoded[0], [3, 5, 9]):
        session.add([1], settings, source=source)
    events = sorted(run(session), key=lambda event: event.id)
    first, second, again, plain = (event.hypothesis.ids for event in events if event.hypothesis)
    assert first == again == plain
    session.add([1], settings, source=[8])
    assert second == run(session)[-1].hypothesis.ids
    with pytest.raises(InputError, match="is empty"):
        session.add([1], settings, source=[])
