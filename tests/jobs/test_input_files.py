"""`run --file`: the inputs of tables without targets, and of several files, patterns, folders and zip archives."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.untrained import of_task

from headway.bundle import Bundle
from headway.data.paths import data_path
from headway.errors import DataError, InputError
from headway.jobs.inference import run
from headway.jobs.inputs import read_inputs, read_records, refuse_file_names
from headway.loading import load
from headway.preprocess.audio import Sound
from headway.tasks import find
from headway.tasks.chat import Chat

HI, HELLO = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load(of_task("classify", tmp_path_factory.mktemp("inputs") / "model"))


def bundle_for(task: str, bundle: Bundle) -> Bundle:
    """A bundle whose task is another one: reading inputs needs no more of it."""
    other = find(task)(tokenizer=bundle.processor.tokenizer)  # type: ignore[arg-type]
    return Bundle(bundle.model, bundle.family, bundle.processor, task=other)


def lines(*rows: Any) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("x.jsonl", lines({"instruction": "hi", "response": "yes"}), [HI]),
        ("x.jsonl", lines({"instruction": "hi", "response": None}), [HI]),
        ("x.jsonl", lines({"instruction": "hi"}), [HI]),
        ("x.jsonl", lines({"messages": [HI]}), [HI]),
        ("x.jsonl", lines({"messages": [HI, HELLO]}), [HI]),
        ("x.jsonl", lines({"messages": [HI, HELLO, HI]}), [HI, HELLO, HI]),
        ("x.jsonl", lines({"messages": [HI, HELLO, HELLO]}), [HI]),
        ("x.csv", "prompt\nhi\n", [HI]),
        ("x.csv", "id,prompt\n1,hi\n", [HI]),
        ("x.csv", "prompt,answer\nhi,\n", [HI]),
        ("x.csv", "system,prompt\nBe kind.,hi\n", [{"role": "system", "content": "Be kind."}, HI]),
        ("x.csv", "comment\nhi\n", "hi"),
    ],
)
def test_a_conversation_needs_no_answer(
    name: str, content: str, wanted: Any, classifier: Bundle, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    bundle = bundle_for("chat", classifier)
    assert isinstance(bundle.find_task(), Chat)
    assert read_inputs(tmp_path / name, bundle) == [wanted]


def test_a_column_that_is_given_is_read(classifier: Bundle, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("prompt,frage\nno,hi\n")
    bundle = bundle_for("chat", classifier)
    assert read_inputs(tmp_path / "x.csv", bundle, columns={"text": "frage"}) == ["hi"]
    assert read_inputs(tmp_path / "x.csv", bundle, columns={"instruction": "frage"}) == [[HI]]


def test_a_text_of_words_is_a_text_as_on_the_command_line(classifier: Bundle, tmp_path: Path) -> None:
    bundle, text = bundle_for("tag", classifier), "Anna lives in Oslo."
    (tmp_path / "x.csv").write_text(f"id,text\n1,{text}\n")
    assert read_inputs(tmp_path / "x.csv", bundle) == [text]
    (tmp_path / "x.jsonl").write_text(lines({"text": text}, {"text": ["in", "Oslo."]}))
    assert read_inputs(tmp_path / "x.jsonl", bundle) == [text, ["in", "Oslo."]]
    (tmp_path / "x.csv").write_text("words,tags\nin U.S. now,O B-LOC O\n")  # the tags say how it is divided
    assert read_inputs(tmp_path / "x.csv", bundle) == [["in", "U.S.", "now"]]


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/1.csv").write_text("text,n\none,1\n")
    (tmp_path / "parts/2.csv").write_text("n,text\n2,two\n")
    (tmp_path / "lines.txt").write_text("three\n")
    with zipfile.ZipFile(tmp_path / "parts.zip", "w") as archive:
        for name in ("1.csv", "2.csv"):
            archive.write(tmp_path / "parts" / name, f"parts/{name}")
    return tmp_path


def test_several_files_patterns_folders_and_archives_are_read_in_order(parts: Path, classifier: Bundle) -> None:
    assert read_inputs([parts / "lines.txt", parts / "parts/1.csv"], classifier) == ["three", "one"]
    for given in ("parts/*.csv", "parts", "parts.zip"):
        assert read_inputs(parts / given, classifier) == ["one", "two"], given
    assert read_inputs(parts / "parts.zip/parts/2.csv", classifier) == ["two"]
    found = [record for record, _ in read_records(parts / "parts", classifier)]
    assert found == [{"text": "one", "n": "1"}, {"n": "2", "text": "two"}]


def test_a_folder_without_data_is_refused(classifier: Bundle, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the folder has no data files; name files, or give a pattern"):
        read_inputs(tmp_path, classifier)
    (tmp_path / "a.en").write_text("one\n")
    (tmp_path / "a.de").write_text("eins\n")
    with pytest.raises(InputError, match="has two parallel files; give the one with the inputs"):
        read_inputs(tmp_path, bundle_for("translate", classifier))


def test_the_name_of_a_file_is_no_text(classifier: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rev.csv").write_text("text\na\n")
    Path("word").write_text("a")
    refuse_file_names(["other.csv", "a text. " * 1000, "\0.csv", "word"], classifier.find_task())
    with pytest.raises(InputError, match=r"^rev\.csv is a file; read it with --file rev\.csv$"):
        refuse_file_names(["a text", "rev.csv"], classifier.find_task())
    refuse_file_names(["rev.csv"], find("transcribe")(tokenizer=classifier.processor.tokenizer))  # type: ignore[arg-type]


def test_a_folder_of_recordings_stands_for_each(classifier: Bundle, tmp_path: Path) -> None:
    bundle = bundle_for("transcribe", classifier)
    with pytest.raises(InputError, match="the folder has no recordings"):
        read_inputs(tmp_path, bundle)
    (tmp_path / "below").mkdir()
    wanted = [tmp_path / "a.wav", tmp_path / "below/b.FLAC"]
    for path in (*wanted, tmp_path / "notes.txt"):
        path.write_bytes(b"")
    assert bundle.find_task().input_kind.parse_all(str(tmp_path)) == wanted
    assert list(read_records(tmp_path, bundle)) == [({"input": str(path)}, path) for path in wanted]
    assert bundle.find_task().input_kind.parse_all("a.wav") == [Path("a.wav")]
    sounds = tmp_path / "sounds.zip"
    with zipfile.ZipFile(sounds, "w") as archive:
        for name in ("sounds/b.wav", "sounds/a.wav", "sounds/notes.txt"):
            archive.writestr(name, b"")
    inside = [sounds / "sounds" / name for name in ("a.wav", "b.wav")]
    assert list(map(str, bundle.find_task().input_kind.parse_all(str(sounds)))) == list(map(str, inside))
    assert [str(path) for path in read_inputs(sounds, bundle)] == list(map(str, inside))


def test_pictures_in_an_archive_are_read_where_they_are(tmp_path: Path) -> None:
    Image = pytest.importorskip("PIL.Image")
    model = load(of_task("classify-image", tmp_path / "model"))
    (tmp_path / "plain").mkdir()
    with zipfile.ZipFile(tmp_path / "pictures.zip", "w") as archive:
        for name, colour in (("red.png", "red"), ("blue.png", "blue")):
            Image.new("RGB", (32, 32), colour).save(tmp_path / "plain" / name)
            archive.write(tmp_path / "plain" / name, name)
    packed, plain = (list(run(model, [str(tmp_path / name)])) for name in ("pictures.zip", "plain"))
    assert [path.name for path, _ in packed] == ["blue.png", "red.png"]
    assert [answer for _, answer in packed] == [answer for _, answer in plain]
    damaged = bytearray((tmp_path / "pictures.zip").read_bytes())
    damaged[60] ^= 0xFF  # in the first picture
    (tmp_path / "damaged.zip").write_bytes(damaged)
    with pytest.raises(DataError, match=r"damaged.zip/red.png: not a picture, or a damaged one \(Bad CRC"):
        list(run(model, [str(tmp_path / "damaged.zip")]))


def test_a_recording_in_an_archive(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    samples = np.sin(np.arange(1600) / 10).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", samples, 16000)
    with zipfile.ZipFile(tmp_path / "sounds.zip", "w") as archive:
        archive.write(tmp_path / "a.wav", "a.wav")
    packed, plain = (Sound(data_path(tmp_path / name), 16000).read() for name in ("sounds.zip/a.wav", "a.wav"))
    assert np.array_equal(packed, plain) and len(plain) == 1600
    damaged = bytearray((tmp_path / "sounds.zip").read_bytes())
    damaged[200] ^= 0xFF
    (tmp_path / "damaged.zip").write_bytes(damaged)
    with pytest.raises(DataError, match=r"damaged.zip/a.wav: cannot be read \(Bad CRC"):
        Sound(data_path(tmp_path / "damaged.zip/a.wav"), 16000).read()
