"""The compiled step equals the plain step: the same logits, cache and tokens, for every kind of decoder."""

import copy

import pytest
import torch
from torch import nn

from headway.engine import prepare, release, unsupported_reason
from headway.engine.decoding import MAX_TOKENS
from headway.engine.step import FastStep
from headway.families import find
from headway.families.family import Keys
from headway.generation import GenerationSettings, generate
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.models import recipes
from headway.models.build import build
from headway.models.config import DecoderConfig, ModelConfig, StackConfig
from headway.models.recipes import Size
from headway.training.lora import add_lora

pytest.importorskip("numba")

VOCAB = 60
SIZE = Size(width=48, layers=2, heads=3)
GPT2 = {"n_embd": 48, "n_head": 3, "n_layer": 2, "vocab_size": VOCAB, "n_positions": 64}
LLAMA = {
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": VOCAB,
    "intermediate_size": 84,
    "max_position_embeddings": 64,
}
YARN = {
    "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 8}
}
DYNAMIC = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}
T5 = {"d_model": 48, "d_kv": 12, "num_heads": 4, "d_ff": 80, "num_layers": 2, "vocab_size": VOCAB,
      "relative_attention_num_buckets": 8, "relative_attention_max_distance": 10}  # fmt: skip
BART = {"d_model": 48, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 80, "decoder_ffn_dim": 72, "vocab_size": VOCAB,
        "max_position_embeddings": 64, "decoder_start_token_id": 2}  # fmt: skip


def family(name: str, architecture: str, values: dict) -> ModelConfig:
    return find(name).read(Keys(values), architecture)


def unusual() -> DecoderConfig:
    """What no family has: ALiBi, query/key layer norms, sizes that are no multiple of a vector."""
    attention = AttentionConfig(3, 10, qk_norm=NormConfig("layer"), scale=0.2)
    block = BlockConfig(
        30, attention, FeedForwardConfig(37, "quick_gelu", gated=True), norm=NormConfig("layer", bias=False)
    )
    return DecoderConfig(EmbeddingConfig(VOCAB, 30, scale=3.0), StackConfig(block, 2, causal=True, score_bias="alibi"))


CONFIGS = {
    "gpt2": family("gpt2", "GPT2LMHeadModel", GPT2),
    "gpt2, exact gelu": family("gpt2", "GPT2LMHeadModel", GPT2 | {"activation_function": "gelu"}),
    "llama": family("llama", "LlamaForCausalLM", LLAMA),
    "llama, yarn, tied, biases": family(
        "llama", "LlamaForCausalLM", LLAMA | YARN | {"tie_word_embeddings": True, "attention_bias": True}
    ),
    "mistral, window": family("mistral", "MistralForCausalLM", LLAMA | {"sliding_window": 4}),
    "qwen2": family("qwen2", "Qwen2ForCausalLM", LLAMA),
    "qwen3": family("qwen3", "Qwen3ForCausalLM", LLAMA | {"head_dim": 16}),
    "smollm3, a layer without rotary": family(
        "smollm3", "SmolLM3ForCausalLM", LLAMA | {"no_rope_layer_interval": 2, "tie_word_embeddings": False}
    ),
    "phi3": family("phi3", "Phi3ForCausalLM", LLAMA),
    "modern": recipes.decoder(SIZE, "modern", vocab=VOCAB, context=64),
    "classic": recipes.decoder(SIZE, "classic", vocab=VOCAB, context=64),
    "unusual": unusual(),
}
PAIRED = {
    "t5": family("t5", "T5ForConditionalGeneration", T5),
    "t5, gated": family("t5", "T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu"}),
    "bart": family("bart", "BartForConditionalGeneration", BART),
    "mbart": family("mbart", "MBartForConditionalGeneration", BART),
    "marian": family("marian", "MarianMTModel", BART | {"activation_function": "swish", "scale_embedding": True}),
    "modern pair": recipes.encoder_decoder(SIZE, "modern", vocab=VOCAB, context=None, start_id=1),
}


def random_model(config: ModelConfig) -> nn.Module:
    """Weights large enough for logits that differ from token to token."""
    torch.manual_seed(0)
    model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.25) if parameter.ndim > 1 else parameter.uniform_(0.5, 1.5)
    return model


def generated(model: nn.Module, **settings: object) -> list[list[list[int]]]:
    prompts = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7], [1, 8, 2, 8]]
    chosen = GenerationSettings(max_new_tokens=12, **settings)
    if not model.reads_source:
        return [[h.ids for h in answer] for answer in generate(model, prompts, chosen)]
    answers = generate(model, [[1]] * len(prompts), chosen, sources=prompts)
    return [[h.ids for h in answer] for answer in answers]


def decoder_of(model: nn.Module) -> nn.Module:
    return getattr(model, "decoder", model)


