"""Filters of one's own in a session: one call a step for all rows that have them, with a state per answer."""

from dataclasses import replace

import pytest
import torch
from support.searches import steps_until_idle

from headway.generation import GenerationSettings, Session, generate

GREEDY = GenerationSettings(max_new_tokens=8)


class OnlyEven:
    """Counts its calls."""

    def __init__(self):
        self.rows: list[int] = []

    def __call__(self, scores, history):
        self.rows.append(len(scores))
        odd = torch.arange(scores.shape[1]) % 2 == 1
        return scores.masked_fill(odd, -torch.inf)


@pytest.mark.parametrize("chosen", [GREEDY, replace(GREEDY, temperature=1.0, seed=3), replace(GREEDY, beams=3)])
def test_a_filter_of_ones_own(llama, chosen):
    rule = OnlyEven()
    session = Session(llama.model)
    filtered = {session.add(prompt, chosen, filters=[rule]) for prompt in ([5, 9, 11], [7])}
    plain = session.add([5, 9, 11], GREEDY)
    found = {e.id: e.hypothesis.ids for events in steps_until_idle(session) for e in events if e.hypothesis}
    assert all(token % 2 == 0 for id in filtered for token in found[id])
    assert found[plain] == generate(llama.model, [[5, 9, 11]], GREEDY)[0][0].ids
    assert any(token % 2 for token in found[plain]), "control: the others are not filtered"
    assert len(rule.rows) == 8 and max(rule.rows) == 2 * chosen.beams, "one call per step for both requests"


class Counter:
    """Allows token 4 only after three others, and completes the answer after it."""

    class State:
        def __init__(self, tokens=()):
            self.tokens = tokens

        @property
        def complete(self):
            return 4 in self.tokens

        def push(self, token):
            self.tokens = (*self.tokens, token)

        def copy(self):
            return Counter.State(self.tokens)

    def new_state(self):
        return self.State()

    def __call__(self, scores, history):
        out = scores.clone()
        for row, state in zip(out, history.states(self), strict=True):
            if len(state.tokens) == 3:
                row[:4] = row[5:] = -torch.inf
            else:
                row[4] = -torch.inf
        return out


@pytest.mark.parametrize("chosen", [GREEDY, replace(GREEDY, temperature=1.0, n=2), replace(GREEDY, beams=3, n=3)])
def test_a_filter_with_a_state_per_answer(llama, chosen):
    session = Session(llama.model)
    session.add([5, 9, 11], chosen, filters=[Counter()])
    session.add([7], chosen, filters=[Counter()])
    finished = [e.hypothesis for events in steps_until_idle(session) for e in events if e.hypothesis]
    assert len(finished) == 2 * chosen.n
    for hypothesis in finished:
        assert hypothesis.finished_by == "complete"
        assert len(hypothesis.ids) == 4 and hypothesis.ids.index(4) == 3
