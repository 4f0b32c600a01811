"""`huggingface_hub.InferenceClient`, unchanged, for every task; each answer is that of the model in this process."""

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile
from huggingface_hub import InferenceClient
from support import untrained
from support.server import Running, running

import headway
from headway.preprocess.image import open_image
from headway.tasks import find


@pytest.fixture(scope="module")
def client(tasks: Running):
    return lambda name: InferenceClient(model=f"{tasks.url}/models/{name}", token="any")


@pytest.fixture(scope="module")
def picture() -> bytes:
    out = io.BytesIO()
    open_image(find("classify-image").builtin.rows(split="test", size=1)[0].fields["image"]).save(out, "PNG")
    return out.getvalue()


def test_translation_and_summary(client, translator: Path, task_folders: dict[str, Path]) -> None:
    text = "the 3rd of May"
    assert client("en-de").translation(text).translation_text == headway.load(translator)(text)
    assert client("summarize").summarization(text).summary_text == headway.load(task_folders["summarize"])(text)
    greedy = client("en-de").translation(text, generate_parameters={"num_beams": 1, "max_new_tokens": 5})
    assert greedy.translation_text == headway.load(translator)(text, beams=1, max_new_tokens=5)


def test_a_summary_of_chosen_sentences(tmp_path: Path) -> None:
    folder, text = (
        untrained.of_task("summarize", tmp_path / "chosen", method="extract"),
        "It rained. It snowed. It hailed.",
    )
    with running(folder) as server:
        client = InferenceClient(model=f"{server.url}/models/chosen", token="any")
        assert client.summarization(text).summary_text == headway.load(folder)(text)
        with pytest.raises(Exception, match="has no option 'max_new_tokens'"):
            client.summarization(text, generate_parameters={"max_new_tokens": 5})


def test_classes(client, task_folders: dict[str, Path]) -> None:
    wanted = headway.load(task_folders["classify"])("please cancel my order")["scores"]
    found = client("classify").text_classification("please cancel my order")
    assert {each.label: each.score for each in found} == pytest.approx(wanted, abs=1e-6)
    assert len(client("classify").text_classification("please cancel my order", top_k=2)) == 2


def test_labels_below_a_threshold_are_left_out(tasks: Running) -> None:
    def labels(threshold: float) -> int:
        body = {"inputs": "please cancel my order", "parameters": {"threshold": threshold}}
        return len(tasks.post("/models/classify", body).json()[0])

    assert labels(0) > 2 and labels(1) == 0


def test_entities(client, task_folders: dict[str, Path]) -> None:
    text = "Ada Lovelace met Charles in London."
    wanted = headway.load(task_folders["tag"])(text)["entities"]
    found = client("tag").token_classification(text)
    assert [(each.entity_group, each.word) for each in found] == [(each["type"], each["text"]) for each in wanted]
    assert found and all(text[each.start : each.end] == each.word and 0 < each.score <= 1 for each in found)


def test_answers(client, task_folders: dict[str, Path]) -> None:
    given = {"question": "Where does Ada live?", "context": "Ada lives in Leeds."}
    found = client("answer").question_answering(**given)
    wanted = headway.load(task_folders["answer"])(given)
    assert (found.answer, found.start, found.end) == (wanted["answer"], wanted["start"], wanted["end"])


def test_masks(client, task_folders: dict[str, Path]) -> None:
    found = client("fill").fill_mask("the [MASK] statement", top_k=3)
    wanted = headway.load(task_folders["fill"])("the [MASK] statement", top=3)
    assert [(each.token_str, each.sequence) for each in found] == [(each["token"], each["text"]) for each in wanted]


def test_vectors(client, embedder: Path) -> None:
    wanted = headway.load(embedder).embed(["hello", "The import", "statement"]).numpy()
    np.testing.assert_allclose(client("embedder").feature_extraction("hello"), wanted[0], atol=1e-6)
    found = client("embedder").sentence_similarity("hello", other_sentences=["The import", "statement"])
    np.testing.assert_allclose(found, wanted[1:] @ wanted[0], atol=1e-5)


def test_pictures(client, task_folders: dict[str, Path], picture: bytes) -> None:
    wanted = headway.load(task_folders["classify-image"])(picture)
    found = client("classify-image").image_classification(picture)
    assert {each.label: each.score for each in found} == pytest.approx(wanted["scores"], abs=1e-6)
    assert len(client("classify-image").image_classification(picture, top_k=1)) == 1  # in base64, with parameters
    assert client("draw").text_to_image("a red circle", num_inference_steps=2, seed=3).size == (32, 32)


@pytest.mark.slow
def test_objects(tmp_path: Path, picture: bytes) -> None:
    with running(untrained.of_task("detect", tmp_path / "detect")) as server:
        client = InferenceClient(model=f"{server.url}/models/detect", token="any")
        objects = headway.load(tmp_path / "detect")(picture, threshold=0.1)["objects"]
        boxes = client.object_detection(picture, threshold=0.1)
        assert [each.label for each in boxes] == [each["label"] for each in objects]
        assert boxes[0].box.xmin == round(objects[0]["box"][0])


def test_speech(client, task_folders: dict[str, Path]) -> None:
    sound = io.BytesIO()
    soundfile.write(sound, np.sin(np.arange(12_000) / 20).astype("float32") * 0.3, 16_000, format="WAV")
    wanted = headway.load(task_folders["transcribe"])(sound.getvalue())
    assert client("transcribe").automatic_speech_recognition(sound.getvalue()).text == wanted["text"]


def test_chat_and_generation(client, tasks: Running) -> None:
    messages = [{"role": "user", "content": "hello"}]
    chat = client("chat")
    found = chat.chat_completion(messages, max_tokens=6, temperature=0.0)
    assert found.choices[0].message.content
    parts = chat.chat_completion(messages, max_tokens=6, temperature=0.0, stream=True)
    assert "".join(p.choices[0].delta.content or "" for p in parts if p.choices) == found.choices[0].message.content
    text = client("chat").text_generation("hello", max_new_tokens=6, do_sample=False, stream=False)
    assert isinstance(text, str) and text
