"""How fast a model runs here, and how near that is to what the machine can do: writing a token reads all
weights once, so it is bound by the memory; reading a prompt multiplies them with many tokens, so it is bound by the
arithmetic (the roofline, Williams et al. 2009). Both limits are measured in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from headway.errors import InputError
from headway.generation import GenerationSettings, Token, generate
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import PatchConfig
from headway.memory import peak_memory
from headway.models.config import StackConfig
from headway.models.decoder import Decoder
from headway.models.encoder import Encoder
from headway.models.encoder_decoder import EncoderDecoder

PROMPT, NEW = 512, 128  # tokens
BUFFER = 2**26  # numbers read to measure the memory: far more than any cache holds
SQUARE = 1536  # side of the matrices multiplied to measure the arithmetic
TEXTS = 16  # read together by an encoder
REPEATS = 3

Facts = dict[str, Any]


@torch.no_grad()
def bench(model: nn.Module, *, prompt_tokens: int | None = None, new_tokens: int | None = None) -> Facts:
    """Figures of one request at a time (of batches of texts, for an encoder), the best of a few repeats. Unless told,
    as many tokens are read and written as the model has room for, up to 512 and 128."""
    most_read, most_written = _room(model)
    new = most_written if new_tokens is None else new_tokens
    prompt = most_read if prompt_tokens is None else prompt_tokens
    if prompt < 1 or new < 2:
        raise InputError(f"{prompt} tokens to read and {new} to write: at least 1 and 2 are needed")
    limits = {"memory_bytes_per_second": memory_speed(_device(model)), "flops_per_second": flop_speed(_device(model))}
    if isinstance(model, Encoder):
        facts = _reading(model, prompt, limits)
    elif isinstance(model, Decoder | EncoderDecoder):
        facts = _writing(model, prompt, new, limits)
    else:
        raise InputError(f"bench measures decoders, encoders and encoder-decoders, not a {type(model).__name__}")
    return {
        **facts,
        "weight_bytes": sum(t.nbytes for t in _tensors(model)),
        "peak_memory_bytes": peak_memory(),
        "threads": torch.get_num_threads(),
        **limits,
    }


def _room(model: nn.Module) -> tuple[int, int]:
    """The tokens to read and to write, as far as the model has room for them."""
    if isinstance(model, EncoderDecoder):
        positions = getattr(model.config.encoder.embedding, "positions", None)
        source, target = getattr(positions, "count", None), model.config.decoder.context
        return min(PROMPT, source or PROMPT), min(NEW, (target or NEW + 1) - 1)
    room = model.max_length or PROMPT + NEW
    new = min(NEW, room // 2)
    return min(PROMPT, room - new if isinstance(model, Decoder) else room), new


def lines(facts: Facts) -> list[str]:
    out = []
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
    peak = facts["peak_memory_bytes"]
    out += [
        f"          {facts['prefill_flops_per_second'] / 1e9:10,.1f} GFLOP/s in prefill = {facts['flop_share']:.0%} "
        f"of the {facts['flops_per_second'] / 1e9:.0f} measured here",
        f"memory    {facts['weight_bytes'] / 2**20:10,.1f} MiB of weights, "
        f"{'unknown' if peak is None else f'{peak / 2**20:,.0f} MiB'} at most in the whole process",
        f"threads   {facts['threads']:10}",
    ]
    return out


# ---------------------------------------------------------------------------------------- the model


def _writing(model: Decoder | EncoderDecoder, prompt: int, new: int, limits: Facts) -> Facts:
    decoder = model.decoder if isinstance(model, EncoderDecoder) else model
    reader = model.encoder if isinstance(model, EncoderDecoder) else model
    limit = decoder.config.context
    if isinstance(model, Decoder) and limit is not None and prompt + new > limit:
        raise InputError(
            f"{prompt} prompt and {new} new tokens do not fit the context of {limit}; "
            "give fewer with --prompt-tokens and --new-tokens"
        )
    ids = torch.randint(cast(Any, reader.config.embedding).vocab, (prompt,), generator=torch.Generator().manual_seed(0))
    settings = GenerationSettings(max_new_tokens=new, min_new_tokens=new, speculate=False)
    ways: dict[str, Any] = {"prompts": [ids.tolist()]}
    if isinstance(model, EncoderDecoder):
        ways = {"prompts": [[model.config.start_id]], "sources": [ids.tolist()]}
    firsts, rates = [], []
    for _ in range(1 + REPEATS):
        heard: list[float] = []

        def hear(_: Token, heard: list[float] = heard) -> None:
            heard.append(time.perf_counter())

        began = time.perf_counter()
        generate(cast(Any, model), settings=settings, on_token=hear, **ways)
        firsts.append(heard[0] - began)
        rates.append((len(heard) - 1) / (heard[-1] - heard[0]))
    first, rate = min(firsts[1:]), max(rates[1:])
    moved = step_bytes(decoder, past=prompt + new // 2 if isinstance(model, Decoder) else new // 2, source=prompt)
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


def _reading(model: Encoder, length: int, limits: Facts) -> Facts:
    embedding = model.config.embedding
    noise = torch.Generator().manual_seed(0)
    if isinstance(embedding, PatchConfig):
        length = embedding.count + 1
        inputs = torch.randn(TEXTS, embedding.channels, *embedding.image, generator=noise)
    else:
        most = getattr(embedding.positions, "count", None) or length
        length = min(length, most)
        inputs = torch.randint(embedding.vocab, (TEXTS, length), generator=noise)
    inputs = inputs.to(_device(model))
    seconds = best(lambda: model(inputs))
    flops = TEXTS * read_flops(model.config.stack, length)
    return {
        "prompt_tokens": length,
        "texts_per_second": TEXTS / seconds,
        "prefill_tokens_per_second": TEXTS * length / seconds,
        "prefill_flops_per_second": flops / seconds,
        "flop_share": flops / seconds / limits["flops_per_second"],
    }


def read_flops(stack: StackConfig, tokens: int) -> float:
    """Of reading so many tokens: two for each weight and token, and the attention between tokens."""
    attention = stack.block.attention
    seen = tokens / 2 if stack.causal else tokens
    between = 4 * tokens * seen * attention.heads * attention.head_size
    return stack.layers * (2 * tokens * _block_weights(stack.block) + between)


def _block_weights(block: BlockConfig) -> int:
    parts = [block.attention, *([block.cross] if block.cross else [])]
    inner = block.feedforward.width * (3 if block.feedforward.gated else 2)
    return block.width * (sum(_projections(part) for part in parts) + inner)


def _projections(attention: AttentionConfig) -> int:
    return attention.head_size * 2 * (attention.heads + (attention.kv_heads or attention.heads))


def step_bytes(decoder: Decoder, *, past: int, source: int) -> int:
    """What writing one token reads: all weights but the tables of which it looks up a row, and the keys and values."""
    stack = decoder.config.stack
    skipped = {t.data_ptr() for block in decoder.stack.blocks for t in _once(block)}
    used = [t for part in (decoder.stack, decoder.head) if part is not None for t in _tensors(part)]
    if getattr(decoder.config.head, "tied", False):
        used += list(_tensors(decoder.embedding.tokens))
    weights = sum(t.nbytes for t in used if t.data_ptr() not in skipped)
    number = next(decoder.parameters()).element_size()
    sizes = [(stack.block.attention, past)] + ([(stack.block.cross, source)] if stack.block.cross else [])
    kept = sum(2 * length * (part.kv_heads or part.heads) * part.head_size for part, length in sizes)
    return weights + stack.layers * kept * number


def _once(block: nn.Module) -> Iterator[Tensor]:
    """The projections of a source's keys and values, which a request uses once."""
    cross = cast(Any, block).cross
    if cross is not None:
        yield from (*_tensors(cross.key), *_tensors(cross.value))


def _tensors(module: nn.Module) -> list[Tensor]:
    return list({t.data_ptr(): t for t in (*module.parameters(), *module.buffers())}.values())


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


# ---------------------------------------------------------------------------------------- the machine


def best(job: Callable[[], object], repeats: int = REPEATS) -> float:
    """Seconds, the least of several, after one that does not count."""
    job()
    took = []
    for _ in range(repeats):
        began = time.perf_counter()
        job()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return min(took)


def memory_speed(device: torch.device) -> float:
    """Bytes a second that can be read: the better of a sum and of a matrix times a vector."""
    numbers = torch.ones(BUFFER, device=device)
    matrix, vector = numbers.view(-1, 4096), torch.ones(4096, device=device)
    return numbers.nbytes / min(best(numbers.sum), best(lambda: matrix @ vector))


def flop_speed(device: torch.device) -> float:
    """Floating-point operations a second of a large matrix product in fp32."""
    a = torch.ones(SQUARE, SQUARE, device=device)
    return 2 * SQUARE**3 / best(lambda: a @ a)
