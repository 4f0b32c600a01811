"""The families and configs that are held to the reference library. One line adds one."""

from typing import Any

import torch
from support.parity import Case

GPT2 = dict(n_embd=48, n_head=4, n_layer=3, vocab_size=99, n_positions=64, resid_pdrop=0.0, attn_pdrop=0.0,
            embd_pdrop=0.0, pad_token_id=0)  # fmt: skip
LLAMA = dict(hidden_size=48, num_attention_heads=4, num_hidden_layers=3, vocab_size=99, intermediate_size=80,
             max_position_embeddings=64, pad_token_id=0)  # fmt: skip
T5 = dict(d_model=48, d_kv=20, num_heads=3, d_ff=80, num_layers=3, num_decoder_layers=2, vocab_size=99,
          dropout_rate=0.0, relative_attention_num_buckets=8, relative_attention_max_distance=10)  # fmt: skip
BART = dict(d_model=48, encoder_layers=3, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=6,
            encoder_ffn_dim=80, decoder_ffn_dim=72, vocab_size=99, max_position_embeddings=64, dropout=0.0,
            decoder_start_token_id=2)  # fmt: skip
MARIAN = BART | dict(pad_token_id=0, eos_token_id=1, forced_eos_token_id=1, decoder_start_token_id=0)
SEPARATE = dict(share_encoder_decoder_embeddings=False, decoder_vocab_size=111)


def untie(model: Any) -> None:
    """The published T5 v1.1 and mT5 have an output table of their own, though the reference library's configs tie it."""
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.1)


def rope(kind: str, **more: object) -> dict[str, object]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


CASES = [
    Case("GPT2LMHeadModel", GPT2),
    Case("GPT2LMHeadModel", GPT2 | dict(tie_word_embeddings=False, activation_function="relu", n_inner=100), "untied, ReLU"),
    Case("GPT2LMHeadModel", GPT2 | dict(layer_norm_epsilon=1e-2, activation_function="gelu"), "other eps, exact GELU"),
    Case("GPT2Model", GPT2),
    Case("GPT2ForSequenceClassification", GPT2 | dict(num_labels=3)),
    Case("LlamaForCausalLM", LLAMA),
    Case("LlamaForCausalLM", LLAMA | dict(num_key_value_heads=2, head_dim=20), "grouped heads, head size ≠ d/h"),
    Case("LlamaForCausalLM", LLAMA | dict(num_key_value_heads=1, tie_word_embeddings=True), "multi-query, tied"),
    Case("LlamaForCausalLM", LLAMA | dict(attention_bias=True, mlp_bias=True, rms_norm_eps=1e-2), "biases, other eps"),
    Case("LlamaForCausalLM", LLAMA | rope("linear", factor=4.0), "linear rotary"),
    Case(
        "LlamaForCausalLM",
        LLAMA | rope("dynamic", factor=4.0) | dict(max_position_embeddings=8),
        "dynamic rotary",
        not_defined=("cached = uncached",),  # the angles of the past change when the text grows past the limit
    ),
    Case("LlamaForCausalLM", LLAMA | rope("yarn", factor=4.0, original_max_position_embeddings=16), "YaRN rotary"),
    Case(
        "LlamaForCausalLM",
        LLAMA | rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32),
        "LLaMA 3 rotary",
    ),
    Case(
        "LlamaForCausalLM",
        LLAMA
        | rope("longrope", factor=4.0, original_max_position_embeddings=8, short_factor=[1.0] * 6, long_factor=[1.0, 1.5, 2, 3, 4, 5])
        | dict(max_position_embeddings=32),
        "LongRoPE",
        not_defined=("cached = uncached",),
    ),
    Case("LlamaForSequenceClassification", LLAMA | dict(num_labels=3)),
    Case("LlamaForTokenClassification", LLAMA | dict(num_labels=3, classifier_dropout=0.0)),
    Case("MistralForCausalLM", LLAMA | dict(num_key_value_heads=2, sliding_window=4), "sliding window"),
    Case("Qwen2ForCausalLM", LLAMA | dict(num_key_value_heads=2), "q, k, v biases"),
    Case(
        "Qwen2ForCausalLM",
        LLAMA | dict(num_key_value_heads=2, use_sliding_window=True, sliding_window=4, max_window_layers=1),
        "window on the later layers",
    ),
    Case("Qwen3ForCausalLM", LLAMA | dict(num_key_value_heads=2, head_dim=16), "norms on queries and keys"),
    Case("T5ForConditionalGeneration", T5),
    Case("T5ForConditionalGeneration", T5 | dict(layer_norm_epsilon=1e-2, num_decoder_layers=4), "other eps and depths"),
    Case(
        "T5ForConditionalGeneration",
        T5 | dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
        "v1.1: gated GELU, untied",
        prepare=untie,
    ),
    Case(
        "T5ForConditionalGeneration",
        T5 | dict(feed_forward_proj="gated-silu", tie_word_embeddings=False, relative_attention_num_buckets=32),
        "gated SiLU, tied but not scaled, other buckets",
    ),
    Case("T5ForConditionalGeneration", T5 | dict(feed_forward_proj="gated-gelu", dense_act_fn="gelu"), "exact GELU"),
    Case("T5EncoderModel", T5),
    Case("T5Model", T5 | dict(feed_forward_proj="gelu")),
    Case("MT5ForConditionalGeneration", T5, "untied", prepare=untie),
    Case("MT5EncoderModel", T5),
    Case("BartForConditionalGeneration", BART),
    Case(
        "BartForConditionalGeneration",
        BART | dict(scale_embedding=True, activation_function="relu", decoder_layers=4),
        "scaled embedding, ReLU, deeper decoder",
    ),
    Case("BartModel", BART | dict(activation_function="gelu_new")),
    Case("MBartForConditionalGeneration", BART | dict(scale_embedding=True), "pre-norm, final norms"),
    Case("MBartModel", BART),
    Case("MarianMTModel", MARIAN | dict(scale_embedding=True, activation_function="swish"), "as published"),
    Case("MarianMTModel", MARIAN | SEPARATE, "two vocabularies"),
    Case("MarianMTModel", MARIAN | SEPARATE | dict(tie_word_embeddings=False, activation_function="relu"), "untied"),
    Case("MarianModel", MARIAN),
    Case("MarianModel", MARIAN | SEPARATE | dict(d_model=36, encoder_layers=2), "two vocabularies, other width"),
]
