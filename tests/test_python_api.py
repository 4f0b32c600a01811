"""The Python interface: its names, signatures, representations, and errors in terms of its arguments."""

import inspect
from pathlib import Path

import pytest
from support import untrained

import headway
from headway import jobs
from headway.errors import HeadwayError

SMALL = {"model.width": 16, "model.layers": 1, "model.heads": 2, "eval_every": 0, "vocab": 200}


def test_dir_lists_the_public_names() -> None:
    assert dir(headway) == sorted(headway.__all__)
    assert {"train", "load", "check", "evaluate", "resume", "explain", "inspect", "Bundle"} <= set(dir(headway))
    assert all(getattr(headway, name) is not None for name in dir(headway))


@pytest.mark.parametrize("name", ["train", "check", "evaluate", "resume", "load", "explain"])
def test_signatures_name_every_argument(name: str) -> None:
    parameters = inspect.signature(getattr(headway, name)).parameters
    assert not [each for each in parameters.values() if each.kind is inspect.Parameter.VAR_KEYWORD]
    assert inspect.getdoc(getattr(headway, name))


def test_train_and_check_take_the_settings_of_a_run() -> None:
    wanted = set(inspect.signature(jobs.make_plan).parameters)
    assert wanted <= set(inspect.signature(headway.train).parameters)
    assert set(inspect.signature(headway.check).parameters) <= wanted


def test_representations_are_one_short_line(tmp_path: Path) -> None:
    rows = [f"i {'love' if i % 2 else 'hate'} number {i}\t{'fine' if i % 2 else 'awful'}" for i in range(80)]
    (tmp_path / "mine.tsv").write_text("\n".join(rows) + "\n")
    trained = headway.train("classify", tmp_path / "mine.tsv", out=tmp_path / "run", steps=1, settings=SMALL)
    for thing in (trained, trained.bundle, trained.bundle.task):
        assert "\n" not in repr(thing) and len(repr(thing)) < 250, repr(thing)
    assert repr(trained).startswith(f"<Trained: {tmp_path / 'run'}, 1 steps, accuracy ")
    assert repr(headway.load(tmp_path / "run")).startswith("<Bundle: headway encoder, ")


def test_errors_name_arguments_and_not_options(tmp_path: Path) -> None:
    (tmp_path / "one.tsv").write_text("a\tb\nc\td\n")
    folder = untrained.language_model(tmp_path / "model")
    calls = [
        lambda: headway.train("classify", recipe="finetune"),
        lambda: headway.train("classify", tmp_path / "one.tsv", out=tmp_path / "run", steps=1, settings=SMALL),
        lambda: headway.resume(tmp_path / "model"),
        lambda: headway.explain(folder, "a text", first=1, last=1),
        lambda: headway.explain(folder, "a text", first=0),
    ]
    for call in calls:
        with pytest.raises(HeadwayError) as refusal:
            call()
        assert "--" not in str(refusal.value), refusal.value
