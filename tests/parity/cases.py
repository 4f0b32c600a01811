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
WHISPER = dict(d_model=48, encoder_layers=3, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=6,
               encoder_ffn_dim=80, decoder_ffn_dim=72, vocab_size=99, num_mel_bins=5, max_source_positions=9,
               max_target_positions=64, decoder_start_token_id=2, pad_token_id=1, bos_token_id=1, eos_token_id=1,
               begin_suppress_tokens=None)  # fmt: skip
VIT = dict(
    hidden_size=48, num_attention_heads=4, num_hidden_layers=3, intermediate_size=80, image_size=12, patch_size=4
)
GEMMA = LLAMA | dict(num_key_value_heads=2, head_dim=16, sliding_window=4, layer_types=["sliding_attention"] * 2 +
                     ["full_attention"], query_pre_attn_scalar=16)  # fmt: skip
NEOX = dict(hidden_size=48, num_attention_heads=4, num_hidden_layers=3, vocab_size=99, intermediate_size=80,
            max_position_embeddings=64, pad_token_id=0, rope_parameters=dict(rope_type="default", rope_theta=10000.0,
            partial_rotary_factor=0.5))  # fmt: skip
PHI4 = dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.5, short_factor=[1.0] * 3,
            long_factor=[1.0, 2.0, 3.0], original_max_position_embeddings=8)  # fmt: skip
DEBERTA = BERT | dict(relative_attention=True, position_biased_input=False, pos_att_type=["p2c", "c2p"],
                      type_vocab_size=0)  # fmt: skip
DEBERTA3 = dict(position_buckets=32, norm_rel_ebd="layer_norm", share_att_key=True)
XLNET = dict(d_model=48, n_head=4, n_layer=3, vocab_size=99, d_inner=80, dropout=0.0, layer_norm_eps=1e-7)
MODERNBERT = dict(hidden_size=48, num_attention_heads=4, num_hidden_layers=4, vocab_size=99, intermediate_size=80,
                  max_position_embeddings=64, local_attention=6, pad_token_id=0, bos_token_id=2, eos_token_id=3,
                  cls_token_id=2, sep_token_id=3)  # fmt: skip
EUROBERT = LLAMA | dict(num_key_value_heads=2, bos_token_id=2, eos_token_id=3, mask_token_id=4)
BRANCH = "stack.blocks.0.attention_residual.branch_norm"
FEEDFORWARD = "stack.blocks.0.feedforward_residual.norm"  # the first attention has none
UNPOOLED = dict(add_pooling_layer=False)
UNTIED = dict(tie_word_embeddings=False)
YOLOS = dict(image_size=[12, 20], patch_size=4, num_detection_tokens=7, num_labels=3)
OTHER = dict(layer_norm_eps=1e-2, hidden_act="gelu_new")


def large_scores(model: Any) -> None:
    """XLNet's first weights are so small that positions and segments hardly count."""
    for name, parameter in model.named_parameters():
        if "rel_attn" in name and "layer_norm" not in name:
            torch.nn.init.normal_(parameter, std=0.3)


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


EDGES = ("batch = single",)  # convolutions see the padding at the edges of a picture, in any library


