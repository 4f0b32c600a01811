"""`summarize`: a summary of a text, written by a model that is trained as in `translate`, or chosen from its sentences
(`extract_summary.py`). Scored by ROUGE (Lin 2004) beside the lead baseline, the first sentence of the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from headway.baselines import Baseline
from headway.data.builtin.pool import Builtin
from headway.data.builtin.reports import REPORTS
from headway.data.dataset import RowReader
from headway.data.facts import Facts
from headway.data.read import Row
from headway.kinds.predictions import PredictionKind, TextPrediction
from headway.preprocess.sentences import split_sentences
from headway.tasks import scores
from headway.tasks.evaluated import Evaluated
from headway.tasks.task import Choice, Task
from headway.tasks.text_predictions import MeanTexts
from headway.tasks.translate import Translate


@dataclass
class Summarize(Translate):
    name: ClassVar[str] = "summarize"
    builtin: ClassVar[Builtin] = REPORTS
    metric: ClassVar[str] = "rouge1"
    two_ways: ClassVar[bool] = False
    prediction_kind: ClassVar[PredictionKind] = TextPrediction()

    source_limit: int = 512
    target_limit: int = 128
    beams: int = 4
    no_repeat_ngram: int = 3  # no trigram twice in a summary
    method: Literal["write", "extract"] = "write"  # extract: sentences of the text; chosen for few examples

    @classmethod
    def variant(cls, options: Mapping[str, Any]) -> type[Task]:
        if options.get("method") != "extract":
            return cls
        from headway.tasks.extract_summary import ExtractSummary

        return ExtractSummary

    @classmethod
    def choose_settings(cls, facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
        from headway.tasks.extract_summary import choose_method

        choice = choose_method(facts, recipe=recipe, given=given)
        extracts = "extract" in (given.get("task.method"), choice.settings.get("task.method"))
        return choice if extracts else super().choose_settings(facts, recipe=recipe, given=given)

    def generation_options(self) -> dict[str, Any]:
        return {**super().generation_options(), "no_repeat_ngram": self.no_repeat_ngram}

    def text_scores(self, found: list[str], rows: list[Row]) -> dict[str, float]:
        return summary_scores(found, rows)

    def classic_baseline(self, train: RowReader, rows: Sequence[Row]) -> Baseline | None:
        return lead_baseline(rows)

    def signature(self) -> str:
        return scores.rouge_signature()

    def evaluated(
        self, scores: dict[str, float], rows: list[Row], found: list[str], references: list[list[str]]
    ) -> Evaluated:
        return MeanTexts(scores, rows, found, references, score_of=rouge1)

    def to_dict(self) -> dict[str, Any]:
        """Without the method that earlier versions always had: the examples of a run are prepared for its options."""
        return {name: value for name, value in super().to_dict().items() if name != "method"}


def summary_scores(found: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
    """ROUGE of summaries, and of the first sentences."""
    lead = lead_baseline(rows).scores
    return {**scores.rouge(found, references(rows)), **{f"lead_{name}": value for name, value in lead.items()}}


def evaluated_summaries(found: list[str], rows: list[Row], *, loss: float) -> Evaluated:
    exact = sum(text in wanted for text, wanted in zip(found, references(rows), strict=True)) / len(rows)
    values = {"loss": loss, "exact": exact, **summary_scores(found, rows)}
    return MeanTexts(values, rows, found, references(rows), score_of=rouge1)


def lead_baseline(rows: Sequence[Row]) -> Baseline:
    lead = scores.rouge([first_sentence(row.fields["source"]) for row in rows], references(rows))
    return Baseline("the first sentence of the text (lead-1)", lead)


def rouge1(found: str, references: list[str]) -> float:
    return scores.rouge([found], [references])["rouge1"]


def references(rows: Sequence[Row]) -> list[list[str]]:
    return [row.fields.get("targets") or [row.fields["target"]] for row in rows]


def first_sentence(text: str) -> str:
    return next(iter(split_sentences(text)), "")
