"""Peers with the same weights: llama.cpp (GGUF files, run by xllamacpp) and CTranslate2. A peer that is not installed
is left out, with a message.

The llama.cpp wheel is built for AVX2; on a processor with AVX-512, a build from source can be faster.
"""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

CTRANSLATE2 = {"CTranslate2 fp32": "float32", "CTranslate2 int8": "int8"}

GGUF_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def write_gguf(model: transformers.LlamaForCausalLM, path: Path, *, quantised: bool) -> None:
    """Writes Q8_0 or f32. Query and key rows keep their order, not GGUF's rotary layout: the weights are random."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{i}" for i in range(config.vocab_size)])
    writer.add_token_scores([0.0] * config.vocab_size)
    writer.add_token_types([1] * config.vocab_size)
    kind = gguf.GGMLQuantizationType.Q8_0 if quantised else gguf.GGMLQuantizationType.F32
    for name, tensor in _gguf_tensors(model).items():
        if tensor.ndim == 1 or not quantised:
            writer.add_tensor(name, tensor)
        else:
            writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_tensors(model: transformers.LlamaForCausalLM) -> dict[str, np.ndarray]:
    state = {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}
    out = {
        "token_embd.weight": state["model.embed_tokens.weight"],
        "output_norm.weight": state["model.norm.weight"],
        "output.weight": state["lm_head.weight"],
    }
    for layer in range(model.config.num_hidden_layers):
        for theirs, ours in GGUF_BLOCK.items():
            out[f"blk.{layer}.{theirs}.weight"] = state[f"model.layers.{layer}.{ours}.weight"]
    return out


def installed(peer: str, *modules: str) -> bool:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        print(f"{peer} is left out: {' and '.join(missing)} cannot be imported (make -C benchmarks peers installs it)")
    return not missing


class LlamaCpp:
    """A llama.cpp server in this process, for one request at a time."""

    def __init__(self, path: Path, *, context: int) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx, params.n_batch, params.n_parallel, params.n_gpu_layers = context + 8, 512, 1, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = torch.get_num_threads()
        params.cache_ram_mib = 0  # no prompt cache
        params.verbosity = -1
        self.server = xllamacpp.Server(params)

    def generate(self, prompt: list[int], new: int) -> None:
        """Greedy decoding of `new` tokens; the prompt is always read in full."""
        request = {"prompt": prompt, "n_predict": new, "temperature": 0.0, "ignore_eos": True, "cache_prompt": False}
        usage = self.server.handle_completions(request)["usage"]
        assert usage["completion_tokens"] == new and usage["prompt_tokens"] == len(prompt), usage
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0, usage


def llama_cpp_peers(model: transformers.LlamaForCausalLM, folder: Path, *, context: int) -> dict[str, LlamaCpp]:
    if not installed("llama.cpp", "xllamacpp", "gguf"):
        return {}
    peers = {}
    for name, quantised in {"llama.cpp f32": False, "llama.cpp Q8_0": True}.items():
        path = folder / f"{name}.gguf"
        write_gguf(model, path, quantised=quantised)
        peers[name] = LlamaCpp(path, context=context)
    return peers


class _Words:
    """The part of a tokenizer that CTranslate2's converter uses: token i is "ti", the last one is padding."""

    eos_token, unk_token, bos_token, pad_token = "t0", "t1", "t2", "<pad>"

    def __init__(self, vocab: int) -> None:
        self.vocab = vocab

    def get_vocab(self) -> dict[str, int]:
        return {**{word(i): i for i in range(self.vocab - 1)}, "<pad>": self.vocab - 1}


def word(token: int) -> str:
    return f"t{token}"


def ctranslate2_peers(model: transformers.PreTrainedModel, folder: Path, *names: str) -> dict[str, Any]:
    """`names` of CTRANSLATE2: translators of a Marian, generators of a Llama."""
    if not installed("CTranslate2", "ctranslate2"):
        return {}
    import ctranslate2
    from ctranslate2.converters.transformers import LlamaLoader, MarianMTLoader

    generates = isinstance(model, transformers.LlamaForCausalLM)
    loader, kind = (LlamaLoader, ctranslate2.Generator) if generates else (MarianMTLoader, ctranslate2.Translator)
    peers = {}
    for name in names:
        stored = CTRANSLATE2[name]
        spec = loader()(copy.deepcopy(model), _Words(model.config.vocab_size))  # the loader changes the model
        spec.validate()
        spec.optimize(quantization=None if stored == "float32" else stored)
        (folder / name).mkdir()
        spec.save(str(folder / name))
        peers[name] = kind(
            str(folder / name), compute_type=stored, inter_threads=1, intra_threads=torch.get_num_threads()
        )
    return peers
