"""SIGINT, as the processes that tests start inherit it.

A shell starts its background jobs with SIGINT ignored (`make test &` in a script), and what they
start inherits that: a test would wait for the end of a process that ignores its Ctrl-C.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """In each process that runs tests, and so in what these start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def ignoring() -> Iterator[None]:
    """A process that the block starts has SIGINT ignored, as a background job has."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
