"""The page of a comparison: a table, pictures with one sentence each, and alignments, in one file without a network."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import cycle
from typing import TYPE_CHECKING, Any

from headway.jobs.html_page import page, picture, section, table, text
from headway.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")  # safe for colour blindness

WHY = {
    "Learning by time": "Every model has the same time, so one whose steps are quicker makes more updates; the "
    "table has their number.",
    "Learning by predictions": "The same curves by the number of tokens or labels predicted: what each model learns "
    "from an example, whatever the example costs.",
    "Time against length": "A recurrent network takes one step after the other; attention compares all pairs, but "
    "all at once.",
    "Memory against length": "What training keeps for the backward pass. Fused attention keeps no matrix of scores, so "
    "its memory grows with the length and not with its square.",
    "How far gradients reach": "Through a recurrence the gradient passes every step back and may vanish on the way; "
    "gates are made to slow this down, and attention reaches every token in one step.",
    "Score against length": "Without attention the whole source must fit into one vector, whatever its length.",
}


def comparison_page(report: dict[str, Any]) -> str:
    models = {name: report["models"][name] for name in report["order"]}
    pictures = {
        "Learning by time": _lines(models, _curves(0), x="seconds", y="training loss"),
        "Learning by predictions": _lines(models, _curves(1), x="predictions", y="training loss"),
        "Time against length": _lines(models, _cost("ms"), x="tokens", y="ms for one text", log="xy"),
        "Memory against length": _lines(models, _cost("mib"), x="tokens", y="MiB", log="xy"),
    }
    if any(model["gradient"] for model in models.values()):
        source = report["task"] in ("translate", "summarize")  # a decoder's first state is that of the first token
        pictures["How far gradients reach"] = _lines(
            models,
            _gradient,
            x="tokens to the end of the source" if source else "distance in tokens",
            y="gradient, relative to the largest",
            log="y",
        )
    if any(model["by_length"] for model in models.values()):
        pictures["Score against length"] = _lines(models, _by_length, x="words of the input", y=report["score"])
    sections = [f"<p>{text(report['verdict'])}</p>", _scores(report), _as_learned(report)]
    sections += [section(title, drawn, why=WHY[title]) for title, drawn in pictures.items()]
    sections += [_alignment(name, model["alignment"]) for name, model in models.items() if model.get("alignment")]
    return page(f"headway compare {report['task']}", sections)


Points = tuple[list[Any], list[float]]


def _curves(column: int) -> Callable[[dict[str, Any]], list[Points]]:
    return lambda model: [
        ([point[column] for point in run["curve"]], [point[2] for point in run["curve"]]) for run in model["runs"]
    ]


def _cost(key: str) -> Callable[[dict[str, Any]], list[Points]]:
    return lambda model: [([point["length"] for point in model["cost"]], [point[key] for point in model["cost"]])]


def _gradient(model: dict[str, Any]) -> list[Points]:
    values = [max(value, 1e-12) for value in model["gradient"]]
    return [(list(range(len(values))), values)]


def _by_length(model: dict[str, Any]) -> list[Points]:
    return [([each[0] for each in model["by_length"]], [each[1] for each in model["by_length"]])]


def _lines(
    models: dict[str, dict[str, Any]],
    points: Callable[[dict[str, Any]], list[Points]],
    *,
    x: str,
    y: str,
    log: str = "",
) -> str:
    """A picture with the lines of every model in its colour."""
    ends = ", ".join(
        f"{name} {found[0][1][-1]:.3g} at {_place(found[0][0][-1])}"
        for name, model in models.items()
        if (found := [each for each in points(model) if each[0]])
    )

    def draw(axes: Axes) -> None:
        for (name, model), colour in zip(models.items(), cycle(COLOURS), strict=False):
            for number, (xs, ys) in enumerate(each for each in points(model) if each[0]):
                mark = "o-" if len(xs) < 10 else "-"
                axes.plot(xs, ys, mark, color=colour, label=None if number else name, alpha=0.85)
        if not axes.has_data():  # a model that reads only short texts has no costs of longer ones
            return
        if "x" in log:
            axes.set_xscale("log", base=2)
        if "y" in log:
            axes.set_yscale("log")
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.legend()

    return _picture(draw, alt=f"{y} against {x}, a line a model. Last values: {ends}." if ends else f"{y}: no values")


def _place(x: Any) -> str:
    """A number, or the name of a range."""
    return f"{x:,.4g}" if isinstance(x, int | float) else str(x)


def _scores(report: dict[str, Any]) -> str:
    head = (
        "model",
        report["score"],
        "95% interval",
        "parameters",
        "steps",
        "predictions/s",
        "generated tokens/s",
        "memory",
    )
    rows = []
    for name in report["order"]:
        model = report["models"][name]
        first = model["runs"][0]
        rows.append(
            (
                name,
                f"{model['score']:.4g}",
                f"{model['low']:.4g} – {model['high']:.4g}",
                f"{model['parameters']:,}",
                f"{first['steps']:,}",
                "–" if first["speed"] is None else f"{first['speed']:,.0f}",
                f"{model['speed']['tokens']:,.0f}" if "tokens" in model["speed"] else "–",
                "–" if first["memory"] is None else f"{first['memory'] / 2**20:,.0f} MiB",
            )
        )
    seeds = len(next(iter(report["models"].values()))["runs"])
    why = (
        f"{report['examples']:,} held-out examples; {60 * report['minutes']:.0f} s of training and {seeds} "
        f"seed{'s' * (seeds > 1)} for each model, about the same number of parameters, one tokenizer. "
        "Intervals: paired bootstrap over examples and seeds."
    )
    return section("Scores", table(head, rows), why=why)


def _as_learned(report: dict[str, Any]) -> str:
    """One held-out example through every model as it learned."""
    rows = [
        (name, f"{seen['seconds']:.0f} s", f"{seen['step']:,}", seen["text"])
        for name in report["order"]
        for seen in report["models"][name].get("seen", [])
    ]
    example = f"{report['sample']} → {report['reference']}" if report["reference"] else report["sample"]
    why = f"The same held-out example at several moments of the training: {example}"
    return section("As it learned", table(("model", "after", "steps", "output"), rows, kind="texts"), why=why)


def _alignment(name: str, found: dict[str, Any]) -> str:
    def draw(axes: Axes) -> None:
        axes.imshow(found["weights"], cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
        axes.set_xticks(range(len(found["source"])), [printable(token) for token in found["source"]], rotation=60)
        axes.set_yticks(range(len(found["target"])), [printable(token) for token in found["target"]])

    why = "Where each token of the reference looks in the source (last layer, mean of the heads)."
    return section(f"Alignment of {name}", _picture(draw, alt=alignment_text(name, found)), why=why)


def alignment_text(name: str, found: dict[str, Any]) -> str:
    """For each token of the reference, the token of the source that it looks at most."""
    most = [max(range(len(row)), key=row.__getitem__) for row in found["weights"]]
    pairs = ", ".join(
        f"{printable(token)} ← {printable(found['source'][i])}" for token, i in zip(found["target"], most, strict=True)
    )
    return f"Attention of {name}, the largest weight of each row: {pairs}."


def _picture(draw: Callable[[Axes], None], *, alt: str) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    draw(figure.subplots())
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110)
    return picture(out.getvalue(), about=alt)
