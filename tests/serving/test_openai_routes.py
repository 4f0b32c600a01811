"""OpenAI's routes: each answer is the one of the same model in this process, streamed or not."""

import json
import math

import pytest
import torch
from support.server import Running

from headway.bundle import Bundle
from headway.generation import GenerationSettings, generate
from headway.jobs.chat import end_ids
from headway.preprocess.chat import PLAIN_STOPS, chat_ids

MODEL = "language_model"
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]


def chat(**fields: object) -> dict[str, object]:
    return {"model": MODEL, "messages": HELLO, "max_tokens": 12, "temperature": 0, **fields}


def text(**fields: object) -> dict[str, object]:
    return {"model": MODEL, "prompt": "The import", "max_tokens": 12, "temperature": 0, **fields}


def expected(
    writer: Bundle, prompt: list[int], *, stop: tuple[str, ...] = (), ends: tuple[int, ...], **options: object
):
    settings = GenerationSettings(max_new_tokens=12, stop=stop, eos_ids=ends, **options)
    return generate(writer.model, [prompt], settings, tokenizer=writer.processor.tokenizer)[0]


def joined(events: list[dict], index: int = 0) -> str:
    return "".join(
        choice["delta"].get("content", "")
        for event in events
        for choice in event["choices"]
        if choice["index"] == index
    )


def test_a_chat_answer_is_that_of_the_model_alone(served: Running, writer: Bundle) -> None:
    tokenizer = writer.processor.tokenizer
    prompt = chat_ids(tokenizer, HELLO, bos=False)
    (wanted,) = expected(writer, prompt, stop=PLAIN_STOPS, ends=end_ids(writer, tokenizer), logprobs=True)
    found = served.post(CHAT, chat(logprobs=True, top_logprobs=3)).json()
    (choice,) = found["choices"]
    assert choice["message"]["content"] == wanted.text.strip()
    shown = choice["logprobs"]["content"]
    assert [token["logprob"] for token in shown] == pytest.approx(wanted.logprobs, abs=1e-5)
    assert all(token["top_logprobs"][0]["logprob"] >= token["logprob"] - 1e-6 for token in shown)
    assert all(len(token["top_logprobs"]) == 3 for token in shown)
    assert bytes(b for token in shown for b in token["bytes"]).decode(errors="replace").strip() == wanted.text.strip()
    assert found["usage"] == {"prompt_tokens": len(prompt), "completion_tokens": 12, "total_tokens": len(prompt) + 12}
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize("fields", [{}, {"temperature": 2, "seed": 5, "n": 3}, {"n": 2}, {"logprobs": True}])
def test_a_streamed_answer_is_the_whole_one(served: Running, fields: dict) -> None:
    body = chat(**fields)
    whole = served.post(CHAT, body).json()["choices"]
    events = served.stream(CHAT, {**body, "stream_options": {"include_usage": True}})
    for choice in whole:
        assert joined(events, choice["index"]) == choice["message"]["content"]
    reasons = [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"]]
    assert reasons == [choice["finish_reason"] for choice in whole]
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] > 0
    assert len({event["id"] for event in events}) == 1
    if fields.get("seed"):
        assert len({choice["message"]["content"] for choice in whole}) == 3


def test_a_seed_repeats_an_answer_and_another_does_not(served: Running) -> None:
    first, again, other = (
        served.post(CHAT, chat(temperature=1, seed=seed)).json()["choices"][0]["message"]["content"]
        for seed in (-7, -7, 8)
    )
    assert first == again != other


def test_stop_strings_end_an_answer(served: Running) -> None:
    whole = served.post("/v1/completions", text()).json()["choices"][0]["text"]
    stop = whole[3:5]
    (choice,) = served.post("/v1/completions", text(stop=[stop, "never there"])).json()["choices"]
    assert choice["text"] == whole[: whole.index(stop)] and choice["finish_reason"] == "stop"
    assert served.post("/v1/completions", text(stop=stop)).json()["choices"] == [choice]


