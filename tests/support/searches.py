"""Shared by the tests of generation: prompts, settings, the reference library's answers, and models to compare with."""

import torch

from headway.generation import GenerationSettings

PROMPTS = [[5, 9, 11], [7], [21, 22, 23, 24, 25, 26], [3, 3]]
SOURCES = [[5, 9, 11, 2], [7, 2], [21, 22, 23, 24, 25, 26, 2], [3, 3, 2]]
GREEDY = GenerationSettings(max_new_tokens=16, eos_ids=(8, 30))
BEAMS = GenerationSettings(max_new_tokens=14, beams=4, n=4, eos_ids=(8, 30))
MODES = {
    "greedy": GenerationSettings(max_new_tokens=10, eos_ids=(8, 30), repetition_penalty=1.3, no_repeat_ngram=3,
                                 presence_penalty=0.5, logprobs=True),
    "beams": GenerationSettings(max_new_tokens=8, beams=3, n=3, eos_ids=(8, 30), no_repeat_ngram=2, logprobs=True,
                                frequency_penalty=0.3),
    "diverse": GenerationSettings(max_new_tokens=8, beams=4, groups=2, diversity_penalty=1.0, n=4, eos_ids=(8, 30)),
    "samples": GenerationSettings(max_new_tokens=10, temperature=1.0, n=2, top_p=0.9, eos_ids=(8, 30), seed=5),
}  # fmt: skip


def reference(pair, prompt: list[int], chosen: GenerationSettings, **more) -> list[list[int]]:
    """The reference library's answers to one prompt, without padding."""
    with torch.no_grad():
        out = pair.reference.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            num_beams=chosen.beams,
            num_return_sequences=chosen.n,
            max_new_tokens=chosen.max_new_tokens,
            min_new_tokens=chosen.min_new_tokens or None,
            length_penalty=chosen.length_penalty,
            early_stopping=chosen.early_stopping,
            repetition_penalty=float(chosen.repetition_penalty),
            no_repeat_ngram_size=chosen.no_repeat_ngram,
            eos_token_id=list(chosen.eos_ids) or None,
            pad_token_id=0,
            bad_words_ids=None,
            forced_eos_token_id=None,
            **more,
        )
    given = 1 if pair.reference.config.is_encoder_decoder else len(prompt)
    rows = out[:, given:].tolist()
    return [cut(row, chosen.eos_ids) for row in rows]


def cut(row: list[int], eos: tuple[int, ...]) -> list[int]:
    end = next((i + 1 for i, token in enumerate(row) if token in eos), len(row))
    return row[:end]


def ids_of(answers) -> list[list[list[int]]]:
    return [[h.ids for h in hypotheses] for hypotheses in answers]


class Recomputed:
    """The same model without keys and values: its cache holds ids, and every step computes each row from its first
    token."""

    class Past:
        can_truncate = True

        def __init__(self, rows):
            self.rows = rows

        @property
        def lengths(self):
            return [len(row) for row in self.rows]

        def __len__(self):
            return len(self.rows)

        def select(self, rows):
            self.rows = [list(self.rows[row]) for row in rows]

        def append_rows(self, other):
            self.rows += other.rows

        def truncate(self, lengths):
            self.rows = [row[:length] for row, length in zip(self.rows, lengths, strict=True)]

    def __init__(self, model):
        self.model = model

    def __getattr__(self, name):
        return getattr(self.model, name)

    def new_cache(self, rows, *, capacity=0):
        return self.Past([[] for _ in range(rows)])

    def step(self, ids, cache, *, lengths=None, every=False):
        out = []
        for past, new, length in zip(cache.rows, ids.tolist(), lengths or [ids.shape[1]] * len(ids), strict=True):
            past += new[:length]
            logits = self.model(torch.tensor([past])).logits[0]
            out.append(logits[-ids.shape[1] :] if every else logits[-1])
        return torch.stack(out)


class Counted:
    """A model that records the shapes of what it is fed."""

    def __init__(self, model):
        self.model = model
        self.shapes: list[tuple[int, int]] = []  # (rows, tokens)

    def __getattr__(self, name):
        return getattr(self.model, name)

    def step(self, ids, cache, **options):
        self.shapes.append(tuple(ids.shape))
        return self.model.step(ids, cache, **options)


def steps_until_idle(session):
    out = []
    while not session.idle:
        out.append(session.step())
    return out
