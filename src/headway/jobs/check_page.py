"""`check --html`: the report of a check as one page without scripts, to read offline or to pass on."""

from __future__ import annotations

from pathlib import Path

from headway.checkpoints import save_text
from headway.data.report import SHOWN, Report, skipped_lines
from headway.jobs.html_page import headline, page, section, table, text
from headway.jobs.suspects import Suspects
from headway.jobs.svg_charts import bars

MOST = 200  # suspects, and skipped rows or files of a kind, on the page


def write_check_page(report: Report, path: Path, *, title: str, suspects: Suspects | None = None) -> None:
    save_text(path, check_page(report, title=title, suspects=suspects))


def check_page(report: Report, *, title: str, suspects: Suspects | None = None) -> str:
    return page(title, [*check_sections(report), _suspects(suspects)])


def check_sections(report: Report) -> list[str]:
    """The parts of the page, each as HTML; empty ones are those the data has nothing for."""
    items = "".join(f"<li>{text(warning)}</li>" for warning in report.warnings)
    skipped = skipped_lines(report.skipped, report.skipped_places, most=MOST)
    return [
        headline(_numbers(report)),
        section("Warnings", f"<ul>{items}</ul>" if items else "", why="What to look at before training."),
        section("Skipped", "".join(f"<p>{text(line)}</p>" for line in skipped), why="What was not read."),
        section("Labels", _labels(report)),
        section("Lengths", _lengths(report), why="In tokens of the model's tokenizer."),
        section("Plan and estimates", table(["", ""], report.extra.items(), kind="texts") if report.extra else ""),
    ]


def _numbers(report: Report) -> list[tuple[str, str]]:
    about = "" if report.exact else "about "
    numbers = [("examples", f"{report.examples:,}"), ("held out", f"{report.held_out:,}")]
    if report.characters[0]:
        numbers = [("characters", f"{report.characters[0]:,}"), ("held out", f"{report.characters[1]:,}")]
    numbers += [("labels", f"{len(report.labels):,}")] if report.labels else []
    counts = {
        "repeat an earlier input": report.duplicates,
        "inputs with different labels": report.contradictions,
        "held-out inputs that are also in training": report.overlap,
    }
    numbers += [(name, f"{about}{count:,}") for name, count in counts.items()]
    return numbers


def _labels(report: Report) -> str:
    if report.numbers is not None:
        numbers = report.numbers
        facts = {"least": numbers.min, "mean": numbers.mean, "standard deviation": numbers.std, "most": numbers.max}
        return table(list(facts), [[f"{value:.4g}" for value in facts.values()]])
    if not report.labels:
        return ""
    total = report.examples if report.several else sum(report.labels.values())
    first = list(report.labels.items())[:SHOWN]
    rows = [[label, f"{count:,}", f"{count / max(total, 1):.1%}"] for label, count in first]
    rest = len(report.labels) - len(first)
    more = f'<p class="soft">and {rest:,} more</p>' if rest else ""
    majority = report.majority
    always = f"Always {majority[0]!r} has accuracy {majority[1]:.1%}." if majority else ""
    return (
        table(["label", "examples", "share"], rows) + more + (f'<p class="soft">{text(always)}</p>' if always else "")
    )


def _lengths(report: Report) -> str:
    if not report.lengths:
        return ""
    rows = [
        [part, *(f"{number:,}" for number in (found.min, found.median, found.p95, found.p99, found.max)), found.where]
        for part, found in report.lengths.items()
    ]
    charts = [
        bars([(_range(low, high), float(count)) for low, high, count in bins], x=f"tokens of {part}", y="examples")
        for part, bins in report.histograms.items()
        if len(bins) > 1
    ]
    return table(["part", "min", "median", "95%", "99%", "max", "longest"], rows) + "".join(charts)


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"≤{high:,}"


def _suspects(suspects: Suspects | None) -> str:
    if suspects is None:
        return ""
    rows = [
        [each.where, f"{each.word}: {each.text}" if each.word else each.text, each.label, each.suggested,
         f"{each.probability:.0%}"]
        for each in suspects.found[:MOST]
    ]  # fmt: skip
    why = (
        f"{len(suspects.found):,} of {suspects.examples:,} labels that a linear model, trained on the rest, disagrees "
        f"with; it agrees with {suspects.agreement:.1%} of all labels. The first {len(rows):,}, most suspect first."
    )
    return section("Suspect labels", table(["where", "text", "label", "suggested", "probability"], rows, kind="texts")
                   if rows else '<p class="soft">none</p>', why=why)  # fmt: skip
