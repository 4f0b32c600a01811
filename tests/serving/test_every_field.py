"""TRUST 29: every field of every JSON route, from the server's own OpenAPI document, with values of wrong kinds."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.server import Running

from headway.serving.fields import parse_json
from headway.serving.limits import ServerLimits

RIGHT: dict[str, dict[str, Any]] = {  # a request of each route that is answered
    "/v1/chat/completions": {"model": "chat", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1},
    "/v1/completions": {"model": "chat", "prompt": "hello", "max_tokens": 1},
    "/v1/responses": {"model": "chat", "input": "hello", "max_output_tokens": 1},
    "/v1/embeddings": {"model": "embedder", "input": "hello"},
    "/embed": {"inputs": "hello"},
    "/rerank": {"query": "hello", "documents": ["May", "hello"], "model": "embedder"},
    "/translate": {"q": "hello", "source": "en", "target": "de"},
    "/tokenize": {"model": "chat", "content": "hello"},
    "/detokenize": {"model": "chat", "tokens": [5]},
    "/models/classify": {"inputs": "please cancel my order"},
    "/v1/images/generations": {"model": "draw", "prompt": "a red circle", "steps": 1},
}
SAME = {
    "/v1/rerank",
    "/v2/rerank",
    "/models/{name}/v1/chat/completions",
    "/models/{name}/pipeline/{task}",
}  # one function with another path
WRONG = [10**30, -(10**30), 1e308, -1, {"a": [[]]}, [None], "\N{REPLACEMENT CHARACTER}" * 3, True]
NOT_JSON = ["NaN", "Infinity", "-Infinity", "1e999"]


def fields(server: Running) -> Iterator[tuple[str, str]]:
    """(path, name of a field of its JSON body)"""
    document = server.server.app.openapi()
    for path, methods in document["paths"].items():
        content = methods.get("post", {}).get("requestBody", {}).get("content", {})
        schema = content.get("application/json", {}).get("schema", {})
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if path not in SAME and not path.startswith("/studio"):
            yield from ((path.replace("{name}", "classify"), name) for name in schema.get("properties", {}))


def test_trust_29_every_field_of_every_route(tasks: Running) -> None:
    every = list(fields(tasks))
    assert {path for path, _ in every} == set(RIGHT), "a route without a request here"
    assert len(every) > 100
    for path, given in RIGHT.items():  # control: what is refused below is refused for the changed field
        assert tasks.post(path, given).status == 200, path
    refused = 0
    for path, name in every:
        for value in WRONG:
            reply = tasks.post(path, {**RIGHT[path], name: value})
            assert reply.status in (200, 400, 404), (path, name, value, reply.body)
            if reply.status != 200:  # 200: a field without effect, or for which the value is right
                refused += 1
                param = reply.error["param"]
                assert param is not None and param.startswith(name), (path, name, value, reply.body)
                assert name in reply.error["message"]
    assert refused > 3 * len(every)
    assert all(entry.served is None or entry.served.worker.alive for entry in tasks.server.models), "a worker died"
    for path, given in RIGHT.items():
        assert tasks.post(path, given).status == 200, path


@pytest.mark.parametrize("number", NOT_JSON)
def test_trust_29_a_number_that_json_does_not_have_names_its_field(tasks: Running, number: str) -> None:
    for path, given in RIGHT.items():
        for name in [*given, "temperature"]:
            text = json.dumps({**given, name: "HERE"}).replace('"HERE"', number)
            reply = tasks.post(path, text.encode(), Content_Type="application/json")
            assert reply.status == 400 and reply.error["param"] == name, (path, name, reply.body)
    nested = f'{{"model": "chat", "messages": [{{"role": "user", "content": [1, {number}]}}]}}'
    reply = tasks.post("/v1/chat/completions", nested.encode(), Content_Type="application/json")
    assert reply.error["param"] == "messages[0].content[1]"


def test_numbers_that_json_has_are_read() -> None:
    text = b'{"a": [1, -2.5, 1e308, 0.0, -0.0], "b": {"c": 1e-400}}'
    assert parse_json(text, ServerLimits()) == {"a": [1, -2.5, 1e308, 0.0, -0.0], "b": {"c": 0.0}}
