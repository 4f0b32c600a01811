"""What bounds the work of one body: counts before parsing, the first error, shares, turns. TRUST 57, 58."""

import asyncio
import contextlib
import json
import random
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.responses import JSONResponse
from pydantic import BaseModel, TypeAdapter, ValidationError
from serving.attacks import head, in_chunks, routes, silent
from support.server import Running, running

from headway.serving import fields, server
from headway.serving.api_errors import ApiError
from headway.serving.app import MODULES
from headway.serving.exchange import PLACE, LargeAnswer, Place, in_thread
from headway.serving.fair_queue import FairTurns
from headway.serving.limits import ServerLimits
from headway.serving.prediction_worker import PredictionTicket

LIMITS = ServerLimits(values=1000, keys=100, digits=50)


# ---------------------------------------------------------------------------------------- counts


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" + "1.5," * 1000 + "1]", "more than 1,000 values"),
        ("[" + "[]," * 1000 + "1]", "more than 1,000 values"),
        ('["' + '\\\\","' * 1000 + '"]', "more than 1,000 values"),
        ('["a\\\\",' + "1," * 1000 + "1]", "more than 1,000 values"),
        ("[" + ",".join(["7" * 51] * 30) + "]", "more than 50 digits"),
        ("{" + ",".join(f'"k{n}":1' for n in range(101)) + "}", "101 keys"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "'c' is given twice"),
        ('{"\\ud800": 1, "\\ud800": 2}', "given twice"),
        ('"\\ud800"', "surrogate"),
    ],
)
def test_trust_57_58_too_much_is_refused_before_it_is_parsed(text: str, reason: str) -> None:
    with pytest.raises(ApiError, match=reason) as found:
        fields.parse_json(text.encode(), LIMITS)
    assert found.value.status_code == 400


def test_what_stands_in_a_text_is_not_counted() -> None:
    for inside in (",[{" * 1000, '\\",' * 1000, "\\\\\\\\," * 1000, "7" * 10_000, "\N{PILE OF POO}," * 1000):
        text = f'{{"a": "{inside}", "b": [1, "x,", 2]}}'
        assert fields.parse_json(text.encode(), LIMITS) == json.loads(text)
    assert fields.parse_json("\ufeff[1]".encode(), LIMITS) == [1]
    for encoding in ("utf-16", "utf-32", "latin-1"):
        with pytest.raises(ApiError, match="not JSON"):
            fields.parse_json('["é"]'.encode(encoding), LIMITS)


@pytest.mark.parametrize("step", [2, 3, 7, 64])
def test_strings_are_left_out_wherever_a_part_ends(step: int) -> None:
    rng = random.Random(step)
    for _ in range(200):
        value = ["".join(rng.choices('a\\",[{\n', k=rng.randrange(9))) for _ in range(rng.randrange(1, 6))]
        text = json.dumps(value).encode()
        outside = b"".join(fields._outside_strings(text, step))
        assert outside == re.sub(rb'"(?:[^"\\]|\\.)*"', b"", text), text


def lists(schema: Any) -> Iterator[str]:
    """Names of fields that take a list, whose items may be wrong."""
    for name, field in schema.get("properties", {}).items():
        if any(option.get("type") == "array" for option in field.get("anyOf", [field])):
            yield name


def test_every_list_of_every_body_stops_at_its_first_wrong_item() -> None:
    kinds = {fields.body_kind(route) for module in MODULES for route in module.router.routes} - {None}
    tried = 0
    for kind in kinds:
        for name in lists(kind.model_json_schema()):  # type: ignore[union-attr]
            found = errors(kind, {name: [{"wrong": 1}] * 1000})  # type: ignore[arg-type]
            assert sum(error["loc"][0] == name for error in found) < 30, (kind, name)
            tried += 1
    assert tried >= 10

    class Unprotected(BaseModel):  # control
        names: list[str]

    assert len(errors(Unprotected, {"names": [1] * 1000})) == 1000


def errors(kind: type[BaseModel], value: Any) -> list[Any]:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        return list(error.errors())
    return []


