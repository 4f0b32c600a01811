"""The models that peers are compared on: published shapes with random weights, saved as Hugging Face folders."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch
import transformers

from benchmarks.timing import use_threads

Made = TypeVar("Made", bound=transformers.PreTrainedModel)
VOCAB = 32000
LLAMA_134M = {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "intermediate_size": 2048,
    "vocab_size": VOCAB,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
MARIAN_61M = {
    "d_model": 512,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "activation_function": "relu",
    "eos_token_id": 0,
    "pad_token_id": VOCAB - 1,
    "decoder_start_token_id": VOCAB - 1,
    "forced_eos_token_id": None,
    "scale_embedding": True,
}


@contextmanager
def saved_model(make: Callable[[Path], Made]) -> Iterator[tuple[Path, Made]]:
    """Yields (folder, model); the folder is deleted afterwards."""
    use_threads()
    with tempfile.TemporaryDirectory() as made:
        yield Path(made), make(Path(made))


def llama_134m(folder: Path) -> transformers.LlamaForCausalLM:
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA_134M)).eval()
    model.save_pretrained(folder)
    return model


def marian_61m(folder: Path) -> transformers.MarianMTModel:
    torch.manual_seed(0)
    model = transformers.MarianMTModel(transformers.MarianConfig(**MARIAN_61M)).eval()
    model.save_pretrained(folder)
    return model
