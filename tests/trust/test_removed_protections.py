"""Negative controls of TRUST 24, 27 and 28: with the protection itself removed (tests/support/unprotected.py) the tests
of it fail. Without the plugin the same tests pass, in this very run of pytest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
TRIED = {
    "24": "trust/test_canaries.py::test_code_that_a_config_names_is_not_imported",
    "27": "preprocess/test_chat_sandbox.py::test_trust_27_a_template_cannot_leave_the_sandbox",
    "28": "trust/test_hostile_models.py::test_special_tokens_in_the_data_are_plain_text",
}
CASES = "auto_map or popen or classify"  # one of each suffices


def test_without_their_protection_the_tests_fail() -> None:
    names = [str(TESTS / name) for name in TRIED.values()]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "support.unprotected", "-p", "no:cacheprovider", *names]
    done = subprocess.run([*command, "-k", CASES], cwd=TESTS.parent, capture_output=True, text=True)
    for item, name in TRIED.items():
        assert re.search(rf"^FAILED tests/{re.escape(name)}\[", done.stdout, re.MULTILINE), (item, done.stdout[-3000:])
    assert "passed" not in done.stdout.splitlines()[-1], done.stdout[-500:]
