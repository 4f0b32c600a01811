"""Settings: each mistake is found before anything is built, and named."""

import json
import subprocess
import sys

import pytest

from headway.errors import ConfigError
from headway.training.settings import Settings, interval

WRONG = {
    "steps": [-1, 1.5, True, float("nan")],
    "batch": [0, 2.5],
    "accumulate": [0],
    "seed": [-1, 0.5],
    "optimizer": ["sgd"],
    "lr": [0.0, -1.0, float("inf"), "fast"],
    "matrix_lr": [0],
    "betas": [(0.9,), (0.9, 1.0)],
    "eps": [0.0],
    "weight_decay": [-0.1],
    "schedule": ["zigzag"],
    "warmup": [-1],
    "decay": [2.0],
    "floor": [-0.5],
    "clip": [-1.0],
    "skip_spikes": [-1.0, 0.5, True],
    "average": [1.0, -0.1],
    "eval_every": [-5, "weekly", "5h", True],
    "save_every": ["1", ""],
    "keep": [0],
    "patience": [-1],
    "log_every": [0],
    "precision": ["fp8"],
    "batch_unit": ["words"],
    "report": [("pigeon",)],
}


@pytest.mark.parametrize("name,value", [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_value_is_named(name, value):
    with pytest.raises(ConfigError, match=name):
        Settings(**{"steps": 10, name: value})


@pytest.mark.parametrize("given", [{}, {"steps": 5, "epochs": 1}, {"epochs": 1, "minutes": 2.0}])
def test_exactly_one_length(given):
    with pytest.raises(ConfigError, match="exactly one of steps, epochs and minutes"):
        Settings(**given)


def test_intervals():
    assert interval("eval_every", 500) == ("steps", 500)
    assert interval("eval_every", "epoch") == ("epoch", 1)
    assert interval("save_every", "90s") == ("seconds", 90)
    assert interval("save_every", "2.5m") == ("seconds", 150)


def test_as_json_and_back():
    settings = Settings(epochs=2, betas=(0.8, 0.9), report=("wandb",))
    read = json.loads(json.dumps(settings.as_dict()))
    assert Settings(**{**read, "betas": tuple(read["betas"]), "report": tuple(read["report"])}) == settings


def test_settings_need_no_torch():
    code = "import sys, headway.training.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
