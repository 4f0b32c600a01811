"""One server with three small models, shared by the tests of its routes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import untrained
from support.server import TASKS, Running, running

import headway
from headway.bundle import Bundle


@pytest.fixture(scope="session")
def served(language_model: Path, translator: Path, embedder: Path) -> Iterator[Running]:
    """Models language_model (context 128), translator and embedder."""
    with running(language_model, translator, embedder) as found:
        yield found


@pytest.fixture(scope="session")
def writer(language_model: Path) -> Bundle:
    """The language model in this process, for what an answer should be."""
    return headway.load(language_model)


@pytest.fixture(scope="session")
def task_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small untrained model for each of the other tasks."""
    folder = tmp_path_factory.mktemp("tasks")
    return {name: untrained.of_task(name, folder / name, **options) for name, options in TASKS.items()}


@pytest.fixture(scope="session")
def tasks(task_folders: dict[str, Path], translator: Path, embedder: Path) -> Iterator[Running]:
    """One server with a model for every task but generate; the translator is named by its languages."""
    with running(*task_folders.values(), f"en-de={translator}", embedder) as found:
        yield found
