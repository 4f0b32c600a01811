"""The page of a report: scores, scores of each class, confusion matrix, calibration, scores by length, mistakes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np

from headway.baselines import Baseline
from headway.jobs.html_page import headline, matrix, page, picture, section, table, text
from headway.jobs.report import EvaluationFacts, most_confused, thumbnail
from headway.jobs.svg_charts import bars, reliability, scatter
from headway.tasks.counts import by_length
from headway.tasks.evaluated import ClassScores, Evaluated, Judged

SHOWN = 50  # mistakes
BINS = 10  # of confidence
DOTS = 2000  # of a scatter plot


def report_page(evaluated: Evaluated, facts: EvaluationFacts, *, worst: Sequence[Judged]) -> str:
    scores = evaluated.scores()
    main = evaluated.metric if evaluated.metric in scores else next(iter(scores), "")
    title = f"{facts.model}: {facts.task}" if facts.task not in ("", facts.model) else facts.model
    return page(
        f"Evaluation of {title}",
        [
            _about(facts),
            headline([(main, _value(scores[main]))] if main else []),
            section("Scores", _scores(scores, facts.baselines)),
            section("By class", _classes(evaluated.by_class())),
            _confusion(evaluated),
            _calibration(evaluated),
            _numbers(evaluated),
            _lengths(evaluated),
            _mistakes(evaluated, worst),
        ],
    )


def _value(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) >= 100 else f"{value:.4f}"


def _scores(scores: Mapping[str, float], baselines: Sequence[Baseline]) -> str:
    columns = [scores, *(each.scores for each in baselines)]
    rows = [[name, *(_value(each[name]) if name in each else "" for each in columns)] for name in scores]
    return table(["score", "value", *(each.title for each in baselines)], rows)


def _about(facts: EvaluationFacts) -> str:
    what = ", ".join(filter(None, [f"{facts.examples} of {facts.data}" if facts.data else "", facts.search]))
    lines = [what, f"Signature: {facts.signature}" if facts.signature else "", *facts.notes]
    return "".join(f'<p class="why">{text(line)}</p>' for line in lines if line)


def _classes(classes: ClassScores) -> str:
    if not classes:
        return ""
    columns = list(next(iter(classes.values())))
    rows = [
        [name, *(f"{value:,}" if isinstance(value, int) else f"{value:.3f}" for value in found.values())]
        for name, found in classes.items()
    ]
    return table(["", *("F1" if column == "f1" else column for column in columns)], rows)


def _confusion(evaluated: Evaluated) -> str:
    found = evaluated.confusion()
    if found is None:
        return ""
    labels, counts = found
    shown, part = most_confused(labels, counts)
    names = [labels[i] for i in shown]
    drawn = counts[np.ix_(shown, shown)]
    why = "A row is a label, a column what was predicted; shades are shares of the row."
    return section("Confusion matrix", matrix(names, drawn), why=f"{why} Shown are {part}." if part else why)


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> tuple[float, list[tuple[float, float, int]]]:
    """Expected calibration error (Naeini et al. 2015; Guo et al. 2017): the mean distance, over the examples, of
    confidence and share of right predictions in bins of equal width; and (confidence, share, examples) of each bin."""
    which = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins = []
    for number in range(BINS):
        inside = which == number
        if inside.any():
            bins.append((float(confidence[inside].mean()), float(right[inside].mean()), int(inside.sum())))
    error = sum(count * abs(sure - share) for sure, share, count in bins) / max(len(confidence), 1)
    return float(error), bins


def _calibration(evaluated: Evaluated) -> str:
    found = evaluated.confidence()
    if found is None or not len(found[0]):
        return ""
    error, bins = calibration_error(*found)
    sure, share = float(found[0].mean()), float(found[1].mean())
    tends = "too sure of itself" if sure > share else "less sure than it could be"
    verdict = f": {tends}. The command headway calibrate fits a temperature." if round(sure - share, 3) else "."
    why = (
        f"Expected calibration error {error:.4f} ({BINS} bins): the mean distance between the confidence of a "
        f"prediction and the share of such predictions that is right. On average the model is {sure:.1%} sure and "
        f"{share:.1%} right{verdict}"
    )
    rows = [[f"{a:.3f}", f"{b:.3f}", f"{n:,}"] for a, b, n in bins]
    return section(
        "Calibration", reliability(bins, width=1 / BINS) + table(["confidence", "right", "examples"], rows), why=why
    )


def _numbers(evaluated: Evaluated) -> str:
    found = evaluated.numbers()
    if found is None:
        return ""
    pairs = list(zip(*(each.tolist() for each in found), strict=True))
    step = -(-len(pairs) // DOTS)
    part = f"Every {step}th example is drawn." if step > 1 else ""
    return section("Predictions", scatter(pairs[::step], x="true value", y="predicted"), why=part)


def _lengths(evaluated: Evaluated) -> str:
    counts = evaluated.counts()
    if counts is None or not counts.lengths.any():
        return ""
    found = by_length([counts])
    if len(found) < 2:
        return ""
    drawn = bars([(name, value) for name, value, _ in found], x="words of the input", y=evaluated.metric)
    rows = [[name, f"{value:.4f}", f"{examples:,}"] for name, value, examples in found]
    return section("By length of the input", drawn + table(["words", evaluated.metric, "examples"], rows))


def _mistakes(evaluated: Evaluated, worst: Sequence[Judged]) -> str:
    if not evaluated.example_score:
        return ""
    total = len(evaluated.judged())
    if not worst:
        return section("Mistakes", f"<p>None in {total:,} examples.</p>")
    first = f"the first {SHOWN} of " if len(worst) > SHOWN else ""
    why = f"{first}{len(worst):,} of {total:,} examples, the worst first, by {evaluated.example_score}."
    cards = "".join(_card(each, evaluated.example_score) for each in worst[:SHOWN])
    return section("Mistakes", f'<ul class="cards">{cards}</ul>', why=why[0].upper() + why[1:])


def _card(each: Judged, score: str) -> str:
    detail = f", {each.detail}" if each.detail else ""
    top = f'<p class="soft">{text(each.row.where)} · {text(score)} {each.score:.4g}{text(detail)}</p>'
    shown = _thumbnail(each) if "image" in each.row.fields else ""
    parts = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in each.given.items())
    found = each.found or "(nothing)"
    both = f'<dt>wanted</dt><dd class="wanted">{text(each.wanted or "(nothing)")}</dd>'
    return f'<li>{top}{shown}<dl>{parts}{both}<dt>predicted</dt><dd class="found">{text(found)}</dd></dl></li>'


def _thumbnail(each: Judged) -> str:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(thumbnail(each)).save(out, format="PNG")
    return picture(out.getvalue(), about=f"{each.wanted}, predicted {each.found}")
