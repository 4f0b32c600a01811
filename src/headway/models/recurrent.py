"""The encoder-decoder before the Transformer: a recurrent network reads the source in both directions, a second one
generates (Sutskever et al. 2014, Cho et al. 2014). Additive attention is Bahdanau's (2015): its query is the previous
state, and the context is an input of the cell. Multiplicative attention is Luong's (2015): its query is the new state.
Without attention the decoder knows the source only by its first state.

It steps like every decoder here, so the same search generates with it, and its alignment passes the tap
`cross.weights`, as cross-attention's does.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.cache import joined, joined_padding
from headway.layers.dropout import drop
from headway.layers.embeddings import Embedding
from headway.layers.linear import Linear
from headway.layers.recurrent import STATES, AdditiveAttention, MultiplicativeAttention, Recurrent, RecurrentCell
from headway.models.config import RecurrentConfig
from headway.models.decoder import last_positions
from headway.models.outputs import Output
from headway.models.protocol import HeadKind, Model


class RecurrentCache:
    """The decoder's state between steps, and the source it attends to, all (row, …)."""

    can_truncate = False  # a state does not say what it was before

    def __init__(
        self, *, state: Tensor, memory: Tensor | None = None, keys: Tensor | None = None,
        padding_mask: Tensor | None = None,
    ):  # fmt: skip
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
        if self.memory is not None and other.memory is not None:
            self.padding_mask = joined_padding(self.memory, self.padding_mask, other.memory, other.padding_mask)
            self.memory = joined(self.memory, other.memory)
        if self.keys is not None and other.keys is not None:
            self.keys = joined(self.keys, other.keys)
        self.state = torch.cat([self.state, other.state])
        self.lengths += other.lengths

    def advance(self, lengths: Sequence[int]) -> None:
        self.lengths = [past + new for past, new in zip(self.lengths, lengths, strict=True)]

    def truncate(self, lengths: Sequence[int]) -> None:
        if list(lengths) != self.lengths:
            raise ValueError("a recurrent state cannot forget its last tokens")


