"""OpenAI's Whisper files become model folders: with the user's permission, weights only, in a process of their own."""

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from support.commands import headway as command
from support.sounds import noise

import headway
from headway.checkpoints import TensorFiles, unpickle
from headway.errors import CheckpointError, ConfigError
from headway.families import whisper_openai
from headway.jobs.convert import convert
from headway.preprocess.rank_files import halves, read_ranks, whisper_tokenizer
from headway.preprocess.speech_tokens import SpeechTokens, control_tokens

MERGES = [b"th", b"the", b" the", b"in", b"ing"]
RANKS = [bytes([byte]) for byte in range(256)] + MERGES
VOCAB = len(RANKS) + len(control_tokens(99))
DIMS = {"n_mels": 5, "n_audio_ctx": 9, "n_audio_state": 12, "n_audio_head": 2, "n_audio_layer": 1, "n_vocab": VOCAB,
        "n_text_ctx": 32, "n_text_state": 12, "n_text_head": 2, "n_text_layer": 2}  # fmt: skip


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranks") / "gpt2.tiktoken"
    path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(RANKS)))
    return path


def tensors() -> dict[str, torch.Tensor]:
    """Of the sizes of DIMS, under OpenAI's names."""
    from headway.checkpoints.rules import to_theirs
    from headway.families.family import Keys
    from headway.families.whisper import FAMILY
    from headway.models.build import build, tensor_names

    torch.manual_seed(0)
    config = FAMILY.read(Keys(whisper_openai.config_json(DIMS, end=VOCAB - 1608)), FAMILY.architectures[0])
    model = build(config)
    state = {name: torch.randn_like(model.state_dict()[name]) * 0.3 for name in tensor_names(model)}
    return to_theirs(state, whisper_openai.rules(config))


