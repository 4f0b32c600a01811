"""Tables in memory as the data of runs, the examples of the docstrings, plots and what notebooks show."""

import contextlib
import doctest
import json

import pandas
import pytest

import headway
from headway.errors import ConfigError, DataError, HeadwayError, InputError
from headway.jobs import open_data, saved_plan

SMALL = {"model.width": 16, "model.layers": 1, "model.heads": 2, "vocab": 100, "eval_every": 5, "log_every": 1}
KEPT = SMALL | {"keep_states": True}
ROWS = [{"text": f"what a fine day {n}", "label": "<b>good</b>"} for n in range(20)]
ROWS += [{"text": f"rain again today {n}", "label": "bad"} for n in range(20)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables") / "run"
    return headway.train("classify", pandas.DataFrame(ROWS), valid=ROWS[::10], out=folder, steps=20, settings=KEPT)


def test_a_run_keeps_its_table(trained):
    written = trained.folder / "training" / "data"
    assert [json.loads(line) for line in (written / "train.jsonl").read_text().splitlines()] == ROWS
    data = open_data(saved_plan(trained.folder))
    assert [row.fields for row in data.valid()] == ROWS[::10]
    more = headway.resume(trained.folder, steps=22)  # from the folder alone
    assert more.result.steps == 22
    assert set(headway.evaluate(trained.folder)) == set(headway.evaluate(trained.folder, pandas.DataFrame(ROWS[:4])))


def test_changed_data_is_not_resumed(trained, tmp_path):
    data = trained.folder / "training" / "data" / "train.jsonl"
    before = data.read_text()
    try:
        data.write_text(before.replace("fine day 3", "other day 3"))
        with pytest.raises(HeadwayError, match="data"):
            headway.resume(trained.folder, steps=24)
    finally:
        data.write_text(before)


def test_a_run_that_cannot_start_leaves_nothing(tmp_path):
    with pytest.raises(DataError, match=r"^list:2: text: expected text"):
        headway.train("classify", [ROWS[0], {"text": 3, "label": "x"}], out=tmp_path / "run", steps=1, settings=SMALL)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="reads files"):
        headway.train("classify-image", ROWS, out=tmp_path / "run", steps=1)
    with pytest.raises(InputError, match="cannot read"):
        headway.check("classify", 3)


def test_check_of_a_table_names_its_rows():
    rows = [*ROWS, {"text": "what a fine day 0 " * 90, "label": "bad"}]
    report = headway.check("classify", pandas.DataFrame(rows), valid=ROWS[:3])
    assert report.lengths["text"].where == "DataFrame.loc[40]" and report.overlap == 3
    assert sum(count for _, _, count in report.histograms["text"]) == 41
    shown = report._repr_html_()
    assert "&lt;b&gt;good" in shown and "<b>" not in shown and "DataFrame" in shown


def test_plot_and_notebook_view(trained):
    figure = trained.plot()
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[0] == "training loss" and "held-out accuracy" in titles
    assert len(figure.axes[0].lines[0].get_xdata()) >= 20
    shown = trained._repr_html_()
    assert shown.count("<svg") == len(titles) and "accuracy" in shown and "<script" not in shown
    scores = headway.evaluate(trained.folder, ROWS)
    assert scores == dict(scores) and f"{scores['accuracy']:.4g}" in scores._repr_html_()


def test_examples_of_docstrings(tmp_path):
    report, failed = [], 0
    for name in ("train", "evaluate", "predict", "check", "load", "resume"):  # the first trains what the others use
        found = doctest.DocTestFinder(recurse=False).find(getattr(headway, name), name, globs={"headway": headway})
        assert any(each.examples for each in found), f"headway.{name} has no example"
        with contextlib.chdir(tmp_path):
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            for each in found:
                runner.run(each, out=report.append)
        failed += runner.summarize(verbose=False).failed
    assert failed == 0, "".join(report)
