"""`classify-image`: from a picture to a label."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from support.task_run import SMALL, losses, trained

from headway import jobs
from headway.data.dataset import Dataset, open_builtin, open_files
from headway.data.read import Row
from headway.data.store import Store
from headway.errors import ConfigError, DataError
from headway.models import recipes
from headway.models.build import build
from headway.models.config import ClassifyHeadConfig, PoolerConfig
from headway.models.init import initialise
from headway.tasks import find
from headway.tasks.batches import ExampleSource, prepare
from headway.tasks.classify_image import ClassifyImage


def grey(shade: int, side: int = 8) -> np.ndarray:
    return np.full((side, side, 3), shade, dtype=np.uint8)


ROWS = [
    Row({"image": grey(0), "label": "dark"}, "a:1"),
    Row({"image": grey(255), "label": "light"}, "a:2"),
    Row({"image": grey(51), "label": "dark"}, "a:3"),
]


def begun(**options) -> ClassifyImage:
    return ClassifyImage.from_data(ClassifyImage.scan(ROWS), tokenizer=None, options={"image": 8, **options})


@pytest.fixture(scope="module")
def task() -> ClassifyImage:
    return begun()


def untrained(task: ClassifyImage, *, recipe="classic"):
    model = build(task.config(SMALL, recipe))
    initialise(model, recipe, seed=0)
    return model.eval()


def test_it_needs_no_tokenizer(task):
    assert find("classify-image") is ClassifyImage
    assert task.tokenizer is None and not task.reads_text


def test_mean_and_deviation_are_the_datas(task):
    assert task.mean == pytest.approx([(0 + 1 + 0.2) / 3] * 3, abs=1e-4)
    assert task.std == pytest.approx([math.sqrt((0.16 + 0.36 + 0.04) / 3)] * 3, abs=1e-4)
    given = begun(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    assert given.mean == [0.5] * 3 and given.std == [0.25] * 3
    assert begun(image=8).labels == ["dark", "light"] and task.counts == [2, 1]


def test_an_array_stays_an_array(task):
    [example] = task.examples(ROWS[2])
    assert example["image"].dtype == np.uint8 and np.array_equal(example["image"], grey(51))
    assert example["label"].tolist() == [0]
    [example] = task.examples(Row({"image": grey(51)[..., 0], "label": "dark"}, ""))
    assert example["image"].shape == (8, 8, 1)


def photo(path, side, seed):
    noise = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path, quality=95)
    return path


@pytest.mark.parametrize("side", [20, 200])  # small files are decoded in this thread, larger ones in several
def test_a_file_stays_encoded_until_batched(task, tmp_path, side):
    paths = [photo(tmp_path / f"{seed}.jpg", side, seed) for seed in range(5)]
    rows = [Row({"image": path, "label": "dark"}, str(path)) for path in paths]
    store = Store.build(tmp_path / "store", (example for row in rows for example in task.examples(row)), key="k")
    assert [store[i]["image"] for i in range(5)] == [path.read_bytes() for path in paths]
    batch = task.collate([store[i] for i in range(5)], seeds=[()] * 5, where=[row.where for row in rows])
    expected = [task.image_processor(path) for path in paths]
    np.testing.assert_array_equal(batch.inputs["inputs"].numpy(), np.stack(expected))


@pytest.mark.parametrize(("zoom", "side"), [(0.0, 8), (0.4, 12)])
def test_small_pictures_are_decoded_once_before_training(tmp_path, zoom, side):
    path = photo(tmp_path / "a.jpg", 40, 0)
    row = Row({"image": path, "label": "dark"}, str(path))
    [stored] = begun(zoom=zoom).training_examples(row)
    assert stored["image"].shape == (side, side, 3) and stored["label"].tolist() == [0]
    if not zoom:
        np.testing.assert_array_equal(stored["image"], begun().image_processor.pixels(path))
    [large] = begun(image=128).training_examples(row)
    assert large["image"] == path.read_bytes(), "of larger ones pixels would take too much of the disk"


def test_files_and_arrays_in_one_data_set(task, tmp_path):
    """A store takes one type of value, so the arrays are encoded too; pixels stay the same."""
    for label in ("dark", "light"):
        (tmp_path / "files" / label).mkdir(parents=True)
        photo(tmp_path / "files" / label / "x.png", 9, len(label))
    arrays = np.random.default_rng(0).integers(0, 256, (30, 8, 8), dtype=np.uint8)
    (tmp_path / "idx").mkdir()
    for name, head, values in (
        ("images-idx3", [3, 30, 8, 8], arrays),
        ("labels-idx1", [1, 30], np.zeros(30, np.uint8)),
    ):
        content = bytes([0, 0, 8, head[0]]) + np.array(head[1:], ">u4").tobytes() + values.tobytes()
        (tmp_path / "idx" / f"train-{name}-ubyte").write_bytes(content)
    data = open_files([tmp_path / "files", tmp_path / "idx"], fields=task.fields, columns={})
    rows = [*data.train(), *data.valid()]
    assert len(rows) == 32 and all(isinstance(task.read(row.fields["image"], where="")["image"], bytes) for row in rows)
    found = {task.image_processor.pixels(row.fields["image"]).tobytes() for row in rows}
    assert {task.image_processor.pixels(array).tobytes() for array in arrays} < found


def test_a_batch_is_normal_and_channels_come_first():
    task = begun(mean=[0.0, 0.5, 1.0], std=[1.0, 0.5, 0.25])
    picture = grey(0)
    picture[2, 5] = (255, 255, 255)
    batch = task.collate(task.examples(Row({"image": picture, "label": "light"}, "")), seeds=[()], where=["x"])
    images = batch.inputs["inputs"]
    assert images.shape == (1, 3, 8, 8) and images.dtype == torch.float32
    assert images[0, :, 2, 5].tolist() == [1.0, 1.0, 0.0]
    assert images[0, :, 5, 2].tolist() == [0.0, -1.0, -4.0]
    assert batch.targets["labels"].tolist() == [1] and (batch.count, batch.where) == (1, ["x"])


def test_an_untrained_modern_model_predicts_uniformly(task):
    batch = task.collate([e for row in ROWS for e in task.examples(row)], seeds=[()] * 3, where=[])
    loss = task.loss(untrained(task, recipe="modern"), batch).total
    assert loss.item() == pytest.approx(3 * math.log(2), rel=1e-5)


def test_predictions_do_not_depend_on_the_batch(task):
    model = untrained(task)
    pictures = [row.fields["image"] for row in open_builtin(ClassifyImage.builtin, size=70).train()]
    together = task.predict(model, pictures)
    for place in (0, 1, 65, 69):
        [alone] = task.predict(model, [pictures[place]])
        assert alone["scores"] == pytest.approx(together[place]["scores"], abs=1e-5)
    assert len({round(answer["score"], 6) for answer in together}) > 60
    assert set(together[0]) == {"label", "score", "scores"}


def test_files_and_faults(task, tmp_path):
    model = untrained(task)
    for label in ("dark", "light"):
        (tmp_path / label).mkdir()
    Image.new("RGB", (9, 5), "white").save(tmp_path / "light" / "1.png")
    (tmp_path / "dark" / "empty.png").touch()
    data = open_files(tmp_path, fields=task.fields, columns={})
    (good,), broken = data.test(), tmp_path / "dark" / "empty.png"
    assert data.test().skipped.places == {"damaged pictures": [str(broken)]}
    assert task.examples(good)[0]["image"] == (tmp_path / "light" / "1.png").read_bytes()
    with pytest.raises(DataError, match=r"dark/empty\.png: not a picture"):
        task.examples(Row({"image": broken, "label": "dark"}, str(broken)))
    assert task.predict(model, [tmp_path / "light" / "1.png"])[0]["label"] in task.labels
    with pytest.raises(DataError, match="input 1: expected a picture's Path"):
        task.predict(model, ["light/1.png"])
    with pytest.raises(DataError, match="b:7: label 'grey' is not one of the model's labels"):
        task.evaluate(model, [Row({"image": grey(9), "label": "grey"}, "b:7")])


STRONG = {"shift": 0.25, "flip": True, "zoom": 0.3, "colour": 0.3, "erase": 0.5, "mixup": 0.3, "cutmix": 0.3}


@pytest.fixture(scope="module")
def augmented(tmp_path_factory) -> ExampleSource:
    data = open_builtin(ClassifyImage.builtin, size=40)
    task = ClassifyImage.from_data(ClassifyImage.scan(data.train()), tokenizer=None, options=STRONG)
    store = prepare(task, data.train(), tmp_path_factory.mktemp("store") / "examples", key="k")
    return ExampleSource(store, task, batch=8, unit="examples", seed=5, fingerprint="")


def test_augmentation_depends_on_example_and_epoch_alone(augmented):
    """So a resumed run, another number of ranks or micro-batches sees the same pictures."""
    places = np.arange(12)
    whole, halves = augmented.load(places, 3), [augmented.load(places[part::2], 3) for part in (0, 1)]
    for part, half in enumerate(halves):
        torch.testing.assert_close(half.inputs["inputs"], whole.inputs["inputs"][part::2], rtol=0, atol=0)
        torch.testing.assert_close(half.targets["labels"], whole.targets["labels"][part::2], rtol=0, atol=0)
    again, other = augmented.load(places, 3), augmented.load(places, 4)
    assert torch.equal(again.inputs["inputs"], whole.inputs["inputs"])
    assert not any(torch.equal(*pair) for pair in zip(whole.inputs["inputs"], other.inputs["inputs"], strict=True))


def test_mixed_pictures_have_the_labels_of_both(augmented):
    labels = augmented.load(np.arange(40), 0).targets["labels"]
    assert labels.shape == (40, 6) and torch.allclose(labels.sum(1), torch.ones(40))
    mixed = torch.tensor([bool(augmented.task.partners((5, 0, place), 40)) for place in range(40)])
    assert 15 < mixed.sum() < 33  # six of ten
    both = ((labels > 0) & (labels < 1)).any(1)
    assert not both[~mixed].any() and both[mixed].float().mean() > 0.6  # some are mixed with another of their label
    alone = replace(augmented.task, mixup=0.0, cutmix=0.0)
    plain = ExampleSource(augmented.store, alone, batch=8, unit="examples", seed=5, fingerprint="")
    batch = plain.load(np.arange(40), 0)
    assert torch.equal(batch.targets["labels"][~mixed], labels.argmax(1)[~mixed])
    assert torch.equal(batch.inputs["inputs"][~mixed], augmented.load(np.arange(40), 0).inputs["inputs"][~mixed])


def test_evaluation_sees_the_pictures_as_they_are(augmented):
    task, examples = augmented.task, [augmented.store[place] for place in range(4)]
    batch = task.collate(examples, seeds=[()] * 4, where=[])
    expected = [task.image_processor(example["image"]) for example in examples]
    np.testing.assert_array_equal(batch.inputs["inputs"].numpy(), np.stack(expected))


def test_the_loss_of_a_mixed_picture_is_the_mean_of_both(task):
    model, [one, two] = untrained(task), [task.examples(row)[0] for row in ROWS[:2]]
    plain = task.collate([one], seeds=[()], where=[])
    either = [
        task.loss(model, replace(plain, targets={"labels": torch.tensor([label])})).total.item() for label in (0, 1)
    ]
    mixed = replace(plain, targets={"labels": torch.tensor([[0.3, 0.7]])})
    assert task.loss(model, mixed).total.item() == pytest.approx(0.3 * either[0] + 0.7 * either[1], rel=1e-5)
    assert two["label"][0] == 1


def test_options_survive_a_round_trip(task):
    again = ClassifyImage.from_dict(task.to_dict(), None)
    assert again == task
    assert again.image_processor == task.image_processor


def test_patches_must_fill_the_picture():
    with pytest.raises(ConfigError, match="image 8 is not a multiple of patch 3"):
        begun(patch=3).config(SMALL, "modern")


@pytest.mark.parametrize("head", [PoolerConfig(), ClassifyHeadConfig(9)])
def test_a_vit_like_start_keeps_its_weights_and_sets_the_size(task, head):
    config = recipes.vision(SMALL, "classic", image=(12, 12), patch=6, channels=3, head=head)
    start = build(config)
    initialise(start, "classic", seed=1)
    before = {name: tensor.clone() for name, tensor in start.state_dict().items() if not name.startswith("head")}
    fresh = begun()
    model = fresh.adapt(start).eval()
    assert (fresh.image, fresh.patch) == (12, 6)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
    assert model.config.head == ClassifyHeadConfig(2)
    assert fresh.predict(model, [grey(3)])[0]["label"] in fresh.labels


def test_other_starts_are_refused(task):
    text = recipes.encoder(SMALL, "modern", vocab=9)
    with pytest.raises(ConfigError, match="starts from an image encoder"):
        task.adapt(build(text))
    wide = recipes.vision(SMALL, "modern", image=(8, 16), patch=4, channels=3, head=ClassifyHeadConfig(2))
    with pytest.raises(ConfigError, match="pictures of 8 × 16 pixels, which are not square"):
        task.adapt(build(wide))


def test_it_learns(tmp_path):
    whole = open_builtin(ClassifyImage.builtin, size=1200)

    def two(walk):
        return lambda: (row for row in walk() if row.fields["label"] in ("circle", "bar"))

    data = replace(whole, train=two(whole.train), valid=two(whole.valid), test=two(whole.test))
    task = ClassifyImage.from_data(ClassifyImage.scan(data.train()), tokenizer=None, options={"patch": 8})
    model = untrained(task, recipe="modern")
    assert isinstance(data, Dataset) and sum(task.counts) == len(list(data.train()))
    fell = losses(trained(task, model, data, folder=tmp_path, steps=60))
    scores = task.evaluate(model, data.test())
    assert np.mean(fell[-5:]) < 0.6 * np.mean(fell[:5])
    assert scores["accuracy"] > scores["majority"] + 0.15


@pytest.mark.slow
def test_the_chosen_settings_learn_the_built_in_shapes(tmp_path):
    """From 3,840 pictures; `make test-slow` trains as long as the plain command does."""
    run = jobs.train("classify-image", out=tmp_path / "run", steps=120, settings={"batch": 32, "eval_every": 0})
    assert run.scores["accuracy"] > 0.5


@pytest.mark.slow
def test_the_plain_command_learns_the_built_in_shapes(tmp_path):
    assert jobs.train("classify-image", out=tmp_path / "run").scores["accuracy"] >= 0.95
