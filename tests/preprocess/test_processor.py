"""A model folder's preprocessing files: read, and written back."""

import json
from pathlib import Path

import pytest

from headway.errors import CheckpointError, ConfigError, InputError
from headway.preprocess.image_processor import ImageProcessor
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer

BPE = Tokenizer.train(["the quick brown fox"], kind="bpe", size=300)
PICTURES = {"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8}, "note": None}
AUDIO = {"feature_extractor_type": "WhisperFeatureExtractor", "sampling_rate": 16000, "n_fft": 400}


def write(folder: Path, files: dict[str, object]) -> None:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def copied(folder: Path, **options: int) -> tuple[Processor, Path]:
    processor = Processor.load(folder, **options)
    again = folder.parent / "again"
    again.mkdir()
    processor.save(again)
    return processor, again


def test_a_folder_without_any_of_the_files_has_nothing(tmp_path: Path) -> None:
    write(tmp_path / "model", {"config.json": {}})
    processor, again = copied(tmp_path / "model")
    assert processor == Processor() and list(again.iterdir()) == []
    with pytest.raises(InputError, match="chat needs a tokenizer: this model has none"):
        processor.require_tokenizer("chat")
    with pytest.raises(InputError, match=r"there is no preprocessor_config\.json"):
        processor.require_image("run")


def test_tokenizer_files_survive(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    BPE.save(folder)
    kept: dict[str, object] = {"tokenizer.model": "\n", "special_tokens_map.json": {"eos_token": "</s>"}}
    kept |= {"added_tokens.json": {}, "merges.txt": "#version: 0.2\n", "chat_template.jinja": "{{ messages }}"}
    write(folder, kept)
    processor, again = copied(folder)
    assert processor.tokenizer is not None and processor.tokenizer_error is None
    assert {path.name for path in again.iterdir()} == {path.name for path in folder.iterdir()}
    for name in kept:
        assert (again / name).read_bytes() == (folder / name).read_bytes(), name
    reloaded = Processor.load(again).tokenizer
    assert reloaded is not None and reloaded.encode("quick fox") == BPE.encode("quick fox")


def test_half_of_marian_s_files_is_named_and_kept(tmp_path: Path) -> None:
    write(tmp_path / "model", {"source.spm": "\n", "tokenizer_config.json": {"legacy": True}})
    processor, again = copied(tmp_path / "model")
    assert processor.tokenizer is None
    with pytest.raises(InputError, match=r"run needs a tokenizer: .*target\.spm.*source\.spm alone is not enough"):
        processor.require_tokenizer("run")
    assert {path.name for path in again.iterdir()} == {"source.spm", "tokenizer_config.json"}


def test_half_a_layout_is_named(tmp_path: Path) -> None:
    write(tmp_path / "model", {"vocab.json": {"a": 0}})
    error = Processor.load(tmp_path / "model").tokenizer_error
    assert error is not None and "vocab.json alone is not enough" in error


def test_a_damaged_tokenizer_is_an_error_at_once(tmp_path: Path) -> None:
    for name in ("tokenizer.model", "tokenizer.json"):
        write(tmp_path / "model", {name: "{"})
        with pytest.raises(CheckpointError, match=name):
            Processor.load(tmp_path / "model")


def test_pictures_are_read_only_for_models_that_take_them(tmp_path: Path) -> None:
    write(tmp_path / "model", {"preprocessor_config.json": PICTURES})
    assert Processor.load(tmp_path / "model").image is None
    processor, again = copied(tmp_path / "model", image_channels=3)
    assert processor.image == ImageProcessor.from_json(PICTURES) and processor.require_image("run") is processor.image
    assert json.loads((again / "preprocessor_config.json").read_text()) == PICTURES


def test_a_combined_file_is_read_and_kept(tmp_path: Path) -> None:
    both = {"processor_class": "Both", "image_processor": PICTURES}
    write(tmp_path / "model", {"processor_config.json": both})
    processor, again = copied(tmp_path / "model", image_channels=3)
    assert processor.image == ImageProcessor.from_json(PICTURES)
    assert [path.name for path in again.iterdir()] == ["processor_config.json"]
    assert json.loads((again / "processor_config.json").read_text()) == both


def test_the_file_of_an_audio_model_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "model", {"preprocessor_config.json": AUDIO})
    processor, again = copied(tmp_path / "model")
    assert processor.audio is None and processor.image is None
    assert json.loads((again / "preprocessor_config.json").read_text()) == AUDIO


def test_a_file_that_is_not_understood_is_named(tmp_path: Path) -> None:
    write(tmp_path / "model", {"preprocessor_config.json": AUDIO})
    with pytest.raises(ConfigError, match=r"preprocessor_config\.json: 'WhisperFeatureExtractor' is not an image"):
        Processor.load(tmp_path / "model", image_channels=3)


def test_what_replaces_a_part_replaces_its_files(tmp_path: Path) -> None:
    write(tmp_path / "model", {"target.spm": "\n", "preprocessor_config.json": PICTURES})
    processor = Processor.load(tmp_path / "model", image_channels=3)
    assert processor.with_image(processor.image) is processor
    other = ImageProcessor(size=(4, 4))
    assert set(processor.with_image(other).files) == {"target.spm"}
    changed = processor.with_tokenizer(BPE)
    assert set(changed.files) == {"preprocessor_config.json"} and changed.tokenizer_error is None
    changed.with_image(other).save(tmp_path)
    assert json.loads((tmp_path / "preprocessor_config.json").read_text())["size"] == {"height": 4, "width": 4}
