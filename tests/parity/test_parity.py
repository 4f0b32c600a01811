"""Every family against the reference library: logits, layers, padding, cache, gradients, files, and a mutation."""

from pathlib import Path
from typing import Any

import pytest
from parity.cases import CASES
from support.parity import Case, Pair, make_pair
from support.parity_checks import CHECKS, LIMIT

pytest.importorskip("transformers", reason="the reference library is a test-only dependency")

QUICK = "logits"  # of a class's further configs `make test` runs this check alone; `make test-slow` runs the others


def grid() -> list[Any]:
    """Every case with every check. A case after the first of its class is slow, but for one check."""
    seen: set[str] = set()
    out = []
    for case in CASES:
        for check in CHECKS:
            slow = case.model in seen and check != QUICK
            out.append(pytest.param(case, check, marks=[pytest.mark.slow] if slow else [], id=f"{case}-{check}"))
        seen.add(case.model)
    return out


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case: Case = request.param
    folder: Path = tmp_path_factory.mktemp("reference")
    return make_pair(case, folder)


@pytest.mark.parametrize(("pair", "check"), grid(), indirect=["pair"])
def test_parity(pair: Pair, check: str) -> None:
    if check in pair.case.not_defined:
        pytest.skip(f"{pair.case}: {check} does not hold for this architecture, in any library")
    difference = CHECKS[check](pair)
    assert difference <= LIMIT, f"{check}: largest difference {difference:.2e}"
