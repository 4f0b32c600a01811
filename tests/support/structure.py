"""Measures the structure of the source code: the table in CONTRIBUTING.md.

make structure
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F

import headway
from headway.layers.block import Block
from headway.models.build import build
from headway.models.recipes import Size, decoder

SOURCE = Path(headway.__file__).parent
TESTS = Path(__file__).parents[1]
MODEL_PACKAGES = ("layers", "models", "families")  # they define models, configs and heads
DUPLICATE_LINES = 6
MAX_CALLS, MAX_PARAMETERS, MAX_TYPE_CHECKS, MAX_PASSES, MAX_REPEATED_NAMES = 5, 6, 1, 2, 3


def calls_to_kernel() -> list[str]:
    """The functions that are called on the way from a decoder's forward to the attention kernel, which is the last."""
    model = build(decoder(Size(width=16, layers=1, heads=2), "modern", vocab=20, context=8)).eval()
    kernel, names = F.scaled_dot_product_attention, list[str]()

    def traced(*args: Any, **kwargs: Any) -> torch.Tensor:
        if not names:
            names.extend(
                [*_callers(sys._getframe(1), until=type(model).forward.__code__), "scaled_dot_product_attention"]
            )
        return kernel(*args, **kwargs)

    with torch.no_grad(), patch.object(F, "scaled_dot_product_attention", traced):
        model(torch.ones(1, 4, dtype=torch.long))
    return names


def _callers(frame: FrameType | None, *, until: Any) -> list[str]:
    """The frames of Headway between the function with code `until` and `frame`, outermost first."""
    names = []
    while frame is not None and frame.f_code is not until:
        if Path(frame.f_code.co_filename).is_relative_to(SOURCE):
            names.append(frame.f_code.co_qualname)
        frame = frame.f_back
    assert frame is not None, "forward is among the callers"
    return names[::-1]


def block_parameters() -> list[str]:
    return [name for name in inspect.signature(Block.forward).parameters if name != "self"]


def model_type_checks(source: Path = SOURCE) -> list[str]:
    """Every isinstance, issubclass and class pattern on a model, config or head, outside the packages that define
    them, as "file:line Class"."""
    types = {name for package in ("models", "layers") for name in _model_types(source / package, package)}
    found = []
    for path in sorted(source.rglob("*.py")):
        if path.relative_to(source).parts[0] not in MODEL_PACKAGES:
            for line, names in _type_checks(ast.parse(path.read_text(encoding="utf-8"))):
                found += [f"{path.relative_to(source)}:{line} {name}" for name in sorted(names & types)]
    return found


def _model_types(folder: Path, package: str) -> Iterator[str]:
    """All classes of models/, and the configs of layers/."""
    for path in folder.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and (package == "models" or node.name.endswith("Config")):
                yield node.name


