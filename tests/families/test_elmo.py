"""ELMo's published layout: a tiny random HDF5 file against a small reference in numpy, written from the paper."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.commands import headway as command

import headway
from headway.checkpoints.rules import to_theirs
from headway.errors import CheckpointError, ConfigError
from headway.families import elmo
from headway.lineage.import_elmo import import_elmo, read_hdf5

h5py = pytest.importorskip("h5py", reason="h5py is not installed (pip install 'headway[elmo]')")

OPTIONS: dict[str, Any] = {
    "lstm": {
        "dim": 12, "projection_dim": 6, "n_layers": 2, "cell_clip": 0.15, "proj_clip": 0.1,
        "use_skip_connections": True,
    },
    "char_cnn": {
        "embedding": {"dim": 3}, "filters": [[1, 4], [2, 5], [3, 6]], "n_highway": 2, "n_characters": 262,
        "max_characters_per_token": 10, "activation": "tanh",
    },
}  # fmt: skip
WORDS = ["The", "bank", "naïve", "antidisestablishment", "."]


def random_weights() -> dict[str, np.ndarray]:
    chance = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"char_embed": (261, 3), "CNN_proj/W_proj": (15, 6), "CNN_proj/b_proj": (6,)}
    for number, (joined, count) in enumerate(OPTIONS["char_cnn"]["filters"]):
        shapes |= {f"CNN/W_cnn_{number}": (1, joined, 3, count), f"CNN/b_cnn_{number}": (count,)}
    for number in range(2):
        for name in ("carry", "transform"):
            shapes |= {f"CNN_high_{number}/W_{name}": (15, 15), f"CNN_high_{number}/b_{name}": (15,)}
    for side in range(2):
        for layer in range(2):
            cell = f"RNN_{side}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
            shapes |= {cell + "W_0": (12, 48), cell + "B": (48,), cell + "W_P_0": (12, 6)}
    return {name: chance.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elmo")
    (folder / "options.json").write_text(json.dumps(OPTIONS))
    with h5py.File(folder / "lm_weights.hdf5", "w") as file:
        for name, values in random_weights().items():
            file[name] = values
    return folder


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def reference(words: list[str], w: dict[str, np.ndarray]) -> np.ndarray:
    """(layer, word, 2 · width), sentence marks included: loops and TensorFlow's layout, nothing of Headway's."""
    longest = OPTIONS["char_cnn"]["max_characters_per_token"]
    spelled = [[256], *(list(word.encode())[: longest - 2] for word in words), [257]]
    vectors = []
    for letters in spelled:
        row = [258, *letters, 259]
        chars = w["char_embed"][row + [260] * (longest - len(row))]  # (character, 3)
        found = []
        for number, (joined, _) in enumerate(OPTIONS["char_cnn"]["filters"]):
            kernel, bias = w[f"CNN/W_cnn_{number}"][0], w[f"CNN/b_cnn_{number}"]
            places = [
                sum(chars[at + shift] @ kernel[shift] for shift in range(joined)) for at in range(longest - joined + 1)
            ]
            found.append(np.tanh(np.max(places, axis=0) + bias))
        x = np.concatenate(found)
        for number in range(2):
            high = f"CNN_high_{number}/"
            carry = sigmoid(x @ w[high + "W_carry"] + w[high + "b_carry"])
            x = carry * np.maximum(0, x @ w[high + "W_transform"] + w[high + "b_transform"]) + (1 - carry) * x
        vectors.append(x @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"])
    tokens = np.stack(vectors)
    layers = [[tokens], [tokens]]
    for side in range(2):
        stream = tokens if side == 0 else tokens[::-1]
        for layer in range(2):
            cell = f"RNN_{side}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
            memory, out, outputs = np.zeros(12), np.zeros(6), []
            for x in stream:
                i, j, f, o = np.split(np.concatenate([x, out]) @ w[cell + "W_0"] + w[cell + "B"], 4)
                memory = np.clip(sigmoid(f + 1) * memory + sigmoid(i) * np.tanh(j), -0.15, 0.15)
                out = np.clip((sigmoid(o) * np.tanh(memory)) @ w[cell + "W_P_0"], -0.1, 0.1)
                outputs.append(out)
            stream = np.stack(outputs) + (stream if layer else 0)
            layers[side].append(stream if side == 0 else stream[::-1])
    return np.stack([np.concatenate(pair, axis=-1) for pair in zip(*layers, strict=True)])


def test_every_layer_is_that_of_the_reference(published: Path) -> None:
    bundle = import_elmo(published)
    expected = reference(WORDS, random_weights())
    ids = torch.tensor([bundle.processor.tokenizer.encode_words(WORDS)[0]])  # type: ignore[union-attr]
    with torch.no_grad():
        found, _ = bundle.model.layers(ids)  # type: ignore[operator]
        mixed = bundle.model(ids).hidden[0]
    assert np.abs(expected[2]).max() > 0.1  # clipped once, and a residual on top
    np.testing.assert_allclose(torch.cat(found).numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(mixed.numpy(), expected.mean(0), atol=1e-5)  # an even mix of the layers


def test_convert_saves_the_same_model_as_safetensors(published: Path, tmp_path: Path) -> None:
    done = command("convert", published, "out", cwd=tmp_path)
    assert done.returncode == 0 and "0.00e+00" in done.stdout, done.stderr
    again, first = headway.load(tmp_path / "out"), import_elmo(published)
    for (name, ours), theirs in zip(again.model.state_dict().items(), first.model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name
    vector = again("the [bank]")
    assert len(vector) == 12


def test_the_rules_and_options_are_reversible(published: Path) -> None:
    bundle = import_elmo(published)
    config: Any = bundle.config
    state = {name: tensor for name, tensor in bundle.model.state_dict().items() if "mix" not in name}
    written = to_theirs(state, elmo.rules(config))
    for name, values in random_weights().items():
        np.testing.assert_allclose(written[name].numpy(), values, atol=1e-6, err_msg=name)
    assert elmo.read_options(elmo.write_options(config), file="x") == config


def test_what_is_wrong_is_named(published: Path, tmp_path: Path) -> None:
    wrong = json.loads(json.dumps(OPTIONS))
    wrong["lstm"]["bias"] = True
    with pytest.raises(ConfigError, match="lstm: bias = True is not a key"):
        elmo.read_options(wrong, file="options.json")
    wrong = json.loads(json.dumps(OPTIONS))
    wrong["char_cnn"]["filters"] = [3, 4]
    with pytest.raises(ConfigError, match="filters must be a list of pairs"):
        elmo.read_options(wrong, file="options.json")
    (tmp_path / "options.json").write_text(json.dumps(OPTIONS))
    (tmp_path / "weights.hdf5").write_bytes(b"not HDF5")
    with pytest.raises(CheckpointError, match="not a readable HDF5 file"):
        import_elmo(tmp_path)
    missing = read_hdf5(published / "lm_weights.hdf5")
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        for name, values in missing.items():
            if name != "CNN/b_cnn_1":
                file[name] = values.numpy()
    with pytest.raises(CheckpointError, match=r"b_cnn_1|convolutions\.1\.bias"):
        import_elmo(tmp_path)
