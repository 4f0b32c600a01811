"""Room: tasks. Scores by the field's own libraries, with the signature that makes them comparable."""

from __future__ import annotations

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


def translation_signature() -> str:
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU()
    bleu.corpus_score(["a"], [["a"]])
    return str(bleu.get_signature())
