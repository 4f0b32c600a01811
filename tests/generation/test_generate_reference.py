"""The reference library's ids and scores, on every family that generates."""

from dataclasses import replace

import pytest
import torch
from support.searches import BEAMS, GREEDY, PROMPTS, SOURCES, ids_of, reference
from support.writers import ENCODER_DECODERS

from headway.generation import GenerationSettings, generate


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize(
    "chosen",
    [
        GREEDY,
        replace(GREEDY, min_new_tokens=6),
        replace(GREEDY, repetition_penalty=1.7),
        replace(GREEDY, no_repeat_ngram=2),
        replace(GREEDY, repetition_penalty=1.2, no_repeat_ngram=3, min_new_tokens=4),
        BEAMS,
        replace(BEAMS, n=1, beams=2),
        replace(BEAMS, length_penalty=0.0),
        replace(BEAMS, length_penalty=2.5),
        replace(BEAMS, length_penalty=-1.0),
        replace(BEAMS, early_stopping=True),
        replace(BEAMS, early_stopping="never", length_penalty=1.5),
        replace(BEAMS, early_stopping="never", length_penalty=-0.5),
        replace(BEAMS, min_new_tokens=5, no_repeat_ngram=2, repetition_penalty=1.3),
        replace(BEAMS, eos_ids=()),
        replace(BEAMS, eos_ids=tuple(range(5, 30)), n=3),
    ],
    ids=lambda chosen: ",".join(f"{k}={v}" for k, v in vars(chosen).items() if v != getattr(GenerationSettings(), k)),
)
def test_same_ids_as_the_reference_in_a_ragged_batch(request, family, chosen):
    pair = request.getfixturevalue(family)
    ours = ids_of(generate(pair.model, PROMPTS, chosen))
    assert ours == [reference(pair, prompt, chosen) for prompt in PROMPTS]


@pytest.mark.parametrize("family", ["mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("chosen", [GREEDY, BEAMS], ids=["greedy", "beams"])
def test_the_other_decoders_generate_the_references_ids(pair_of, family, chosen):
    pair = pair_of(family)
    ours = ids_of(generate(pair.model, PROMPTS, chosen))
    assert ours == [reference(pair, prompt, chosen) for prompt in PROMPTS]


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_the_comparison_sees_both_ways_to_end(request, family):
    """Control: answers of several lengths, ended by a token and by length, and beams that differ from greedy."""
    model = request.getfixturevalue(family).model
    beams = [h for answer in generate(model, PROMPTS, BEAMS) for h in answer]
    greedy = [h for answer in generate(model, PROMPTS, GREEDY) for h in answer]
    assert {h.finished_by for h in beams} == {"eos", "length"}
    assert len({len(h.ids) for h in beams}) > 2
    assert len({tuple(h.ids) for h in greedy}) > 2
    best = generate(model, PROMPTS, replace(BEAMS, n=1))
    assert any(a[0].ids[:4] != h.ids[:4] for a, h in zip(best, greedy, strict=True))


def test_beam_scores_are_the_references(llama):
    with torch.no_grad():
        out = llama.reference.generate(
            torch.tensor([PROMPTS[0]]), attention_mask=torch.ones(1, 3, dtype=torch.long), do_sample=False, num_beams=4,
            num_return_sequences=4, max_new_tokens=14, length_penalty=1.5, eos_token_id=[8, 30], pad_token_id=0,
            return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
    ours = generate(llama.model, PROMPTS, replace(BEAMS, length_penalty=1.5))[0]
    assert [h.score for h in ours] == pytest.approx(out.sequences_scores.tolist(), abs=1e-5)


@pytest.mark.parametrize("family", ENCODER_DECODERS)
@pytest.mark.parametrize(
    "chosen",
    [
        GREEDY,
        replace(GREEDY, min_new_tokens=6, repetition_penalty=1.5),
        BEAMS,
        replace(BEAMS, length_penalty=0.6, early_stopping=True),
        replace(BEAMS, no_repeat_ngram=2, early_stopping="never"),
    ],
    ids=["greedy", "steered greedy", "beams", "early beams", "steered beams"],
)
def test_encoder_decoders_generate_the_references_ids(pair_of, family, chosen):
    pair = pair_of(family)
    start = pair.model.config.start_id
    ours = ids_of(generate(pair.model, [[start]] * len(SOURCES), chosen, sources=SOURCES))
    theirs = [reference(pair, source, chosen, decoder_start_token_id=start) for source in SOURCES]
    assert ours == theirs
    assert len({str(answer) for answer in ours}) > 1, "control: the source matters"
