"""What fails in a session fails alone: numbers that are not finite, filters that raise, wrong requests, interrupts."""

import copy
from dataclasses import replace

import pytest
import torch
from support.searches import Counted, steps_until_idle

from headway import engine
from headway.errors import HeadwayError, InputError
from headway.generation import GenerationSettings, Session, generate

GREEDY = GenerationSettings(max_new_tokens=8)


def test_nan_fails_one_request_alone(llama):
    model = copy.deepcopy(llama.model)
    with torch.no_grad():
        model.embedding.tokens.weight[39] = torch.nan
    [want] = generate(model, [[5, 9]], replace(GREEDY, suppress_ids=(39,)))
    for chosen in (GREEDY, replace(GREEDY, beams=2), replace(GREEDY, temperature=1.0, n=3)):
        session = Session(model)
        good = session.add([5, 9], replace(GREEDY, suppress_ids=(39,)))
        bad = session.add([5, 39], chosen)
        events = [event for events in steps_until_idle(session) for event in events]
        [failure] = [event for event in events if event.id == bad]
        assert failure.finished_by == "error" and isinstance(failure.error, HeadwayError)
        assert [event.token for event in events if event.id == good] == want[0].ids
        with pytest.raises(HeadwayError, match="NaN"):
            generate(model, [[5, 9], [5, 39]], replace(chosen, suppress_ids=(39,)))


def test_a_filter_that_raises_fails_its_request(llama):
    def broken(scores, history):
        raise ValueError("broken filter")

    [want] = generate(llama.model, [[5, 9]], GREEDY)
    for chosen in (GREEDY, replace(GREEDY, beams=2)):
        session = Session(llama.model)
        good, bad = session.add([5, 9], GREEDY), session.add([7], chosen, filters=[broken])
        events = [event for events in steps_until_idle(session) for event in events]
        assert [str(event.error) for event in events if event.id == bad] == ["broken filter"]
        assert [event.token for event in events if event.id == good] == want[0].ids


class Failing(Counted):
    """Raises in one step."""

    error: BaseException | None = None

    def step(self, ids, cache, **options):
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return super().step(ids, cache, **options)


def test_a_model_that_raises_ends_the_running_requests_and_the_session_goes_on(llama):
    model = Failing(llama.model)
    [want] = generate(llama.model, [[5, 9]], GREEDY)
    session = Session(model)
    running = [session.add([5, 9], GREEDY), session.add([7], replace(GREEDY, temperature=1.0, n=2))]
    session.step()
    later = session.add([5, 9], GREEDY)
    model.error = RuntimeError("out of memory")
    events = session.step()
    failures = [event for event in events if event.finished_by == "error"]
    assert [event.id for event in failures] == running and len(session) == 1
    tokens = [event.token for events in (events, *steps_until_idle(session)) for event in events if event.id == later]
    assert tokens == want[0].ids
    model.error = RuntimeError("out of memory")
    session.add([7], GREEDY)
    [failure] = session.step()  # in prefill
    assert failure.finished_by == "error" and session.idle


def test_an_interrupt_drops_all_requests(llama):
    model = Failing(llama.model)
    session = Session(model)
    session.add([5, 9], GREEDY)
    session.step()
    model.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        session.step()
    assert session.idle
    session.add([5, 9], GREEDY)
    assert [e.token for events in steps_until_idle(session) for e in events] == generate(model, [[5, 9]], GREEDY)[0][
        0
    ].ids


def test_wrong_requests_change_nothing(llama):
    session = Session(llama.model)
    for prompt, settings, message in [
        ([], GREEDY, "prompt is empty"),
        ([40], GREEDY, "prompt contains id 40"),
        ([1] * 60, GREEDY, "context is 64"),
        ([1], replace(GREEDY, stop=("x",)), "tokenizer"),
        ([1], replace(GREEDY, seed=(1, 2)), "seed"),
    ]:
        with pytest.raises(InputError, match=message):
            session.add(prompt, settings)
    with pytest.raises(InputError, match="takes no source"):
        session.add([1], GREEDY, source=[1])
    assert session.idle and session.step() == []


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("all_abandoned", [True, False])
def test_a_pass_that_nobody_waits_for_ends_between_two_layers(llama, fast, all_abandoned):
    model = copy.deepcopy(llama.model)
    if fast:
        engine.prepare(model)
    session, prompts = Session(model), [list(range(3, 23)), list(range(4, 24))]
    ids = [session.add(prompt, GREEDY) for prompt in prompts]
    requests = [session._requests[id] for id in ids]
    reached = []

    def leave(*_):
        reached.append("first")
        for request in requests if all_abandoned else requests[:1]:
            request.abandoned = True

    first, last = model.stack.blocks[0].register_forward_hook(leave), model.stack.blocks[-1]
    with first, last.feedforward.register_forward_hook(lambda *_: reached.append("last")):
        events = session.step()
    assert reached == (["first"] if all_abandoned else ["first", "last"])
    assert bool(events) is not all_abandoned
    for id in ids if all_abandoned else ids[:1]:
        session.cancel(id)
    assert session.idle is all_abandoned
    if not all_abandoned:
        rest = [event for events in steps_until_idle(session) for event in events]
        got = [event.token for event in [*events, *rest] if event.id == ids[1]]
        assert got == generate(model, [prompts[1]], GREEDY)[0][0].ids
