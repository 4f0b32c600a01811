"""Files of a run's `training` folder, for those who only look at it; without torch."""

from __future__ import annotations

import json
from typing import Any

METRICS = "metrics.jsonl"  # the log
LOCK = "lock"  # while a process trains there; a process that is killed leaves it behind

Entry = dict[str, Any]


def parse_entry(line: bytes) -> Entry | None:
    """An entry of the log; None if the line is none."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None
