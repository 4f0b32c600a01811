"""Shared by the tests of the loop."""

import pytest

from headway.training import loop


@pytest.fixture
def no_picture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Curves are drawn by the tests that name them, and by no other."""
    if "curves" not in request.node.name:
        monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
