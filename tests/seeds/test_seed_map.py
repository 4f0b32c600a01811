"""docs/seeds.md names a file for everything the seeds describe, and for every family what was checked."""

import re
from pathlib import Path

from headway.families import MODULES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")


def test_every_named_file_exists() -> None:
    table = PAGE.split("## Where everything lives")[1].split("## What was checked")[0]
    named = set(re.findall(r"`([a-z0-9_]+/[a-z0-9_]+\.py)`", table))
    assert len(named) > 40
    assert not [path for path in named if not (ROOT / "src" / "headway" / path).is_file()]


def test_every_family_has_a_line_of_what_was_checked() -> None:
    table = PAGE.split("## What was checked")[1].split("## Where the papers")[0]
    named = set(re.findall(r"`([\w-]+)`", table))
    assert not MODULES.keys() - named
