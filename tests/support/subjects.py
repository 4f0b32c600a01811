"""A small random model of every shape that is looked into, with the inputs it is called with."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headway.families import find
from headway.families.family import Keys
from headway.models.build import build
from headway.models.recipes import Size, decoder, encoder_decoder

SIZES = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 40}
GPT2 = {"model_type": "gpt2", "n_embd": 24, "n_head": 4, "n_layer": 3, "vocab_size": 31, "n_positions": 32}
LLAMA = {"model_type": "llama", **SIZES, "vocab_size": 31, "rms_norm_eps": 1e-6, "num_key_value_heads": 2}
GEMMA = {"model_type": "gemma3_text", **SIZES, "vocab_size": 31, "num_key_value_heads": 2, "head_dim": 6,
         "sliding_window": 3, "sliding_window_pattern": 2, "query_pre_attn_scalar": 9}  # fmt: skip
NEOX = {"model_type": "gpt_neox", **SIZES, "vocab_size": 31, "rotary_pct": 0.67}
MODERNBERT = {"model_type": "modernbert", **SIZES, "vocab_size": 31, "local_attention": 4,
              "id2label": {"0": "a", "1": "b", "2": "c"}}  # fmt: skip
BERT = {"model_type": "bert", **SIZES, "vocab_size": 31, "layer_norm_eps": 1e-12, "type_vocab_size": 2,
        "max_position_embeddings": 32, "hidden_act": "gelu", "id2label": {"0": "a", "1": "b", "2": "c"}}  # fmt: skip
DEBERTA = {"model_type": "deberta", **SIZES, "vocab_size": 31, "relative_attention": True, "pos_att_type": "c2p|p2c",
           "id2label": {"0": "a", "1": "b", "2": "c"}}  # fmt: skip
DEBERTA3 = {"model_type": "deberta-v2", "position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
T5 = {"model_type": "t5", "d_model": 24, "d_kv": 6, "num_heads": 4, "d_ff": 40, "num_layers": 2, "vocab_size": 31,
      "num_decoder_layers": 3, "relative_attention_num_buckets": 8, "decoder_start_token_id": 0}  # fmt: skip
BART = {"model_type": "bart", "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "vocab_size": 31,
        "max_position_embeddings": 32, "decoder_start_token_id": 2}  # fmt: skip
VIT = {"model_type": "vit", **SIZES, "image_size": 12, "patch_size": 4, "num_channels": 1, "qkv_bias": True,
       "id2label": {"0": "a", "1": "b", "2": "c"}}  # fmt: skip

FAMILIES: dict[str, tuple[dict[str, Any], str]] = {
    "gpt2": (GPT2, "GPT2LMHeadModel"),
    "gpt2 labels": (GPT2 | {"id2label": {"0": "a", "1": "b", "2": "c"}}, "GPT2ForSequenceClassification"),
    "llama": (LLAMA, "LlamaForCausalLM"),
    "mistral window": (LLAMA | {"model_type": "mistral", "sliding_window": 3}, "MistralForCausalLM"),
    "qwen3": (LLAMA | {"model_type": "qwen3", "head_dim": 6}, "Qwen3ForCausalLM"),
    "olmo2": (LLAMA | {"model_type": "olmo2"}, "Olmo2ForCausalLM"),
    "phi3": (LLAMA | {"model_type": "phi3", "partial_rotary_factor": 0.67}, "Phi3ForCausalLM"),
    "gemma3": (GEMMA, "Gemma3ForCausalLM"),
    "gpt-neox": (NEOX, "GPTNeoXForCausalLM"),
    "modernbert words": (MODERNBERT, "ModernBertForMaskedLM"),
    "modernbert labels": (MODERNBERT, "ModernBertForSequenceClassification"),
    "modernbert tags": (MODERNBERT, "ModernBertForTokenClassification"),
    "deberta words": (DEBERTA, "DebertaForMaskedLM"),
    "deberta-v3 labels": (DEBERTA | DEBERTA3, "DebertaV2ForSequenceClassification"),
    "bert words": (BERT, "BertForMaskedLM"),
    "bert pre-training": (BERT, "BertForPreTraining"),
    "bert next sentence": (BERT, "BertForNextSentencePrediction"),
    "bert labels": (BERT, "BertForSequenceClassification"),
    "bert tags": (BERT, "BertForTokenClassification"),
    "vit": (VIT, "ViTForImageClassification"),
    "t5": (T5, "T5ForConditionalGeneration"),
    "bart": (BART, "BartForConditionalGeneration"),
}
SIZE = Size(width=24, layers=2, heads=4, dropout=0.1)
RECIPES = {
    "modern decoder": decoder(SIZE, "modern", vocab=31, context=32),
    "classic decoder": decoder(SIZE, "classic", vocab=31, context=32),
    "modern encoder-decoder": encoder_decoder(SIZE, "modern", vocab=31, context=32, start_id=1),
    "classic encoder-decoder": encoder_decoder(SIZE, "classic", vocab=31, context=32, start_id=1),
}
EVERY = [*FAMILIES, *RECIPES]
SHAPES = [
    "gpt2",
    "llama",
    "mistral window",
    "qwen3",
    "olmo2",
    "gemma3",
    "gpt-neox",
    "modernbert words",
    "deberta words",
    "bert words",
    "vit",
    "t5",
    "bart",
    "classic encoder-decoder",
]


@dataclass(frozen=True)
class Subject:
    model: nn.Module
    inputs: dict[str, Tensor]

    @torch.no_grad()
    def logits(self) -> Tensor:
        return self.model(**self.inputs).logits


def make(name: str) -> Subject:
    torch.manual_seed(0)
    if name in RECIPES:
        config = RECIPES[name]
    else:
        keys, architecture = FAMILIES[name]
        config = find(keys["model_type"]).read(Keys(keys), architecture)
    model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # nothing may hide behind a zero or a one
            parameter.copy_(torch.randn_like(parameter) * 0.3 + (parameter if parameter.ndim == 1 else 0.0))
    ids, mask = torch.randint(3, 31, (2, 7)), torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    match config.shape:
        case "encoder-decoder":
            return Subject(model, {"inputs": ids, "padding_mask": mask, "decoder_ids": torch.randint(3, 31, (2, 5))})
        case "decoder":
            return Subject(model, {"inputs": ids, "padding_mask": mask.flip(1)})
    if name == "vit":
        return Subject(model, {"inputs": torch.randn(2, 1, 12, 12)})
    return Subject(model, {"inputs": ids, "padding_mask": mask})
