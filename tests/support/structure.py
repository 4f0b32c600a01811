"""Measures the structure of the source code: the table in CONTRIBUTING.md.

make structure
"""

from __future__ import annotations

import ast
import inspect
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
MODEL_PACKAGES = ("layers", "models", "families")  # they define models, configs and heads
DUPLICATE_LINES = 6
MAX_CALLS, MAX_PARAMETERS, MAX_TYPE_CHECKS = 5, 6, 1


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


# ---------------------------------------------------------------------------------------- passes over the data

COUNTER = '''"""Counts the bytes that are read of one file, in this process and in those it starts."""
import builtins, io, os

DATA, LOG = os.path.realpath(os.environ["COUNTED_FILE"]), os.environ["COUNTED_LOG"]
plain = io.open

class Counted(io.FileIO):
    def readinto(self, buffer):
        count = super().readinto(buffer)
        with plain(LOG, "a") as log:
            log.write(f"{count}\\n")
        return count
    def readall(self):
        data = super().readall()
        with plain(LOG, "a") as log:
            log.write(f"{len(data)}\\n")
        return data

def counting(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
    if isinstance(file, int) or "r" not in mode or os.path.realpath(file) != DATA:
        return plain(file, mode, buffering, encoding, errors, newline, closefd, opener)
    raw = Counted(file, "r")
    if buffering == 0:
        return raw
    buffered = io.BufferedReader(raw)
    return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

builtins.open = io.open = counting
'''
TRAINING = """
import os, sys
from torch.optim.optimizer import register_optimizer_step_pre_hook
register_optimizer_step_pre_hook(lambda *_: os._exit(0))
import headway
small = {"model.width": 32, "model.layers": 1, "model.heads": 2}
headway.train("generate", sys.argv[1], out=sys.argv[2], steps=2, settings=small)
"""


def passes_over_data(megabytes: float = 4.0) -> float:
    """How often `train` reads its file before the first optimiser step."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        words = "\n".join(f"the {i} quick brown foxes jump over {i % 97} lazy dogs" for i in range(25_000))
        text = words * max(1, round(megabytes * 1e6 / len(words)))
        (folder / "text.txt").write_text(text)
        (folder / "sitecustomize.py").write_text(COUNTER)
        environment = os.environ | {
            "PYTHONPATH": f"{folder}{os.pathsep}{SOURCE.parent}",
            "COUNTED_FILE": str(folder / "text.txt"),
            "COUNTED_LOG": str(folder / "log"),
        }
        command = [sys.executable, "-c", TRAINING, str(folder / "text.txt"), str(folder / "run")]
        subprocess.run(command, env=environment, check=True, cwd=folder)
        counts = (folder / "log").read_text().split()
        return sum(map(int, counts)) / len(text.encode())


def main() -> None:
    calls, parameters, checks, copies = calls_to_kernel(), block_parameters(), model_type_checks(), duplicates()
    name, lines = largest_file()
    rows = [
        ("calls from `forward` to the attention kernel", len(calls), MAX_CALLS, " → ".join(calls)),
        ("parameters of `Block.forward`", len(parameters), MAX_PARAMETERS, ", ".join(parameters)),
        ("type checks on models, configs and heads outside their packages", len(checks), MAX_TYPE_CHECKS, ""),
        ("passes over the data before the first training step", f"{passes_over_data():.1f}", "", ""),
        ("lines of the largest source file", lines, "", name),
        (f"repeated runs of {DUPLICATE_LINES} or more lines", len(copies), "", ""),
    ]
    print("| measure | value | at most | |\n|---|---|---|---|")
    for row in rows:
        print("| {} | {} | {} | {} |".format(*row))
    for title, items in (("type checks", checks), ("repeated runs", copies)):
        print(f"\n{title}:", *items, sep="\n  ", file=sys.stderr)


if __name__ == "__main__":
    main()
