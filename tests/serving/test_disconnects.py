"""Clients that leave, while they wait, while their prompt is read and while they are answered, free their places."""

import contextlib
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.scheduling import MODEL, TEXT, body, send, slowed, until, worker
from support.server import Running, running

from headway.serving.limits import ServerLimits
from headway.serving.worker import Worker

CLIENTS = 200


@contextlib.contextmanager
def crowded(language_model: Path, *, stream: bool) -> Iterator[Running]:
    """A server with 200 clients, 8 of which are answered, after they have left. All answers would take 100 s."""
    limits = ServerLimits(running=8, queue=CLIENTS, drain=2)
    with running(language_model, limits=limits) as server, slowed(server, 0.05):
        clients = [send(server, body(max_tokens=80, stream=stream)) for _ in range(CLIENTS)]
        until(lambda: worker(server).counts == (8, CLIENTS - 8), seconds=60)
        if stream:  # one of the 8 has begun to be answered; which of the 200 they are is chance
            assert select.select(clients, [], [], 30)[0], "nobody is answered"
        for client in clients:
            client.close()
        yield server


@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_trust_34_clients_that_leave_free_their_places(language_model: Path, stream: bool) -> None:
    with crowded(language_model, stream=stream) as server:
        until(lambda: worker(server).counts == (0, 0), seconds=20)
        assert worker(server).session.idle
        asked = time.monotonic()
        assert server.post(TEXT, body(max_tokens=2)).status == 200
        assert time.monotonic() - asked < 5
        lines = server.get("/metrics").body.decode()
        assert f'headway_requests_total{{model="{MODEL}",outcome="cancelled"}} {CLIENTS}.0' in lines
        started = float(lines.split(f'headway_queue_seconds_count{{model="{MODEL}"}} ')[1].split()[0])
        assert started < CLIENTS / 2, "those that waited did not have to be answered first"


def test_control_34_without_cancelling_the_places_stay_taken(
    language_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel = Worker.cancel
    monkeypatch.setattr(Worker, "cancel", lambda self, ticket: None)
    with crowded(language_model, stream=True) as server:
        time.sleep(1)
        assert worker(server).counts[0] == 8 and worker(server).counts[1] > CLIENTS // 2
        with worker(server)._condition:
            held = [*worker(server)._active, *worker(server)._waiting]
        for ticket in held:  # or the server would finish them before it stops
            cancel(worker(server), ticket)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("cancelled", [True, False])  # False: the control, in which the answer is generated
def test_trust_54_a_client_that_leaves_during_prefill_frees_its_place(
    language_model: Path, cancelled: bool, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not cancelled:
        monkeypatch.setattr(Worker, "cancel", lambda self, ticket: None)
    with running(language_model) as server:
        session = worker(server).session
        worker(server).chunks = (4, 4)  # tokens a step
        with slowed(server, 0.03):
            client = send(server, body(prompt="hello " * 90, max_tokens=5, stream=stream))
            until(lambda: len(session._prefill) == 1)
            client.close()
            until(lambda: worker(server).counts == (0, 0))
        assert session.idle and not len(session._prefill)
        lines = server.get("/metrics").body.decode()
        outcome = "cancelled" if cancelled else "ok"
        assert f'headway_requests_total{{model="{MODEL}",outcome="{outcome}"}} 1.0' in lines
        assert f'headway_generated_tokens_total{{model="{MODEL}"}} 0.0' not in lines or cancelled
        assert server.post(TEXT, body(max_tokens=2)).status == 200
