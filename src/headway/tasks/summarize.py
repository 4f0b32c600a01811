"""`summarize`: a summary of a text. Trained as `translate`; scored by ROUGE (Lin 2004) beside the lead baseline, the
first sentence of the text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headway.baselines import Baseline
from headway.data.builtin.pool import Builtin
from headway.data.builtin.reports import REPORTS
from headway.data.dataset import RowReader
from headway.data.read import Row
from headway.tasks import scores
from headway.tasks.evaluated import Evaluated
from headway.tasks.text_predictions import MeanTexts
from headway.tasks.translate import Translate


@dataclass
class Summarize(Translate):
    name: ClassVar[str] = "summarize"
    builtin: ClassVar[Builtin] = REPORTS
    metric: ClassVar[str] = "rouge1"

    source_limit: int = 512
    target_limit: int = 128
    beams: int = 4
    no_repeat_ngram: int = 3  # no trigram twice in a summary

    def generation_options(self) -> dict[str, Any]:
        return {**super().generation_options(), "no_repeat_ngram": self.no_repeat_ngram}

    def text_scores(self, found: list[str], rows: list[Row]) -> dict[str, float]:
        references = _references(rows)
        lead = scores.rouge([first_sentence(row.fields["source"]) for row in rows], references)
        return {**scores.rouge(found, references), **{f"lead_{name}": value for name, value in lead.items()}}

    def classic_baseline(self, train: RowReader, rows: Sequence[Row]) -> Baseline | None:
        lead = scores.rouge([first_sentence(row.fields["source"]) for row in rows], _references(rows))
        return Baseline("the first sentence of the text (lead-1)", lead)

    def signature(self) -> str:
        return scores.rouge_signature()

    def evaluated(
        self, scores: dict[str, float], rows: list[Row], found: list[str], references: list[list[str]]
    ) -> Evaluated:
        return MeanTexts(scores, rows, found, references, score_of=rouge1)


def rouge1(found: str, references: list[str]) -> float:
    return scores.rouge([found], [references])["rouge1"]


def _references(rows: Sequence[Row]) -> list[list[str]]:
    return [row.fields.get("targets") or [row.fields["target"]] for row in rows]


def first_sentence(text: str) -> str:
    """Up to the first mark that ends a sentence, or the end of the first line."""
    line = text.strip().partition("\n")[0]
    found = re.match(r".*?[.!?…](?=\s|$)|.*?[。！？]", line)
    return found[0] if found else line
