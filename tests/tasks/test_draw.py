"""`draw`: from a caption to a picture."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support import commands
from support.task_run import SMALL, losses, started, trained

import headway
from headway import jobs
from headway.bundle import Bundle
from headway.data.dataset import open_builtin
from headway.data.read import Row
from headway.errors import ConfigError, InputError
from headway.explain import story
from headway.jobs.judges import picture_scores
from headway.jobs.run_config import complete
from headway.jobs.verify import compare
from headway.models.build import build
from headway.models.init import initialise
from headway.preprocess.processor import Processor
from headway.tasks import find
from headway.tasks.draw import Draw, plain_caption
from headway.tasks.draw_scores import SampleSizes

TINY = {"model.width": 16, "model.layers": 1, "model.heads": 2, "batch": 8, "average": 0.9}


def picture(shade: int, *, side: int = 8, colours: bool = False) -> np.ndarray:
    image = np.full((side, side, 3), shade, dtype=np.uint8)
    image[: side // 2] //= 2
    if colours:
        image[..., 0] = 255 - image[..., 0]
    return image


def rows(**look: int) -> list[Row]:
    return [Row({"image": picture(20 * n, **look), "caption": f"shade {n % 3}"}, f"a:{n}") for n in range(1, 12)]


def begun(given: list[Row], **options) -> Draw:
    return Draw.from_data(Draw.scan(given), tokenizer=None, options=options)


@pytest.fixture(scope="module")
def task() -> Draw:
    return begun(rows())


def untrained(task: Draw):
    model = build(task.config(SMALL, "modern"))
    initialise(model, "modern", seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def test_size_patch_colours_and_scale_follow_from_the_data(task):
    assert find("draw") is Draw
    assert (task.image, task.patch, task.channels) == (8, 1, 1)
    values = np.stack([row.fields["image"] for row in rows()]) / 255
    assert (task.mean, task.std) == (pytest.approx(values.mean(), abs=1e-3), pytest.approx(values.std(), abs=1e-3))
    assert begun(rows(colours=True)).channels == 3
    assert {side: (begun(rows(side=side)).image, begun(rows(side=side)).patch) for side in (28, 32, 50, 300)} == {
        28: (28, 4),
        32: (32, 4),
        50: (48, 6),
        300: (64, 8),
    }
    given = begun(rows(), image=12, channels=3, mean=0.5, std=0.5)
    assert (given.image, given.patch, given.channels, given.mean) == (12, 2, 3, 0.5)
    with pytest.raises(ConfigError, match="image 12 is not a multiple of patch 5"):
        begun(rows(), image=12, patch=5).config(SMALL, "modern")


def test_the_default_model_is_the_tasks_own_unless_a_size_is_given():
    data = open_builtin(Draw.builtin, size=20)

    def model(**asked) -> dict:
        return complete(jobs.make_plan("draw", **asked), Draw.scan(data.train())).model

    assert (model()["width"], model()["layers"], model()["dropout"]) == (128, 6, 0.0)
    assert (model(size="small")["width"], model(size="small")["dropout"]) == (256, 0.1)
    assert model(settings={"model.layers": 3})["layers"] == 3


def test_noise_time_and_dropped_captions_depend_on_the_examples_seed_alone(task):
    examples = [task.examples(row)[0] for row in rows()]
    seeds = [(0, 3, i) for i in range(len(examples))]
    whole = task.collate(examples, seeds=seeds, where=[])
    part = task.collate(examples[4:6], seeds=seeds[4:6], where=[])
    for name in ("images", "time"):
        assert torch.equal(whole.inputs[name][4:6], part.inputs[name])
    assert torch.equal(whole.targets["velocity"][4:6], part.targets["velocity"])
    later = task.collate(examples, seeds=[(0, 4, i) for i in range(len(examples))], where=[])
    assert not torch.equal(whole.inputs["time"], later.inputs["time"])
    time = whole.inputs["time"][:, None, None, None]
    image = whole.inputs["images"] + (1 - time) * whole.targets["velocity"]  # the end of each line
    expected = torch.from_numpy(np.stack([task.image_processor(row.fields["image"]) for row in rows()]))
    torch.testing.assert_close(image, expected, atol=1e-5, rtol=1e-4)
    many = task.collate(examples[:1] * 500, seeds=[(0, 0, i) for i in range(500)], where=[])
    empty = (many.inputs["padding_mask"].sum(1) == len(task.tokenizer.encode(""))).float().mean()
    assert 0.05 < empty < 0.16
    assert 0.02 < many.inputs["time"].min() < 0.2 and many.inputs["time"].median() == pytest.approx(0.5, abs=0.1)


def test_it_learns(tmp_path):
    task, model, data = started("draw", rows=120)
    before = task.evaluate(model, data.valid())["loss"]
    found = losses(trained(task, model, data, folder=tmp_path, steps=30, batch=16))
    assert np.mean(found[-5:]) < 0.8 * np.mean(found[:3])
    assert task.evaluate(model, data.valid())["loss"] < 0.8 * before


def test_pictures_depend_on_caption_and_seed_and_not_on_the_batch(task):
    model = untrained(task)
    one, other = task.predict(model, ["shade 1", "shade 2"], seed=5, steps=3)
    assert isinstance(one, Image.Image) and one.size == (8, 8) and one.mode == "L"
    (again,) = task.predict(model, ["shade 2"], seed=6, steps=3)
    assert np.abs(np.asarray(again, dtype=int) - np.asarray(other, dtype=int)).max() <= 1, "input i uses seed + i"
    assert np.asarray(one).tolist() != np.asarray(other).tolist()
    ((first, second),) = task.predict(model, ["shade 1"], seed=5, steps=3, n=2)
    assert np.asarray(first).tolist() != np.asarray(second).tolist()
    assert np.abs(np.asarray(first, dtype=int) - np.asarray(one, dtype=int)).max() <= 1
    a, b = (task.predict(model, ["shade 1"], steps=2)[0] for _ in range(2))
    assert np.asarray(a).tolist() != np.asarray(b).tolist(), "without a seed every picture is another"
    (states,) = task.predict(model, ["shade 1"], seed=5, steps=3, strip=True)
    assert len(states) == 4 and np.asarray(states[-1]).tolist() == np.asarray(one).tolist()
    (states,) = task.predict(model, ["shade 1"], seed=5, steps=30, strip=True)
    assert len(states) == 9


def test_what_cannot_be_drawn_is_an_error(task):
    model = untrained(task)
    with pytest.raises(InputError, match="takes a text, not int"):
        task.predict(model, [3])
    with pytest.raises(InputError, match="no option 'guidence'; did you mean 'guidance'"):
        task.predict(model, ["shade 1"], guidence=2)
    with pytest.raises(ConfigError, match="n is 0"):
        task.predict(model, ["shade 1"], n=0)
    with pytest.raises(InputError, match="strip shows the steps of one picture"):
        task.predict(model, ["shade 1"], n=2, strip=True)


def test_an_article_in_front_makes_no_difference(task):
    plain = task.caption_ids("Shade 1", where="")
    assert plain == task.caption_ids("a shade 1", where="") == task.caption_ids("The  shade_1 ", where="")
    assert plain != task.caption_ids("shade 2", where="") and plain_caption("an") == "an"


def test_long_captions_are_counted(task):
    with task.count_truncation() as cut:
        ids = task.caption_ids("shade " * 100, where="b:7")
    assert len(ids) == 64 and ids[-1] == task.tokenizer.encode("")[-1]
    assert cut.summary() == ["caption: 1 of 1 cut to 64 tokens (100.0%); the longest had 102 (b:7)"]


@pytest.mark.usefixtures("little_data")
def test_a_run_is_resumed_exactly_and_opens_again(tmp_path: Path) -> None:
    class Stop:
        def on_step(self, status) -> None:
            if status.step == 3:
                raise KeyboardInterrupt

    settings = {**TINY, "save_every": 2, "keep_states": True}
    whole = jobs.train("draw", out=tmp_path / "whole", steps=5, settings=settings)
    with pytest.raises(KeyboardInterrupt):
        jobs.train("draw", out=tmp_path / "stopped", steps=5, settings=settings, callbacks=[Stop()])
    jobs.resume(tmp_path / "stopped")
    assert not any(compare(tmp_path / "whole", tmp_path / "stopped").values())
    loaded = headway.load(tmp_path / "whole")
    assert (
        loaded.family == "headway"
        and json.loads((tmp_path / "whole/config.json").read_text())["model_type"] == "headway"
    )
    one, other = (each("a red circle on blue", seed=1, steps=2) for each in (loaded, whole.bundle))
    assert np.asarray(one).tolist() == np.asarray(other).tolist() and one.size == (32, 32) and one.mode == "RGB"
    assert loaded.processor.image is not None and "32 × 32" in loaded.processor.image.describe()
    longer = jobs.train("draw", out=tmp_path / "more", start=tmp_path / "whole", steps=1, settings={"batch": 8})
    assert longer.result.steps == 1


@pytest.mark.usefixtures("little_data")
def test_codes_of_patches_are_generated_as_tokens_are(tmp_path: Path) -> None:
    made = jobs.train("draw", out=tmp_path / "run", steps=3, settings={**TINY, "method": "tokens", "codes": 32})
    task, model = made.bundle.find_task(), made.bundle.model
    assert model.shape == "encoder-decoder" and model.generates and model.vocab_size == 33
    assert made.scores["loss"] < 1.5 * np.log(33)
    again = headway.load(tmp_path / "run")
    one, other = (each("a red circle on blue", seed=4) for each in (again, made.bundle))
    assert np.asarray(one).tolist() == np.asarray(other).tolist() and one.size == (32, 32)
    allowed = {tuple(patch) for patch in task.codebook}
    pixels = np.asarray(one).reshape(8, 4, 8, 4, 3).transpose(0, 2, 1, 3, 4).reshape(64, -1)
    assert len(task.codebook) == 32 and {tuple(patch) for patch in pixels.tolist()} <= allowed
    (pair,) = again(["a red circle on blue"], seed=4, n=2, temperature=0.7, top_k=5)
    assert len(pair) == 2
    with pytest.raises(InputError, match="no option 'guidance'"):
        again("a red circle on blue", guidance=2)
    with pytest.raises(InputError, match="explain shows drawings of method flow"):
        headway.explain(again, "a red circle")
    with pytest.raises(ConfigError, match="starts from scratch"):
        jobs.train("draw", out=tmp_path / "more", start=tmp_path / "run", steps=1, settings={"method": "tokens"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of an untrained model."""
    target = tmp_path_factory.mktemp("draw") / "run"
    task = begun(rows(colours=True))
    model = untrained(task)
    return Bundle(model, "headway", task.processor(Processor()), task=task).save(target)