def saved(path: Path, **changes: Any) -> Path:
    torch.save({"dims": DIMS, "model_state_dict": tensors(), **changes}, path)
    return path


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pickle is opened here, where the child process is not the subject: it would import torch again."""

    def unpickled(path: Path, folder: Path) -> tuple[dict[str, Any], TensorFiles]:
        unpickle._child(path, folder)
        return json.loads((folder / unpickle.VALUES).read_text()), TensorFiles(folder)

    monkeypatch.setattr(unpickle, "_limit_memory", lambda size: None)
    monkeypatch.setattr("headway.jobs.import_whisper.unpickled", unpickled)


def test_a_file_becomes_a_folder_that_both_libraries_open(tmp_path: Path, ranks: Path) -> None:
    from transformers import WhisperForConditionalGeneration

    source = saved(tmp_path / "small.pt")
    convert(source, tmp_path / "out", to="fp32", allow_pickle=True, vocabulary=ranks)
    bundle = headway.load(tmp_path / "out")
    assert bundle.find_task().name == "transcribe" and bundle.processor.audio.bins == 5
    reference, info = WhisperForConditionalGeneration.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    inputs = {"input_features": torch.randn(2, 5, 18), "decoder_input_ids": torch.randint(VOCAB, (2, 4))}
    with torch.no_grad():
        want = reference.eval()(**inputs).logits
    torch.testing.assert_close(bundle.logits(**inputs), want, atol=1e-4, rtol=1e-4)
    assert bundle.generation.stored["is_multilingual"] is False
    answer = bundle((noise(0.1), 16000))
    assert set(answer) == {"text", "segments", "language"} and answer["language"] == "en"


def test_it_is_opened_only_where_it_is_allowed(tmp_path: Path) -> None:
    source = saved(tmp_path / "small.pt")
    told = command("convert", source, tmp_path / "out", "--to", "fp32", cwd=tmp_path)
    assert told.returncode != 0 and "--allow-pickle" in told.stderr
    assert not (tmp_path / "out" / "config.json").exists()
    with pytest.raises(ConfigError, match="can run code when it is opened"):
        convert(source, tmp_path / "out", to="fp32")


def test_it_asks_for_everything_at_once(tmp_path: Path, ranks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.jobs.import_whisper.installed_vocabulary", lambda multilingual: None)
    source = saved(tmp_path / "small.pt")
    told = " ".join(command("convert", source, tmp_path / "out", cwd=tmp_path).stderr.split())
    assert all(option in told for option in ("--allow-pickle", "--to fp32", "--vocabulary multilingual.tiktoken"))
    told = command("convert", source, tmp_path / "out", "--to", "fp32", "--vocabulary", ranks, cwd=tmp_path).stderr
    assert "--allow-pickle" in told and "--to fp32" not in told and "--vocabulary" not in told


def test_code_in_a_pickle_does_not_run(tmp_path: Path, ranks: Path) -> None:
    class Canary:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    hostile = tmp_path / "hostile.pt"
    torch.save({"dims": DIMS, "model_state_dict": tensors(), "more": Canary()}, hostile)
    plain = tmp_path / "plain.pt"
    plain.write_bytes(pickle.dumps({"dims": Canary()}))
    for path in (hostile, plain):
        with pytest.raises(CheckpointError, match="not a pickle of tensors and plain values"):
            convert(path, tmp_path / "out", to="fp32", allow_pickle=True, vocabulary=ranks)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dims": {}}, "no dims and model_state_dict"),
        ({"model_state_dict": {}}, "no dims and model_state_dict"),
        ({"dims": {key: value for key, value in DIMS.items() if key != "n_mels"}}, "dims has no n_mels"),
        ({"dims": {**DIMS, "n_audio_layer": 2}}, "the file has no encoder.blocks.1"),
    ],
)
@pytest.mark.usefixtures("in_this_process")
def test_what_is_no_whisper_is_named(changes: dict[str, Any], message: str, tmp_path: Path, ranks: Path) -> None:
    source = saved(tmp_path / "small.pt", **changes)
    with pytest.raises(CheckpointError, match=message):
        convert(source, tmp_path / "out", to="fp32", allow_pickle=True, vocabulary=ranks)


@pytest.mark.usefixtures("in_this_process")
def test_the_vocabulary_must_be_the_models(tmp_path: Path, ranks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(tmp_path / "small.pt")
    short = tmp_path / "short.tiktoken"
    short.write_text("\n".join(ranks.read_text().splitlines()[:-1]))
    with pytest.raises(ConfigError, match=rf"a vocabulary of {VOCAB - 1:,} tokens, but the model has {VOCAB:,}"):
        convert(source, tmp_path / "out", to="fp32", allow_pickle=True, vocabulary=short)
    monkeypatch.setattr("headway.jobs.import_whisper.installed_vocabulary", lambda multilingual: None)
    with pytest.raises(ConfigError, match="also needs --vocabulary"):
        convert(source, tmp_path / "out", to="fp32", allow_pickle=True)


def test_ranks_become_merges(ranks: Path, tmp_path: Path) -> None:
    table = read_ranks(ranks)
    assert halves(b" the", table) == (b" ", b"the") and halves(b"ing", table) == (b"in", b"g")
    tokenizer = whisper_tokenizer(ranks, languages=99)
    pieces = [tokenizer.bytes_of(i) for i in tokenizer.encode("seeing the <|en|>é", special=False)]
    assert b"".join(pieces) == "seeing the <|en|>é".encode() and b"ing" in pieces and b" the" in pieces
    tokens = SpeechTokens.of(tokenizer, multilingual=True)
    assert tokens is not None and tokens.end == len(RANKS) and tokens.languages["en"] == tokens.start + 1
    assert tokenizer.id("<|0.00|>") == tokens.first_timestamp and tokenizer.id("<|30.00|>") == VOCAB - 1
    for text, message in (("IQ== x", "expected a base64 token"), ("IQ== 0", "every single byte")):
        (tmp_path / "bad.tiktoken").write_text(text)
        with pytest.raises(CheckpointError, match=message):
            read_ranks(tmp_path / "bad.tiktoken")
