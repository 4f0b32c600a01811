"""`--device` and `--threads` of the commands that run a model."""

from pathlib import Path

import pytest
import torch
from support.commands import headway
from support.untrained import language_model

import headway as package
from headway.errors import ConfigError

COMMANDS = {
    "run": ["run", "MODEL", "on the 3rd", "--max-new-tokens", "2"],
    "run --complete": ["run", "MODEL", "on the 3rd", "--complete"],
    "evaluate": ["evaluate", "MODEL", "text.txt"],
    "evaluate two": ["evaluate", "MODEL", "MODEL", "text.txt"],
    "chat": ["chat", "MODEL", "hello", "--max-new-tokens", "2"],
    "explain": ["explain", "MODEL", "on the 3rd"],
    "serve": ["serve", "MODEL", "--port", "0"],
}
NO_CUDA = "device: 'cuda', but this machine has no CUDA device that torch can use; set auto or cpu"
without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("device")
    (folder / "text.txt").write_text("on the 3rd of May\n" * 20)
    return language_model(folder / "model")


@without_cuda
@pytest.mark.parametrize("name", COMMANDS)
def test_a_device_that_is_not_there(name: str, model: Path) -> None:
    args = [str(model) if each == "MODEL" else each for each in COMMANDS[name]]
    ended = headway(*args, "--device", "cuda", cwd=model.parent)
    assert ended.returncode == 2 and NO_CUDA in ended.stderr


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("serve", "evaluate two")])
def test_device_and_threads(name: str, model: Path) -> None:
    args = [str(model) if each == "MODEL" else each for each in COMMANDS[name]]
    before = torch.get_num_threads()
    try:
        ended = headway(*args, "--device", "cpu", "--threads", str(before + 1), cwd=model.parent)
        assert ended.returncode == 0, ended.stderr
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_python(model: Path) -> None:
    auto = package.load(model, device="auto")
    assert torch.cuda.is_available() or torch.backends.mps.is_available() or auto.device == torch.device("cpu")
    with pytest.raises(ConfigError, match="device: 'cpux' is not a device such as auto, cpu"):
        package.load(model, device="cpux")
    with pytest.raises(ConfigError, match="the model is loaded already, on cpu; give it to"):
        package.evaluate(package.load(model), model.parent / "text.txt", device="cpu")
    assert package.complete(model, "on", top=1, device="cpu") == package.complete(package.load(model), "on", top=1)


@without_cuda
def test_python_without_cuda(model: Path) -> None:
    for call in (
        lambda: package.evaluate(model, model.parent / "text.txt", device="cuda"),
        lambda: package.complete(model, "on", device="cuda"),
        lambda: package.explain(model, "on", device="cuda"),
    ):
        with pytest.raises(ConfigError, match=NO_CUDA):
            call()


@without_cuda
def test_vllm_chooses_its_device(tmp_path: Path) -> None:
    ended = headway("serve", "x", "--engine", "vllm", "--device", "cuda", cwd=tmp_path)
    assert ended.returncode == 2 and "--device cuda: --engine vllm chooses the device itself" in ended.stderr
