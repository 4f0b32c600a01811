"""Words from their characters: a convolutional network over the bytes of a word, with highways (Kim et al. 2016), as in
ELMo (Peters et al. 2018). Every word has a vector, also one that was never seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from headway.layers.dropout import drop
from headway.layers.embedded import Embedded
from headway.layers.feedforward import ACTIVATIONS
from headway.layers.linear import Linear, TokenTable
from headway.layers.positions import positions_of
from headway.layers.tap import Tap

Activation = Literal["relu", "tanh"]


@dataclass(frozen=True)
class FilterConfig:
    characters: int  # that a filter joins
    count: int  # of such filters


@dataclass(frozen=True)
class CharacterConfig:
    width: int  # of a word's vector
    characters: int  # different ones, padding included
    character_width: int
    filters: tuple[FilterConfig, ...]
    longest: int  # characters of a word
    highways: int = 2
    activation: Activation = "relu"
    dropout: float = 0.0

    inputs: ClassVar[Literal["text"]] = "text"
    vocab: ClassVar[int] = 0  # any word can be read
    max_length: ClassVar[None] = None
    segments: ClassVar[int] = 0

    @property
    def features(self) -> int:
        """Of the convolutions, before the projection."""
        return sum(each.count for each in self.filters)

    def build(self) -> CharacterEmbedding:
        return CharacterEmbedding(self)


class CharacterEmbedding(nn.Module):
    """Convolutions over the characters of each word, their maximum over the word, highways, and a projection."""

    token_table: ClassVar[None] = None

    def __init__(self, config: CharacterConfig):
        super().__init__()
        self.config = config
        self.characters = TokenTable(config.characters, config.character_width)
        self.convolutions = nn.ModuleList(
            Linear(each.characters * config.character_width, each.count) for each in config.filters
        )
        self.highways = nn.ModuleList(Highway(config.features) for _ in range(config.highways))
        self.project = Linear(config.features, config.width)
        self.activation = ACTIVATIONS[config.activation]
        self.token, self.sum = Tap(), Tap()

    def forward(
        self,
        characters: Tensor,  # (batch, word, character); 0 is padding
        *,
        padding_mask: Tensor | None = None,  # (batch, word), True = real
        positions: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Embedded:
        if segments is not None:
            raise ValueError("characters of words have no segments")
        words, place = characters.flatten(0, 1).unique(dim=0, return_inverse=True)  # a word is computed once
        x = self.words(words)[place].view(*characters.shape[:2], -1)  # (batch, word, width)
        x = self.sum(self.token(x))
        x = drop(x, self.config.dropout) if self.training and self.config.dropout else x
        return Embedded(x, positions_of(x.shape[1], device=x.device), padding_mask)

    def words(self, characters: Tensor) -> Tensor:
        """(word, character) → (word, width)"""
        letters = self.characters(characters)  # (word, character, character_width)
        found = []
        for each, convolution in zip(self.config.filters, self.convolutions, strict=True):
            near = letters.unfold(1, each.characters, 1).transpose(-1, -2).flatten(-2)  # (word, place, …)
            found.append(self.activation(convolution(near).amax(1)))  # the activation keeps the order
        x = torch.cat(found, dim=-1)  # (word, features)
        for highway in self.highways:
            x = highway(x)
        return self.project(x)


class Highway(nn.Module):
    """g · relu(W x) + (1 - g) · x with the gate g = σ(V x) (Srivastava et al. 2015)."""

    def __init__(self, width: int):
        super().__init__()
        self.transform, self.gate = Linear(width, width), Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x
