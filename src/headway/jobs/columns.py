"""The columns that a user names for the fields of a task: `--text premise --text hypothesis`, `--column words=tokens`,
or in Python `columns={"text": ["premise", "hypothesis"]}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.data.columns import ALTERNATIVES, listing, option_for
from headway.errors import ConfigError, did_you_mean
from headway.tasks.task import Task

Columns = Mapping[str, str | Sequence[str]]


def with_named(columns: Columns | None, **named: str | Sequence[str] | None) -> Columns:
    """`columns`, and those of the fields that have an argument of their own: `text="body"` as `--text body`."""
    for name, column in named.items():
        if column and name in (columns or {}):
            raise ConfigError(f"{name}: given twice, by {name}= and in columns=")
    return {**(columns or {}), **{name: column for name, column in named.items() if column}}


def columns_for_training(given: Columns | None, kind: type[Task]) -> dict[str, str]:
    """field -> column, for a task that is going to be trained."""
    return _by_field(given, (*kind.fields, *kind.optional_fields), texts=kind.text_fields, task=kind.name)


def columns_for(given: Columns | None, task: Task, *, also: Sequence[str] = ()) -> dict[str, str]:
    """field -> column, for a trained task; `also` are further fields that may be named."""
    fields = (*task.row_fields, *task.optional_row_fields, *also)
    return _by_field(given, fields, texts=[name for name in task.text_fields if name in fields], task=task.name)


def _by_field(given: Columns | None, fields: Sequence[str], *, texts: Sequence[str], task: str) -> dict[str, str]:
    """Several columns of `text` are those of the fields `texts`, in order."""
    out: dict[str, str] = {}
    for name, named in (given or {}).items():
        columns = [named] if isinstance(named, str) else list(named)
        option = option_for(name).rstrip(" =")
        wanted = texts if name == "text" and len(columns) > 1 else (name,)
        if len(columns) > max(len(wanted), 1):
            most = f"takes {len(wanted)} texts" if len(wanted) > 1 else f"reads one column for {name}"
            raise ConfigError(f"{option} names {len(columns)} columns ({listing(columns)}), but task {task} {most}")
        if len(set(columns)) < len(columns):
            raise ConfigError(f"{option} names the column {listing(columns[:1])} twice")
        if name == "text" and name not in fields and len(texts) > len(columns):
            raise ConfigError(f"task {task} reads two texts: name both columns, with --text twice")
        out |= dict(zip(wanted, columns, strict=True))
    known = {*fields, *(other for name in fields for each in ALTERNATIVES.get(name, ()) for other in each.fields)}
    for name in out:
        if name not in known:
            hint = did_you_mean(name, known, otherwise=f"its fields: {listing(fields)}")
            raise ConfigError(f"task {task} has no field {name!r} to name a column for; {hint}")
    return out