def test_trust_58_a_key_given_twice_is_refused_on_every_route(tasks: Running) -> None:
    paths = {route.path: list(route.right()) for route in routes() if route.method == "POST" and route.schema}
    paths = {path: names for path, names in paths.items() if names and "audio" not in path and "studio" not in path}
    assert len(paths) > 12
    for path, names in paths.items():
        for kind in ("application/json",):
            body = f'{{"{names[0]}": "x", "{names[0]}": "x"}}'.encode()
            reply = tasks.post(path.replace("{name:path}", "classify").replace("{task}", "x"), body, Content_Type=kind)
            assert reply.status == 400 and reply.error["param"] == names[0], (path, reply.body)
            assert "given twice" in reply.error["message"]


# ---------------------------------------------------------------------------------------- shares


@pytest.fixture(scope="module")
def small(embedder: Path) -> Iterator[Running]:
    limits = ServerLimits(
        connections=12, client_connections=6, idle_connections=4, header_seconds=30, body_seconds=30,
        bodies_bytes=1_000_000, client_bodies_bytes=600_000, small_body_bytes=10_000,
    )  # fmt: skip
    with running(embedder, limits=limits) as found:
        yield found


def arriving(server: Running, count: int, size: int, *, address: str = "127.0.0.1") -> list[socket.socket]:
    """Requests whose bodies lack their last byte."""
    found = []
    for _ in range(count):
        found.append(socket.create_connection(("127.0.0.1", server.port), timeout=10, source_address=(address, 0)))
        found[-1].sendall(head("/embed", size) + b" " * (size - 1))
    time.sleep(0.3)
    return found


def answers(connections: list[socket.socket]) -> int:
    """How many have been answered 503 by now."""
    found = 0
    for connection in connections:
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            found += connection.recv(100).startswith(b"HTTP/1.1 503")
    return found


def test_trust_57_bytes_are_counted_while_bodies_arrive(small: Running) -> None:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(each) for each in arriving(small, 4, 180_000)]
        assert answers(held) == 1, "of one address"
        others = [stack.enter_context(each) for each in arriving(small, 3, 180_000, address="127.0.0.2")]
        assert answers(others) == 1, "of all"
        assert small.post("/embed", {"inputs": "hello"}).status == 200, "a small one"
    assert small.post("/embed", {"inputs": "hello" + " " * 200_000}).status in (200, 400), "they are gone"


def test_trust_57_a_client_has_a_share_of_the_requests_and_probes_are_answered(small: Running) -> None:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(each) for each in arriving(small, 7, 100)]
        assert answers(held) == 1
        assert small.post("/embed", {"inputs": "hello"}).status == 503
        assert {small.get(path).status for path in ("/health", "/metrics")} == {200}
        others = [stack.enter_context(each) for each in arriving(small, 7, 100, address="127.0.0.2")]
        assert answers(others) == 1
        assert {small.get(path).status for path in ("/health", "/metrics")} == {200}


