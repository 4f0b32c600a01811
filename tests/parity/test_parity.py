"""Every family against the reference library: logits, layers, padding, cache, gradients, files, and a mutation."""

from pathlib import Path

import pytest
from parity.cases import CASES
from support.parity import CHECKS, LIMIT, Case, Pair, make_pair

pytest.importorskip("transformers", reason="the reference library is a test-only dependency")


@pytest.fixture(scope="module", params=CASES, ids=str)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case: Case = request.param
    folder: Path = tmp_path_factory.mktemp("reference")
    return make_pair(case, folder)


@pytest.mark.parametrize("check", CHECKS)
def test_parity(pair: Pair, check: str) -> None:
    if check in pair.case.not_defined:
        pytest.skip(f"{pair.case}: {check} does not hold for this architecture, in any library")
    difference = CHECKS[check](pair)
    assert difference <= LIMIT, f"{check}: largest difference {difference:.2e}"
