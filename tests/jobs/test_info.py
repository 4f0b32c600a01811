"""`info` lists every file of a model, with its checksum."""

import hashlib
import re
from pathlib import Path

import headway
from headway import jobs
from headway.bundle import Bundle
from headway.checkpoints.saved import CHECKSUMS, MODEL_FILES, model_files
from headway.jobs.info import info_lines, model_info
from headway.models.build import build
from headway.models.recipes import Size, encoder
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer

SOURCE = Path(headway.__file__).parent
NAME = re.compile(r'"([a-z_0-9.]+\.(?:json|txt|model|spm|jinja))"')


def names_in(folder: Path) -> set[str]:
    return {name for file in folder.glob("*.py") for name in NAME.findall(file.read_text(encoding="utf-8"))}


def test_files_of_tokenizers_have_checksums(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["a few words"], kind="wordpiece", size=80)
    config = encoder(Size(width=16, layers=1, heads=1), "modern", vocab=len(tokenizer))
    Bundle(build(config), "headway", Processor(tokenizer)).save(tmp_path)
    (tmp_path / CHECKSUMS).unlink()
    names = ["vocab.txt", "merges.txt", "spm.model", "source.spm", "sentencepiece.bpe.model"]
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "notes.txt").write_text("mine")
    facts = model_info(tmp_path)
    for name in names:
        assert facts["files"][name]["sha256"] == hashlib.sha256(name.encode()).hexdigest()
        assert any(name in line and "sha256" in line for line in info_lines(facts))
    assert {"config.json", "model.safetensors"} <= facts["files"].keys() and "notes.txt" not in facts["files"]
    assert set(model_files(tmp_path)) <= facts["files"].keys()


def test_the_list_has_every_file_that_is_read() -> None:
    """By the names in the packages that read a model's files; a name that only they know would have no checksum."""
    read = names_in(SOURCE / "preprocess") | names_in(SOURCE / "generation")
    assert {"vocab.txt", "spm.model", "generation_config.json"} <= read, "the pattern finds them"
    assert not read - set(MODEL_FILES)


def test_an_ensemble_is_listed_with_its_weights(tmp_path: Path) -> None:
    run = jobs.train("classify", out=tmp_path / "run", steps=2, settings={"model.width": 16, "model.layers": 1})
    facts = model_info(run.folder)
    assert set(facts["members"]) == {"network", "ngrams", "convolution"}
    (line,) = [line for line in info_lines(facts) if line.startswith("ensemble")]
    assert f"ngrams {facts['members']['ngrams']:.2f}" in line
