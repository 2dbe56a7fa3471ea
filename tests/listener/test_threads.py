"""Plain functions are called side by side, whatever the others do."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

import pytest

from expirebridge.listener.execution.thread_pool import ThreadPool
from tests.kit.patience import PATIENCE

Threads = Callable[[], list[threading.Thread]]


@pytest.fixture
def ours() -> Iterator[Threads]:
    """The threads that this test started, which have ended when it has.

    Those of a listener that an earlier test closed may still be about to end.
    """
    before = set(threading.enumerate())

    def started() -> list[threading.Thread]:
        others = set(threading.enumerate()) - before
        return [thread for thread in others if thread.name == "expirebridge-handler"]

    yield started
    for thread in started():
        thread.join(PATIENCE)
    assert started() == []


@pytest.fixture
async def three(ours: Threads) -> AsyncIterator[ThreadPool]:
    threads = ThreadPool(3)
    yield threads
    threads.close()


async def test_each_call_gives_back_what_it_returned(three: ThreadPool, ours: Threads) -> None:
    async with asyncio.timeout(PATIENCE):
        returned = await asyncio.gather(*(three.call(partial(abs, -n)) for n in range(500)))
    assert returned == [*range(500)]
    assert 1 <= len(ours()) <= 3


async def test_calls_that_block_hold_up_no_other_while_there_is_a_thread(three: ThreadPool) -> None:
    for _ in range(20):
        together = threading.Barrier(3, timeout=PATIENCE)
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(three.call(together.wait) for _ in range(3)))


async def test_a_call_that_found_no_thread_is_made_when_one_is_free(three: ThreadPool) -> None:
    end = threading.Event()
    blocked = [three.call(lambda: end.wait(PATIENCE)) for _ in range(3)]
    waiting = [three.call(threading.get_ident) for _ in range(5)]
    await asyncio.to_thread(end.wait, 0.05)
    assert not any(future.done() for future in waiting)
    end.set()
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*blocked) == [True] * 3
        assert len(await asyncio.gather(*waiting)) == 5


async def test_a_thread_that_is_in_a_call_when_they_are_closed_ends_after_it(
    three: ThreadPool,
) -> None:
    begun, end = threading.Event(), threading.Event()

    def block() -> bool:
        begun.set()
        return end.wait(PATIENCE)

    future = three.call(block)
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    three.close()
    end.set()
    async with asyncio.timeout(PATIENCE):
        assert await future


async def test_what_comes_back_after_the_loop_has_ended_is_told_to_nobody(ours: Threads) -> None:
    threads, end = ThreadPool(1), threading.Event()

    async def leave_behind() -> None:
        threads.call(lambda: end.wait(PATIENCE))

    await asyncio.to_thread(asyncio.run, leave_behind())
    threads.close()
    end.set()
    for thread in ours():
        await asyncio.to_thread(thread.join, PATIENCE)
    assert ours() == []
