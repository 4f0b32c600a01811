"""Tiny generating models: pairs with the reference library, and some of our own."""

import torch
from support.parity import Case, Pair, make_pair

import headway
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.positions import LearnedConfig
from headway.models.build import build
from headway.models.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig, LanguageHeadConfig, StackConfig
from headway.models.decoder import Decoder
from headway.models.encoder_decoder import EncoderDecoder


def untie(model) -> None:
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.1)


GPT2 = {"n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 40, "n_positions": 64, "pad_token_id": 0,
        "tie_word_embeddings": False}  # fmt: skip
LLAMA = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 40,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}


T5 = {
    "d_model": 32,
    "d_kv": 8,
    "num_heads": 4,
    "d_ff": 48,
    "num_layers": 2,
    "vocab_size": 40,
    "relative_attention_num_buckets": 8,
    "decoder_start_token_id": 0,
}
MARIAN = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "vocab_size": 40,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}
GENERATORS = {  # every family that generates
    "gpt2": Case("GPT2LMHeadModel", GPT2),
    "llama": Case("LlamaForCausalLM", LLAMA),
    "mistral": Case("MistralForCausalLM", LLAMA | {"sliding_window": 4}),
    "qwen2": Case("Qwen2ForCausalLM", LLAMA),
    "qwen3": Case("Qwen3ForCausalLM", LLAMA | {"head_dim": 16}),
    "t5": Case("T5ForConditionalGeneration", T5),
    "mt5": Case("MT5ForConditionalGeneration", T5, prepare=untie),
    "bart": Case("BartForConditionalGeneration", MARIAN | {"decoder_start_token_id": 1}),
    "mbart": Case("MBartForConditionalGeneration", MARIAN | {"decoder_start_token_id": 1}),
    "marian": Case("MarianMTModel", MARIAN),
}
ENCODER_DECODERS = ("t5", "mt5", "bart", "mbart", "marian")
SPREAD = 2.0  # standard deviation of the logits: candidates differ, none is certain


def confident_pair(case: Case, folder) -> Pair:
    """A pair with larger weights: a random model's are nearly uniform over tokens, so that searches agree."""
    pair = make_pair(case, folder)
    with torch.no_grad():
        for parameter in pair.reference.parameters():
            if parameter.ndim > 1 and parameter.requires_grad:  # sinusoids are not weights
                parameter.mul_(4)
        ids = torch.randint(case.config["vocab_size"], (8, 16))
        more = {"decoder_input_ids": ids} if pair.reference.config.is_encoder_decoder else {}
        pair.reference.lm_head.weight.mul_(SPREAD / pair.reference(ids, **more).logits.std())
    pair.reference.save_pretrained(folder)
    return Pair(case, pair.reference, headway.load(folder), folder)


def tiny_block(*, cross: bool = False) -> BlockConfig:
    attention = AttentionConfig(2, 8)
    return BlockConfig(16, attention, FeedForwardConfig(24), cross=attention if cross else None)


def confident(model: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(3)
    decoder = model.decoder if isinstance(model, EncoderDecoder) else model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        ids = torch.randint(decoder.config.embedding.vocab, (8, 8))
        logits = (model(ids, decoder_ids=ids) if isinstance(model, EncoderDecoder) else model(ids)).logits
        decoder.head.project.weight.mul_(SPREAD / logits.std())
    return model.eval()


def tiny_decoder(vocab: int, *, context: int | None = 64) -> Decoder:
    embedding = EmbeddingConfig(vocab, 16, positions=LearnedConfig(64))
    stack = StackConfig(tiny_block(), 2, causal=True, final_norm=True)
    return confident(build(DecoderConfig(embedding, stack, LanguageHeadConfig(tied=False), context=context)))


def tiny_translator() -> EncoderDecoder:
    embedding = EmbeddingConfig(12, 16, positions=LearnedConfig(32))
    encoder = EncoderConfig(embedding, StackConfig(tiny_block(), 1))
    stack = StackConfig(tiny_block(cross=True), 2, causal=True, final_norm=True)
    decoder = DecoderConfig(embedding, stack, LanguageHeadConfig(tied=False), context=32)
    return confident(build(EncoderDecoderConfig(encoder, decoder, start_id=1)))
