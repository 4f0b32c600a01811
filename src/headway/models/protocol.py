"""What every model answers about itself, so that no caller has to ask which class it is.

A shape overrides what differs from the defaults; all of them are cheap to read and none touches a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

Shape = Literal[
    "encoder", "decoder", "encoder-decoder", "flow", "detector", "bilm", "span-scorer",
    "recurrent", "recurrent-encoder", "recurrent-decoder",  # the first is an encoder-decoder
]  # fmt: skip
Inputs = Literal["text", "image", "audio"]
HeadKind = Literal["language", "classify", "token", "pooler", "velocity", "detect"]


@dataclass(frozen=True)
class Part:
    """One stack of blocks with its front end and head; a one-stack model is its own only part."""

    name: Literal["encoder", "decoder", "denoiser"]
    prefix: str  # of the names of its modules: "", "encoder.", "decoder." or "denoiser."
    model: Any  # an Encoder, a Decoder or a Denoiser

    @property
    def causal(self) -> bool:
        return self.model.config.stack.causal


class Model(nn.Module):
    """Base of every shape. `config` is all that is needed to build it again."""

    config: Any
    embedding: Any  # the front end, but for a model of several parts

    @property
    def shape(self) -> Shape:
        return self.config.shape

    @property
    def parts(self) -> list[Part]:
        """The stacks of blocks, in the order of computation: the head of the last gives the logits. A recurrent model
        has none."""
        return []

    @property
    def output_head(self) -> nn.Module | None:
        """The head that gives the logits, where it is a module of its own."""
        return self.parts[-1].model.head if self.parts else None

    @property
    def inputs(self) -> Inputs:
        """What the model reads."""
        return "text"

    @property
    def image_channels(self) -> int | None:
        """Of the images that it reads or makes; None: no images."""
        return None

    @property
    def head_config(self) -> Any:
        """The config of the head that gives the logits; None: it has none."""
        return getattr(self.config, "head", None)

    @property
    def head_kind(self) -> HeadKind | None:
        return None if self.head_config is None else self.head_config.kind

    @property
    def pools_one_token(self) -> bool:
        """Whether `forward(…, pooled_only=True)` can save the last block all tokens but the one that the head reads."""
        return False

    @property
    def has_language_head(self) -> bool:
        """Whether it scores tokens, by a language head or by the one beside a pooler."""
        return self.head_kind == "language" or getattr(getattr(self.config, "head", None), "language", None) is not None

    @property
    def gives_logits(self) -> bool:
        """Whether its head scores tokens or labels; a bare model, or one with a pooler alone, gives vectors."""
        if self.head_kind == "pooler":
            return self.has_language_head or self.config.head.next_sentence
        return self.head_kind not in (None, "velocity")

    @property
    def generates(self) -> bool:
        """Whether it has `step` and a head that scores the next token."""
        return False

    @property
    def carries_state(self) -> bool:
        """Whether a text is read with a state of fixed size, so that a window can go on from the one before it."""
        return False

    @property
    def reads_source(self) -> bool:
        """Whether it generates after reading a source, as an encoder-decoder does."""
        return False

    @property
    def start_id(self) -> int | None:
        """What an answer to a source begins with."""
        return None

    @property
    def encodes(self) -> bool:
        """Whether it can read a text in both directions, so that a head for labels can be trained on it."""
        return self.shape == "encoder"

    @property
    def predicts_any_order(self) -> bool:
        """Whether `forward` takes an order of the tokens and targets (permutation language modelling)."""
        return False

    @property
    def segments(self) -> int:
        """Parts of an input (two sentences, say) that it tells apart; 0: none."""
        return getattr(getattr(self.config, "embedding", None), "segments", 0)

    def combined(self, logits: Tensor, inputs: Tensor | None, padding_mask: Tensor | None) -> Tensor:
        """The logits of the whole model, from those of the stack that gives them."""
        return logits

    def reference_output(self, inputs: Tensor, **more: Any) -> Any:
        """What the reference library computes from the inputs alone."""
        return self(inputs, **more)

    @property
    def shares_tokens(self) -> bool:
        """Whether the ids of a source mean the same in the answer."""
        return False

    @property
    def rotary_depends_on_length(self) -> bool:
        """Whether rotary angles change with the length of the whole text."""
        return False

    @property
    def packs_sequences(self) -> bool:
        """Whether `forward` takes `sequence_lengths`: several texts laid end to end in one row, each read alone."""
        return False

    @property
    def max_length(self) -> int | None:
        """The longest input that the model can read; None: no limit."""
        return None

    @property
    def max_context(self) -> int | None:
        """Tokens that prompt and answer may have together; None: no limit."""
        return None

    @property
    def vocab_size(self) -> int | None:
        """Tokens that the model can generate, or that it reads where it does not generate; None: it reads no tokens."""
        return self.config.embedding.vocab or None

    @property
    def source_vocab_size(self) -> int | None:
        """Tokens that a source may contain."""
        return self.vocab_size

    @property
    def token_table(self) -> Tensor | None:
        """(vocab, width), or what stands for it; an output layer may be tied to it. None: the model reads no tokens."""
        return self.embedding.token_table
