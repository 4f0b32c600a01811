"""Sound files of every kind that Headway reads, small: what the fuzzer begins with."""

from __future__ import annotations

import gzip
import json
from typing import Any

SIZES = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 11}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES, "rms_norm_eps": 1e-6,
         "num_key_value_heads": 1, "head_dim": 4, "attention_bias": False, "hidden_act": "silu", "rope_theta": 1e4,
         "max_position_embeddings": 16, "tie_word_embeddings": True}  # fmt: skip
UNBIASED = {key: value for key, value in LLAMA.items() if key != "attention_bias"}
BERT = {"model_type": "bert", "architectures": ["BertForTokenClassification"], **SIZES, "layer_norm_eps": 1e-12,
        "type_vocab_size": 2, "max_position_embeddings": 16, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
        "id2label": {"0": "no", "1": "yes"}, "classifier_dropout": 0.1}  # fmt: skip
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 8, "n_head": 2, "n_layer": 1,
        "vocab_size": 11, "n_positions": 16, "activation_function": "gelu_new", "n_inner": 8}  # fmt: skip
T5 = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 8, "d_kv": 4, "num_heads": 2,
      "d_ff": 8, "num_layers": 1, "vocab_size": 11, "relative_attention_num_buckets": 4, "feed_forward_proj":
      "gated-gelu", "decoder_start_token_id": 0, "layer_norm_epsilon": 1e-6}  # fmt: skip
BART = {"model_type": "bart", "architectures": ["BartForConditionalGeneration"], "d_model": 8, "encoder_layers": 1,
        "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 8,
        "decoder_ffn_dim": 8, "vocab_size": 11, "max_position_embeddings": 16, "eos_token_id": 2,
        "decoder_start_token_id": 2, "activation_function": "gelu", "scale_embedding": False}  # fmt: skip
MARIAN = BART | {"model_type": "marian", "architectures": ["MarianMTModel"], "static_position_embeddings": True,
                 "share_encoder_decoder_embeddings": True, "decoder_vocab_size": 11}  # fmt: skip
VIT = {"model_type": "vit", "architectures": ["ViTModel"], **SIZES, "image_size": 8, "patch_size": [4, 4],
       "num_channels": 1, "qkv_bias": True}  # fmt: skip
del VIT["vocab_size"]
DISTILBERT = {"model_type": "distilbert", "architectures": ["DistilBertModel"], "dim": 8, "n_heads": 2, "n_layers": 1,
              "hidden_dim": 8, "vocab_size": 11, "max_position_embeddings": 16, "dropout": 0.1}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 8, "beta_fast": 32, "beta_slow": 1}
DEBERTA: dict[str, Any] = {
    "model_type": "deberta-v2", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16, "vocab_size": 11, "max_position_embeddings": 16, "relative_attention": True,
    "position_buckets": 4, "pos_att_type": ["p2c", "c2p"], "share_att_key": True, "norm_rel_ebd": "layer_norm",
    "position_biased_input": False, "type_vocab_size": 0,
}  # fmt: skip
GLINER: dict[str, Any] = {
    "model_type": "gliner", "hidden_size": 6, "max_width": 3, "max_len": 20, "num_rnn_layers": 1,
    "span_mode": "markerV0", "encoder_config": DEBERTA,
}  # fmt: skip
CONFIGS: list[dict[str, Any]] = [
    LLAMA, BERT, GPT2, T5, BART, MARIAN, VIT, DISTILBERT,
    LLAMA | {"rope_parameters": YARN},
    LLAMA | {"rope_scaling": {"type": "linear", "factor": 4.0}},
    UNBIASED | {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 4},
    UNBIASED | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True,
             "max_window_layers": 0, "sliding_window": 4, "layer_types": ["sliding_attention"]},
    LLAMA | {"model_type": "qwen3", "architectures": ["Qwen3ForSequenceClassification"], "num_labels": 3},
    BERT | {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"], "pad_token_id": 1},
    BERT | {"architectures": ["BertForPreTraining"], "auto_map": {"AutoModel": "evil.Model"}},
    {"model_type": "gpt-nano", "n_embd": 8, "n_head": 2, "n_layer": 1, "vocab_size": 11, "block_size": 16},
    GLINER, GLINER | {"model_type": "gliner_uni_encoder_span", "num_rnn_layers": 0, "embed_ent_token": False},
]  # fmt: skip

