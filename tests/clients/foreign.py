"""Clients of others against a server: a function raises if its client's answer is not right. Prints one line each."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import published

URL, EXAMPLES, ONLY = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(",") if len(sys.argv) > 3 else None
WANTED = json.load(sys.stdin)
PICTURE, SOUND = (base64.b64decode(WANTED[name]) for name in ("picture", "sound"))
HELLO = [{"role": "user", "content": "hello"}]


def openai_client() -> None:
    from openai import OpenAI

    found = OpenAI(base_url=f"{URL}/v1", api_key="none").chat.completions.create(
        model="writer", messages=HELLO, max_tokens=5, temperature=0
    )
    assert found.choices[0].message.content and found.usage.completion_tokens == 5


def npm_openai_client() -> str | None:
    node = shutil.which("node")
    if node is None:
        return "not run: there is no node"
    subprocess.run([node, str(Path(__file__).with_name("node.cjs")), URL], check=True, timeout=120)
    return None


def published_schema_client() -> str:
    count = published.check(URL, SOUND)
    return f"passed, {count} values" + (", also by openapi.json" if os.environ.get("OPENAPI") else "")


def huggingface_client() -> None:
    """Every task of `InferenceClient` that the server has, each with the answer of the model in process."""
    import numpy as np
    from huggingface_hub import InferenceClient

    def client(name: str) -> InferenceClient:
        return InferenceClient(model=f"{URL}/models/{name}", token="any")

    def same_scores(found: Any, wanted: dict[str, float]) -> None:
        assert {each.label for each in found} == set(wanted), (found, wanted)
        assert all(abs(each.score - wanted[each.label]) < 1e-5 for each in found), (found, wanted)

    wanted, text = WANTED["tasks"], WANTED["text"]
    assert client("en-de").translation(text).translation_text == WANTED["translation"]
    assert client("summarize").summarization(text).summary_text == wanted["summarize"]
    same_scores(client("classify").text_classification(text), wanted["classify"]["scores"])
    entities = client("tag").token_classification(text)
    assert [(each.entity_group, each.word) for each in entities] == [
        (each["type"], each["text"]) for each in wanted["tag"]["entities"]
    ]
    answer = client("answer").question_answering(**WANTED["question"])
    assert [answer.answer, answer.start, answer.end] == [wanted["answer"][key] for key in ("answer", "start", "end")]
    filled = client("fill").fill_mask(WANTED["mask"])
    assert [each.token_str for each in filled] == [each["token"] for each in wanted["fill"]][: len(filled)] and filled
    vectors = np.array([client("vectors").feature_extraction(each) for each in (text, "hello")])
    np.testing.assert_allclose(vectors.squeeze(), WANTED["vectors"], atol=1e-5)
    (similarity,) = client("vectors").sentence_similarity(text, other_sentences=["hello"])
    assert abs(similarity - float(np.dot(*np.array(WANTED["vectors"])))) < 1e-4
    same_scores(client("classify-image").image_classification(PICTURE), wanted["classify-image"]["scores"])
    boxes = client("detect").object_detection(PICTURE, threshold=0.1)
    assert [each.label for each in boxes] == [each["label"] for each in wanted["detect"]["objects"]] and boxes
    assert client("transcribe").automatic_speech_recognition(SOUND).text == wanted["transcribe"]["text"]
    assert client("draw").text_to_image("a red circle", num_inference_steps=2, seed=3).size == (32, 32)
    chat = client("chat")  # kept: a client that is collected closes its stream
    whole = chat.chat_completion(HELLO, max_tokens=6, temperature=0.0)
    parts = chat.chat_completion(HELLO, max_tokens=6, temperature=0.0, stream=True)
    streamed = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert streamed == whole.choices[0].message.content and streamed
    assert chat.text_generation("hello", max_new_tokens=6, do_sample=False)


def litellm_client() -> None:
    import litellm

    common: dict[str, Any] = {"api_base": f"{URL}/v1", "api_key": "none"}
    whole = litellm.completion("openai/writer", messages=HELLO, max_tokens=5, temperature=0, **common)
    parts = litellm.completion("openai/writer", messages=HELLO, max_tokens=5, temperature=0, stream=True, **common)
    assert "".join(p.choices[0].delta.content or "" for p in parts) == whole.choices[0].message.content
    vectors = litellm.embedding("openai/vectors", input=["hello", "May"], **common)
    assert len(vectors.data) == 2


def langchain_client() -> None:
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    chat = ChatOpenAI(model="writer", base_url=f"{URL}/v1", api_key="none", temperature=0, max_tokens=5)
    assert "".join(part.content for part in chat.stream("hello")) == chat.invoke("hello").content
    vectors = OpenAIEmbeddings(
        model="vectors", base_url=f"{URL}/v1", api_key="none", check_embedding_ctx_length=False
    ).embed_documents(["hello", "May"])
    assert len(vectors) == 2 and len(vectors[0]) == 32


def llm_client() -> None:
    from llm.default_plugins.openai_models import Chat

    model = Chat(model_id="writer", model_name="writer", api_base=f"{URL}/v1")
    model.key = "none"
    answer = model.prompt("hello", temperature=0, max_tokens=5, key="none")
    assert answer.text()


def instructor_client() -> None:
    import instructor
    from openai import OpenAI
    from pydantic import BaseModel

    class Answer(BaseModel):
        yes: bool

    client = instructor.from_openai(OpenAI(base_url=f"{URL}/v1", api_key="none"), mode=instructor.Mode.JSON_SCHEMA)
    found = client.chat.completions.create(
        model="writer", messages=HELLO, response_model=Answer, max_tokens=100, temperature=1, seed=3, max_retries=0
    )
    assert found.yes in (True, False)


def cohere_client() -> None:
    import cohere

    client = cohere.ClientV2(api_key="none", base_url=URL)
    found = client.rerank(model="vectors", query="hello", documents=["May 1998", "hello", "import"], top_n=2)
    assert found.results[0].index == 1 and len(found.results) == 2
    assert 0 <= found.results[1].relevance_score <= found.results[0].relevance_score <= 1


def libretranslate_client() -> None:
    from libretranslatepy import LibreTranslateAPI

    client = LibreTranslateAPI(f"{URL}/")
    assert client.translate("the 3rd of May", "en", "de") == WANTED["short translation"]
    assert {"code": "en", "name": "en", "targets": ["de"]} in client.languages()


def lm_eval_client() -> None:
    """Log-likelihoods over HTTP are those in process."""
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    api = LocalCompletionsAPI(
        base_url=f"{URL}/v1/completions", model="writer", tokenizer_backend="huggingface",
        tokenizer=WANTED["tokenizer"], tokenized_requests=True, max_length=120, num_concurrent=1,
    )  # fmt: skip
    requests = [(("", ""), context, continuation) for context, continuation in WANTED["ids"]]
    found = [value for value, _ in api._loglikelihood_tokens(requests)]
    for ours, wanted in zip(found, WANTED["loglikelihood"], strict=True):
        assert abs(ours - wanted) <= 1e-4 * max(1, abs(wanted)), (found, WANTED["loglikelihood"])


def schemathesis_client() -> None:
    """Data that the schema allows and data that it does not: never 5xx, and 4xx always in OpenAI's shape."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis import GenerationMode

    NO_FIELD = (404, 405, 409, 413)  # of the path, the method, the state of a run, the size
    schema = schemathesis.openapi.from_url(f"{URL}/openapi.json")
    schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    tried: dict[str, int] = {}
    names = ("writer", "vectors", "classify", "en-de", "none")

    def checked(label: str) -> Callable[[Any], None]:
        def check(case: Any) -> None:
            if isinstance(case.body, dict):
                if case.body.get("model") is not None and sum(tried.values()) % 2:
                    case.body["model"] = names[len(str(case.body)) % len(names)]
                case.body.pop("stream", None)
                if isinstance(case.body.get("max_tokens"), int):
                    case.body["max_tokens"] = min(case.body["max_tokens"], 4)
            response = case.call(base_url=URL, timeout=30)
            tried[str(response.status_code)] = tried.get(str(response.status_code), 0) + 1
            assert response.status_code < 500, (label, case.body, response.text[:300])
            if response.status_code >= 400:
                error = response.json()["error"]
                assert error["message"] and error["type"], (label, response.text)
                named = error["param"] or "body" in error["message"]
                assert named or response.status_code in NO_FIELD, (label, case.body, response.text)

        return check

    how = settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )  # fmt: skip
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                how(given(case=operation.as_strategy(generation_mode=mode))(checked(operation.label)))()
            except Exception as error:
                if "Unsatisfiable" in type(error).__name__ or "skip" in str(error).lower():
                    continue  # a route without parameters has no negative data
                raise
    print(f"  schemathesis: responses by status {dict(sorted(tried.items()))}")
    assert sum(tried.values()) > 50


def main() -> int:
    failed = []
    clients = {name: call for name, call in globals().items() if name.endswith("_client")}
    if ONLY is not None:
        clients = {f"{name}_client": clients[f"{name}_client"] for name in ONLY}
    for name, call in clients.items():
        began = time.monotonic()
        try:
            result = call() or "passed"
        except Exception:
            failed.append(name)
            result = "FAILED"
            traceback.print_exc()
        print(f"{name.removesuffix('_client'):<17} {result}  {time.monotonic() - began:.1f} s", flush=True)
    print(f"{len(clients) - len(failed)} of {len(clients)} clients passed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
