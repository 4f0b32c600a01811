"""BLEU, chrF and ROUGE by the standard libraries, with the signature that makes them comparable."""

from __future__ import annotations

import re
from collections.abc import Sequence


def translation(found: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """sacreBLEU and chrF of the corpus."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if not found:
        return {"bleu": 0.0, "chrf": 0.0}
    most = max(len(refs) for refs in references)
    streams = [[refs[min(i, len(refs) - 1)] for refs in references] for i in range(most)]
    return {
        "bleu": BLEU().corpus_score(list(found), streams).score,
        "chrf": CHRF().corpus_score(list(found), streams).score,
    }


def rouge(found: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """ROUGE-1, -2 and -L: mean F1 from 0 to 1, without stemming, the best over a text's references. Words are runs
    of letters and digits of any script; on English text that is Lin's rule."""
    from torchmetrics.functional.text import rouge_score

    kinds = ("rouge1", "rouge2", "rougeL")
    if not found:
        return dict.fromkeys(kinds, 0.0)
    scores = rouge_score(list(found), [list(texts) for texts in references], rouge_keys=kinds, normalizer=_rouge_words)
    return {kind: float(scores[f"{kind}_fmeasure"]) for kind in kinds}


def _rouge_words(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text.lower())


def translation_signature() -> str:
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU()
    bleu.corpus_score(["a"], [["a"]])
    return str(bleu.get_signature())
