"""A published ELMo: its embeddings of thirty sentences, as bilm-tf's own test compares them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.commands import headway as command

import headway


def test_the_published_embeddings_come_out(real_data: Path, tmp_path: Path) -> None:
    """Three streams of ten sentences; the LSTMs carry their state from each sentence to the next."""
    h5py = pytest.importorskip("h5py", reason="h5py is not installed (pip install 'headway[elmo]')")
    published = real_data / "weights" / "elmo-bilm"
    done = command("convert", published, "elmo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    bundle: Any = headway.load(tmp_path / "elmo")
    streams = json.loads((published / "lm_embeddings_sentences.json").read_text())
    files = [h5py.File(published / f"lm_embeddings_{number}.hdf5") for number in range(len(streams))]
    states, worst = None, 0.0
    for place in range(10):
        rows = [bundle.processor.tokenizer.encode_words(stream[place].split())[0] for stream in streams]
        longest = max(map(len, rows))
        ids = torch.zeros(len(rows), longest, 50, dtype=torch.long)
        mask = torch.zeros(len(rows), longest, dtype=torch.bool)
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)], mask[row, : len(tokens)] = torch.tensor(tokens), True
        with torch.no_grad():
            layers, states = bundle.model.layers(ids, padding_mask=mask, states=states)
        for row, file in enumerate(files):
            expected = np.concatenate(list(file[str(place)]), axis=-1)  # (word, 2 · width): both directions
            found = layers[-1][row, 1 : len(rows[row]) - 1].numpy()  # without the marks of the sentence
            worst = max(worst, float(np.abs(found - expected).max()))
    assert worst <= 1e-5
