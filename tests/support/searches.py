"""What the tests of search share: prompts, settings, and the reference library's answers."""

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
    """The same model without a memory: it keeps the ids and reads them all again at every step."""

    class Past:
        def __init__(self):
            self.ids = self.mask = None

        def select(self, rows):
            self.ids, self.mask = self.ids[rows], self.mask[rows]

    def __init__(self, model):
        self.model, self.config, self.training = model, model.config, False
        self.parameters = model.parameters

    def new_cache(self, *, capacity=0):
        return self.Past()

    def step(self, ids, cache, *, mask=None):
        mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        cache.ids = ids if cache.ids is None else torch.cat([cache.ids, ids], 1)
        cache.mask = mask if cache.mask is None else torch.cat([cache.mask, mask], 1)
        return self.model(cache.ids, padding_mask=cache.mask).logits[:, -1]