class RecurrentEncoderDecoder(Model):
    def __init__(self, config: RecurrentConfig):
        super().__init__()
        self.config = config
        width, hidden, cell = config.embedding.width, config.hidden, config.cell
        memory = 0 if config.attention == "none" else 2 * hidden
        self.embedding = Embedding(config.embedding)
        self.encoder = Recurrent(cell, width, hidden, layers=config.layers, both=True, dropout=config.dropout)
        # the decoder's first state, from the end of the backward direction
        self.bridge = Linear(hidden, config.layers * STATES[cell] * hidden)
        self.cross: AdditiveAttention | MultiplicativeAttention | None = None
        if config.attention == "additive":
            self.cross = AdditiveAttention(hidden, memory, hidden)
        elif config.attention == "multiplicative":
            self.cross = MultiplicativeAttention(hidden, memory)
        self.decoder = RecurrentCell(cell, width + (memory if config.attention == "additive" else 0), hidden)
        self.upper = nn.ModuleList(RecurrentCell(cell, hidden, hidden) for _ in range(config.layers - 1))
        self.mix = Linear(hidden + memory + width, width)
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
        forced: Tensor | None = None,  # (batch, target), True: the given token; False: the model's own. None: all given
    ) -> Output:
        """Teacher forcing; with `forced`, scheduled sampling (Bengio et al. 2015)."""
        cache = self.encode_to_cache(inputs, padding_mask=padding_mask)
        if forced is not None:
            return self._decode_own(decoder_ids, cache, forced)
        logits, hidden = self._decode(decoder_ids, cache, lengths=None)
        return Output(hidden, logits=logits, memory=cache.memory)

    def encode_to_cache(
        self, inputs: Tensor, *, padding_mask: Tensor | None = None, capacity: int = 0
    ) -> RecurrentCache:
        real = None if padding_mask is None else padding_mask.bool()
        memory, last = self.encoder(self._drop(self._embed(inputs)), padding_mask=real)
        first = torch.tanh(self.bridge(last[:, -1])).unflatten(-1, (self.config.layers, -1))  # (batch, layers, state)
        if self.cross is None:
            return RecurrentCache(state=first)
        return RecurrentCache(state=first, memory=memory, keys=self.cross.key(memory), padding_mask=real)

    def step(
        self, ids: Tensor, cache: RecurrentCache, *, lengths: Sequence[int] | None = None, every: bool = False
    ) -> Tensor:
        """As Decoder.step."""
        logits, _ = self._decode(ids, cache, lengths=lengths)
        cache.advance(lengths or [ids.shape[1]] * len(ids))
        return logits if every else logits.flatten(0, 1).index_select(0, last_positions(ids, lengths))

    def _decode(self, ids: Tensor, cache: RecurrentCache, *, lengths: Sequence[int] | None) -> tuple[Tensor, Tensor]:
        """(logits, hidden) after each token; the state of a row stays as it is behind its `lengths`."""
        tokens = self._embed(ids)  # (batch, target, width)
        if isinstance(self.cross, AdditiveAttention):
            states, context = self._aligned(self.decoder.project(self._drop(tokens)), cache, self.cross, lengths)
        else:
            states, last = self.decoder.run(self._drop(tokens), cache.state[:, 0], lengths=lengths)
            context, firsts = None, [last]
            for number, cell in enumerate(self.upper, 1):
                states, last = cell.run(self._drop(states), cache.state[:, number], lengths=lengths)  # type: ignore[operator]
                firsts.append(last)
            cache.state = torch.stack(firsts, dim=1)
            context = self._look_up(states, cache)
        return self._output(states, context, tokens)

    def _aligned(
        self, projected: Tensor, cache: RecurrentCache, cross: AdditiveAttention, lengths: Sequence[int] | None
    ) -> tuple[Tensor, Tensor]:
        """The states (batch, target, hidden) and contexts, step by step: each context depends on the state before."""
        counts = None if lengths is None else torch.tensor(lengths, device=projected.device)[:, None, None]
        states, contexts, weights = [], [], []
        for number, inputs in enumerate(projected.unbind(1)):
            state, context, weight = self._aligned_step(inputs, cache, cross)
            cache.state = state if counts is None else torch.where(number < counts, state, cache.state)
            states.append(cache.state[:, -1, : self.config.hidden])
            contexts.append(context)
            weights.append(weight)
        cross.weights(torch.stack(weights, dim=1)[:, None])  # (batch, 1, target, source)
        return torch.stack(states, dim=1), torch.stack(contexts, dim=1)

    def _aligned_step(
        self, projected: Tensor, cache: RecurrentCache, cross: AdditiveAttention
    ) -> tuple[Tensor, Tensor, Tensor]:
        assert cache.memory is not None and cache.keys is not None
        query = cache.state[:, -1, : self.config.hidden]
        context, weight = cross(query, memory=cache.memory, keys=cache.keys, padding_mask=cache.padding_mask)
        state = [self.decoder(projected + self.decoder.project_rest(context), cache.state[:, 0])]
        for number, cell in enumerate(self.upper, 1):
            below = self._drop(state[-1][:, : self.config.hidden])
            state.append(cell(cell.project(below), cache.state[:, number]))  # type: ignore[operator]
        return torch.stack(state, dim=1), context, weight

    def _look_up(self, states: Tensor, cache: RecurrentCache) -> Tensor | None:
        """The contexts (batch, target, memory) that the states find in the source."""
        if self.cross is None or cache.memory is None or cache.keys is None:
            return None
        context, weights = self.cross(states, memory=cache.memory, keys=cache.keys, padding_mask=cache.padding_mask)
        self.cross.weights(weights[:, None])  # (batch, 1, target, source)
        return context

    def _output(self, states: Tensor, context: Tensor | None, tokens: Tensor) -> tuple[Tensor, Tensor]:
        parts = [states, tokens] if context is None else [states, context, tokens]
        hidden = self._drop(torch.tanh(self.mix(torch.cat(parts, dim=-1))))  # (batch, target, width)
        return F.linear(hidden, self.embedding.tokens.table), hidden

    def _decode_own(self, ids: Tensor, cache: RecurrentCache, forced: Tensor) -> Output:
        """Step by step; where a token is not `forced`, the input is the most probable token of the step before."""
        found: list[tuple[Tensor, Tensor]] = []
        for number, given in enumerate(ids.unbind(1)):
            if number:
                own = found[-1][0][:, -1].detach().argmax(-1)
                given = torch.where(forced[:, number], given, own)
            found.append(self._decode(given[:, None], cache, lengths=None))
        logits, hidden = (torch.cat(parts, dim=1) for parts in zip(*found, strict=True))
        return Output(hidden, logits=logits, memory=cache.memory)

    def _embed(self, ids: Tensor) -> Tensor:
        return self.embedding(ids).x  # without positions: the order is in the recurrence

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout) if self.training and self.dropout else x
