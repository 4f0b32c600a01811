"""Batches of token sequences of which some tokens are predicted, packed: laid end to end in one row, where each attends
to itself alone and its positions begin at 0. So nothing is computed for padding, and no conversation sees another."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.batch import Batch
from headway.preprocess.chat_training import Tokens
from headway.tasks.task import pad, padding_mask, without_none


def token_batch(
    sequences: Sequence[Tokens], *, packing: bool, pad_id: int, where: list[str], count: int | None = None
) -> Batch:
    """`targets` has the predicted `ids` and the `sequence` that each belongs to; `count` is by default their number."""
    inputs = [torch.from_numpy(each.ids[:-1].astype("int64")) for each in sequences]
    lengths = tuple(map(len, inputs))
    predicted = [torch.from_numpy(each.learnt[1:].astype(bool)) for each in sequences]
    wanted = [torch.from_numpy(each.ids[1:].astype("int64")) for each in sequences]
    targets = {
        "ids": torch.cat([ids[on] for ids, on in zip(wanted, predicted, strict=True)]),  # (prediction)
        "sequence": torch.cat([torch.full((int(on.sum()),), i) for i, on in enumerate(predicted)]),  # (prediction)
    }
    count = len(targets["ids"]) if count is None else count
    if packing:
        positions = torch.cat([torch.arange(length) for length in lengths])[None]
        row = {"inputs": torch.cat(inputs)[None], "positions": positions}  # (1, tokens)
        row["logit_positions"] = torch.cat(predicted).nonzero()[:, 0]
        return Batch(row, targets, count=count, where=where, sequence_lengths=lengths)
    rows = [ids.numpy() for ids in inputs]
    padded = without_none(inputs=pad(rows, pad_id), padding_mask=padding_mask(rows))
    flat = pad([on.numpy() for on in predicted], 0).flatten()  # (batch · length)
    return Batch({**padded, "logit_positions": flat.nonzero()[:, 0]}, targets, count=count, where=where)


def log_probabilities(model: nn.Module, batch: Batch) -> Tensor:
    """Of each predicted token, (prediction)."""
    more = {} if batch.sequence_lengths is None else {"sequence_lengths": batch.sequence_lengths}
    logits = model(**batch.inputs, **more).logits  # (prediction, vocabulary)
    return -F.cross_entropy(logits.float(), batch.targets["ids"], reduction="none")


def sums_by_sequence(values: Tensor, batch: Batch, *, sequences: int) -> Tensor:
    """(sequence)."""
    return values.new_zeros(sequences).index_add(0, batch.targets["sequence"], values)
