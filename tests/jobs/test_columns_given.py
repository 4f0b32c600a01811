"""Columns named by the user: options of their own, and `--column FIELD=NAME` for every field."""

from pathlib import Path
from typing import Any

import pytest

from headway.cli.options import READING, columns_by_field, reads_data
from headway.data.columns import OPTIONS, option_for
from headway.data.read import detect_layout
from headway.errors import ConfigError, DataError, InputError
from headway.jobs.run_config import make_plan


def received(**options: Any) -> dict[str, Any]:
    """The columns that a command with the reading options gets for values of these."""
    found: dict[str, Any] = {}

    def command(*, reading: dict[str, Any]) -> None:
        found.update(reading["columns"])

    reads_data(command)(**dict.fromkeys([*READING, "threads"]) | options)
    return found


def test_a_column_of_any_field_is_named() -> None:
    found = received(column=["words=my tokens", "tags=a=b"])
    assert found == {"words": ["my tokens"], "tags": ["a=b"]}
    assert make_plan("tag", "x.csv", columns=found).columns == {"words": "my tokens", "tags": "a=b"}
    assert make_plan("chat", "x.csv", columns=received(column=["response=r"])).columns == {"response": "r"}
    assert received(text=["one"], column=["text=two"]) == {"text": ["one", "two"]}
    assert received() == {}


@pytest.mark.parametrize("given", ["words", "=x", "words="])
def test_a_column_without_a_field_or_a_name_is_refused(given: str) -> None:
    with pytest.raises(InputError, match="give FIELD=NAME, such as words=tokens"):
        columns_by_field([given])


def test_an_unknown_field_is_answered_with_the_one_meant() -> None:
    with pytest.raises(ConfigError, match=r"task tag has no field 'word' .*; did you mean 'words'\?"):
        make_plan("tag", "x.csv", columns={"word": "x"})
    with pytest.raises(ConfigError, match="--column words names 2 columns"):
        make_plan("tag", "x.csv", columns={"words": ["x", "y"]})


def test_the_message_names_an_option_that_exists(tmp_path: Path) -> None:
    assert set(OPTIONS) == READING.keys() - {"column", "encoding"}
    assert (option_for("target"), option_for("words")) == ("--target ", "--column words=")
    (tmp_path / "x.csv").write_text("id,one,two\n1,a b,c d\n")
    for fields, says in (
        (("source", "target"), "source NAME"),
        (("instruction", "response"), "column instruction=NAME"),
    ):
        with pytest.raises(DataError, match=f"the option {says}"):
            detect_layout(tmp_path / "x.csv", fields)
