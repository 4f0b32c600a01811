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

BERT = dict(hidden_size=48, num_attention_heads=4, num_hidden_layers=3, vocab_size=99, intermediate_size=80,
            max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
DISTILBERT = dict(dim=48, n_heads=4, n_layers=3, vocab_size=99, hidden_dim=80, max_position_embeddings=64, dropout=0.0,
                  attention_dropout=0.0, seq_classif_dropout=0.0, qa_dropout=0.0)  # fmt: skip
VIT = dict(
    hidden_size=48, num_attention_heads=4, num_hidden_layers=3, intermediate_size=80, image_size=12, patch_size=4
)
UNPOOLED = dict(add_pooling_layer=False)
UNTIED = dict(tie_word_embeddings=False)
OTHER = dict(layer_norm_eps=1e-2, hidden_act="gelu_new")


def untie(model: Any) -> None:
    """The published T5 v1.1 and mT5 have an output table of their own, though the reference's configs tie it."""
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.1)


def one_bias(model: Any) -> None:
    """An untied masked language model holds the bias of its vocabulary twice, and uses the second."""
    head = model.cls.predictions if hasattr(model, "cls") else model.lm_head
    for bias in (head.bias, head.decoder.bias):
        bias.data.copy_(torch.linspace(-1, 1, len(bias)))
        bias.requires_grad_(False)


def rope(kind: str, **more: object) -> dict[str, object]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


CASES = [
    Case("GPT2LMHeadModel", GPT2),
    Case(
        "GPT2LMHeadModel",
        GPT2 | dict(tie_word_embeddings=False, activation_function="relu", n_inner=100),
        "untied, ReLU",
    ),
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
        LLAMA
        | rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32),
        "LLaMA 3 rotary",
    ),
    Case(
        "LlamaForCausalLM",
        LLAMA
        | rope(
            "longrope",
            factor=4.0,
            original_max_position_embeddings=8,
            short_factor=[1.0] * 6,
            long_factor=[1.0, 1.5, 2, 3, 4, 5],
        )
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
    Case("BertModel", BERT),
    Case("BertModel", BERT | OTHER | dict(num_hidden_layers=2), "no pooler, other eps, tanh GELU", arguments=UNPOOLED),
    Case("BertForMaskedLM", BERT),
    Case("BertForMaskedLM", BERT | OTHER | dict(type_vocab_size=3), "other eps, tanh GELU, three segments"),
    Case("BertForMaskedLM", BERT | UNTIED | dict(hidden_act="relu"), "untied, ReLU", prepare=one_bias),
    Case("BertForPreTraining", BERT),
    Case("BertForPreTraining", BERT | UNTIED, "untied", prepare=one_bias),
    Case("BertForNextSentencePrediction", BERT),
    Case("BertForSequenceClassification", BERT | dict(num_labels=3)),
    Case("BertForSequenceClassification", BERT | OTHER | dict(num_labels=1, num_attention_heads=3), "regression"),
    Case("BertForTokenClassification", BERT | dict(num_labels=5)),
    Case("BertForTokenClassification", BERT | dict(hidden_act="silu"), "two labels, SiLU"),
    Case("BertForQuestionAnswering", BERT),
    Case("RobertaModel", BERT),
    Case("RobertaModel", BERT | dict(pad_token_id=4), "no pooler, other padding id", arguments=UNPOOLED),
    Case("RobertaForMaskedLM", BERT | dict(hidden_act="relu"), "ReLU, but not in the head"),
    Case("RobertaForMaskedLM", BERT | OTHER | UNTIED, "untied, other eps, tanh GELU", prepare=one_bias),
    Case(
        "RobertaForSequenceClassification", BERT | dict(num_labels=3, pad_token_id=0, type_vocab_size=1), "padding id 0"
    ),
    Case("RobertaForTokenClassification", BERT | dict(num_labels=5)),
    Case("RobertaForQuestionAnswering", BERT),
    Case("XLMRobertaModel", BERT),
    Case("XLMRobertaForMaskedLM", BERT | dict(type_vocab_size=1)),
    Case("XLMRobertaForSequenceClassification", BERT | OTHER),
    Case("CamembertForMaskedLM", BERT | dict(type_vocab_size=1)),
    Case("CamembertForTokenClassification", BERT | dict(num_labels=5)),
    Case("DistilBertModel", DISTILBERT),
    Case("DistilBertModel", DISTILBERT | dict(activation="relu", sinusoidal_pos_embds=True), "ReLU, sinusoidal table"),
    Case("DistilBertForMaskedLM", DISTILBERT),
    Case("DistilBertForMaskedLM", DISTILBERT | UNTIED | dict(activation="gelu_new"), "untied, tanh GELU"),
    Case("DistilBertForSequenceClassification", DISTILBERT | dict(num_labels=3)),
    Case("DistilBertForTokenClassification", DISTILBERT),
    Case("DistilBertForQuestionAnswering", DISTILBERT | dict(n_heads=6)),
    Case("ViTForImageClassification", VIT | dict(num_labels=5), raw_last=True),
    Case(
        "ViTForImageClassification",
        VIT | OTHER | dict(image_size=[13, 22], patch_size=[4, 5], num_channels=1, qkv_bias=False),
        "oblong, one channel, no q, k, v bias, other eps",
        raw_last=True,
    ),
    Case("ViTModel", VIT | dict(pooler_act="relu"), "ReLU pooler", raw_last=True),
    Case("ViTModel", VIT | dict(hidden_act="quick_gelu"), "no pooler", arguments=UNPOOLED, raw_last=True),
    Case("T5ForConditionalGeneration", T5),
    Case(
        "T5ForConditionalGeneration", T5 | dict(layer_norm_epsilon=1e-2, num_decoder_layers=4), "other eps and depths"
    ),
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
