"""Deadlines are called back once their limit is reached, unless they are dropped before."""

import asyncio
from contextlib import ExitStack
from itertools import pairwise

from expirebridge.listener.execution.deadlines import Deadlines
from tests.kit.patience import PATIENCE

HOUR = 3600.0


async def test_each_is_called_back_at_its_own_limit_in_order() -> None:
    deadlines, called = Deadlines(), asyncio.Queue[str]()
    loop = asyncio.get_running_loop()
    began = loop.time()
    deadlines.set(HOUR, lambda: called.put_nowait("an hour"))
    deadlines.set(0.5, lambda: called.put_nowait("late"))
    deadlines.set(0.02, lambda: called.put_nowait("first"))
    deadlines.set(0.02, lambda: called.put_nowait("second"))
    async with asyncio.timeout(PATIENCE):
        assert [await called.get() for _ in range(3)] == ["first", "second", "late"]
    assert loop.time() - began >= 0.5
    assert called.empty()


async def test_what_began_later_with_the_same_limit_has_as_long() -> None:
    deadlines, called = Deadlines(), asyncio.Queue[float]()
    loop = asyncio.get_running_loop()
    deadlines.set(0.05, lambda: called.put_nowait(loop.time()))
    await asyncio.sleep(0.03)
    began = loop.time()
    deadlines.set(0.05, lambda: called.put_nowait(loop.time()))
    async with asyncio.timeout(PATIENCE):
        await called.get()
        assert await called.get() - began >= 0.05


async def test_what_is_dropped_is_not_called_back() -> None:
    deadlines, called = Deadlines(), asyncio.Queue[str]()
    with deadlines.set(0.01, lambda: called.put_nowait("dropped by its block")):
        pass
    deadline = deadlines.set(0.01, lambda: called.put_nowait("dropped"))
    deadline.drop()
    deadline.drop()
    deadlines.set(0.01, lambda: called.put_nowait("kept"))
    async with asyncio.timeout(PATIENCE):
        assert await called.get() == "kept"
    assert called.empty()


async def test_one_that_drops_another_as_it_is_called_back() -> None:
    deadlines, called = Deadlines(), asyncio.Queue[str]()
    with ExitStack() as others:

        def close() -> None:
            others.close()
            called.put_nowait("first")

        deadlines.set(0.01, close)
        others.enter_context(deadlines.set(0.01, lambda: called.put_nowait("second")))
        deadlines.set(0.01, lambda: called.put_nowait("third"))
        async with asyncio.timeout(PATIENCE):
            assert [await called.get() for _ in range(2)] == ["first", "third"]


async def test_a_limit_can_be_used_again_when_nothing_waits_for_it() -> None:
    deadlines, called = Deadlines(), asyncio.Queue[str]()
    async with asyncio.timeout(PATIENCE):
        for word in ("once", "again"):
            deadlines.set(0.001, lambda word=word: called.put_nowait(word))  # type: ignore[misc]
            assert await called.get() == word
            await asyncio.sleep(0.005)


async def test_what_is_put_off_is_called_back_again() -> None:
    deadlines, called = Deadlines(), asyncio.Queue[float]()
    answers = iter([0.02, 0.02, 0.01, None])
    loop = asyncio.get_running_loop()

    def look() -> float | None:
        called.put_nowait(loop.time())
        return next(answers)

    deadlines.set(0.02, look)
    async with asyncio.timeout(PATIENCE):
        times = [await called.get() for _ in range(4)]
    gaps = [after - before for before, after in pairwise(times)]
    assert [gap >= least for gap, least in zip(gaps, [0.02, 0.02, 0.01], strict=True)] == [True] * 3
    assert not deadlines._queues


async def test_what_was_put_off_can_be_dropped() -> None:
    deadlines, called = Deadlines(), asyncio.Queue[str]()

    def look() -> float:
        called.put_nowait("put off")
        return 0.01

    with deadlines.set(0.01, look):
        await called.get()
    deadlines.set(0.03, lambda: called.put_nowait("last"))
    async with asyncio.timeout(PATIENCE):
        assert await called.get() == "last"
