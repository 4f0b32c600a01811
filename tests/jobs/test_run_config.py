"""Plans and settings: every name known or refused with the closest one, and a plan that survives its file."""

import dataclasses
import json
from pathlib import Path

import pytest

from headway import jobs
from headway.errors import ConfigError, DataError
from headway.jobs.overrides import by_section, from_file, parse
from headway.jobs.run_config import Plan, make_plan
from headway.models.presets import transformer_2017
from headway.models.recipes import Size, encoder_decoder
from headway.tasks.classify import Classify
from headway.training.settings import Settings

KNOWN = {"train": Settings, "task": Classify, "model": Size}


def test_settings_find_their_section() -> None:
    found = by_section(parse(["lr=0.01", "model.width=64", "limit=32", "lowercase=true"]), KNOWN)
    assert found == {"train": {"lr": 0.01}, "task": {"limit": 32, "lowercase": True}, "model": {"width": 64}}


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        ("leraning_rate=1", "is not known"),
        ("wamup=3", "did you mean 'warmup'"),
        ("model.widht=3", "did you mean 'width'"),
        ("train.lr=fast", "expected float, got 'fast'"),
        ("batch=2.5", "expected int, got 2.5"),
        ("nonsense", "expected key=value"),
        ("what.lr=1", "no section 'what'"),
    ],
)
def test_wrong_settings_are_named(pair: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        by_section(parse([pair]), KNOWN)


def test_config_files(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("lr = 0.5\n[model]\nwidth = 32\n")
    (tmp_path / "a.json").write_text(json.dumps({"lr": 0.5, "model": {"width": 32}}))
    for name in ("a.toml", "a.json"):
        found = by_section(from_file(tmp_path / name), KNOWN)
        assert found["train"] == {"lr": 0.5} and found["model"] == {"width": 32}


def test_a_plan_survives_its_file() -> None:
    plan = make_plan("translate", ["a.tsv"], steps=5, recipe="classic", settings={"beams": 2})
    again = Plan(**json.loads(json.dumps(dataclasses.asdict(plan))))
    assert again == plan and again.settings() == plan.settings()


def test_a_given_length_of_training_wins() -> None:
    assert make_plan("classify", steps=7).settings().steps == 7
    assert make_plan("classify", minutes=0.5).settings().minutes == 0.5
    assert make_plan("classify", settings={"epochs": 2}).settings().epochs == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"task": "clasify"}, "did you mean 'classify'"),
        ({"task": "classify", "recipe": "finetune"}, "needs `start`"),
        ({"task": "classify", "size": "huge"}, "not one of tiny, small, base"),
        ({"task": "classify", "settings": {"model.heads": 3}}, "multiple of twice the number of heads"),
    ],
)
def test_wrong_plans_are_refused(arguments: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_plan(arguments.pop("task"), **arguments)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(DataError, match=r"nowhere\.csv: no such file"):
        jobs.check("classify", "nowhere.csv")


def test_the_classic_recipe_is_the_transformer_of_2017() -> None:
    plan = make_plan("translate", recipe="classic", size="base")
    assert plan.size() == Size(width=512, layers=6, heads=8, dropout=0.1)
    ours = encoder_decoder(plan.size(), "classic", vocab=100, context=None, start_id=1)
    paper = transformer_2017(100, start_id=1)
    assert dataclasses.replace(ours) == dataclasses.replace(
        paper,
        encoder=ours.encoder if paper.encoder.stack.block.feedforward.width == 2048 else paper.encoder,
        decoder=ours.decoder if paper.decoder.stack.block.feedforward.width == 2048 else paper.decoder,
    )
    settings = plan.settings()
    assert (settings.optimizer, settings.betas, settings.eps) == ("adam", (0.9, 0.98), 1e-9)
    assert settings.schedule == "inverse_sqrt" and settings.weight_decay == 0.0
