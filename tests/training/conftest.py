"""Shared by the tests of the loop."""

import pytest

from headway.training import loop
from headway.training.log import draw_curves


@pytest.fixture
def no_picture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Curves are drawn by the tests that name them, and by no other."""
    drawing = draw_curves if "curves" in request.node.name else lambda *_: None
    monkeypatch.setattr(loop, "draw_curves", drawing)
