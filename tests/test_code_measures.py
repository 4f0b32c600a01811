"""The measures of the source code in CONTRIBUTING.md stay within their bounds, and each of them can fail."""

from pathlib import Path

import pytest
from support import structure


def test_calls_from_forward_to_the_kernel() -> None:
    calls = structure.calls_to_kernel()
    assert len(calls) <= structure.MAX_CALLS, calls
    assert calls[-1] == "scaled_dot_product_attention" and "Block.forward" in calls, (
        "control: the chain is the real one"
    )


def test_parameters_of_a_block() -> None:
    assert 1 <= len(structure.block_parameters()) <= structure.MAX_PARAMETERS


def test_type_checks_on_models() -> None:
    checks = structure.model_type_checks()
    assert len(checks) <= structure.MAX_TYPE_CHECKS, "ask the model (models/protocol.py) instead:\n" + "\n".join(checks)


def test_type_checks_are_found(tmp_path: Path) -> None:
    package(tmp_path, "models/a.py", "class Decoder: ...")
    package(tmp_path, "layers/b.py", "class NormConfig: ...\nclass Linear: ...")
    package(tmp_path, "models/c.py", "isinstance(x, Decoder)")
    package(
        tmp_path,
        "tasks/d.py",
        "isinstance(x, (Decoder, int))\nisinstance(x, b.NormConfig | None)\nisinstance(x, Linear)",
    )
    package(tmp_path, "tasks/e.py", "match x:\n    case Decoder(): ...\n    case str(): ...")
    expected = ["tasks/d.py:1 Decoder", "tasks/d.py:2 NormConfig", "tasks/e.py:2 Decoder"]
    assert structure.model_type_checks(tmp_path) == expected


def test_nothing_outside_tasks_asks_for_the_class_or_name_of_a_task() -> None:
    checks = structure.task_checks()
    assert checks == [], "ask its kinds of input and prediction (kinds/) instead:\n" + "\n".join(checks)


def test_checks_of_tasks_are_found(tmp_path: Path) -> None:
    package(tmp_path, "tasks/a.py", "class Tag: ...\nisinstance(x, Tag)")
    package(tmp_path, "jobs/b.py", "from headway.tasks.a import Tag\nisinstance(x, Tag)\nrun.task.name == 'tag'")
    package(tmp_path, "jobs/c.py", "isinstance(x, Tag)\nother.name == 'tag'\nmatch kind:\n    case Boxes(): ...")
    assert structure.task_checks(tmp_path) == ["jobs/b.py:2 Tag", "jobs/b.py:3 task.name"]


def test_repeated_lines_are_found(tmp_path: Path) -> None:
    lines = [f"value_{i} = compute({i})" for i in range(8)]
    package(tmp_path, "a.py", "\n".join(lines))
    package(tmp_path, "b.py", "import os\n\n" + "\n    # a comment\n".join(lines))
    package(tmp_path, "c.py", "\n".join(lines[:5]))
    assert structure.duplicates(tmp_path) == ["a.py:1 ~ b.py:3"], "one run of eight lines; five are too few"


@pytest.mark.parametrize(
    "task",
    ["classify", *(pytest.param(task, marks=pytest.mark.slow) for task in structure.TASKS if task != "classify")],
)
def test_the_training_rows_are_read_twice_before_the_first_step(task: str) -> None:
    _, passes = structure.before_first_step(task)
    assert 1 <= passes <= structure.MAX_PASSES, "a scan and a tokenisation"


def test_few_class_names_stand_for_two_things() -> None:
    repeated = structure.repeated_class_names()
    assert len(repeated) <= structure.MAX_REPEATED_NAMES, "\n".join(repeated)


def test_repeated_class_names_are_found(tmp_path: Path) -> None:
    package(tmp_path, "a.py", "class One: ...\nclass Two: ...\nclass _Own: ...")
    package(tmp_path, "b.py", "class One: ...\nclass _Own: ...")
    assert structure.repeated_class_names(tmp_path) == ["One: a.py, b.py"]


def package(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
