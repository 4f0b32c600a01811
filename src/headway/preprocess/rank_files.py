"""A byte-level BPE vocabulary given as ranks (openai's `.tiktoken` files: a base64 token and its rank a line) → a
tokenizer with Whisper's control tokens."""

from __future__ import annotations

import base64
import binascii
import itertools
import json
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors

from headway.checkpoints.header import read_bounded
from headway.errors import CheckpointError
from headway.preprocess.speech_tokens import control_tokens
from headway.preprocess.text import BYTE_OF, Tokenizer
from headway.preprocess.text_files import Description
from headway.preprocess.text_roles import GPT2_ROLES

MAX_BYTES = 16 << 20
LETTER_OF = {byte: letter for letter, byte in BYTE_OF.items()}


def whisper_tokenizer(path: Path, *, languages: int) -> Tokenizer:
    """The vocabulary of a rank file, followed by the control tokens of a model of so many languages."""
    ranks = read_ranks(path)
    vocabulary = {spelled(token): rank for token, rank in ranks.items()}
    pairs = [halves(token, ranks) for token in sorted(ranks, key=ranks.__getitem__) if len(token) > 1]
    backend = Backend(models.BPE(vocabulary, [(spelled(left), spelled(right)) for left, right in pairs]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    backend.add_special_tokens(control_tokens(languages))
    roles = {**GPT2_ROLES, "pad": "<|endoftext|>"}
    return Tokenizer(Description(json.loads(backend.to_str()), roles))


def read_ranks(path: Path) -> dict[bytes, int]:
    """Token → rank; the ranks are 0, 1, 2, … and all single bytes have one."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(read_bounded(path, limit=MAX_BYTES).splitlines(), 1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise CheckpointError(f"{path}:{number}: expected a base64 token and its rank ({error})") from error
    if sorted(ranks.values()) != list(range(len(ranks))) or not all(bytes([byte]) in ranks for byte in range(256)):
        raise CheckpointError(f"{path}: not a vocabulary: ranks must be 0, 1, 2, … and include every single byte")
    return ranks


def halves(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The two tokens that BPE merges last when it makes this one: merging the pair of lowest rank again and again, as
    long as it is below the token's own."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        known = [(ranks.get(a + b, len(ranks)), at) for at, (a, b) in enumerate(itertools.pairwise(parts))]
        rank, at = min(known)
        if rank >= ranks[token]:
            raise CheckpointError(f"the token {token!r:.40} is not made of two others of the vocabulary")
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts[0], parts[1]


def spelled(token: bytes) -> str:
    return "".join(LETTER_OF[byte] for byte in token)
