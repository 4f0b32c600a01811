"""Filters: pure functions from next-token scores (row, vocab), and the ids so far, to other scores.

Order, which is the reference library's for the filters it has too:
  before every choice (`steer`):   repetition, frequency and presence, no-repeat n-gram, bad words, minimum length,
                                   forced first and last token, suppressed tokens
  before sampling only (`narrow`): temperature, top-k, top-p (Holtzman 2020), min-p, typical (Meister 2023)
A forbidden token scores -inf. Ids are (row, length) with -1 where a row is padded, so that padding is never a token.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headway.generation.settings import GenerationSettings


def steer(scores: Tensor, settings: GenerationSettings, *, ids: Tensor, prompt: int, new: int) -> Tensor:
    """`ids` is everything so far, whose first `prompt` columns were given; `new` tokens of it were chosen."""
    if settings.repetition_penalty != 1:
        scores = repetition(scores, ids, settings.repetition_penalty)
    if settings.frequency_penalty or settings.presence_penalty:
        scores = frequency(scores, ids[:, prompt:], each=settings.frequency_penalty, once=settings.presence_penalty)
    if settings.no_repeat_ngram:
        scores = no_repeat_ngram(scores, ids, settings.no_repeat_ngram)
    if settings.bad_words:
        scores = bad_words(scores, ids, settings.bad_words, eos_ids=settings.eos_ids)
    if new < settings.min_new_tokens:
        scores = forbid(scores, settings.end_ids)
    if settings.forced_bos_id is not None and new == 0:
        scores = force(scores, (settings.forced_bos_id,))
    if settings.forced_eos_ids and new == settings.max_new_tokens - 1:
        scores = force(scores, settings.forced_eos_ids)
    if settings.suppress_ids:
        scores = forbid(scores, settings.suppress_ids)
    if settings.begin_suppress_ids and new == (0 if settings.forced_bos_id is None else 1):
        scores = forbid(scores, settings.begin_suppress_ids)
    return scores


def narrow(scores: Tensor, settings: GenerationSettings) -> Tensor:
    if settings.temperature != 1:
        scores = scores / settings.temperature
    if settings.top_k:
        scores = top_k(scores, settings.top_k)
    if settings.top_p < 1:
        scores = top_p(scores, settings.top_p)
    if settings.min_p > 0:
        scores = min_p(scores, settings.min_p)
    if settings.typical_p < 1:
        scores = typical(scores, settings.typical_p)
    return scores


# ---------------------------------------------------------------------------------------- against repetition


def counts(ids: Tensor, vocab: int) -> Tensor:
    """How often each token occurs in each row (row, vocab)."""
    spare = torch.where((ids < 0) | (ids >= vocab), vocab, ids)  # padding is counted in one column too many
    out = torch.zeros(len(ids), vocab + 1, device=ids.device)
    return out.scatter_add_(1, spare, torch.ones_like(spare, dtype=out.dtype))[:, :vocab]


def repetition(scores: Tensor, ids: Tensor, penalty: float) -> Tensor:
    """Divides a positive score of a token that has occurred, multiplies a negative one (Keskar et al. 2019)."""
    penalised = torch.where(scores < 0, scores * penalty, scores / penalty)
    return torch.where(counts(ids, scores.shape[1]) > 0, penalised, scores)


def frequency(scores: Tensor, ids: Tensor, *, each: float, once: float) -> Tensor:
    seen = counts(ids, scores.shape[1])
    return scores - each * seen - once * (seen > 0)


def no_repeat_ngram(scores: Tensor, ids: Tensor, size: int) -> Tensor:
    """Forbids the tokens that would complete an n-gram the row already has (Paulus et al. 2018)."""
    if ids.shape[1] < size:
        return scores
    ngrams = ids.unfold(1, size, 1)  # (row, place, size)
    begun = ids[:, ids.shape[1] - size + 1 :]  # the n-gram that the next token completes, without it
    repeats = (ngrams[..., :-1] == begun[:, None]).all(-1)  # (row, place)
    return scores.masked_fill(counts(ngrams[..., -1].masked_fill(~repeats, -1), scores.shape[1]) > 0, -math.inf)


def forbid(scores: Tensor, ids: tuple[int, ...]) -> Tensor:
    known = torch.tensor([i for i in ids if i < scores.shape[1]], dtype=torch.long, device=scores.device)
    return scores.index_fill(1, known, -math.inf)


def force(scores: Tensor, ids: tuple[int, ...]) -> Tensor:
    """Only `ids` remain possible, each with log-probability 0."""
    return torch.full_like(scores, -math.inf).index_fill(1, torch.tensor(ids, device=scores.device), 0.0)


def bad_words(scores: Tensor, ids: Tensor, words: tuple[tuple[int, ...], ...], *, eos_ids: tuple[int, ...]) -> Tensor:
    """Forbids the last id of each sequence in `words` whose other ids are the row's last ones. A word that is just an
    end-of-sequence id is skipped, as in the reference library."""
    for *begun, last in words:
        if not begun and last not in eos_ids:
            scores = forbid(scores, (last,))
        elif begun and len(begun) <= ids.shape[1] and last < scores.shape[1]:
            matches = (ids[:, -len(begun) :] == torch.tensor(begun, device=ids.device)).all(1)  # (row)
            column = scores[:, last].masked_fill(matches, -math.inf)
            scores = scores.index_copy(1, torch.tensor([last], device=scores.device), column[:, None])
    return scores


# ---------------------------------------------------------------------------------------- what may be sampled

HEAD = 512


def top_k(scores: Tensor, k: int) -> Tensor:
    """The k best; ties with the last of them stay too."""
    last = scores.topk(min(k, scores.shape[1])).values[:, -1:]
    return scores.masked_fill(scores < last, -math.inf)


def top_p(scores: Tensor, p: float) -> Tensor:
    """The fewest best tokens that together have probability p. They are looked for among the first few hundred, and in
    the whole vocabulary, which must be sorted for that, only when those do not have it."""
    total = scores.logsumexp(-1, keepdim=True)
    best, where = scores.topk(min(HEAD, scores.shape[1]))
    if bool(((best - total).exp().sum(-1) < p).any()):
        best, where = scores.sort(dim=-1, descending=True)
    share = (best - total).exp()
    before = share.cumsum(-1) - share  # of all better tokens
    return torch.full_like(scores, -math.inf).scatter(1, where, best.masked_fill(before >= p, -math.inf))


def min_p(scores: Tensor, p: float) -> Tensor:
    """Tokens at least p times as probable as the best one."""
    return scores.masked_fill(scores < scores.amax(-1, keepdim=True) + math.log(p), -math.inf)


def typical(scores: Tensor, mass: float) -> Tensor:
    """The tokens whose surprise is nearest the entropy, until they have probability `mass` together."""
    log_p = scores.log_softmax(-1)
    p = log_p.exp()
    entropy = -(p * log_p).nansum(-1, keepdim=True)
    distance = (log_p + entropy).abs()
    ordered, where = distance.sort(dim=-1)
    reached = (p.gather(1, where).cumsum(-1) < mass).sum(-1, keepdim=True).clamp(max=scores.shape[1] - 1)
    return scores.masked_fill(distance > ordered.gather(1, reached), -math.inf)


# ---------------------------------------------------------------------------------------- sampling


def draw(scores: Tensor, uniform: Tensor) -> Tensor:
    """One token a row (row) by the inverse of its cumulated probabilities, for a number in [0, 1) each: a row's choice
    depends on nothing but its own scores and its own number."""
    cumulated = scores.double().softmax(-1).cumsum(-1)
    cumulated = cumulated / cumulated[:, -1:]  # ends at exactly 1, at the last token that may be chosen
    choice = torch.searchsorted(cumulated, uniform[:, None].contiguous(), right=True).squeeze(1)
    return choice.clamp(max=scores.shape[1] - 1)