TABLES = [
    'text,label\n"good, very good",pos\nbad,neg\n"a ""quoted"" word",pos\n\nno,neg\n',
    "source\ttarget\nHello .\tHallo .\nA cat sat .\tEine Katze saß .\n",
    "a;b\neins;one\nzwei;two\n",
    "question|context|answers\nwho?|Ada|Ada\n",
    "1,it was fine\n2,it was not\n1,fine again\n",
]
JSON_LINES = [
    '{"text": "good", "label": 1}\n{"text": "bad", "label": 0.5}\n\n{"text": "x", "label": "y"}\n',
    '{"source": "a", "target": ["b", "c"]}\n{"source": "d", "target": "e"}\n',
    '{"words": ["Ada", "met"], "tags": ["B-PER", "O"]}\n{"words": "Ada met", "tags": "B-PER O"}\n',
    '{"question": "who?", "context": "Ada did", "answers": [{"text": "Ada", "answer_start": 0}]}\n',
    '{"question": "who?", "context": "Ada did", "answers": {"text": ["Ada"], "answer_start": [0]}}\n',
    '[{"text": "good", "label": 1},\n {"text": "bad", "label": 0}]',
    '{"version": 1, "data": [{"text": "good", "label": true}]}',
]
SQUAD = [
    {"version": "v2", "data": [{"title": "t", "paragraphs": [{"context": "Ada lives in Leeds.", "qas": [
        {"id": "1", "question": "Where?", "answers": [{"text": "Leeds", "answer_start": 13}], "is_impossible": False},
        {"id": "2", "question": "Why?", "answers": [], "is_impossible": True}]}]}]},
    [{"paragraphs": [{"context": "", "qas": []}]}],
]  # fmt: skip
CONLL = [
    "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n\nPeter NNP I-NP B-PER\n",
    "Ada\tB-PER\nmet\tO\n\nLeeds\tB-LOC\n",
]
PLAIN = ["One line.\nAnother line.\n\nThe last one", "1 good\n0 bad\n1 fine\n0 no\n", "a b\r\nc d\r\n", "word " * 400]
FILES = [text.encode() for text in (*TABLES, *JSON_LINES, *CONLL, *PLAIN)]
ENCODED = [
    *(gzip.compress(data, mtime=0) for data in FILES[:4]),
    FILES[0].decode().encode("utf-16"),
    FILES[0].decode().encode("utf-8-sig"),
    FILES[1].decode().encode("latin-1"),
    gzip.compress(b"a\tb\n" * 5000, mtime=0) + gzip.compress(b"c\td\n", mtime=0),
]

TASK_FILES = [
    {"task": "classify", "options": {"overflow": "truncate", "labels": ["a", "b"], "counts": [1, 2], "vocab": 30,
                                     "label_smoothing": 0.0, "lowercase": True, "limit": 16}},
    {"task": "generate", "options": {"overflow": "truncate", "kind": "bpe", "vocab": 30, "context": 8,
                                     "wrapped": False}},
    {"task": "tag", "options": {"overflow": "window", "labels": ["O", "B-X"], "vocab": 30, "lowercase": False,
                                "limit": 16}},
    {"task": "answer", "options": {"overflow": "window", "vocab": 30, "limit": 16, "question_limit": 4, "stride": 4,
                                   "max_answer": 5, "null_threshold": 0.0}},
    {"task": "translate", "options": {"vocab": 0, "source_limit": 8, "target_limit": 8, "beams": 2, "start_id": 0,
                                      "prefix": "", "architecture": "transformer"}},
    {"task": "embed", "options": {"vocab": 30, "limit": 16, "temperature": 0.05}},
]  # fmt: skip
MODULES = [
    [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
     {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
     {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}],
]  # fmt: skip
JSON_MODEL = {
    "config": {"model_type": "gpt-nano"},
    "w": {"shape": [2], "dtype": "torch.float32", "data": "AAAAAAAAAAA="},
}

PREPROCESSORS: list[dict[str, Any]] = [
    {"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 9}, "resample": 3, "do_resize": True,
     "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.5, 0.5], "rescale_factor": 0.004, "do_convert_rgb": None},
    {"feature_extractor_type": "CLIPFeatureExtractor", "size": 12, "crop_size": 8, "do_center_crop": True},
    {"image_processor_type": "DeiTImageProcessor", "do_normalize": False, "size": {"shortest_edge": 20}},
]  # fmt: skip
GENERATION: list[dict[str, Any]] = [
    {"num_beams": 4, "max_length": 64, "min_length": 3, "length_penalty": 2.0, "early_stopping": True, "n": None,
     "no_repeat_ngram_size": 3, "forced_bos_token_id": 7, "forced_eos_token_id": [2, 3], "decoder_start_token_id": 2},
    {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 50, "eos_token_id": [2, 5], "use_cache": True},
    {"bad_words_ids": [[3], [4, 5]], "suppress_tokens": [1, 2], "begin_suppress_tokens": [6], "eos_token_id": 2,
     "renormalize_logits": True, "penalty_alpha": 0.0, "stop_strings": ["a", "b"], "max_new_tokens": 20},
]  # fmt: skip


def dumped(values: list[Any]) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]
