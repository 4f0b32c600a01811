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
