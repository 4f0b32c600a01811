"""Shared by all tests: one torch thread, fixed seeds, coverage of one case, tiny models, the folder of real data."""

import dataclasses
import importlib
import importlib.util
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None
REPOSITORY = Path(__file__).resolve().parent.parent
LONGEST = ("test_docs.py", "test_jobs_distributed.py", "test_studio_runs.py", "test_faults_commands.py", "test_fsdp.py")

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that tests start: there are as many as cores already

if HAS_TORCH:
    import torch

    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests first, so that no process waits for one of them at the end; they also compile the engine before
    another process needs it."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    random.seed(0)
    if HAS_TORCH:
        import numpy

        numpy.random.seed(0)
        torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def quick_trainings() -> Iterator[float | None]:
    """Most tests train for a few steps. Estimating their time from passes of 0.2 s and drawing their curves would
    take longer than they do, so passes are of milliseconds and nothing is drawn. A test of either takes `full_timings`
    or `curves`."""
    if not HAS_TORCH:
        yield None
        return
    from support.quick import shorten_trainings

    with pytest.MonkeyPatch.context() as patch:
        yield shorten_trainings(patch.setattr)


@pytest.fixture
def full_timings(quick_trainings: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate of time as users get it."""
    monkeypatch.setattr("headway.training.step_trial.PASS_SECONDS", quick_trainings)


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings draw curves.png, as they do for users."""
    drawing = importlib.import_module("headway.training.log").draw_curves
    for module in ("training.loop", "lineage.word2vec_fit"):
        monkeypatch.setattr(f"headway.{module}.draw_curves", drawing)


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
    """Built-in data sets of a few hundred texts, or of a hundred pictures or sounds, which take longer to make; where
    what is tested is the way and not the score."""
    tasks = importlib.import_module("headway.tasks")
    for kind in map(tasks.find, tasks.TASKS):
        if hasattr(kind.builtin, "train"):
            train, test = (100, 12) if {"image", "audio"} & {*kind.fields} else (600, 40)
            monkeypatch.setattr(kind, "builtin", dataclasses.replace(kind.builtin, train=train, test=test))
