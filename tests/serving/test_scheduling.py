"""The scheduler: batched answers are solo answers; limits, disconnects, deadlines and faults concern one request."""

import contextlib
import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from support.scheduling import MODEL, TEXT, body, gated, send, slowed, until, worker
from support.server import Reply, running

from headway.bundle import Bundle
from headway.generation import GenerationSettings, Hypothesis, generate
from headway.serving.fair_queue import FairQueue
from headway.serving.generation_worker import GenerationWorker
from headway.serving.limits import ServerLimits
from headway.serving.turns import Turns

# ---------------------------------------------------------------------------------------- batched = solo


def requests(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    words = ["The", "import", "statement", "on", "the", "3rd", "of", "May", "1998", "hello", "User", "Assistant"]
    out = []
    for number in range(count):
        prompt = " ".join(rng.choices(words, k=rng.randrange(1, 25)))
        sampled = {"temperature": rng.choice([0.7, 1.0]), "top_p": rng.choice([0.9, 1.0]), "seed": number}
        out.append(body(prompt=prompt, max_tokens=rng.randrange(3, 25), **(sampled if number % 2 else {})))
    return out


def solo(writer: Bundle, fields: dict[str, Any]) -> Hypothesis:
    tokenizer = writer.processor.tokenizer
    options = {name: fields[name] for name in ("temperature", "top_p", "seed") if name in fields}
    settings = GenerationSettings(max_new_tokens=fields["max_tokens"], eos_ids=(tokenizer.eos_id,), **options)
    ((found,),) = generate(writer.model, [writer.find_task().prompt(fields["prompt"])], settings, tokenizer=tokenizer)
    return found


@pytest.mark.parametrize("prefix_cache", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_trust_38_53_batched_answers_are_solo_answers(language_model: Path, writer: Bundle, prefix_cache: bool) -> None:
    """Requests join and leave at random, some leave early; each of the others gets its solo answer."""
    wanted = requests(16, seed=1)
    with running(language_model, prefix_cache=prefix_cache, limits=ServerLimits(running=6, queue=100)) as server:
        sizes: list[int] = []
        observe = worker(server).metrics.batch.observe
        worker(server).metrics.batch.observe = lambda size: (sizes.append(size), observe(size))

        def one(fields: dict[str, Any]) -> str:
            time.sleep(random.random() * 0.05)
            if fields["max_tokens"] % 5 == 0:  # one more that leaves in the middle
                send(server, {**fields, "stream": True}).close()
            return server.post(TEXT, fields).json()["choices"][0]["text"]

        with ThreadPoolExecutor(12) as pool:
            found = list(pool.map(one, wanted))
        assert max(sizes) > 2, "nothing was batched, so nothing is tested"
    alone = [solo(writer, fields).text for fields in wanted]
    assert found == alone
    assert found != [*alone[1:], alone[0]], "answers differ, so that one in another's place is found"


# ---------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(("queue", "excess"), [(3, 6), (0, 9), (9, 0)])  # the last: a control, nobody is refused
def test_trust_35_exactly_the_excess_is_refused(language_model: Path, queue: int, excess: int) -> None:
    with running(language_model, limits=ServerLimits(running=2, queue=queue)) as server, gated(server) as gate:
        with ThreadPoolExecutor(11) as pool:
            replies = [pool.submit(server.post, TEXT, body()) for _ in range(11)]
            until(lambda: sum(reply.done() for reply in replies) + sum(worker(server).counts) == 11)
            time.sleep(0.1)
            assert sum(reply.done() for reply in replies) == excess
            gate.set()
            found: list[Reply] = [reply.result() for reply in replies]
        refused = [reply for reply in found if reply.status == 429]
        assert len(refused) == excess and sum(reply.status == 200 for reply in found) == 11 - excess
        assert all(int(reply.headers["retry-after"]) >= 1 and reply.error["code"] == "queue_full" for reply in refused)
        assert server.post(TEXT, body()).status == 200


def test_clients_have_turns_in_the_queue() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(4):
        queue.add("a", f"a{number}")
    queue.add("b", "b0")
    queue.add("c", "c0")
    assert queue.remove("a2") and not queue.remove("a2")
    assert [queue.take() for _ in range(len(queue))] == ["a0", "b0", "c0", "a1", "a3"]


def test_forward_passes_of_several_models_have_turns() -> None:
    turns, order = Turns(), list[str]()

    def work(name: str) -> None:
        for _ in range(3):
            with turns:
                order.append(name)
                if len(order) < 6:
                    until(lambda: bool(turns._waiting))  # the other one is there, however slow its thread is

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "".join(order) in ("ababab", "bababa"), order


def test_a_deadline_ends_a_request_and_frees_its_place(language_model: Path) -> None:
    with running(language_model, limits=ServerLimits(deadline=0.4)) as server:
        with gated(server):
            late = server.post(TEXT, body())
            assert late.status == 504 and late.error["code"] == "deadline_exceeded"
            events = server.post(TEXT, body(stream=True))
            assert events.status == 504
        until(lambda: worker(server).counts == (0, 0))
        with slowed(server, 0.1):  # an answer whose beginning was sent already
            data = server.post(TEXT, body(stream=True, max_tokens=60)).body.decode().strip().split("\n\n")
            assert json.loads(data[-1].removeprefix("data: "))["error"]["code"] == "deadline_exceeded"
        assert server.post(TEXT, body(max_tokens=2)).status == 200


def test_a_long_prompt_does_not_stall_other_answers(language_model: Path) -> None:
    """Tokens of a running answer come between the chunks of another's prompt."""
    with running(language_model) as server:
        session = worker(server).session
        worker(server).chunks = (8, 8)
        order: list[str] = []
        step = session.step

        def recorded() -> Any:
            time.sleep(0.02)  # the answer is not done before the other request is there
            prefilling = bool(len(session._prefill))
            events = step()
            order.extend("prefill and token" for event in events if prefilling and event.token is not None)
            return events

        session.step = recorded
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(server.post, TEXT, body(max_tokens=80))
            until(lambda: worker(server).counts[0] == 1)
            pool.submit(server.post, TEXT, body(prompt="hello " * 90, max_tokens=2)).result()
            assert first.result().status == 200
        assert len(order) > 5


# ---------------------------------------------------------------------------------------- faults


POISON = 65  # a token id that no other prompt or answer has


@contextlib.contextmanager
def poisoned(model: Any) -> Iterator[None]:
    """A forward pass with the token fails, whoever else is in the batch."""
    step = model.step

    def failing(ids: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        if POISON in ids:
            raise RuntimeError("out of memory")
        return step(ids, *arguments, **options)

    model.step = failing
    try:
        yield
    finally:
        model.step = step


def test_trust_37_a_fault_fails_one_request(language_model: Path, writer: Bundle) -> None:
    wanted = requests(9, seed=3)
    with running(language_model) as server:
        model = server.server.models.find(MODEL).served.model
        with poisoned(model), slowed(server, 0.01), ThreadPoolExecutor(12) as pool:
            good = [pool.submit(server.post, TEXT, fields) for fields in wanted]
            bad = [pool.submit(server.post, TEXT, body(prompt=[10, POISON, 11])) for _ in range(2)]
            # one whose fault comes late, in a pass that it shares with the others: its second token
            late = pool.submit(server.post, TEXT, body(prompt=[10, 11], logit_bias={str(POISON): 100}))
            assert all(reply.result().status == 500 for reply in [*bad, late])
            replies = [reply.result() for reply in good]
        assert all(reply.status == 200 for reply in replies), [reply.body for reply in replies]
        health = server.get("/health")
        assert health.status == 200, health.body
        assert "out of memory" not in bad[0].result().body.decode(), "details stay in the server's log"
    found = [reply.json()["choices"][0]["text"] for reply in replies]
    expected = [solo(writer, fields).text for fields in wanted]
    assert found == expected


def test_control_37_without_a_second_run_the_neighbours_fail_too(
    language_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        GenerationWorker,
        "_failed",
        lambda self, errors: [self.fail(self._tickets.pop(id), error) for id, error in errors.items()],
    )
    with running(language_model) as server:
        model = server.server.models.find(MODEL).served.model
        with poisoned(model), slowed(server, 0.02), ThreadPoolExecutor(4) as pool:
            good = [pool.submit(server.post, TEXT, body(max_tokens=60)) for _ in range(3)]
            until(lambda: worker(server).counts[0] == 3)
            late = pool.submit(server.post, TEXT, body(prompt=[10, 11], logit_bias={str(POISON): 100}))
            assert late.result().status == 500
            assert {reply.result().status for reply in good} == {500}


def test_trust_37_health_tells_the_truth(language_model: Path) -> None:
    with running(language_model) as server:
        model = server.server.models.find(MODEL).served.model
        step = model.step

        def broken(*_: Any, **__: Any) -> Any:
            raise RuntimeError("broken")

        model.step = broken
        assert server.post(TEXT, body()).status == 500
        health = server.get("/health")
        assert health.status == 503 and health.json()["models"][MODEL]["status"] == "failing"
        model.step = step
        assert server.post(TEXT, body()).status == 200
        assert server.get("/health").status == 200


def test_a_streamed_answer_continues_after_a_neighbour_s_fault(language_model: Path, writer: Bundle) -> None:
    fields = body(prompt="hello on the 3rd", max_tokens=40)
    assert POISON not in solo(writer, fields).ids
    with running(language_model) as server:
        model = server.server.models.find(MODEL).served.model
        with poisoned(model), slowed(server, 0.01), ThreadPoolExecutor(2) as pool:
            events = pool.submit(server.stream, TEXT, fields)
            until(lambda: bool(worker(server)._tickets))
            time.sleep(0.1)
            late = pool.submit(server.post, TEXT, body(prompt=[10, 11], logit_bias={str(POISON): 100}))
            found = "".join(choice["text"] for event in events.result() for choice in event["choices"])
            assert late.result().status == 500
    assert found == solo(writer, fields).text


def test_a_fault_in_a_batch_of_predictions_fails_one_request(embedder: Path) -> None:
    with running(embedder) as server:
        entry = server.server.models.find("embedder").served
        gate, predict = threading.Event(), entry.worker._predict

        def waiting(inputs: Any, options: Any) -> Any:
            assert gate.wait(20)
            return predict(inputs, options)

        entry.worker._predict = waiting
        alone = None
        with ThreadPoolExecutor(6) as pool:
            first = pool.submit(server.post, "/embed", {"inputs": "hello"})
            until(lambda: entry.worker.counts[0] == 1)
            good = [pool.submit(server.post, "/embed", {"inputs": "hello " * n}) for n in (1, 2, 3)]
            bad = pool.submit(server.post, "/embed", {"inputs": "hello " * 500})
            until(lambda: sum(entry.worker.counts) == 5)
            gate.set()
            alone = first.result().json()
            assert [reply.result().status for reply in good] == [200, 200, 200]
            refused = bad.result()
        assert refused.status == 400 and "128" in refused.error["message"], "both counts are named"
        assert "502" in refused.error["message"]
        assert good[0].result().json()[0] == pytest.approx(alone[0], abs=1e-6)
        cut = server.post("/embed", {"inputs": "hello " * 500, "truncate": True})
        assert cut.status == 200
        assert 'headway_cut_inputs_total{model="embedder"} 1.0' in server.get("/metrics").body.decode()


def test_clients_whose_answers_ended_together_are_waited_for_a_moment(language_model: Path) -> None:
    with running(language_model) as server:
        mine = worker(server)
        assert server.post(TEXT, body(max_tokens=2)).status == 200
        until(lambda: mine._ended == 1)  # a single client is not waited for
        mine._ended, mine._ended_at = 2, time.monotonic() + 5
        first = send(server, body(max_tokens=2))
        until(lambda: mine.counts == (0, 1))
        time.sleep(0.1)
        assert mine.counts == (0, 1), "it waits for the second"
        second = send(server, body(max_tokens=2))
        for client in (first, second):
            with client:
                assert client.recv(12) == b"HTTP/1.1 200"
        mine._ended, mine._ended_at = 2, time.monotonic() - 1
        asked = time.monotonic()
        assert server.post(TEXT, body(max_tokens=2)).status == 200
        assert time.monotonic() - asked < 20, "not for longer than the moment"
