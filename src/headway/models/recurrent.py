"""The encoder-decoder before the Transformer: a bidirectional GRU encodes, a GRU with additive attention decodes
(Bahdanau et al. 2015). It steps like every decoder here, so the same search generates with it, and its alignment passes
the tap `cross.weights`, as cross-attention's does."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.cache import joined, joined_padding
from headway.layers.dropout import drop
from headway.layers.embeddings import Embedding
from headway.layers.linear import Linear
from headway.layers.recurrent import AdditiveAttention
from headway.models.config import RecurrentConfig
from headway.models.decoder import last_positions
from headway.models.outputs import Output
from headway.models.protocol import HeadKind, Model


class RecurrentCache:
    """The decoder's state between steps, and the source it attends to, all (row, …)."""

    can_truncate = False  # a state does not say what it was before

    def __init__(self, *, state: Tensor, memory: Tensor, keys: Tensor, padding_mask: Tensor | None):
        self.state, self.memory, self.keys, self.padding_mask = state, memory, keys, padding_mask
        self.lengths = [0] * len(state)

    def __len__(self) -> int:
        return len(self.lengths)

    def select(self, rows: Sequence[int]) -> None:
        """Keeps, repeats and reorders rows."""
        index = torch.tensor(rows, dtype=torch.long, device=self.state.device)
        for name in ("state", "memory", "keys", "padding_mask"):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, value.index_select(0, index))
        self.lengths = [self.lengths[row] for row in rows]

    def append_rows(self, other: RecurrentCache) -> None:
        """Adds the rows of another cache of the same model behind its own."""
        self.padding_mask = joined_padding(self.memory, self.padding_mask, other.memory, other.padding_mask)
        self.memory, self.keys = joined(self.memory, other.memory), joined(self.keys, other.keys)
        self.state = torch.cat([self.state, other.state])
        self.lengths += other.lengths

    def truncate(self, lengths: Sequence[int]) -> None:
        if list(lengths) != self.lengths:
            raise ValueError("a recurrent state cannot forget its last tokens")


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

    def forward(
        self,
        inputs: Tensor,  # token ids (batch, source)
        *,
        decoder_ids: Tensor,  # (batch, target)
        padding_mask: Tensor | None = None,
        decoder_padding_mask: Tensor | None = None,
    ) -> Output:
        """Teacher forcing: every step gets the right tokens so far."""
        cache = self.encode_to_cache(inputs, padding_mask=padding_mask)
        logits, hidden = self._decode(decoder_ids, cache, lengths=None)
        return Output(hidden, logits=logits, memory=cache.memory)

    def encode_to_cache(
        self, inputs: Tensor, *, padding_mask: Tensor | None = None, capacity: int = 0
    ) -> RecurrentCache:
        memory, last = self._read(inputs, padding_mask)
        real = None if padding_mask is None else padding_mask.bool()
        return RecurrentCache(
            state=torch.tanh(self.bridge(last)), memory=memory, keys=self.cross.key(memory), padding_mask=real
        )

    def step(
        self, ids: Tensor, cache: RecurrentCache, *, lengths: Sequence[int] | None = None, every: bool = False
    ) -> Tensor:
        """As Decoder.step."""
        logits, _ = self._decode(ids, cache, lengths=lengths)
        cache.lengths = [
            past + new for past, new in zip(cache.lengths, lengths or [ids.shape[1]] * len(ids), strict=True)
        ]
        return logits if every else logits.flatten(0, 1).index_select(0, last_positions(ids, lengths))

    def _read(self, ids: Tensor, padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """(memory (batch, source, 2·hidden), the last state of the backward direction). Padding, on the right, is left
        out: the backward direction starts at each row's last real token."""
        x = self._drop(self._embed(ids))
        if padding_mask is None:
            memory, last = self.encoder(x)
            return memory, last[1]
        count = padding_mask.long().sum(1)[:, None]  # (batch, 1)
        place = torch.arange(ids.shape[1], device=ids.device)[None]
        reverse = torch.where(place < count, count - 1 - place, place)[..., None]  # its own inverse
        forwards, backwards = self._run(x), self._run(x.gather(1, reverse.expand_as(x)), "_reverse")
        last = backwards.gather(1, (count - 1)[..., None].expand(-1, 1, backwards.shape[-1]))[:, 0]
        memory = torch.cat([forwards, backwards.gather(1, reverse.expand_as(backwards))], dim=-1)
        return memory * padding_mask[..., None].to(memory.dtype), last

    def _run(self, x: Tensor, direction: str = "") -> Tensor:
        """One direction of the encoder, (batch, length, hidden)."""
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        weights = [getattr(self.encoder, name + direction) for name in names]
        first = x.new_zeros(1, len(x), self.encoder.hidden_size)
        return torch.gru(x, first, weights, True, 1, 0.0, self.training, False, True)[0]

    def _decode(self, ids: Tensor, cache: RecurrentCache, *, lengths: Sequence[int] | None) -> tuple[Tensor, Tensor]:
        """(logits, hidden) after each token; the state of a row stays as it is behind its `lengths`."""
        tokens = self._embed(ids)  # (batch, target, width)
        counts = None if lengths is None else torch.tensor(lengths, device=ids.device)[:, None]
        states, weights = [], []
        for number, token in enumerate(tokens.unbind(1)):
            context, weight = self.cross(
                cache.state, memory=cache.memory, keys=cache.keys, padding_mask=cache.padding_mask
            )
            state = self.decoder(torch.cat([self._drop(token), context], dim=-1), cache.state)
            cache.state = state if counts is None else torch.where(number < counts, state, cache.state)
            states.append(torch.cat([cache.state, context, token], dim=-1))
            weights.append(weight)
        self.cross.weights(torch.stack(weights, dim=1)[:, None])  # (batch, 1, target, source)
        hidden = self._drop(torch.tanh(self.mix(torch.stack(states, dim=1))))  # (batch, target, width)
        return F.linear(hidden, self.embedding.tokens.table), hidden

    def _embed(self, ids: Tensor) -> Tensor:
        return self.embedding(ids).x  # without positions: the order is in the recurrence

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout) if self.training and self.dropout else x