@pytest.mark.parametrize("name", [*CONFIGS, *PAIRED])
@torch.no_grad()
def test_tokens_and_logits_equal_the_plain_step(name: str) -> None:
    model = random_model((CONFIGS | PAIRED)[name])
    plain, beams = generated(model), generated(model, beams=3, n=2)
    caches = [prefilled(model) for _ in range(2)]
    tokens = [torch.randint(VOCAB, (2, width)) for width in (1, 3, 1)]
    expected = [decoder_of(model).step(ids, caches[0], every=True) for ids in tokens]
    prepare(model)
    got = [decoder_of(model).step(ids, caches[1], every=True) for ids in tokens]
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4)
    assert caches[0].lengths == caches[1].lengths
    for ours, theirs in zip(caches[1].layers, caches[0].layers, strict=True):
        for row, length in enumerate(caches[0].lengths):
            torch.testing.assert_close(ours.keys[row, :, :length], theirs.keys[row, :, :length], atol=2e-4, rtol=1e-4)
    assert generated(model) == plain and generated(model, beams=3, n=2) == beams
    assert unsupported_reason(model) is None and decoder_of(model).step._compiled is not None, "the plain step ran"


def prefilled(model: nn.Module):
    """A cache after prompts, or sources, of different lengths."""
    ids = torch.tensor([[5, 6, 7, 8], [9, 3, 0, 0]])
    if not model.reads_source:
        cache = model.new_cache(2)
        model.step(ids, cache, lengths=[4, 2])
    else:
        cache = model.encode_to_cache(ids, padding_mask=torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]))
        model.step(torch.ones(2, 1, dtype=torch.long), cache)
    return cache


@torch.no_grad()
def test_last_logits_equal_the_last_of_all() -> None:
    model = prepare(random_model(CONFIGS["llama"]))
    ids, caches = torch.randint(VOCAB, (2, 3)), [prefilled(model) for _ in range(2)]
    torch.testing.assert_close(model.step(ids, caches[0]), model.step(ids, caches[1], every=True)[:, -1])


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_change_the_result(threads: int) -> None:
    model = prepare(random_model(CONFIGS["qwen3"]))
    expected = generated(model)
    torch.set_num_threads(threads)
    try:
        assert generated(model) == expected
    finally:
        torch.set_num_threads(1)


def test_a_forward_hook_gets_the_plain_step() -> None:
    model = prepare(random_model(CONFIGS["llama"]))
    outputs: list[torch.Tensor] = []
    tap = model.stack.blocks[0].attention.weights
    handle = tap.register_forward_hook(lambda module, args, out: outputs.append(out))
    generated(model)
    handle.remove()
    count = len(outputs)
    generated(model)
    assert count == 3 + 11 and len(outputs) == count  # three prompts of very different lengths, then step by step


@pytest.mark.parametrize("change", ["dynamic", "lora"])
def test_an_unsupported_model_keeps_its_plain_step(change: str) -> None:
    model = random_model(family("llama", "LlamaForCausalLM", LLAMA | (DYNAMIC if change == "dynamic" else {})))
    if change == "lora":
        add_lora(model, rank=2)
    plain = generated(model)
    prepare(model)
    assert generated(model) == plain
    reason = unsupported_reason(model)
    assert reason is not None and ("dynamic" if change == "dynamic" else "LoRALinear") in reason


def test_a_recurrent_model_is_unchanged() -> None:
    model = random_model(recipes.recurrent(SIZE, vocab=VOCAB, start_id=1))
    plain = generated(model)
    assert generated(prepare(model)) == plain


def test_new_weights_are_used() -> None:
    """The compiled step never reads memory that the model no longer uses."""
    model, other = prepare(random_model(CONFIGS["gpt2"])), random_model(CONFIGS["gpt2"])
    first = generated(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    fresh = generated(other)
    assert fresh != first
    model.load_state_dict({name: tensor.clone() for name, tensor in other.state_dict().items()}, assign=True)
    assert generated(model) == fresh


def test_a_deep_copy_is_independent() -> None:
    model = prepare(random_model(CONFIGS["llama"]))
    first = generated(model)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert generated(twin) == first and isinstance(twin.step, FastStep) and twin.step.decoder is twin


def test_without_numba_and_after_release(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(CONFIGS["llama"])
    plain = generated(model)
    monkeypatch.setattr("headway.engine.step.can_compile", lambda: False)
    assert generated(prepare(model)) == plain and "numba" in str(unsupported_reason(model))
    release(model)
    assert "step" not in vars(model) and generated(model) == plain


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(("rows", "length", "compiled"), [(1, 60, True), (2, 30, True), (2, 40, None), (2, 60, False)])
@torch.no_grad()
def test_prompts_are_read_by_compiled_code_once_there_is_some(
    name: str, rows: int, length: int, compiled: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to 64 tokens; more of them as long as the model is wider than the row is long (None: all but one are)."""
    model = random_model(CONFIGS[name])
    ids = torch.randint(VOCAB, (rows, length))
    first, second = model.new_cache(rows), model.new_cache(rows)
    expected, after = model.step(ids, first), model.step(ids[:, :1], first)
    prepare(model)
    model.step(torch.randint(VOCAB, (2, 1)), prefilled(model))
    calls, step = [], model.step._compiled.step
    monkeypatch.setattr(model.step._compiled, "max_tokens", MAX_TOKENS)  # not what this machine measures
    monkeypatch.setattr(model.step._compiled, "step", lambda *args, **more: calls.append(1) or step(*args, **more))
    torch.testing.assert_close(model.step(ids, second), expected, atol=2e-4, rtol=1e-4)
    assert len(calls) == (name != "unusual" if compiled is None else compiled)
    torch.testing.assert_close(model.step(ids[:, :1], second), after, atol=2e-4, rtol=1e-4)
