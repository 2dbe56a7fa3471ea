"""Servers and other programs whose clock is wrong, by Debian's package faketime."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.servers import FOLDER

LIBRARIES = [str(found) for found in sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))]

needs_faketime = pytest.mark.skipif(not LIBRARIES, reason="needs Debian's package faketime")


def need_servers_clock(binary: Path) -> None:
    """Skip a test if this server's clock cannot be made wrong.

    Those of `.servers` bring a loader, and a libc, of their own.
    """
    if FOLDER in binary.parents:
        pytest.skip(f"{binary} does not start with faketime")


@contextmanager
def started_with(**settings: str) -> Iterator[None]:
    """Servers that start in this block have the clock that these settings of faketime name."""
    with pytest.MonkeyPatch.context() as patch:
        # Redis takes its memory from jemalloc, which asks for the time before faketime is ready,
        # and so never starts. Here it takes it from libc, as the embedded server does.
        patch.setenv("LD_PRELOAD", f"{LIBRARIES[0]} libc.so.6")
        patch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        for name, value in settings.items():
            patch.setenv(name, value)
        yield
