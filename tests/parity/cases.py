"""The families and configs that are held to the reference library. One line adds one."""

from support.parity import Case

GPT2 = dict(n_embd=48, n_head=4, n_layer=3, vocab_size=99, n_positions=64, resid_pdrop=0.0, attn_pdrop=0.0,
            embd_pdrop=0.0, pad_token_id=0)  # fmt: skip
LLAMA = dict(hidden_size=48, num_attention_heads=4, num_hidden_layers=3, vocab_size=99, intermediate_size=80,
             max_position_embeddings=64, pad_token_id=0)  # fmt: skip


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
]
