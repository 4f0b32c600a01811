"""Files of model and run folders are opened in `headway/files.py`; other calls that open a file are listed here."""

import ast
from pathlib import Path

import headway

SOURCE = Path(headway.__file__).parent
FUNCTIONS = {"open", "safe_open", "load_file", "save_file", "NamedTemporaryFile"}
METHODS = {
    "open", "fdopen", "read_text", "read_bytes", "write_text", "write_bytes", "memmap", "fromfile", "tofile", "savefig",
    "touch", "load_file", "save_file", "safe_open", "genfromtxt", "loadtxt", "copyfile", "copy2", "copytree",
}  # fmt: skip
OF_LIBRARIES = {
    ("torch", "load"),
    ("torch", "save"),
    ("np", "load"),
    ("np", "save"),
    ("np", "savez"),
    ("os", "truncate"),
}

ALLOWED = {  # module → call: why it is none of a model or run folder's files by name
    "files.py": {"open": "the opener", "os.open": "the opener"},
    "locks.py": {"os.open": "creates a file exclusively, which does not follow links"},
    "checkpoints/files.py": {"safe_open": "after require_file"},
    "checkpoints/save.py": {
        "save_file": "to the temporary file of atomic_write",
        "(work / INDEX).write_text": "in a temporary folder",
    },
    "checkpoints/text_files.py": {"partial.write_bytes": "to the temporary file of atomic_write"},
    "checkpoints/unpickle.py": {"torch.load": "weights only, in a child process, of a file that the user has allowed"},
    "training/state.py": {
        "safe_open": "after require_file",
        "(partial / 'state.json').write_bytes": "in the temporary folder of atomic_folder",
        "(partial / MANIFEST).write_text": "in the temporary folder of atomic_folder",
    },
    "training/log.py": {"figure.savefig": "to the temporary file of atomic_write"},
    "inspect/pictures.py": {"figure.savefig": "to the temporary file of atomic_write"},
    "data/checksums.py": {
        "np.memmap": "of a file that open_file has opened",
        "partial.write_text": "to the temporary file of atomic_write",
    },
    "data/table_sandbox.py": {
        "open": "a file that open_file has opened in the parent process",
        "archive.open": "a member of an archive",
    },
    "limited_process.py": {"open": "of the system: /proc/self/statm"},
    "data/store.py": {"cls.open": "a store, not a file"},
    "data/paths.py": {"members(self.archive)[self._inside].open": "a member of an archive"},
    "jobs/output_files.py": {"partial.write_bytes": "to the temporary file of atomic_write"},
    "cli/help.py": {"formatter.write_text": "to a page of help"},
    "pickling.py": {
        "path.read_bytes": "in a temporary folder of its own",
        "path.write_bytes": "in a temporary folder of its own",
    },
    "jobs/predict.py": {"path.write_text": "in a temporary folder of its own"},
    "jobs/memory_tables.py": {"open": "to the temporary file of atomic_write"},
    "tasks/batches.py": {"Store.open": "a store, not a file"},
    "preprocess/archive.py": {"self.archive.open": "a member of an archive"},
    "preprocess/image.py": {"Image.open": "bytes in memory, or a file that open_file has opened"},
    "data/builtin/pairs.py": {"source.read_bytes": "a module of Python's library"},
    "explain/page.py": {"files('headway.explain').joinpath('assets', name).read_text": "a file of the package"},
    "engine/interpreter.py": {"Path(str(part.__file__)).read_bytes": "modules of the package"},
    "engine/thread_pool.py": {"Path('/proc/self/maps').read_text": "of this process"},
    "memory.py": {"Path(file).read_text": "files of the system: /proc, control groups"},
    "jobs/pipes.py": {
        "os.open": "a pipe that the user has named",
        "os.fdopen": "a pipe that the user has named",
        "copy.open": "a temporary file",
    },
    "checkpoints/word2vec.py": {"partial.write_bytes": "to the temporary file of atomic_write"},
    "lineage/compare_page.py": {"figure.savefig": "to memory"},
    "jobs/compare_runs.py": {"figure.savefig": "to the temporary file of atomic_write"},
    "jobs/predictions_file.py": {"path.open": "the temporary file of atomic_write"},
    "jobs/judges.py": {"(folder / 'pictures.csv').open": "in a temporary folder"},
    "serving/runs_process.py": {
        "Path(f'/proc/{pid}/stat').read_text": "of the system",
        "open": "creates a file exclusively, which does not follow links",
    },
    "serving/studio.py": {"each.read_bytes": "a file of the package"},
    "cli/__init__.py": {"os.open": "the null device"},
}


def opening_calls(folder: Path) -> list[tuple[str, str]]:
    """(module, call) of everything that opens a file."""
    found = []
    for file in sorted(folder.rglob("*.py")):
        module = file.relative_to(folder).as_posix()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            call = node.func
            named = isinstance(call, ast.Name) and call.id in FUNCTIONS
            method = isinstance(call, ast.Attribute) and (
                call.attr in METHODS or (ast.unparse(call.value), call.attr) in OF_LIBRARIES
            )
            if named or method:
                found.append((module, ast.unparse(call)))
    return found


def test_files_are_opened_in_one_place() -> None:
    calls = opening_calls(SOURCE)
    new = [f"{module}: {call}" for module, call in calls if call not in ALLOWED.get(module, {})]
    assert not new, "open files with headway.files (open_file, append_file):\n" + "\n".join(new)
    listed = {(module, call) for module, allowed in ALLOWED.items() for call in allowed}
    assert listed <= set(calls), f"no longer there: {listed - set(calls)}"


def test_a_direct_opening_is_found(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "new.py").write_text(
        "json.loads((folder / 'x.json').read_text())\nopen(path)\npath.open('rb')\nos.truncate(path, 3)\nclose(path)\n"
    )
    calls = ["(folder / 'x.json').read_text", "open", "os.truncate", "path.open"]
    assert sorted(opening_calls(tmp_path)) == [("jobs/new.py", call) for call in calls]