def test_trust_57_of_silent_connections_the_longest_is_closed(small: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ARRIVING", 0)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(each) for each in silent(small.port, 20)]
        assert small.get("/health").status == 200
        closed = [each for each in held if each.setblocking(False) or is_closed(each)]
        assert closed == held[: len(closed)] and 15 <= len(closed) <= 17
        held[-1].setblocking(True)
        held[-1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert held[-1].recv(100).startswith(b"HTTP/1.1 200"), "the newest are not closed"


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_trust_57_a_body_in_chunks_of_one_byte_is_refused(small: Running) -> None:
    assert in_chunks(small.port, 1500).startswith(b"HTTP/1.1 400")
    text = json.dumps({"inputs": "hello" + " " * 3000}).encode()
    few = [text[at : at + 5] for at in range(0, len(text), 5)]
    with contextlib.closing(small.connection()) as connection:  # control: hundreds of small parts are a body
        connection.request("POST", "/embed", iter(few), {"Content-Type": "application/json"}, encode_chunked=True)
        assert connection.getresponse().status == 200


# ---------------------------------------------------------------------------------------- turns


def test_trust_57_clients_prepare_in_turns() -> None:
    """One client's forty do not delay another's one, also when those who sent them have left."""
    order = list[str]()

    async def one(turns: FairTurns, client: str, name: str) -> None:
        PLACE.set(Place(turns, client, False))
        await in_thread(lambda: (time.sleep(0.02), order.append(name)), in_turn=True)

    async def all_of_them() -> None:
        turns = FairTurns(1)
        many = [asyncio.create_task(one(turns, "many", f"many {n}")) for n in range(40)]
        await asyncio.sleep(0.01)
        await one(turns, "few", "few")
        assert order.index("few") <= 2
        for task in many:
            task.cancel()
        await asyncio.gather(*many, return_exceptions=True)
        count = len(order)
        await one(turns, "few", "few")  # waits for the thread that is still at work, and for no other
        assert len(order) <= count + 2

    asyncio.run(all_of_them())


def test_trust_57_a_request_of_many_inputs_has_several_batches(small: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = next(iter(small.server.models))
    worker, sizes = entry.served.worker, list[list[int]]()
    predict = worker._predict

    def slow(inputs: Any, options: Any) -> Any:
        sizes.append([len(text) for text in inputs])
        time.sleep(0.05)
        return predict(inputs, options)

    monkeypatch.setattr(worker, "_predict", slow)
    texts = ["hello " * (1 + n % 3) for n in range(640)]

    async def both() -> tuple[list[Any], int]:
        many = PredictionTicket(texts, {}, client="many")
        few = PredictionTicket(["hello"], {"normalize": True}, client="few")
        worker.submit(many)
        await asyncio.sleep(0.06)
        worker.submit(few)
        await few.next()
        before = len(sizes)
        return await many.next(), before

    found, before = asyncio.run(both())
    assert before <= 5, "it waited for a batch or two"
    assert len(found) == 640 and max(map(len, sizes)) == 64
    assert found == predict(texts, {}), "as if predicted together"


def test_a_batch_is_bounded_by_its_characters() -> None:
    async def ticket() -> PredictionTicket:
        return PredictionTicket(["a" * 40, {"text": "a" * 40, "text_pair": "b" * 30}, "a" * 200, "a"], {})

    made = asyncio.run(ticket())
    lengths = []
    while rest := made.part(64, 100):
        lengths.append(len(rest))
        made.found += rest
    assert lengths == [1, 1, 1, 1] and len(made.found) == 4
    made.found = []
    assert len(made.part(64, 110)) == 2 and len(made.part(1, 110)) == 1 and made.part(0, 110) == []


def test_a_text_that_no_context_holds_is_refused_before_it_is_tokenised(tasks: Running) -> None:
    long = "hello " * 30_000
    asked: list[tuple[str, Any]] = [
        ("/models/classify", {"inputs": long}), ("/models/classify", {"inputs": ["hello", long]}),
        ("/models/answer", {"inputs": {"question": "hello", "context": long}}), ("/models/en-de", {"inputs": long}),
        ("/v1/embeddings", {"model": "embedder", "input": long}), ("/embed", {"inputs": long, "truncate": True}),
        ("/tokenize", {"model": "chat", "content": long}), ("/v1/completions", {"model": "chat", "prompt": long}),
        ("/v1/chat/completions", {"model": "chat", "messages": [{"role": "user", "content": long}]}),
        ("/translate", {"q": long, "source": "en", "target": "de"}),
        ("/rerank", {"query": "hello", "documents": [long], "model": "embedder"}),
    ]  # fmt: skip
    for path, body in asked:
        reply = tasks.post(path, body)
        assert reply.status == 400 and "180,0" in reply.error["message"], (path, reply.body)
        assert reply.error["code"] == "context_length_exceeded" and reply.error["param"], (path, reply.body)


def test_parameters_that_are_not_an_object_are_refused(tasks: Running) -> None:
    for given in ("x", 1, ["x"]):
        reply = tasks.post("/models/embedder", {"inputs": "hello", "parameters": given, "normalize": True})
        assert reply.status == 400 and reply.error["param"] in ("parameters", "normalize"), reply.body


def test_a_large_answer_is_the_same_json() -> None:
    values: list[Any] = [
        [], {}, [[]], [{}], {"a": []}, [[0.1, 2], []], [{"a": [1, {"b": "\u00e9\n"}]}, 3, "x"], 1, "x",
        {"a": {}, "b": [[1]], "c": None},
    ]  # fmt: skip
    for value in values:
        assert json.loads(LargeAnswer(value).body) == value and LargeAnswer(value).body == JSONResponse(value).body
    with pytest.raises(ValueError, match="JSON"):
        LargeAnswer([[float("nan")]])
