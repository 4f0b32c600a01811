"""The `openai` package, unchanged, against the server."""

import base64
import io
from pathlib import Path

import numpy as np
import openai
import pytest
import soundfile
from openai import OpenAI
from support.server import Running, running

import headway

MODEL = "language_model"


@pytest.fixture(scope="module")
def client(served: Running) -> OpenAI:
    return OpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0)


@pytest.fixture(scope="module")
def tasks_client(tasks: Running) -> OpenAI:
    return OpenAI(base_url=f"{tasks.url}/v1", api_key="any", max_retries=0)


def test_chat(client: OpenAI) -> None:
    given = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "temperature": 0}
    whole = client.chat.completions.create(**given, logprobs=True, top_logprobs=2)
    content = whole.choices[0].message.content
    assert content and whole.usage.completion_tokens == 8
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    parts = list(client.chat.completions.create(**given, stream=True, stream_options={"include_usage": True}))
    assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == content
    assert parts[-1].usage.completion_tokens == 8
    with pytest.raises(openai.LengthFinishReasonError), client.chat.completions.stream(**given) as stream:
        stream.get_final_completion()  # the package's own check of a complete answer, here one of eight tokens


def test_structured_output(client: OpenAI) -> None:
    from pydantic import BaseModel

    class Answer(BaseModel):
        yes: bool

    found = client.chat.completions.parse(
        model=MODEL, messages=[{"role": "user", "content": "hello"}], response_format=Answer, max_tokens=64,
        temperature=0,
    )  # fmt: skip
    assert isinstance(found.choices[0].message.parsed, Answer)


def test_completions_and_models(client: OpenAI) -> None:
    found = client.completions.create(
        model=MODEL, prompt="The import", max_tokens=5, temperature=0, logprobs=2, echo=True
    )
    assert found.choices[0].text.startswith("The import") and found.choices[0].logprobs.token_logprobs[0] is None
    assert [model.id for model in client.models.list()] == [MODEL, "translator", "embedder"]
    assert client.models.retrieve(MODEL).id == MODEL


def test_responses(client: OpenAI) -> None:
    given = {"model": MODEL, "input": "hello", "instructions": "Be brief.", "max_output_tokens": 8, "temperature": 0}
    whole = client.responses.create(**given)
    assert whole.output_text and whole.usage.output_tokens == 8 and whole.status == "incomplete"
    events = list(client.responses.create(**given, stream=True))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    assert events[-1].type == "response.incomplete" and events[-1].response.output_text == whole.output_text


def test_embeddings(client: OpenAI, embedder: Path) -> None:
    texts = ["The import statement", "hello", "on the 3rd of May"]
    wanted = headway.load(embedder).embed(texts).numpy()
    for form in ("float", "base64"):
        found = client.embeddings.create(model="embedder", input=texts, encoding_format=form)
        vectors = [
            np.frombuffer(base64.b64decode(each.embedding), "<f4") if form == "base64" else each.embedding
            for each in found.data
        ]
        np.testing.assert_allclose(np.array(vectors), wanted, atol=1e-6)
    assert found.usage.prompt_tokens > 3
    one = client.embeddings.create(model="embedder", input="hello")  # the client decodes base64 by itself
    np.testing.assert_allclose(one.data[0].embedding, wanted[1], atol=1e-6)


def test_transcription(tasks_client: OpenAI, task_folders: dict[str, Path]) -> None:
    sound = io.BytesIO()
    soundfile.write(sound, np.sin(np.arange(12_000) / 20).astype("float32") * 0.3, 16_000, format="WAV")
    wanted = headway.load(task_folders["transcribe"])(sound.getvalue())
    upload = ("a.wav", sound.getvalue())
    found = tasks_client.audio.transcriptions.create(model="transcribe", file=upload)
    assert found.text == wanted["text"]
    verbose = tasks_client.audio.transcriptions.create(model="transcribe", file=upload, response_format="verbose_json")
    assert verbose.segments[0].text == wanted["segments"][0]["text"] and verbose.duration > 0
    srt = tasks_client.audio.transcriptions.create(model="transcribe", file=upload, response_format="srt")
    assert srt.startswith("1\n00:00:00,000 -->")
    with pytest.raises(openai.BadRequestError, match="file"):
        tasks_client.audio.transcriptions.create(model="transcribe", file=("a.wav", b"not a sound"))


def test_pictures(tasks_client: OpenAI) -> None:
    from PIL import Image

    found = tasks_client.images.generate(model="draw", prompt="a red circle", n=2, extra_body={"seed": 1, "steps": 2})
    pictures = [Image.open(io.BytesIO(base64.b64decode(each.b64_json))) for each in found.data]
    assert len(pictures) == 2 and pictures[0].size == (32, 32)
    again = tasks_client.images.generate(model="draw", prompt="a red circle", extra_body={"seed": 1, "steps": 2})
    assert again.data[0].b64_json == found.data[0].b64_json != found.data[1].b64_json
    with pytest.raises(openai.BadRequestError, match="32 × 32"):
        tasks_client.images.generate(model="draw", prompt="a red circle", size="1024x1024")


def test_errors_are_those_of_the_package(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no model"):
        client.chat.completions.create(model="x", messages=[{"role": "user", "content": "a"}])
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "a"}], max_tokens=9999)
    assert caught.value.param == "max_tokens" and caught.value.code == "context_length_exceeded"


def test_a_key(embedder: Path) -> None:
    with running(embedder, keys=["a key of some length"]) as server:
        right = OpenAI(base_url=f"{server.url}/v1", api_key="a key of some length", max_retries=0)
        assert right.models.list().data[0].id == "embedder"
        with pytest.raises(openai.AuthenticationError):
            OpenAI(base_url=f"{server.url}/v1", api_key="a key of some lengtH", max_retries=0).models.list()
