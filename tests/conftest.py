"""Shared by all tests: one torch thread, fixed seeds, coverage of one case, tiny models, the folder of real data."""

import dataclasses
import importlib
import importlib.util
import os
import random
from pathlib import Path

import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None
REPOSITORY = Path(__file__).resolve().parent.parent

if HAS_TORCH:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    random.seed(0)
    if HAS_TORCH:
        import numpy

        numpy.random.seed(0)
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets and weights; a test that asks for it is skipped where there is none."""
    folder = Path(os.environ.get("HEADWAY_REAL_DATA") or REPOSITORY.parent / "shared")
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not a folder (set HEADWAY_REAL_DATA)")
    return folder


@pytest.fixture(scope="session")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of an untrained decoder. Tests read it and do not change it."""
    from support import untrained

    return untrained.language_model(tmp_path_factory.mktemp("models") / "language_model")


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of an untrained encoder-decoder. Tests read it and do not change it."""
    from support import untrained

    return untrained.translator(tmp_path_factory.mktemp("models") / "translator")


@pytest.fixture(scope="session")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of an untrained sentence encoder. Tests read it and do not change it."""
    from support import untrained

    return untrained.embedder(tmp_path_factory.mktemp("models") / "embedder")


@pytest.fixture
def little_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Built-in data sets of a few hundred rows, where what is tested is the way and not the score."""
    tasks = importlib.import_module("headway.tasks")
    for kind in map(tasks.find, tasks.TASKS):
        if hasattr(kind.builtin, "train"):
            monkeypatch.setattr(kind, "builtin", dataclasses.replace(kind.builtin, train=600, test=40))
