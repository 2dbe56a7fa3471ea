"""How long tests wait for what must come: the one deadline of all of them.

It bounds nothing that is tested. A machine may be busy, and a container may have half a core:
what is right comes before, however slow it is. What has not come by then never will, and the
test fails and prints what it knows (tests/kit/last_words.py).

pytest's own timeout, in pyproject.toml, is longer, and ends a test that waits without a deadline.
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 120
"""In seconds."""


def until(found: Callable[[], T | None], awaited: str = "it") -> T:
    """Wait until this returns something true, and return it; fail when patience ends."""
    deadline = time.monotonic() + PATIENCE
    while not (value := found()):
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {awaited}"
        time.sleep(0.01)
    return value