def _type_checks(tree: ast.AST) -> Iterator[tuple[int, set[str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.MatchClass):
            yield node.lineno, _names(node.cls)
        elif isinstance(node, ast.Call) and _names(node.func) & {"isinstance", "issubclass"}:
            yield node.lineno, _names(node.args[1])


def _names(node: ast.AST) -> set[str]:
    parts = list(ast.walk(node))
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return names | {part.attr for part in parts if isinstance(part, ast.Attribute)}


def largest_file() -> tuple[str, int]:
    sizes = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    name = max(sizes, key=lambda name: sizes[name])
    return name, sizes[name]


def duplicates(source: Path = SOURCE) -> list[str]:
    """Runs of six or more equal lines in two places, as "a.py:10 ~ b.py:40". Blank lines, comments, imports and lines
    without a word do not count."""
    places: dict[tuple[str, ...], list[tuple[str, int, int]]] = defaultdict(list)  # file, index of the line, its number
    for path in sorted(source.rglob("*.py")):
        lines = [
            (number, line.strip())
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if any(c.isalpha() for c in line) and not line.strip().startswith(("#", "import ", "from "))
        ]
        for i in range(len(lines) - DUPLICATE_LINES + 1):
            window = tuple(text for _, text in lines[i : i + DUPLICATE_LINES])
            places[window].append((str(path.relative_to(source)), i, lines[i][0]))
    found, covered = [], set()
    for first, *others in places.values():
        for other in others:
            pair = (first[0], other[0], other[1] - first[1])  # windows of one longer run have the same offset
            if (*pair, first[1] - 1) not in covered:
                found.append(f"{first[0]}:{first[2]} ~ {other[0]}:{other[2]}")
            covered.add((*pair, first[1]))
    return found


# ---------------------------------------------------------------------------------------- size, names, tasks


def source_lines(folder: Path = SOURCE) -> tuple[int, int]:
    """(lines, files) of the Python files below a folder."""
    files = list(folder.rglob("*.py"))
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files), len(files)


def task_members() -> tuple[list[str], list[str]]:
    """The public methods and properties of `Task`, and its class-level fields."""
    tree = ast.parse((SOURCE / "tasks" / "task.py").read_text(encoding="utf-8"))
    task = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Task")
    methods = [node.name for node in task.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
    fields = [
        node.target.id for node in task.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    return methods, fields


def task_checks(source: Path = SOURCE) -> list[str]:
    """Every test for a task's class or name outside tasks/, as "file:line what"."""
    classes = {
        node.name
        for path in (source / "tasks").glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    found = []
    for path in sorted(source.rglob("*.py")):
        name, tree = path.relative_to(source), ast.parse(path.read_text(encoding="utf-8"))
        if name.parts[0] == "tasks":
            continue
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headway.tasks")
            for alias in node.names
        }
        for line, names in _type_checks(tree):
            found += [f"{name}:{line} {each}" for each in sorted(names & classes & imported)]
        found += [f"{name}:{node.lineno} task.name" for node in ast.walk(tree) if _compares_task_name(node)]
    return found


def _compares_task_name(node: ast.AST) -> bool:
    """Whether it compares `task.name`, or `….task.name`, with a constant."""
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    named = any(
        isinstance(side, ast.Attribute) and side.attr == "name" and "task" in ast.unparse(side.value).lower()
        for side in sides
    )
    return named and any(isinstance(part, ast.Constant) for side in sides for part in ast.walk(side))


def repeated_class_names(source: Path = SOURCE) -> list[str]:
    """Public classes of one name in several files."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(source)))
    return [f"{name}: {', '.join(files)}" for name, files in sorted(places.items()) if len(files) > 1]


def settings_places(source: Path = SOURCE) -> tuple[list[str], int]:
    """The files in which settings are chosen for a data set - they make a `Choice` -, and the numbers that have a name
    there."""
    files, constants = [], 0
    for path in sorted(source.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
        if not any(isinstance(function, ast.Name) and function.id == "Choice" for function in calls):
            continue
        files.append(str(path.relative_to(source)))
        constants += sum(_is_constant(node) for node in tree.body)
    return files, constants


def _is_constant(node: ast.stmt) -> bool:
    """Whether it gives names in capitals to something that has a number in it."""
    if not isinstance(node, ast.Assign):
        return False
    numbers = (part for part in ast.walk(node.value) if isinstance(part, ast.Constant))
    capitals = all(isinstance(part, ast.Name) and part.id.isupper() for t in node.targets for part in _parts(t))
    return capitals and any(type(part.value) in (int, float) for part in numbers)


def _parts(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple) else [target]


# ---------------------------------------------------------------------------------------- before the first step

BEFORE_STEP = '''
"""Trains a task and stops before its first step: modules of Headway that were entered, and passes over the rows."""
import json, os, sys
from torch.optim.optimizer import register_optimizer_step_pre_hook
import headway
from headway.cli import main
from headway.data import dataset

source, entered, passes = os.path.dirname(headway.__file__), set(), {"rows": 0}

def on_call(frame, event, argument):
    if event == "call" and frame.f_code.co_name != "<module>" and frame.f_code.co_filename.startswith(source):
        entered.add(frame.f_code.co_filename)

def counted(read):
    """A reader of rows that counts the rows that are taken."""
    def rows():
        return Counted(read())
    return rows

class Counted:
    def __init__(self, rows):
        self.rows = rows
    def __iter__(self):
        return self
    def __next__(self):
        row = next(self.rows)
        passes["rows"] += 1
        return row
    def __getattr__(self, name):
        return getattr(self.rows, name)

def report(*_):
    sys.setprofile(None)
    total = sum(1 for _ in plain_reader())
    print("BEFORE_STEP", json.dumps([len(entered), passes["rows"] / max(1, total)]), flush=True)
    os._exit(0)

plain_reader = None
made = dataset.Dataset.__init__

def init(self, *args, **named):
    global plain_reader
    made(self, *args, **named)
    if not getattr(self.train, "counts", False):
        plain_reader = self.train
        reader = counted(plain_reader)
        reader.counts = True
        object.__setattr__(self, "train", reader)

dataset.Dataset.__init__ = init
register_optimizer_step_pre_hook(report)
sys.setprofile(on_call)
sys.argv[0] = "headway"
main()
'''
TASKS = ("classify", "translate", "tag", "summarize", "classify-image", "transcribe")  # whose passes are counted


def before_first_step(task: str) -> tuple[int, float]:
    """Modules that `headway train TASK` enters before its first optimiser step, and passes over the training rows:
    rows read, divided by their number. On the built-in data, with a tiny model."""
    small = [part for name in ("width=32", "layers=1", "heads=2") for part in ("--set", f"model.{name}")]
    with tempfile.TemporaryDirectory() as made:
        command = [sys.executable, "-c", BEFORE_STEP, "train", task, "--steps", "2", *small, "--out", f"{made}/run"]
        done = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": str(SOURCE.parent)}, cwd=made, capture_output=True, text=True
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("BEFORE_STEP")]
    if not lines:
        raise RuntimeError(f"training {task} did not come to its first step:\n{done.stdout}{done.stderr}")
    modules, passes = json.loads(lines[0].removeprefix("BEFORE_STEP"))
    return modules, passes


def main() -> None:
    calls, parameters, checks, copies = calls_to_kernel(), block_parameters(), model_type_checks(), duplicates()
    name, lines = largest_file()
    (total, files), (tests, _), (methods, fields) = source_lines(), source_lines(TESTS), task_members()
    on_tasks, repeated, (places, constants) = task_checks(), repeated_class_names(), settings_places()
    before = {task: before_first_step(task) for task in TASKS}
    passes = {task: passes for task, (_, passes) in before.items()}
    rows: list[tuple[str, Any, Any, str]] = [
        ("lines of Python in `src`", f"{total:,}", "", ""),
        ("files", files, "", ""),
        ("lines of the largest source file", lines, "", name),
        ("calls from `forward` to the attention kernel", len(calls), MAX_CALLS, " → ".join(calls)),
        ("parameters of `Block.forward`", len(parameters), MAX_PARAMETERS, ", ".join(parameters)),
        ("type checks on models, configs and heads outside their packages", len(checks), MAX_TYPE_CHECKS, ""),
        ("methods and properties of `Task`; its fields", f"{len(methods)}; {len(fields)}", "", ""),
        ("tests for a task's class or name outside `tasks`", len(on_tasks), 0, ""),
        (
            "passes over the training rows before the first step, the worst task",
            f"{max(passes.values()):.1f}",
            MAX_PASSES,
            ", ".join(f"{task} {count:.1f}" for task, count in passes.items()),
        ),
        ("modules that `train classify` enters before the first step", before["classify"][0], "", ""),
        ("files that choose settings; named numbers in them", f"{len(places)}; {constants}", "", ", ".join(places)),
        ("class names that stand twice", len(repeated), MAX_REPEATED_NAMES, ""),
        (f"repeated runs of {DUPLICATE_LINES} or more lines", len(copies), "", ""),
        ("lines of tests for a line of source", f"{tests / total:.2f}", "", ""),
    ]
    print("| measure | value | at most | |\n|---|---|---|---|")
    for row in rows:
        print("| {} | {} | {} | {} |".format(*row))
    shown = {"type checks": checks, "tests for tasks": on_tasks, "class names": repeated, "repeated runs": copies}
    for title, items in shown.items():
        print(f"\n{title}:", *items, sep="\n  ", file=sys.stderr)


if __name__ == "__main__":
    main()