@pytest.mark.parametrize("form", ["chat", "json_object"])
def test_a_schema_constrains_the_answer(served: Running, form: str) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    given = (
        {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
        if form == "chat"
        else {"type": "json_object", "value": schema}
    )
    content = served.post(CHAT, chat(response_format=given, max_tokens=60)).json()["choices"][0]["message"]["content"]
    assert json.loads(content)["a"] in (1, 2)


def test_a_bias_forbids_a_token(served: Running) -> None:
    plain = served.post(CHAT, chat(logprobs=True)).json()["choices"][0]["logprobs"]["content"]
    texts = [token["token"] for token in plain if "\N{REPLACEMENT CHARACTER}" not in token["token"]]
    ids = {text: served.post("/tokenize", {"model": MODEL, "content": text}).json()["tokens"] for text in texts}
    text = next(text for text in texts if len(ids[text]) == 1)  # an id of its own
    other = served.post(CHAT, chat(logit_bias={str(ids[text][0]): -100}, logprobs=True)).json()["choices"][0]
    assert text not in [token["token"] for token in other["logprobs"]["content"]]


def test_echo_scores_the_prompt(served: Running, writer: Bundle) -> None:
    """As log-likelihood harnesses use it: with max_tokens 0, and token ids for prompts."""
    ids = writer.processor.tokenizer.encode("The import statement, on the 3rd", special=False)
    with torch.no_grad():
        logprobs = writer.model(torch.tensor([ids])).logits[0].log_softmax(-1)
    wanted = [float(logprobs[at, token]) for at, token in enumerate(ids[1:])]
    best = logprobs.max(-1).values.tolist()
    body = {"model": MODEL, "prompt": [ids, ids[:3]], "max_tokens": 0, "echo": True, "logprobs": 1}
    long, short = served.post("/v1/completions", body).json()["choices"]
    assert long["logprobs"]["token_logprobs"][0] is None
    assert long["logprobs"]["token_logprobs"][1:] == pytest.approx(wanted, abs=1e-4)
    assert [max(top.values()) for top in long["logprobs"]["top_logprobs"][1:]] == pytest.approx(best[:-1], abs=1e-4)
    assert short["logprobs"]["token_logprobs"][1:] == pytest.approx(wanted[:2], abs=1e-4)
    assert long["text"] == "The import statement, on the 3rd" and len(long["logprobs"]["tokens"]) == len(ids)
    both = served.post("/v1/completions", {**body, "prompt": ids, "max_tokens": 3, "temperature": 0}).json()["choices"][
        0
    ]
    assert len(both["logprobs"]["tokens"]) == len(ids) + 3 and both["text"].startswith(long["text"])


def test_several_prompts_get_their_own_answers(served: Running) -> None:
    prompts = ["The import", "hello", "on the 3rd of May 1998: 0123456789 - User"]
    alone = [served.post("/v1/completions", text(prompt=prompt)).json()["choices"][0]["text"] for prompt in prompts]
    together = served.post("/v1/completions", text(prompt=prompts)).json()
    assert [choice["text"] for choice in together["choices"]] == alone
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2]
    events = served.stream("/v1/completions", text(prompt=prompts))
    streamed = ["".join(c["text"] for e in events for c in e["choices"] if c["index"] == i) for i in range(3)]
    assert streamed == alone


def test_an_encoder_decoder_completes_a_source(served: Running, translator) -> None:
    import headway

    found = served.post("/v1/completions", {"model": "translator", "prompt": "the 3rd of May"}).json()
    assert found["choices"][0]["text"] == headway.load(translator)("the 3rd of May")
    assert found["usage"]["completion_tokens"] > 0
    refused = served.post(CHAT, chat(model="translator"))
    assert refused.status == 400 and refused.error["param"] == "model"


def test_models_health_and_metrics(served: Running) -> None:
    models = served.get("/v1/models").json()["data"]
    assert {model["id"]: model["task"] for model in models} == {
        MODEL: "generate", "translator": "translate", "embedder": "embed",
    }  # fmt: skip
    assert served.get(f"/v1/models/{MODEL}").json() == models[0]
    health = served.get("/health")
    assert health.status == 200 and health.json()["status"] == "ok"
    served.post(CHAT, chat())
    lines = dict(line.rsplit(" ", 1) for line in served.get("/metrics").body.decode().splitlines() if line[0] != "#")
    for name in ("time_to_first_token_seconds_count", "time_between_tokens_seconds_count", "generated_tokens_total"):
        assert float(lines[f'headway_{name}{{model="{MODEL}"}}']) > 0, name
    assert float(lines[f'headway_requests_running{{model="{MODEL}"}}']) == 0


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 10**9}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"max_tokens": 126}, "max_tokens"),
        ({"seed": 2**70}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"stop": ""}, "stop[0]"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": [3]}, "stop[0]"),
        ({"presence_penalty": 1e9}, "presence_penalty"),
        ({"logit_bias": {"999999999": 1}}, "logit_bias"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"3": 1e9}}, "logit_bias.3"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"top_logprobs": 10**6, "logprobs": True}, "top_logprobs"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}, {"role": "user", "content": 3}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": "a\0b"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/"}}]}]},
         "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": "hello " * 200}]}, "messages"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 5}}}}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"temprature": 0.5}, "temprature"),
        ({"stream_options": 3}, "stream_options"),
        ({"model": "no-such-model"}, "model"),
        ({"model": 3}, "model"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_trust_29_a_wrong_field_is_400_and_named(served: Running, fields: dict, param: str) -> None:
    reply = served.post(CHAT, chat(**fields))
    assert reply.status == (404 if fields.get("model") == "no-such-model" else 400), reply.body
    assert reply.error["param"] == param, reply.error
    assert reply.error["type"] and param.split("[")[0].split(".")[0] in reply.error["message"]


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"3", b"null", b'{"model": NaN}', b'{"model": Infinity}', b"\xff\xfe", b"[" * 100_000,
        b'{"a":' * 80 + b"1" + b"}" * 80, b'{"model": "\\ud800"}', b'{"seed": ' + b"9" * 10_000 + b"}",
    ],
)  # fmt: skip
def test_trust_29_a_body_that_is_no_object_is_400(served: Running, data: bytes) -> None:
    for path in (CHAT, "/v1/completions"):
        reply = served.post(path, data, Content_Type="application/json")
        assert reply.status == 400 and reply.error["message"], (path, reply.body)
    assert served.post(CHAT, chat(max_tokens=1)).status == 200


def test_logprobs_that_are_not_finite_are_numbers(served: Running) -> None:
    """A token that the schema forces may be impossible for the model; JSON has no infinity."""
    reply = served.post(CHAT, chat(logprobs=True, top_logprobs=5, response_format={"type": "json_object"}))
    tokens = reply.json()["choices"][0]["logprobs"]["content"]
    assert tokens and all(math.isfinite(token["logprob"]) for token in tokens)
