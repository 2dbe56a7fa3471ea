"""How long the machine runs."""

import os

import pytest


@pytest.fixture
def examples() -> int:
    """Sequences of operations in one round; `make machine` sets more."""
    return int(os.environ.get("EXPIREBRIDGE_EXAMPLES", "150"))
