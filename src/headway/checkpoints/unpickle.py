"""Tensors of a pickle file (`.pt`, `pytorch_model.bin`), read in a child process and rewritten as safetensors.

A pickle can run code when it is opened. torch's weights-only reader builds nothing but tensors and plain containers;
it runs in a process of its own, of limited memory and time, whose only results are a safetensors file and a JSON file,
which are read here like any from outside. Nothing calls this unless the user has allowed it for this one model.
"""

from __future__ import annotations

import math
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from headway.checkpoints.files import TensorFiles, pickled_weights, read_index
from headway.checkpoints.header import INDEX, PICKLED_INDEX, SINGLE, parse_json, read_bounded
from headway.checkpoints.save import save_tensors
from headway.checkpoints.saved import is_weight_file, model_files
from headway.checkpoints.sentence import copy_sentence_files
from headway.checkpoints.text_files import save_bytes, save_json
from headway.errors import CheckpointError
from headway.files import disk_errors
from headway.limited_process import address_space, python_command

SECONDS = 600
NAMES = 4  # of one tensor, which a file holds once and safetensors under each name: T5 has four of its embeddings
SPARE_BYTES = 1 << 28  # of memory, beyond that for the tensors
MAX_VALUES = 100_000  # tensors, plain values and containers of a file
VALUES = "values.json"
MAX_JSON = 1 << 20
MAX_FILE = 1 << 28  # bytes of a file of settings or of a tokenizer


def unpickled(path: Path, folder: Path) -> tuple[dict[str, Any], TensorFiles]:
    """(plain values, tensors) of a dict in a pickle file; nested dicts are joined by dots. `folder` receives the
    rewritten files."""
    if not path.is_file():
        raise CheckpointError(f"{path}: {'not a plain file' if path.exists() else 'no such file'}")
    command = python_command("-m", "headway.checkpoints.unpickle", str(path), str(folder))
    try:
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise CheckpointError(f"{path}: not read within {SECONDS} s") from error
    if ran.returncode != 0:
        lines = ran.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {ran.returncode}"]
        raise CheckpointError(f"{path}: not a pickle of tensors and plain values ({ascii(lines[-1])[1:-1]:.300})")
    values = parse_json(read_bounded(folder / VALUES, limit=MAX_JSON), folder / VALUES)
    return values, TensorFiles(folder)


def unpickled_folder(folder: Path, out: Path) -> Path:
    """Writes the model `folder`, whose weights are pickles that the user has allowed to open, to `out`: the weights as
    safetensors, and the other files of a model as they are."""
    pickled = pickled_weights(folder)
    assert pickled is not None
    shard_of: dict[str, str] = {}
    files = [pickled]
    if pickled.name == PICKLED_INDEX:
        shard_of, file_of = read_index(pickled)
        files = list(file_of.values())
    parts: list[Path] = []
    found: dict[str, int] = {}  # tensor → number of its part
    for number, file in enumerate(files):
        with disk_errors(out, file.stat().st_size):
            place = out / f"part-{number}"
            place.mkdir(parents=True)
            _, tensors = unpickled(file, place)
        if repeated := next((name for name in tensors if name in found), None):
            raise CheckpointError(f"{file}: tensor {repeated!a:.100} is also in {files[found[repeated]].name}")
        found |= dict.fromkeys(tensors, number)
        parts += tensors.files
    if missing := next((name for name in shard_of if name not in found), None):
        raise CheckpointError(f"{pickled}: tensor {missing!a:.100} is listed in {shard_of[missing]!a} but is not there")
    names = [f"model-{i:05}-of-{len(parts):05}.safetensors" for i in range(1, len(parts) + 1)]
    weight_map: dict[str, str] = {}
    for part, name in zip(parts, names if len(parts) > 1 else [SINGLE], strict=True):
        weight_map |= dict.fromkeys(TensorFiles(part), name)
        part.rename(out / name)
    if len(parts) > 1:
        save_json(out / INDEX, {"metadata": {}, "weight_map": weight_map})
    for name in model_files(folder):
        if not is_weight_file(name):
            save_bytes(out / name, read_bounded(folder / name, limit=MAX_FILE))
    copy_sentence_files(folder, out)
    return out


# ---------------------------------------------------------------------------------------- the child process


def _child(path: Path, folder: Path) -> None:
    _require_stored(path)
    import torch

    torch.set_num_threads(1)
    _limit_memory(path.stat().st_size * (NAMES + 2) + SPARE_BYTES)
    # A mapped storage cannot be larger than its part of the file. Files of the format before 1.6 cannot be mapped.
    found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    tensors: dict[str, torch.Tensor] = {}
    values: dict[str, Any] = {}
    seen = 0

    def collect(value: Any, name: str) -> None:
        nonlocal seen
        seen += 1
        if seen > MAX_VALUES:
            raise CheckpointError(f"more than {MAX_VALUES:,} values")
        if isinstance(value, dict):
            for key, inner in value.items():
                collect(inner, f"{name}.{key}" if name else str(key))
        elif isinstance(value, torch.Tensor):
            tensors[name] = value.detach()
        elif value is None or isinstance(value, bool | int | float | str):
            values[name] = value

    collect(found, "")
    size = sum(math.prod(tensor.shape) * tensor.element_size() for tensor in tensors.values())
    if size > NAMES * path.stat().st_size:
        raise CheckpointError(f"its tensors take {size:,} bytes, more than {NAMES} times the file's")
    save_tensors(folder, tensors)
    save_json(folder / VALUES, values)


def _require_stored(path: Path) -> None:
    """Raise if the parts of a zip file are compressed, as torch never writes them: a few bytes could be gigabytes."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as parts:
            entries = parts.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise CheckpointError("a zip file with compressed parts")
        if sum(entry.file_size for entry in entries) > path.stat().st_size:
            raise CheckpointError("a zip file whose parts are larger than the file")


def _limit_memory(more: int) -> None:
    """To `more` bytes of address space beyond what this process has; torch's libraries reserve tens of gigabytes."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    if used := address_space():
        resource.setrlimit(resource.RLIMIT_AS, (used + more, used + more))


if __name__ == "__main__":
    try:
        _child(Path(sys.argv[1]), Path(sys.argv[2]))
    except MemoryError:
        sys.exit("it needs more memory than tensors of its size do")
    except pickle.UnpicklingError as error:  # whose text advises to open it with its code
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        sys.exit(f"it names {named[1]}, which is not a part of a tensor" if named else "torch reads no tensors from it")
    except Exception as error:
        sys.exit((str(error).strip().splitlines() or [type(error).__name__])[0])
