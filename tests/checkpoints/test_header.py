"""The header reader: what a hostile or damaged file claims is refused, quickly, and by name."""

import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save
from support.timing import processor_seconds

from headway.checkpoints import TensorInfo, read_header, read_json
from headway.checkpoints import header as header_module
from headway.checkpoints.header import MAX_JSON
from headway.errors import CheckpointError

GOOD = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
VALID = save({"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(0), "c": torch.tensor(7)}, {"format": "pt"})


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_reads_tensors_and_metadata(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(VALID)
    header = read_header(path)
    assert {name: (info.dtype, info.shape, info.nbytes) for name, info in header.items()} == {
        "a": ("F32", (2, 3), 24),
        "b": ("F32", (0,), 0),
        "c": ("I64", (), 8),
    }
    assert header.metadata == {"format": "pt"}


def test_a_file_with_no_tensors_is_a_file(write_raw: Callable[..., Path]) -> None:
    assert read_header(write_raw({})) == {}


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.complex64, torch.uint64, torch.float8_e8m0fnu])
def test_knows_the_dtypes_torch_stores(dtype: torch.dtype, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(save({"a": torch.ones(3).to(dtype)}))
    assert read_header(path)["a"].shape == (3,)


@pytest.mark.parametrize(
    ("header", "data", "complaint"),
    [
        ({"x": entry()}, b"\0" * 4, "tensor 'x' ends at byte 8 of 4"),
        ({"x": entry()}, b"\0" * 12, "4 bytes at the end belong to no tensor"),
        ({"x": entry(dtype="F31")}, b"\0" * 8, "tensor 'x': unknown dtype 'F31'"),
        ({"x": entry(dtype=["F32"])}, b"\0" * 8, "tensor 'x': unknown dtype"),
        ({"x": entry(shape=[-2])}, b"\0" * 8, "tensor 'x': shape must be"),
        ({"x": entry(shape=[2.0])}, b"\0" * 8, "tensor 'x': shape must be"),
        ({"x": entry(shape=[True, 2])}, b"\0" * 8, "tensor 'x': shape must be"),
        ({"x": entry(shape="2")}, b"\0" * 8, "tensor 'x': shape must be"),
        ({"x": entry(shape=[1] * 33)}, b"\0" * 8, "tensor 'x': shape must be"),
        ({"x": entry(shape=[2**32, 2**32])}, b"\0" * 8, "tensor 'x': shape [4294967296, 4294967296] overflows"),
        ({"x": entry(shape=[2**62, 2])}, b"\0" * 8, "overflows"),
        ({"x": entry(shape=[0, 2**62, 2**62], offsets=[0, 0])}, b"", "overflows"),
        ({"x": entry(shape=[2**64])}, b"\0" * 8, "tensor 'x': shape must be"),
        ({"x": entry(offsets=[8, 0])}, b"\0" * 8, "tensor 'x': data_offsets must be"),
        ({"x": entry(offsets=[-8, 0])}, b"\0" * 8, "tensor 'x': data_offsets must be"),
        ({"x": entry(offsets=[0, 8, 8])}, b"\0" * 8, "tensor 'x': data_offsets must be"),
        ({"x": entry(offsets=[0, 4])}, b"\0" * 4, "takes 8 bytes, but data_offsets span 4"),
        ({"x": entry(), "y": entry()}, b"\0" * 8, "tensor 'y' overlaps"),
        ({"x": entry(), "y": entry(offsets=[4, 12])}, b"\0" * 12, "tensor 'y' overlaps"),
        ({"x": entry(), "y": entry(offsets=[12, 20])}, b"\0" * 20, "tensor 'y' leaves a gap"),
        ({"x": entry(offsets=[4, 12])}, b"\0" * 12, "tensor 'x' leaves a gap"),
        ({"x": {"dtype": "F32", "shape": [2]}}, b"\0" * 8, "tensor 'x': must have dtype, shape and data_offsets"),
        ({"x": entry() | {"code": "import os"}}, b"\0" * 8, "and nothing else"),
        ({"x": 3}, b"", "tensor 'x': must have"),
        ({"\ud800": entry()}, b"\0" * 8, "a name must be printable"),
        ({"x\n": entry()}, b"\0" * 8, "a name must be printable"),
        ({"__metadata__": {"step": 3}}, b"", "__metadata__ must map text to text"),
        ({"__metadata__": ["pt"]}, b"", "__metadata__ must map text to text"),
        (b'{"x": 1, "x": 2}', b"", "key 'x' is given twice"),
        (
            b'{"x": {"dtype": "F32", "dtype": "F64", "shape": [], "data_offsets": [0, 4]}}',
            b"",
            "'dtype' is given twice",
        ),
        (b"{'x': 1}", b"", "not valid JSON"),
        (b'{"\xff": 1}', b"", "not valid JSON"),
        (b' {"x": 1}', b"", "does not start with"),
        (b"[]", b"", "does not start with"),
        (b"", b"", "does not start with"),
        (b'{"x": ' + b"9" * 5000 + b"}", b"", "not valid JSON"),
    ],
)
def test_refuses_a_false_header(header: Any, data: bytes, complaint: str, write_raw: Callable[..., Path]) -> None:
    path = write_raw(header, data)
    with pytest.raises(CheckpointError) as refusal:
        read_header(path)
    assert complaint in str(refusal.value)
    assert str(path) in str(refusal.value)


def test_the_good_header_of_these_cases_is_accepted(write_raw: Callable[..., Path]) -> None:
    assert read_header(write_raw(GOOD, b"\0" * 8)) == {"a": TensorInfo("F32", (2,), 0, 8)}


@pytest.mark.parametrize("length", [0x7FFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF, 200])
def test_refuses_a_header_longer_than_the_file(length: int, write_raw: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        read_header(write_raw(GOOD, b"\0" * 8, length=length))


@pytest.mark.parametrize("content", [b"", b"\x01\0\0", b"GIF89a........", b"cposix\nsystem\n(S'true'\ntR."])
def test_refuses_what_is_no_safetensors_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        read_header(path)


def filled(unit: str, *, before: str, after: str) -> bytes:
    return (before + unit * ((MAX_JSON - len(before) - len(after)) // len(unit)) + after).encode()


HOSTILE = {
    "a list of lists": filled("[],", before='{"x":[', after="0]}"),
    "a list of objects": filled("{},", before='{"x":[', after="0]}"),
    "deep lists": filled("[", before='{"x":', after=""),
    "deep objects": filled('{"a":', before="", after=""),
    "a long shape": filled("1,", before='{"x":{"dtype":"F32","data_offsets":[0,4],"shape":[', after="1]}}"),
    "large numbers": filled("9" * 4000 + ",", before='{"x":[', after="0]}"),
    "many names": ("{" + ",".join(f'"{i:x}":[]' for i in range(MAX_JSON // 11)) + "}").encode(),
    "many tensors": json.dumps({f"{i:x}": entry(shape=[0], offsets=[0, 0]) for i in range(40_000)}).encode(),
    "one long wide name": ('{"' + "🙂" * (MAX_JSON // 4 - 10) + '":1}').encode(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_takes_little_time(name: str, write_raw: Callable[..., Path]) -> None:
    assert MAX_JSON // 2 < len(HOSTILE[name]) <= MAX_JSON, "the case must be near the limit to mean anything"
    path = write_raw(HOSTILE[name])

    def read() -> None:
        try:
            read_header(path)
        except CheckpointError as refusal:
            assert len(str(refusal)) < 1000

    assert processor_seconds(read, limit=1) < 1


PEAK_MEMORY = """
import importlib.util, re, sys
from headway.errors import CheckpointError
spec = importlib.util.spec_from_file_location("header", sys.argv[1])  # alone: torch would hide what it takes
header = importlib.util.module_from_spec(spec)
spec.loader.exec_module(header)
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
before = peak()
for path in sys.argv[2:]:
    try:
        header.read_header(path)
    except CheckpointError:
        pass
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's own count of memory")
def test_hostile_headers_take_little_memory(write_raw: Callable[..., Path]) -> None:
    paths = [str(write_raw(text, name=f"{i}.safetensors")) for i, text in enumerate(HOSTILE.values())]
    command = [sys.executable, "-c", PEAK_MEMORY, header_module.__file__, *paths]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 20e6 < int(run.stdout) < 100e6, "less than 20 MB would mean that nothing was read"


def test_a_header_over_the_limit_is_not_even_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes((90 * 2**20).to_bytes(8, "little"))
    os.truncate(path, 100 * 2**20)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="not a complete safetensors file"):
            read_header(path)
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()


def check_agrees_with_the_library(path: Path) -> None:
    """Either a CheckpointError, or the reference reader sees the same tensors."""
    try:
        header = read_header(path)
    except CheckpointError:
        return
    with safe_open(path, framework="pt") as reference:
        assert set(reference.keys()) == set(header)
        for name, info in header.items():
            assert tuple(reference.get_tensor(name).shape) == info.shape


FUZZ = settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


@FUZZ
@given(content=st.binary(max_size=200))
def test_random_bytes_are_refused_or_read(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "random.safetensors"
    path.write_bytes(content)
    check_agrees_with_the_library(path)


@FUZZ
@given(
    edits=st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), max_size=3), cut=st.integers(0, 9)
)
def test_damaged_files_are_refused_or_read(
    edits: list[tuple[int, int]], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(VALID)
    for place, byte in edits:
        content[place] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(content[: len(content) - cut])
    check_agrees_with_the_library(path)


SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
NUMBERS = st.integers(0, 4) | SCALARS
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "U8", "BOOL", "X"]) | SCALARS,
        "shape": st.lists(NUMBERS, max_size=3) | SCALARS,
        "data_offsets": st.lists(st.integers(0, 32) | SCALARS, min_size=1, max_size=3) | SCALARS,
    }
)
HEADERS = st.dictionaries(st.text(max_size=4) | st.just("__metadata__"), ENTRIES | SCALARS, max_size=3)


@FUZZ
@given(header=HEADERS, data=st.binary(max_size=40))
def test_arbitrary_headers_are_refused_or_read(
    header: dict[str, Any], data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = json.dumps(header).encode()
    path = tmp_path_factory.getbasetemp() / "arbitrary.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    check_agrees_with_the_library(path)


def test_read_json_refuses_what_it_should(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for content, complaint in [
        (b'{"a": 1, "a": 2}', "key 'a' is given twice"),
        (b"[1]", "a JSON object is expected, not a list"),
        (b"{", "not valid JSON"),
        (b'{"a": "' + b"x" * 100 + b'"}', "more than the 100 bytes"),
    ]:
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=complaint):
            read_json(path, limit=100)
    path.write_bytes('{"a": "é"}'.encode())
    assert read_json(path) == {"a": "é"}
    with pytest.raises(CheckpointError, match="no such file"):
        read_json(tmp_path / "none.json")
