"""For how long a thread that computes keeps Python's lock, by how many compute."""

import asyncio
import sys
import threading
from collections.abc import Iterator

import pytest

from expirebridge.listener.execution import thread_pool
from expirebridge.listener.execution.thread_pool import (
    LONGEST,
    PER_THREAD,
    SHORTEST,
    ThreadPool,
    interval_for,
)
from tests.kit.patience import PATIENCE


@pytest.mark.parametrize(
    ("parts", "interval"),
    [
        ([], SHORTEST),
        ([1.0], SHORTEST),
        ([0.25] * 4, SHORTEST),
        ([0.05] * 20, 0.001),
        ([0.0125] * 80, 0.004),
        ([0.002] * 500, LONGEST),
        # One that computes beside many that wait, and many that hardly do anything.
        ([1.0] + [0.0001] * 99, SHORTEST),
        ([0.004] * 100, SHORTEST),
    ],
)
def test_the_interval_grows_with_the_threads_that_compute(
    parts: list[float], interval: float
) -> None:
    assert interval_for(parts) == pytest.approx(interval)


@pytest.fixture
def interval_before() -> Iterator[float]:
    """Python's interval, which is set again afterwards."""
    interval = sys.getswitchinterval()
    yield interval
    sys.setswitchinterval(interval)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no clocks of threads")
@pytest.mark.usefixtures("interval_before")
def test_threads_that_compute_get_longer_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[float]()
    monkeypatch.setattr(sys, "setswitchinterval", seen.append)
    # However little of the processor there is for them.
    monkeypatch.setattr(thread_pool, "_CONTENDED", 0.0)
    ending = threading.Event()

    def compute() -> None:
        while not ending.is_set() and not any(interval > SHORTEST for interval in seen):
            sum(range(1000))

    async def main() -> None:
        threads = ThreadPool(50)
        threads.switching.take_charge()
        waits = [threads.call(ending.wait) for _ in range(20)]
        computes = [threads.call(compute) for _ in range(20)]
        await asyncio.wait_for(asyncio.gather(*computes), PATIENCE)
        ending.set()
        await asyncio.gather(*waits)
        threads.close()

    try:
        asyncio.run(main())
    finally:
        ending.set()

    # Those that wait do not count.
    assert SHORTEST < max(seen) < 40 * PER_THREAD


def test_a_program_of_the_users_own_keeps_its_interval(interval_before: float) -> None:
    async def main() -> None:
        threads = ThreadPool(1)
        await threads.call(lambda: None)
        threads.close()

    asyncio.run(main())
    assert sys.getswitchinterval() == interval_before
