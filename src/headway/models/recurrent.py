"""The encoder-decoder before the Transformer: a bidirectional GRU reads, a GRU with additive attention
writes (Bahdanau et al. 2015). It steps like every decoder here, so the same search writes with it, and its alignment is
heard at `cross.weights`, as cross-attention's is."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from headway.layers.dropout import drop
from headway.layers.embeddings import Embedding
from headway.layers.linear import Linear
from headway.layers.recurrent import AdditiveAttention
from headway.models.config import RecurrentConfig
from headway.models.outputs import Output
from headway.models.protocol import HeadKind, Model


class RecurrentCache:
    """The decoder's state between steps, and the source it looks at."""

    def __init__(self, *, state: Tensor, memory: Tensor, keys: Tensor, padding_mask: Tensor | None):
        self.state, self.memory, self.keys, self.padding_mask = state, memory, keys, padding_mask
        self.length = 0

    def select(self, rows: Tensor) -> None:
        for name in ("state", "memory", "keys", "padding_mask"):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, value.index_select(0, rows))


class RecurrentEncoderDecoder(Model):
    def __init__(self, config: RecurrentConfig):
        super().__init__()
        self.config = config
        width, hidden = config.embedding.width, config.hidden
        self.embedding = Embedding(config.embedding)
        self.encoder = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        self.bridge = Linear(hidden, hidden)  # the decoder's first state, from the backward reading's end
        self.cross = AdditiveAttention(hidden, 2 * hidden, hidden)
        self.decoder = nn.GRUCell(width + 2 * hidden, hidden)
        self.mix = Linear(3 * hidden + width, width)
        self.dropout = config.dropout

    @property
    def generates(self) -> bool:
        return True

    @property
    def reads_source(self) -> bool:
        return True

    @property
    def shares_tokens(self) -> bool:
        return True

    @property
    def start_id(self) -> int:
        return self.config.start_id

    @property
    def head_kind(self) -> HeadKind:
        return "language"

    @property
    def vocab_size(self) -> int:
        return self.config.embedding.vocab

    @property
    def token_table(self) -> Tensor:
        return self.embedding.tokens.table

    def forward(
        self,
        inputs: Tensor,
        *,
        decoder_ids: Tensor,
        padding_mask: Tensor | None = None,
        decoder_padding_mask: Tensor | None = None,
    ) -> Output:
        """Teacher forcing: the right words so far are given at every step."""
        logits, hidden, memory = self._write(decoder_ids, self.start(inputs, mask=padding_mask))
        return Output(hidden, logits=logits, memory=memory)

    def start(self, ids: Tensor, *, mask: Tensor | None = None, capacity: int = 0) -> RecurrentCache:
        memory, last = self._read(ids, mask)
        padding_mask = None if mask is None else mask.bool()
        return RecurrentCache(
            state=torch.tanh(self.bridge(last)), memory=memory, keys=self.cross.key(memory), padding_mask=padding_mask
        )

    def step(self, ids: Tensor, cache: RecurrentCache, *, mask: Tensor | None = None, last: bool = True) -> Tensor:
        logits, _, _ = self._write(ids, cache)
        return logits[:, -1] if last else logits

    def _read(self, ids: Tensor, padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """(memory (batch, source, 2·hidden), the backward reading's last state). Padding is not read."""
        x = self._drop(self._embed(ids))
        if padding_mask is None:
            memory, last = self.encoder(x)
            return memory, last[1]
        lengths = padding_mask.long().sum(1).cpu()
        packed, last = self.encoder(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        memory, _ = pad_packed_sequence(packed, batch_first=True, total_length=ids.shape[1])
        return memory, last[1]

    def _write(self, ids: Tensor, cache: RecurrentCache) -> tuple[Tensor, Tensor, Tensor]:
        words = self._embed(ids)  # (batch, target, width)
        states, weights = [], []
        for word in words.unbind(1):
            context, weight = self.cross(
                cache.state, memory=cache.memory, keys=cache.keys, padding_mask=cache.padding_mask
            )
            cache.state = self.decoder(torch.cat([self._drop(word), context], dim=-1), cache.state)
            states.append(torch.cat([cache.state, context, word], dim=-1))
            weights.append(weight)
        cache.length += ids.shape[1]
        self.cross.weights(torch.stack(weights, dim=1)[:, None])  # (batch, 1, target, source)
        hidden = self._drop(torch.tanh(self.mix(torch.stack(states, dim=1))))  # (batch, target, width)
        return F.linear(hidden, self.embedding.tokens.weight), hidden, cache.memory

    def _embed(self, ids: Tensor) -> Tensor:
        return self.embedding(ids, positions=ids, max_position=0)  # no positions: the order is in the recurrence

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout) if self.training and self.dropout else x
