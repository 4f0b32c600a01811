"""BLEU, chrF and ROUGE by the standard libraries, with the signature that makes them comparable."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from importlib.metadata import version

from headway.errors import DataError


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
    scores = rouge_score(list(found), [list(texts) for texts in references], rouge_keys=kinds, normalizer=rouge_words)
    return {kind: float(scores[f"{kind}_fmeasure"]) for kind in kinds}


def rouge_words(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text.lower())


def recognition(found: Sequence[str], wanted: Sequence[str]) -> dict[str, float]:
    """Word and character error rates: edits over the words (characters) of the references. Of the texts as they are,
    and in lower case without punctuation; `exact` is the share of texts without an error of the latter kind."""
    from torchmetrics.functional.text import char_error_rate, word_error_rate

    if not found:
        return {"wer": 0.0, "cer": 0.0, "wer_normalized": 0.0, "exact": 0.0}
    plain = [[spoken_words(text) for text in texts] for texts in (found, wanted)]
    for name, references in (("wer and cer are", wanted), ("wer_normalized is", plain[1])):
        if not any(text.split() for text in references):
            raise DataError(
                f"{name} not defined: errors are counted over the words of the references, and none of these "
                f"{len(wanted):,} has any (the first is {wanted[0]!r:.80}); give transcripts with words"
            )
    return {
        "wer": float(word_error_rate(list(found), list(wanted))),
        "cer": float(char_error_rate(list(found), list(wanted))),
        "wer_normalized": float(word_error_rate(*plain)),
        "exact": sum(a == b for a, b in zip(*plain, strict=True)) / len(found),
    }


def spoken_words(text: str) -> str:
    """In lower case, with spaces for everything but letters, digits and apostrophes within words."""
    words = re.sub(r"[^\w\s']|_|(?<!\w)'|'(?!\w)", " ", unicodedata.normalize("NFKC", text).lower())
    return " ".join(words.split())


def recognition_signature() -> str:
    return f"torchmetrics {version('torchmetrics')}: word_error_rate, char_error_rate"


def rouge_signature() -> str:
    return f"torchmetrics {version('torchmetrics')}: rouge_score, mean F1, words of letters and digits, no stemming"


def translation_signature() -> str:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    signatures = []
    for metric in (BLEU(), CHRF()):
        name = metric.corpus_score(["a"], [["a"]]).name
        signatures.append(f"{name}|{metric.get_signature()}")
    return "; ".join(signatures)
