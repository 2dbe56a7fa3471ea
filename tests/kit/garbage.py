"""Python's collector of garbage leaves alone what tests are made of.

Modules and tests are there until the run ends. To look through them again and again for what is no
longer used took a quarter of collecting the tests, and some of each test after that.
"""

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
