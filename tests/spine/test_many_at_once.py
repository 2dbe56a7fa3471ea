"""Many tasks steered at once: by their tag, or by their ids."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
import redis

from expirebridge import AsyncBridge, Change, InvalidTask

pytestmark = pytest.mark.servers("oldest")


async def test_all_tasks_of_a_tag_are_cancelled_in_batches(
    async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    many = [{"func": "a.b", "delay": 60, "tags": ["t", "u"]} for _ in range(450)]
    await async_bridge.make_tasks([*many, {"func": "a.b", "delay": 60, "tags": ["u"]}])
    assert await async_bridge.cancel_tag("t") == {Change.CANCELLED: 450, Change.RUNNING: 0}
    assert await async_bridge.cancel_tag("t") == {Change.CANCELLED: 0, Change.RUNNING: 0}
    counts = await async_bridge.count()
    assert (counts.pending, counts.cancelled) == (1, 450)


async def test_all_unfinished_tasks_of_a_function_are_cancelled(async_bridge: AsyncBridge) -> None:
    items = [{"func": "a.b", "delay": 60, "id": f"n{n}"} for n in range(250)]
    others = [{"func": func, "delay": 60} for func in ("a.bc", "x/a.b", "a.c")]
    await async_bridge.make_tasks([*items, *others])
    await async_bridge.pause_all(["n0", "n1"])
    await async_bridge.cancel("n2")
    told: list[Mapping[Change, int]] = []
    done = await async_bridge.cancel_func("a.b", progress=told.append)
    assert (done, len(told)) == ({Change.CANCELLED: 249, Change.RUNNING: 0}, 3)
    counts = await async_bridge.count()
    assert (counts.pending, counts.paused, counts.cancelled) == (3, 0, 250)
    with pytest.raises(InvalidTask, match="func='b'"):
        await async_bridge.cancel_func("b")


async def test_all_tasks_of_a_tag_are_steered_in_batches(async_bridge: AsyncBridge) -> None:
    told: list[Mapping[Change, int]] = []
    items = [{"func": "a.b", "delay": 600, "tags": ["t"], "id": f"n{n}"} for n in range(450)]
    await async_bridge.make_tasks([*items, {"func": "a.b", "delay": 600, "tags": ["u"]}])
    await async_bridge.cancel("n0")
    moved = await async_bridge.put_off_tag("t", "1h", progress=told.append)
    assert moved == {Change.MOVED: 449, Change.RUNNING: 0}
    assert len(told) > 1
    assert told[-1] == moved
    dues = [task.due for task in (await async_bridge.list(tag="t", limit=1000)).tasks]
    assert sorted(dues)[1] - sorted(dues)[0] > timedelta(minutes=55)  # the first one is cancelled
    assert sorted(dues)[-1] - sorted(dues)[1] < timedelta(minutes=1)
    assert await async_bridge.pause_tag("t") == {Change.PAUSED: 449, Change.RUNNING: 0}
    assert (await async_bridge.count()).paused == 449
    assert await async_bridge.resume_tag("t") == {Change.RESUMED: 449, Change.RUNNING: 0}
    assert (await async_bridge.count()).pending == 450

    def stop(_: Mapping[Change, int]) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        await async_bridge.cancel_tag("t", progress=stop)
    assert 0 < (await async_bridge.count()).cancelled < 450


async def test_tasks_are_steered_by_their_ids_in_batches(async_bridge: AsyncBridge) -> None:
    ids = [f"n{n}" for n in range(250)]
    await async_bridge.make_tasks([{"func": "a.b", "delay": 600, "id": id} for id in ids])
    due = (await async_bridge.list(limit=1)).tasks[0].due
    told: list[int] = []
    moved = await async_bridge.put_off_all(
        ids, "1h", progress=lambda changes: told.append(changes[Change.MOVED])
    )
    assert (moved, told) == ({Change.MOVED: 250}, [100, 200, 250])
    assert (await async_bridge.list(limit=1)).tasks[0].due - due == timedelta(hours=1)
    assert await async_bridge.pause_all(ids) == {Change.PAUSED: 250}
    assert await async_bridge.resume_all(ids) == {Change.RESUMED: 250}
    assert await async_bridge.cancel_all(ids[:120]) == {Change.CANCELLED: 120}
    assert await async_bridge.cancel_all([*ids, "no-such"]) == {
        Change.FINISHED: 120, Change.CANCELLED: 130, Change.NOT_FOUND: 1
    }  # fmt: skip
    for change in (async_bridge.cancel_all, async_bridge.pause_all, async_bridge.resume_all):
        with pytest.raises(InvalidTask):
            await change(["a?b"])
    for ids, by in ((["a?b"], "1h"), (["n1"], "soon")):
        with pytest.raises(InvalidTask):
            await async_bridge.put_off_all(ids, by)