def test_run_writes_a_picture_a_sheet_or_a_strip(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*options: str | Path) -> str:
        done = commands.headway("run", folder, "shade 1", *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = run("--out", "new/one.png", "--seed", "3", "--steps", "2")
    assert said == f"{Path('new/one.png')}: a picture of 8 × 8 pixels, seed 3\n"
    with Image.open("new/one.png") as one:
        assert (one.size, one.mode) == ((8, 8), "RGB")
        again = headway.load(folder)("shade 1", seed=3, steps=2)
        assert np.asarray(again).tolist() == np.asarray(one).tolist()
    said = run("shade 2", "--count", "3", "--out", "sheet.png", "--guidance", "1", "--steps", "2")
    assert "6 pictures of 8 × 8 pixels, seed " in said
    with Image.open("sheet.png") as many:
        assert many.size == (3 * 116 + 4, 2 * 130 + 4), "pictures of 8 pixels are enlarged 14 times"
    run("--strip", "--out", "strip.png", "--steps", "4")
    with Image.open("strip.png") as strip:
        assert strip.size == (5 * 116 + 4, 134)
    for name in ("picture.png", "picture-2.png"):
        assert run("--steps", "1").startswith(f"{name}: a picture")
    told = json.loads(run("--steps", "1", "--json", "--seed", "7", "--out", "a.png"))
    assert told == {"input": ["shade 1"], "file": "a.png", "pictures": [1], "seed": 7}


def test_mistakes_on_the_command_line_are_explained(folder: Path, language_model: Path, tmp_path: Path) -> None:
    def error(*command: str | Path) -> str:
        done = commands.headway("run", *command, cwd=tmp_path)
        assert done.returncode != 0
        return done.stderr

    assert "does not generate text, so --beams does not apply" in error(folder, "shade 1", "--beams", "2")
    assert "it ends in .png" in error(folder, "shade 1", "--steps", "1", "--out", tmp_path / "a.xyz")
    assert "steps is 0" in error(folder, "shade 1", "--steps", "0")
    assert "--out takes .csv, .jsonl or .parquet here" in error(language_model, "a", "--out", tmp_path / "a.png")
    assert "task generate does not draw, so --guidance does not apply" in error(language_model, "a", "--guidance", "2")
    assert "does not find entities by name, so --labels does" in error(language_model, "a", "--labels", "x")


@pytest.mark.slow
def test_evaluation_judges_the_pictures_by_trained_classifiers(folder: Path, tmp_path: Path) -> None:
    bundle, data = headway.load(folder), open_builtin(Draw.builtin, size=60)
    small = SampleSizes(chosen_by=2, judged=4, taught_by=12, compared=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle, "folder", tmp_path)
        patch.setattr(bundle.task, "euler_steps", 1)
        scores = [picture_scores(bundle, list(data.test()), run=data, sizes=small, minutes=0.003) for _ in range(2)]
        free = [Row({**row.fields, "caption": f"{row.where}"}, row.where) for row in data.test()]
        for row in free:
            del row.fields["label"]
        unlabelled = picture_scores(bundle, free, run=data, sizes=small)
    near = {"nearest_drawn", "nearest_real", "copies"}
    assert scores[0].keys() == {
        *near, "judge_accuracy", "agreement", "agreement_guided", "best_guidance", "drawn_accuracy",
    }  # fmt: skip
    assert all(0 <= value <= 4 for value in scores[0].values()) and unlabelled.keys() == near
    assert (tmp_path / "training/judge/model.safetensors").exists(), "the judge is trained once"
    assert scores[0]["judge_accuracy"] == scores[1]["judge_accuracy"]
    with pytest.raises(InputError, match="a model of task classify-image is needed"):
        picture_scores(bundle, list(data.test()), run=data, judge=folder)


def test_explain_shows_the_picture_and_the_words_its_patches_attend_to(folder: Path, tmp_path: Path) -> None:
    bundle = headway.load(folder)
    explained = headway.explain(bundle, "a shade 1")
    shown = explained.story
    caption, picture = shown.sequences["source"], shown.sequences["target"]
    assert [token.text.strip() for token in caption.tokens if not token.special] == ["shade", "1"]
    assert picture.picture is not None and (picture.picture.rows, picture.picture.columns) == (8, 8)
    assert len(picture.tokens) == 64 and picture.picture.first == 0
    with Image.open(io.BytesIO(base64.b64decode(picture.picture.png))) as drawn:
        assert np.asarray(drawn).tolist() == np.asarray(bundle("shade 1", seed=0)).tolist()
    cross = [each for each in shown.attention if each.kind == "cross"]
    assert cross and all(each.queries == "target" and each.keys == "source" for each in cross)
    weights = story.dequantize(cross[0].weights)
    assert weights.shape == (2, 64, len(caption.tokens)) and np.allclose(weights.sum(-1), 1, atol=1e-3)
    assert shown.output is not None and shown.output.kind == "picture"
    page = explained.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert picture.picture.png in page
    done = commands.headway("explain", folder, "shade 1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
