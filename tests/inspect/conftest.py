"""Models to inspect."""

import pytest
from support.subjects import EVERY, SHAPES, Subject, make


@pytest.fixture(params=SHAPES)
def subject(request: pytest.FixtureRequest) -> Subject:
    """Every kind of block."""
    return make(request.param)


@pytest.fixture(params=EVERY)
def headed(request: pytest.FixtureRequest) -> Subject:
    """Every kind of block and head."""
    return make(request.param)


@pytest.fixture
def gpt2() -> Subject:
    """The usual one: it has biases everywhere."""
    return make("gpt2")
