"""How fast a model runs on this machine, and how close that is to its limits (the roofline, Williams et al. 2009).

Decoding one token reads all weights once, so it is bound by memory bandwidth; prefill multiplies them with many tokens,
so it is bound by arithmetic. Both limits are measured in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from headway.errors import InputError, with_article
from headway.generation import GenerationSettings, Token, generate
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.memory import peak_memory
from headway.models.config import StackConfig
from headway.models.decoder import Decoder
from headway.models.protocol import Model

PROMPT_TOKENS, NEW_TOKENS = 512, 128  # at most, by default
BUFFER = 2**26  # floats read to measure memory bandwidth: far more than any cache holds
SQUARE = 1536  # side of the matrices multiplied to measure arithmetic
BATCH = 16  # texts or images in an encoder's batch
REPEATS = 3

Facts = dict[str, Any]


@torch.no_grad()
def bench(model: Model, *, prompt_tokens: int | None = None, new_tokens: int | None = None) -> Facts:
    """Measures one request at a time (batches of texts, if the model does not generate), the best of several repeats.
    By default with as many tokens as the model takes, up to 512 in the prompt and 128 new ones."""
    most_prompt, most_new = _default_tokens(model)
    new = most_new if new_tokens is None else new_tokens
    prompt = most_prompt if prompt_tokens is None else prompt_tokens
    if prompt < 1 or new < 2:
        raise InputError(f"{prompt} prompt tokens and {new} new tokens: at least 1 and 2 are needed")
    if not model.parts or (model.reads_source and not model.generates) or model.shape == "detector":
        kind = with_article(type(model).__name__)
        raise InputError(f"bench measures decoders, encoders and encoder-decoders, not {kind}")
    limits = {"memory_bytes_per_second": memory_speed(_device(model)), "flops_per_second": flop_speed(_device(model))}
    facts = _generation(model, prompt, new, limits) if model.generates else _encoding(model, prompt, limits)
    return {
        **facts,
        "weight_bytes": sum(t.nbytes for t in _tensors(model)),
        "peak_memory_bytes": peak_memory(),
        "threads": torch.get_num_threads(),
        **limits,
    }


def _default_tokens(model: Model) -> tuple[int, int]:
    """(prompt tokens, new tokens), within the limits of the model."""
    if model.reads_source:
        answer = NEW_TOKENS if model.max_context is None else model.max_context - 1
        return min(PROMPT_TOKENS, model.max_length or PROMPT_TOKENS), min(NEW_TOKENS, answer)
    most = model.max_length or PROMPT_TOKENS + NEW_TOKENS
    new = min(NEW_TOKENS, most // 2)
    return min(PROMPT_TOKENS, most - new if model.generates else most), new


def lines(facts: Facts) -> list[str]:
    out = []
    peak_bytes = facts["peak_memory_bytes"]
    peak = "" if peak_bytes is None else f", {peak_bytes / 2**20:,.0f} MiB peak memory of the process"
    if "texts_per_second" in facts:
        out += [
            f"reads     {facts['texts_per_second']:10,.1f} texts/s of {facts['prompt_tokens']} tokens",
            f"          {facts['prefill_tokens_per_second']:10,.0f} tokens/s",
        ]
    else:
        out += [
            f"prefill   {facts['prefill_tokens_per_second']:10,.0f} tokens/s, {facts['prompt_tokens']} tokens",
            f"first     {facts['seconds_to_first_token'] * 1e3:10,.1f} ms to the first token",
            f"decode    {facts['decode_tokens_per_second']:10,.1f} tokens/s, {facts['new_tokens']} tokens",
            f"          {facts['decode_bytes_per_token'] / 1e6:10,.1f} MB read a token = {facts['memory_share']:.0%} "
            f"of the {facts['memory_bytes_per_second'] / 1e9:.1f} GB/s measured here",
        ]
    out += [
        f"          {facts['prefill_flops_per_second'] / 1e9:10,.1f} GFLOP/s in prefill = {facts['flop_share']:.0%} "
        f"of the {facts['flops_per_second'] / 1e9:.0f} measured here",
        f"memory    {facts['weight_bytes'] / 2**20:10,.1f} MiB of weights{peak}",
        f"threads   {facts['threads']:10}",
    ]
    return out


# ---------------------------------------------------------------------------------------- the model


def _generation(model: Model, prompt: int, new: int, limits: Facts) -> Facts:
    if not model.reads_source and model.max_context is not None and prompt + new > model.max_context:
        raise InputError(
            f"{prompt} prompt and {new} new tokens do not fit the context of {model.max_context}; "
            "give fewer with --prompt-tokens and --new-tokens"
        )
    reader, decoder = model.parts[0].model, model.parts[-1].model
    noise = torch.Generator().manual_seed(0)
    ids = torch.randint(cast(int, model.source_vocab_size), (prompt,), generator=noise).tolist()
    request: dict[str, Any] = (
        {"prompts": [[model.start_id]], "sources": [ids]} if model.reads_source else {"prompts": [ids]}
    )
    settings = GenerationSettings(max_new_tokens=new, min_new_tokens=new, speculate=False)
    first_token, rates = [], []
    for _ in range(1 + REPEATS):
        times: list[float] = []

        def record_time(_: Token, times: list[float] = times) -> None:
            times.append(time.perf_counter())

        start = time.perf_counter()
        generate(cast(Any, model), settings=settings, on_token=record_time, **request)
        first_token.append(times[0] - start)
        rates.append((len(times) - 1) / (times[-1] - times[0]))
    first, rate = min(first_token[1:]), max(rates[1:])  # the first run is a warm-up
    moved = step_bytes(decoder, past=new // 2 if model.reads_source else prompt + new // 2, source=prompt)
    flops = read_flops(reader.config.stack, prompt)
    return {
        "prompt_tokens": prompt,
        "new_tokens": new,
        "seconds_to_first_token": first,
        "prefill_tokens_per_second": prompt / first,
        "prefill_flops_per_second": flops / first,
        "flop_share": flops / first / limits["flops_per_second"],
        "decode_tokens_per_second": rate,
        "decode_bytes_per_token": moved,
        "memory_share": moved * rate / limits["memory_bytes_per_second"],
    }


def _encoding(model: Model, length: int, limits: Facts) -> Facts:
    embedding = model.config.embedding
    noise = torch.Generator().manual_seed(0)
    if model.inputs == "image":
        length = embedding.count + 1
        inputs = torch.randn(BATCH, embedding.channels, *embedding.image, generator=noise)
    else:
        length = min(length, model.max_length or length)
        inputs = torch.randint(cast(int, model.vocab_size), (BATCH, length), generator=noise)
    inputs = inputs.to(_device(model))
    seconds = best(lambda: model(inputs))
    flops = BATCH * read_flops(model.config.stack, length)
    return {
        "prompt_tokens": length,
        "texts_per_second": BATCH / seconds,
        "prefill_tokens_per_second": BATCH * length / seconds,
        "prefill_flops_per_second": flops / seconds,
        "flop_share": flops / seconds / limits["flops_per_second"],
    }


def read_flops(stack: StackConfig, tokens: int) -> float:
    """FLOPs of a forward pass over `tokens` tokens: two per weight and token, plus the attention scores and sums."""
    attention = stack.block.attention
    keys = tokens / 2 if stack.causal else tokens
    scores = 4 * tokens * keys * attention.heads * attention.head_size
    return stack.layers * (2 * tokens * _block_weights(stack.block) + scores)


def _block_weights(block: BlockConfig) -> int:
    parts = [block.attention, *([block.cross] if block.cross else [])]
    inner = block.feedforward.width * (3 if block.feedforward.gated else 2)
    return block.width * (sum(_projections(part) for part in parts) + inner)


def _projections(attention: AttentionConfig) -> int:
    return attention.head_size * 2 * (attention.heads + (attention.kv_heads or attention.heads))


def step_bytes(decoder: Decoder, *, past: int, source: int) -> int:
    """Bytes that decoding one token reads: all weights except embedding tables, and the keys and values."""
    stack = decoder.config.stack
    skipped = {t.data_ptr() for block in decoder.stack.blocks for t in _memory_projections(block)}
    used = [t for part in (decoder.stack, decoder.head) if part is not None for t in _tensors(part)]
    if getattr(decoder.config.head, "tied", False):
        used += list(_tensors(decoder.embedding.tokens))
    weights = sum(t.nbytes for t in used if t.data_ptr() not in skipped)
    number = next(decoder.parameters()).element_size()
    sizes = [(stack.block.attention, past)] + ([(stack.block.cross, source)] if stack.block.cross else [])
    cached = sum(2 * length * (part.kv_heads or part.heads) * part.head_size for part, length in sizes)
    return weights + stack.layers * cached * number


def _memory_projections(block: nn.Module) -> Iterator[Tensor]:
    """The key and value projections of cross-attention, which are used once per request."""
    cross = cast(Any, block).cross
    if cross is not None:
        yield from (*_tensors(cross.key), *_tensors(cross.value))


def _tensors(module: nn.Module) -> list[Tensor]:
    return list({t.data_ptr(): t for t in (*module.parameters(), *module.buffers())}.values())


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


# ---------------------------------------------------------------------------------------- the machine's limits


def best(function: Callable[[], object], repeats: int = REPEATS) -> float:
    """Seconds of the fastest of several runs, after one warm-up run."""
    function()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def memory_speed(device: torch.device) -> float:
    """Bytes per second that can be read: the better of a sum and a matrix-vector product."""
    numbers = torch.ones(BUFFER, device=device)
    matrix, vector = numbers.view(-1, 4096), torch.ones(4096, device=device)
    return numbers.nbytes / min(best(numbers.sum), best(lambda: matrix @ vector))


def flop_speed(device: torch.device) -> float:
    """Floating-point operations per second of a large fp32 matrix product."""
    a = torch.ones(SQUARE, SQUARE, device=device)
    return 2 * SQUARE**3 / best(lambda: a @ a)