def detr(**backbone: Any) -> dict[str, Any]:
    """The backbone of tiny ResNet stages: their own config class is needed."""
    from transformers import ResNetConfig

    stages = dict(embedding_size=8, hidden_sizes=[16, 24], depths=[1, 2], layer_type="bottleneck") | backbone
    net = ResNetConfig(**stages, out_features=[f"stage{len(stages['depths'])}"])
    sides = {f"{side}_{key}": value for side in ("encoder", "decoder")
             for key, value in dict(layers=3, attention_heads=2, ffn_dim=36).items()}  # fmt: skip
    return sides | dict(
        backbone_config=net, use_timm_backbone=False, d_model=24, num_queries=7, num_labels=3, dropout=0.0
    )


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
    Case("MixtralForCausalLM", LLAMA | dict(num_key_value_heads=2, num_local_experts=4), "two of four experts"),
    Case(
        "MixtralForCausalLM",
        LLAMA
        | dict(num_key_value_heads=4, num_local_experts=3, num_experts_per_tok=1, sliding_window=4)
        | dict(tie_word_embeddings=True),
        "one of three experts, sliding window, tied",
    ),
    Case(
        "MixtralForTokenClassification",
        LLAMA | dict(num_labels=3, num_key_value_heads=2, num_local_experts=4, classifier_dropout=0.0),
    ),
    Case("Qwen2ForCausalLM", LLAMA | dict(num_key_value_heads=2), "q, k, v biases"),
    Case(
        "Qwen2ForCausalLM",
        LLAMA | dict(num_key_value_heads=2, use_sliding_window=True, sliding_window=4, max_window_layers=1),
        "window on the later layers",
    ),
    Case("Qwen3ForCausalLM", LLAMA | dict(num_key_value_heads=2, head_dim=16), "norms on queries and keys"),
    Case("SmolLM3ForCausalLM", LLAMA | dict(num_key_value_heads=2, num_hidden_layers=4), "a layer without rotary"),
    Case(
        "SmolLM3ForCausalLM",
        LLAMA | dict(no_rope_layers=[0, 1, 0], use_sliding_window=True, sliding_window=4, mlp_bias=True),
        "windows where rotary is not, biases",
    ),
    Case("SmolLM3ForSequenceClassification", LLAMA | dict(num_labels=3)),
    Case(
        "Olmo2ForCausalLM", LLAMA | dict(num_key_value_heads=2), "norms on branches and over all heads", mutate=BRANCH
    ),
    Case("Olmo2ForSequenceClassification", LLAMA | dict(num_labels=3), mutate=BRANCH),
    Case("Phi3ForCausalLM", LLAMA | dict(num_key_value_heads=2, sliding_window=4), "fused weights, sliding window"),
    Case(
        "Phi3ForCausalLM",
        LLAMA | dict(tie_word_embeddings=True, rope_parameters=PHI4),
        "LongRoPE on part of a head",
        not_defined=("cached = uncached",),
    ),
    Case("Phi3ForTokenClassification", LLAMA | dict(num_labels=3, classifier_dropout=0.0)),
    Case("Gemma3ForCausalLM", GEMMA, "windows, two rotary bases"),
    Case(
        "Gemma3ForCausalLM",
        GEMMA | dict(tie_word_embeddings=False, attention_bias=True, query_pre_attn_scalar=30),
        "untied, biases, other scale",
    ),
    Case("Gemma3TextModel", GEMMA),
    Case("GPTNeoXForCausalLM", NEOX, "parallel, partly rotated"),
    Case(
        "GPTNeoXForCausalLM",
        NEOX | dict(use_parallel_residual=False, attention_bias=False, hidden_act="gelu_new"),
        "one after the other, no attention biases",
    ),
    Case("GPTNeoXModel", NEOX),
    Case("GPTNeoXForSequenceClassification", NEOX | dict(num_labels=3)),
    Case("GPTNeoXForTokenClassification", NEOX | dict(num_labels=3, classifier_dropout=0.0)),
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
    Case("DebertaModel", DEBERTA),
    Case(
        "DebertaForMaskedLM",
        DEBERTA | dict(legacy=False, pos_att_type="c2p", max_relative_positions=6),
        "few distances",
    ),
    Case(
        "DebertaForSequenceClassification", DEBERTA | dict(num_labels=3, position_biased_input=True, type_vocab_size=2)
    ),
    Case("DebertaForTokenClassification", DEBERTA | dict(num_labels=5)),
    Case("DebertaForQuestionAnswering", DEBERTA | dict(relative_attention=False, pos_att_type=None), "no relative"),
    Case("DebertaV2Model", DEBERTA | DEBERTA3, "v3"),
    Case("DebertaV2ForMaskedLM", DEBERTA | DEBERTA3 | dict(legacy=False), "v3"),
    Case("DebertaV2ForMaskedLM", DEBERTA | dict(legacy=False, pos_att_type=["p2c"]), "own projections"),
    Case("DebertaV2ForSequenceClassification", DEBERTA | DEBERTA3 | dict(num_labels=3, position_buckets=8), "long"),
    Case(
        "DebertaV2Model",
        DEBERTA | DEBERTA3 | dict(conv_kernel_size=3, conv_act="gelu"),
        "v2: convolution",
        mutate="stack.convolution.norm",
    ),
    Case("DebertaV2ForTokenClassification", DEBERTA | DEBERTA3 | dict(num_labels=5)),
    Case("DebertaV2ForQuestionAnswering", DEBERTA | DEBERTA3),
    Case("XLNetLMHeadModel", XLNET, prepare=large_scores),
    Case(
        "XLNetLMHeadModel",
        XLNET | dict(attn_type="uni", clamp_len=3, ff_activation="relu"),
        "causal, clamped, ReLU",
        prepare=large_scores,
        not_defined=("padding", "gradients (relative)"),  # the reference takes no padding mask beside its causal one
    ),
    Case("XLNetModel", XLNET, prepare=large_scores),
    Case("XLNetForSequenceClassification", XLNET | dict(num_labels=3, summary_last_dropout=0.0), prepare=large_scores),
    Case(
        "XLNetForSequenceClassification",
        XLNET | dict(summary_type="first", summary_last_dropout=0.0),
        "first token",
        prepare=large_scores,
    ),
    Case("XLNetForTokenClassification", XLNET | dict(num_labels=5), prepare=large_scores),
    Case("XLNetForQuestionAnsweringSimple", XLNET, prepare=large_scores),
    Case("ModernBertModel", MODERNBERT, mutate=FEEDFORWARD),
    Case("ModernBertForMaskedLM", MODERNBERT, mutate=FEEDFORWARD),
    Case(
        "ModernBertForMaskedLM",
        MODERNBERT | UNTIED | dict(norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True),
        "untied, all biases",
        mutate=FEEDFORWARD,
    ),
    Case("ModernBertForSequenceClassification", MODERNBERT | dict(num_labels=3), mutate=FEEDFORWARD),
    Case(
        "ModernBertForSequenceClassification", MODERNBERT | dict(classifier_pooling="mean"), "mean", mutate=FEEDFORWARD
    ),
    Case("ModernBertForTokenClassification", MODERNBERT | dict(num_labels=5, classifier_bias=True), mutate=FEEDFORWARD),
    Case("ModernBertForQuestionAnswering", MODERNBERT, mutate=FEEDFORWARD),
    Case("EuroBertModel", EUROBERT),
    Case("EuroBertForMaskedLM", EUROBERT | dict(mlp_bias=True, attention_bias=True), "biases"),
    Case("EuroBertForSequenceClassification", EUROBERT | dict(num_labels=3), "late pooling"),
    Case("EuroBertForSequenceClassification", EUROBERT | dict(classifier_pooling="bos"), "first token"),
    Case("EuroBertForTokenClassification", EUROBERT | dict(num_labels=5)),
    Case("ViTForImageClassification", VIT | dict(num_labels=5), raw_last=True),
    Case(
        "ViTForImageClassification",
        VIT | OTHER | dict(image_size=[13, 22], patch_size=[4, 5], num_channels=1, qkv_bias=False),
        "oblong, one channel, no q, k, v bias, other eps",
        raw_last=True,
    ),
    Case("ViTModel", VIT | dict(pooler_act="relu"), "ReLU pooler", raw_last=True),
    Case("ViTModel", VIT | dict(hidden_act="quick_gelu"), "no pooler", arguments=UNPOOLED, raw_last=True),
    Case("DeiTForImageClassificationWithTeacher", VIT | dict(num_labels=5), raw_last=True),
    Case("DeiTForImageClassification", VIT | OTHER | dict(num_labels=3, qkv_bias=False, num_channels=1), raw_last=True),
    Case("DeiTModel", VIT | dict(pooler_act="relu"), "ReLU pooler", raw_last=True),
    Case("DeiTModel", VIT, "no pooler", arguments=UNPOOLED, raw_last=True),
    Case("DetrForObjectDetection", detr(), not_defined=EDGES),
    Case(
        "DetrForObjectDetection",
        detr(layer_type="basic", hidden_sizes=[8, 12, 20], depths=[2, 1, 1], num_channels=1)
        | dict(position_embedding_type="learned", activation_function="gelu", encoder_layers=2, num_channels=1),
        "basic units, learned positions, GELU, one channel",
        not_defined=EDGES,
    ),
    Case("YolosForObjectDetection", VIT | YOLOS, raw_last=True),
    Case(
        "YolosForObjectDetection",
        VIT | YOLOS | OTHER | dict(use_mid_position_embeddings=False, qkv_bias=False, num_channels=1),
        "no positions between blocks, one channel, no q, k, v bias, other eps",
        raw_last=True,
    ),
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
    Case("WhisperForConditionalGeneration", WHISPER),
    Case(
        "WhisperForConditionalGeneration",
        WHISPER | dict(num_mel_bins=7, activation_function="relu", encoder_layers=1, max_source_positions=6),
        "other bins, ReLU, other depths",
    ),
    Case("WhisperModel", WHISPER | dict(d_model=36)),
    Case("MarianModel", MARIAN | SEPARATE | dict(d_model=36, encoder_layers=2), "two vocabularies, other width"),
]
