"""A published ViT folder, which Headway never trained, classifies pictures as the reference library does."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from support.stories import check_numbers
from support.task_run import SMALL
from typer.testing import CliRunner

import headway
from headway import jobs
from headway.bundle import Bundle
from headway.cli import app
from headway.data.dataset import open_builtin
from headway.errors import InputError
from headway.models.build import build
from headway.preprocess.image_processor import ImageProcessor
from headway.preprocess.processor import Processor
from headway.tasks.classify_image import ClassifyImage

LABELS = {0: "tench", 1: "goldfish", 2: "great white shark"}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

    folder = tmp_path_factory.mktemp("vit")
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=24, patch_size=8,
        id2label=LABELS, label2id={name: i for i, name in LABELS.items()}, initializer_range=0.5,
    )  # fmt: skip
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 24, "width": 24}, resample=3).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("photos") / "photo.jpg"
    noise = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by the camera
    Image.fromarray(noise).save(path, exif=exif)
    return path


def reference(folder: Path, photo: Path) -> dict[str, float]:
    from transformers import pipeline

    found = pipeline("image-classification", model=str(folder))(str(photo))
    return {each["label"]: each["score"] for each in found}


def test_python_gives_the_references_probabilities(published: Path, photo: Path) -> None:
    answer = headway.load(published)(photo)
    want = reference(published, photo)
    assert answer["scores"] == pytest.approx(want, abs=1e-5)
    assert answer["label"] == max(want, key=want.__getitem__)


def test_run_and_info_commands(published: Path, photo: Path) -> None:
    done = CliRunner().invoke(app, ["run", str(published), str(photo), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["answer"]["scores"] == pytest.approx(reference(published, photo), abs=1e-5)
    shown = CliRunner().invoke(app, ["info", str(published)])
    assert "pictures    RGB, resized to 24 × 24, mean 0.5 0.5 0.5, deviation 0.5 0.5 0.5" in shown.stdout


def test_explain_shows_the_picture_as_the_model_sees_it(published: Path, photo: Path, tmp_path: Path) -> None:
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    done = CliRunner().invoke(app, ["explain", str(published), str(photo), "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    story = headway.explain(published, photo).story
    read = story.sequences["text"]
    assert (story.title, story.model.kind, len(read.tokens)) == ("photo.jpg", "vision", 10)
    assert read.picture is not None and (read.picture.rows, read.picture.columns) == (3, 3)
    inputs = AutoImageProcessor.from_pretrained(published)(
        ImageOps.exif_transpose(Image.open(photo)), return_tensors="pt"
    )
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(read.picture.png))), np.float32) / 255
    np.testing.assert_allclose((shown.transpose(2, 0, 1) - 0.5) / 0.5, inputs["pixel_values"][0], atol=1e-5)
    with torch.no_grad():
        logits = AutoModelForImageClassification.from_pretrained(published)(**inputs).logits[0]
    found = {one.text: one.logit for one in story.output.rows[0].candidates}
    assert found == pytest.approx({LABELS[i]: float(logit) for i, logit in enumerate(logits)}, abs=1e-4)
    assert check_numbers(story) == 2


def test_a_saved_copy_is_still_a_published_model(published: Path, photo: Path, tmp_path: Path) -> None:
    bundle = headway.load(published)
    first = bundle(photo)
    saved = bundle.save(tmp_path / "again")
    assert not (saved / "headway.json").exists()
    assert reference(saved, photo) == pytest.approx(first["scores"], abs=1e-5)


@pytest.mark.parametrize(("kind", "channels"), [("ViT", 3), ("DeiT", 3), ("ViT", 1)])
def test_a_published_model_is_trained_further_and_opens_there_again(kind: str, channels: int, tmp_path: Path) -> None:
    """Its own preprocessing and names stay, the classifier is that of the new labels."""
    import transformers

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    head = "ForImageClassificationWithTeacher" if kind == "DeiT" else "Model"
    config = getattr(transformers, f"{kind}Config")(**sizes, image_size=24, patch_size=8, num_channels=channels)
    getattr(transformers, f"{kind}{head}")(config).save_pretrained(tmp_path / "start")
    half = [0.5] * channels
    processor = transformers.ViTImageProcessorPil(size={"height": 24, "width": 24}, image_mean=half, image_std=half)
    processor.save_pretrained(tmp_path / "start")
    for number, label in enumerate(("dark", "light")):
        (tmp_path / "data" / label).mkdir(parents=True)
        for copy in range(12):
            shade = Image.new("L" if channels == 1 else "RGB", (30, 30), (150 * number + 5 * copy,) * channels)
            shade.save(tmp_path / "data" / label / f"{copy}.png")
    jobs.train(
        "classify-image", tmp_path / "data", valid=tmp_path / "data", start=tmp_path / "start", out=tmp_path / "run",
        steps=2, settings={"batch": 4},
    )  # fmt: skip
    ours, picture = headway.load(tmp_path / "run"), tmp_path / "data/light/3.png"
    assert ours.family == kind.lower() and ours.processor.image == headway.load(tmp_path / "start").processor.image
    theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "run").eval()
    assert type(theirs).__name__ == f"{kind}ForImageClassification" and theirs.config.id2label == {
        0: "dark",
        1: "light",
    }
    pixels = torch.from_numpy(ours.processor.image(picture))[None]
    with torch.no_grad():
        torch.testing.assert_close(ours.logits(pixel_values=pixels), theirs(pixels).logits, rtol=0, atol=1e-5)


def test_without_its_preprocessing_it_says_so(published: Path, photo: Path) -> None:
    bundle = headway.load(published)
    bundle.processor = bundle.processor.with_image(None)
    with pytest.raises(InputError, match=r"resized and normalised: there is no preprocessor_config\.json"):
        bundle(photo)


@pytest.mark.parametrize(("size", "found"), [((16, 16), "16 × 16"), (None, "any size")])
def test_preprocessing_of_another_size_is_refused(published: Path, photo: Path, size: Any, found: str) -> None:
    bundle = headway.load(published)
    bundle.processor = bundle.processor.with_image(ImageProcessor(size=size))
    with pytest.raises(InputError, match=f"makes pictures of {found}, but the model reads 24 × 24"):
        bundle(photo)


def test_evaluate_and_explain(published: Path, photo: Path, tmp_path: Path) -> None:
    best = headway.load(published)(photo)["label"]
    for label in LABELS.values():
        (tmp_path / "data" / label).mkdir(parents=True)
        Image.new("RGB", (9, 9)).save(tmp_path / "data" / label / "black.png")
    (tmp_path / "data" / best / "photo.jpg").write_bytes(photo.read_bytes())
    assert headway.evaluate(published, tmp_path / "data")["accuracy"] == 0.5
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["explain", str(published), str(photo), "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert best in page.read_text()


def test_the_preprocessing_of_a_model_made_here_is_read_there(tmp_path: Path) -> None:
    from transformers import AutoImageProcessor

    task = ClassifyImage.from_data(
        ClassifyImage.scan(open_builtin(ClassifyImage.builtin, size=20).train()), tokenizer=None, options={"image": 16}
    )
    config = task.config(SMALL, "classic")
    folder = Bundle(build(config), "headway", task.processor(Processor()), task=task).save(tmp_path / "run")
    picture = Image.fromarray(np.random.default_rng(1).integers(0, 256, (50, 70, 3), dtype=np.uint8))
    ours = headway.load(folder)
    assert ours.processor.image == task.image_processor and ours.find_task().image_processor == task.image_processor
    want = AutoImageProcessor.from_pretrained(folder)(picture, return_tensors="np")["pixel_values"][0]
    np.testing.assert_allclose(ours.processor.image(picture), want, rtol=0, atol=1e-6)
