"""TRUST 57: hostile requests to every route, while a second client is answered. `make torture` sends all of them."""

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from serving.attacks import (
    VALUES,
    WHOLE,
    Case,
    Report,
    Target,
    attacked,
    bodies,
    case,
    cases,
    connections,
    ended,
    problems,
    routes,
    target,
)

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
SIZE = 4 * 2**20
UNPROTECTED = """
from headway.serving import fields
fields.check_counts = lambda data, limits: None
fields._stop_at_first_error = lambda schema: None
"""


@pytest.fixture(scope="module")
def folders(language_model: Path, embedder: Path, task_folders: dict[str, Path]) -> list[Path]:
    return [language_model, embedder, *(task_folders[name] for name in ("classify", "classify-image", "transcribe"))]


@pytest.fixture(scope="module")
def server(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target(folders, tmp_path_factory.mktemp("runs")) as found:
        yield found


def test_trust_57_bodies_and_connections(server: Target, folders: list[Path]) -> None:
    """Every route once, and every kind of body once; then the server ends as it was told to."""
    count = len([route for route in routes() if route.path not in ("/health", "/metrics")]) + len(VALUES) + len(WHOLE)
    given = islice(cases([folder.name for folder in folders], random.Random(1), size=SIZE), count)

    def attack(report: Report) -> None:
        bodies(server.port, report, given, seconds=300)
        connections(server.port, report)

    report = ended(server, attacked(server, attack))
    assert report.problems() == [], report.text()
    assert report.statuses.total() == count and report.statuses["400"] > count / 3, report.text()
    assert report.statuses["200"], "nothing was read as it is"


def test_control_57_without_the_limits_a_body_stops_the_server(folders: list[Path], tmp_path: Path) -> None:
    (route,) = (route for route in routes() if route.path == "/v1/completions")
    body = b'{"model":"language_model","prompt":' + VALUES["floats"](2**21) + b"}"
    floats = Case("floats", route.method, route.path, "application/json", body)
    with target([folders[0], folders[2]], tmp_path, code=UNPROTECTED) as server:
        report = attacked(
            server, lambda report: bodies(server.port, report, iter([floats]), seconds=60), rounds=3, seconds=0
        )
    assert report.problems(), (
        report.text()
    )  # on most machines both: an answer takes long, and memory does not come back


def test_control_57_what_the_oracle_reports() -> None:
    quiet = [("health", 0.002, 200), ("labels", 0.005, 200), ("text", 0.005, 200), ("idle", 0.001, 200)] * 8
    assert problems(quiet, quiet) == []
    assert "health took 0.80 s" in problems(quiet, [*quiet, ("health", 0.8, 200)])[0]
    assert problems(quiet, [*quiet, ("health", 0.8, 200), ("idle", 0.4, 200)]) == [], "the machine was busy"
    slow = [(kind, 0.2 if kind == "labels" else seconds, status) for kind, seconds, status in quiet]
    assert "mostly" in problems(quiet, slow)[0] and "status 503" in problems(quiet, [*quiet, ("text", 0.1, 503)])[0]
    assert Report(quiet, quiet, memory=(100e6, 300e6, 130e6), exit=0).problems() == ["memory grew from 100 to 130 MB"]
    left = Report(quiet, quiet, memory=(1, 1, 1), exit=-9, children=[1], faults=["status 500"]).problems()
    assert len(left) == 3


def test_every_route_has_bodies_of_every_kind() -> None:
    """A new route is among them without a line here."""
    rng = random.Random(0)
    every = list(islice(cases(["m"], rng, size=1000), 10**6))
    paths = {(route.method, route.path) for route in routes()}
    assert len(paths) > 35 and len(every) > 30 * len(paths)
    (route,) = (route for route in routes() if route.path == "/v1/chat/completions")
    assert {"messages", "tools", "logit_bias"} < set(route.fields) and set(route.right()) == {"model", "messages"}
    assert len(case(route, "floats", rng, models=["m"], size=80_000).body) >= 10_000
