"""The same weights in the peers' own formats: GGUF for llama.cpp, a spec for CTranslate2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import transformers

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
    """Q8_0 or f32. The rotary pairs are left where they are: random heads do not mind which numbers turn together."""
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


def llama_cpp(path: Path, *, context: int, threads: int) -> Any:
    import llama_cpp

    return llama_cpp.Llama(
        str(path), n_ctx=context, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False
    )


class _Words:
    """As much of a tokenizer as CTranslate2's converter asks for: token i is written "ti", the last one is padding."""

    eos_token, unk_token, pad_token, bos_token = "t0", "t1", "<pad>", None

    def __init__(self, vocab: int) -> None:
        self.vocab = vocab

    def get_vocab(self) -> dict[str, int]:
        return {**{word(i): i for i in range(self.vocab - 1)}, "<pad>": self.vocab - 1}


def word(token: int) -> str:
    return f"t{token}"


def write_ctranslate2(model: transformers.MarianMTModel, folder: Path, *, quantisation: str | None) -> None:
    from ctranslate2.converters.transformers import MarianMTLoader

    spec = MarianMTLoader()(model, _Words(model.config.vocab_size))
    spec.validate()
    spec.optimize(quantization=quantisation)
    folder.mkdir()
    spec.save(str(folder))


def ctranslate2(folder: Path, *, kind: str, threads: int) -> Any:
    import ctranslate2

    return ctranslate2.Translator(str(folder), device="cpu", compute_type=kind, inter_threads=1, intra_threads=threads)
