"""Routes that take forms: each wrong one is refused with the field that it lacks, and no value of a right one is left
out."""

from urllib.parse import urlencode

from support.server import Running

URLENCODED = {"Content-Type": "application/x-www-form-urlencoded"}
LANGUAGES = [("source", "en"), ("target", "de")]


def test_every_text_of_a_form_is_translated(tasks: Running) -> None:
    texts = ["hello", "The import"]
    expected = tasks.post("/translate", {"q": texts, "source": "en", "target": "de"}).json()
    form = urlencode([*LANGUAGES, *(("q", text) for text in texts)]).encode()
    assert tasks.post("/translate", form, **URLENCODED).json() == expected
    assert len(expected["translatedText"]) == 2
    one = tasks.post("/translate", urlencode([*LANGUAGES, ("q", "hello")]).encode(), **URLENCODED)
    assert one.json()["translatedText"] == expected["translatedText"][0]


def test_a_form_that_cannot_be_read_is_refused_by_field(tasks: Running) -> None:
    many = urlencode([("q", "hello")] * 40).encode()
    refused = tasks.post("/translate", many, **URLENCODED)
    assert (refused.status, refused.error["param"]) == (400, "q")
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    refused = tasks.post("/v1/audio/transcriptions", b"no form", **kind)
    assert (refused.status, refused.error["param"]) == (400, "file")


def test_a_json_object_without_its_content_type_is_read_as_json(tasks: Running) -> None:
    """As `curl -d` sends it, which says that every body is a form; a form is still one, and other types are refused."""
    body = b' {"model": "embedder", "input": "The"}'
    for route, sent in (
        ("/v1/embeddings", body),
        ("/translate", b'{"q": "hello", "source": "en", "target": "de"}'),
        ("/models/classify", b'{"inputs": "a text"}'),
    ):
        as_json = tasks.post(route, sent, Content_Type="application/json")
        assert as_json.status == 200, as_json.body
        assert tasks.post(route, sent, **URLENCODED).status == 200
        assert tasks.post(route, sent).status == 200
        assert tasks.post(route, sent, Content_Type="text/plain").status != 200
    refused = tasks.post("/v1/embeddings", b"input=The", **URLENCODED)
    assert refused.status == 400
    assert tasks.post("/v1/embeddings", b"{input", **URLENCODED).error["code"] == "invalid_json"
