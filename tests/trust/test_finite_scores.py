"""TRUST 51: a score that is not a finite number is an error with its cause, and everything written as JSON is JSON."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from headway import jobs, tasks
from headway.errors import HeadwayError
from headway.jobs.inference import require_finite
from headway.jobs.predictions_file import _jsonl
from headway.printable import finite
from headway.tasks.scores import recognition, rouge, translation

ROWS = [{"text": f"message {n}", "label": "ab"[n % 2]} for n in range(40)]
SMALL: dict[str, Any] = {"settings": {"model.width": 16, "model.layers": 1, "model.heads": 2, "task.vocab": 300}}


@pytest.mark.parametrize("wanted", [["", " "], ["...", "?!"], ["\u3000", "–"]])
def test_error_rates_without_words_are_an_error_with_the_cause(wanted: list[str]) -> None:
    with pytest.raises(HeadwayError, match="not defined: errors are counted over the words of the references"):
        recognition(["a", ""], wanted)


def test_texts_without_words_have_finite_scores_or_an_error() -> None:
    odd = ["", " ", "...", "?", "a", "\u0301", "日本", "\ufeff", "\x00", "-" * 50]
    for one in odd:
        for other in odd:
            for score in (recognition, lambda a, b: translation(a, [b]), lambda a, b: rouge(a, [b])):
                try:
                    found: dict[str, Any] = score([one], [other])
                except HeadwayError:
                    continue
                assert all(map(math.isfinite, found.values())), (one, other, found)


def test_a_training_whose_score_is_not_finite_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks.find("classify"), "quick_evaluate", lambda *_, **__: {"accuracy": math.nan})
    with pytest.raises(HeadwayError, match="accuracy is nan, not a finite number"):
        jobs.train("classify", ROWS, out=tmp_path / "run", steps=1, **SMALL)
    assert (tmp_path / "run" / "model.safetensors").exists() and not (tmp_path / "run" / "scores.json").exists()


def test_control_a_finite_score_is_none() -> None:
    require_finite({"accuracy": 0.0})
    with pytest.raises(HeadwayError, match="loss is inf"):
        require_finite({"accuracy": 1.0, "loss": math.inf})


def test_what_json_does_not_have_is_null(tmp_path: Path) -> None:
    rows = [{"text": "a", "own": math.nan, "list": [1.5, math.inf], "deep": {"x": (-math.inf, {"y": math.nan})}}]
    with _jsonl(tmp_path / "out.jsonl", None) as write:
        write(rows)

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads((tmp_path / "out.jsonl").read_text(), parse_constant=refuse)
    assert (
        found == {"text": "a", "own": None, "list": [1.5, None], "deep": {"x": [None, {"y": None}]}} == finite(rows[0])
    )
