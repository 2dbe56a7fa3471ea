"""The rarer events of the log: each is logged once, with its fields, and without any argument."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
import redis

from expirebridge import AsyncBridge, ListenerStuck
from expirebridge.hooks import End
from expirebridge.listener.execution.attempt import Attempt
from expirebridge.listener.execution.executor import Executor
from expirebridge.listener.listener import Listener
from expirebridge.listener.partition import reconciler
from expirebridge.observe.logs import log_event
from expirebridge.settings import Settings
from tests.kit.logs import SECRET, Log, telling
from tests.kit.patience import PATIENCE
from tests.kit.witness import Witness, listening, registry_of


async def test_a_handler_that_never_returns(url: str, async_bridge: AsyncBridge, log: Log) -> None:
    """It overruns its timeout, and the listener gives up."""
    go_on = threading.Event()

    def stuck(_: str) -> None:
        go_on.wait(PATIENCE)

    settings = Settings(url=url, grace=0.05)
    listener = Listener(settings, registry_of(stuck=stuck), hooks=[log_event])
    await async_bridge.make_task("test.stuck", [SECRET], 0, id="a", timeout=0.05)
    try:
        with pytest.raises(ListenerStuck):
            await listener.run()
    finally:
        go_on.set()
    told = [{"func": "test.stuck", "task": "a"}]
    assert log.fields("overtime") == log.fields("stuck") == told
    assert not log.fields("left running")
    assert SECRET not in log.text()


async def test_a_blocked_loop_and_what_cannot_be_given_back(
    url: str, async_bridge: AsyncBridge, client: redis.Redis, log: Log
) -> None:
    def blocked(_: str) -> None:
        client.acl_setuser("default", enabled=True, commands=["-hset"])
        threading.Event().wait(1.5)  # time passes: several beats, which need no such right
        client.acl_setuser("default", enabled=True, commands=["+hset"])

    async def block(card: str) -> None:
        blocked(card)

    async def wait(_: str) -> None: ...

    past = datetime.now(UTC) - timedelta(seconds=1)
    await async_bridge.make_task("test.block", [SECRET], at=past)
    await async_bridge.make_task("test.wait", [SECRET], 0, id="behind")
    witness = Witness()
    async with telling(url, witness, block=block, wait=wait):
        await witness.until_ended(2, end=End.SUCCEEDED)
    [blocks] = log.fields("loop blocked")
    assert blocks["func"] == "test.block"
    [left] = log.fields("left to leases")
    assert left["count"] == 1
    assert SECRET not in log.text()


async def test_an_outcome_that_cannot_be_recorded(
    url: str, async_bridge: AsyncBridge, client: redis.Redis, log: Log
) -> None:
    async def spoil(_: str) -> None:
        client.set("expirebridge:succeeded", "what")

    witness = Witness()
    async with telling(url, witness, spoil=spoil):
        await async_bridge.make_task("test.spoil", [SECRET], 0, id="a")
        await witness.until_ended(1, end=End.REFUSED)
    assert [fields["task"] for fields in log.fields("unsettled")] == ["a"]
    assert SECRET not in log.text()


async def ended_without_an_outcome(executor: Executor, attempt: Attempt) -> None:
    executor._end(attempt)


async def never_ended(executor: Executor, attempt: Attempt) -> None:
    pass


async def unknown_to_all(executor: Executor, attempt: Attempt) -> None:
    executor._end(attempt)
    executor.in_flight.discard(attempt)


@pytest.mark.parametrize("lose", [ended_without_an_outcome, never_ended, unknown_to_all])
async def test_an_attempt_that_nobody_will_settle(
    url: str, async_bridge: AsyncBridge, log: Log, monkeypatch: pytest.MonkeyPatch,
    lose: Callable[[Executor, Attempt], Awaitable[None]],
) -> None:  # fmt: skip
    """Its lease is not renewed for ever: the task lapses, and finds room to run again."""

    async def note(_: str) -> None: ...

    async def lose_once(executor: Executor, attempt: Attempt) -> None:
        monkeypatch.undo()
        await lose(executor, attempt)

    monkeypatch.setattr(Executor, "_run", lose_once)
    witness = Witness()
    settings = Settings(url=url, lease=1.0, concurrency=1)
    async with listening(settings, witness, note=note) as listener:
        await async_bridge.make_task("test.note", [SECRET], 0, id="a")
        [ended] = await witness.until_ended()
        assert not listener._executor.withdraw()
    assert (ended.end, ended.task.lapses) == (End.SUCCEEDED, 1)
    assert log.fields("lost attempt") == [{"task": "a"}]
    assert SECRET not in log.text()


async def test_what_is_under_way_at_a_beat_is_not_lost(
    url: str, async_bridge: AsyncBridge, log: Log
) -> None:
    async def wait(_: int) -> None:
        await asyncio.sleep(0.001)

    def compute(_: int) -> None: ...

    witness = Witness()
    async with listening(Settings(url=url), witness, wait=wait, compute=compute) as listener:
        [consumer] = listener._servers.consumers
        await async_bridge.make_tasks(
            [{"func": f"test.{name}", "args": [1], "delay": 0} for name in ("wait", "compute")]
            * 200
        )
        while len(witness.ended()) < 400:
            listener._executor.drop_lost_leases(consumer)
            await asyncio.sleep(0)
    assert not log.fields("lost attempt")


async def test_a_key_that_cannot_be_looked_at(url: str, client: redis.Redis, log: Log) -> None:
    async def note(_: str) -> None: ...

    call = f'test.note?["{SECRET}"]'
    witness = Witness()
    async with telling(url, witness, note=note):
        await log.until("gap")
        # Its record names a state that is none, and what has that name is no state set.
        client.sadd("expirebridge:tag:x", "f")
        client.hset("expirebridge:task:f", mapping={"call": call, "state": "tag:x"})
        client.set(f"f:?{call}", "", px=60_000)
        await log.until("unreadable key")
        client.set(f"g:?{call}", "", px=20)
        await witness.until_ended(1, end=End.SUCCEEDED)
    assert [fields["task"] for fields in log.fields("unreadable key")] == ["f"]
    assert SECRET not in log.text()


async def test_events_that_waited_for_too_long(
    url: str, client: redis.Redis, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "STALE_AFTER", 0.0)
    async with telling(url, Witness(), note=_note):
        await log.until("gap")
        client.set(f'f:?test.note?["{SECRET}"]', "", px=20)
        client.delete(f'f:?test.note?["{SECRET}"]')
        await log.until("events dropped")
        await asyncio.sleep(0.3)  # time passes: it is not told again
    assert log.fields("events dropped") == [{"count": 1}]
    assert SECRET not in log.text()


async def test_what_is_found_at_the_start(url: str, client: redis.Redis, log: Log) -> None:
    client.config_set("maxmemory-policy", "allkeys-lru")
    for n in range(3):
        client.set(f'f{n}:?test.note?["{SECRET}"]', "", px=60_000)
    async with telling(url, Witness(), note=_note):
        await log.until("adopted")
    assert [f["check"] for f in log.fields("finding")].count("eviction") == 1
    assert log.fields("adopted") == [{"count": 3}]
    assert SECRET not in log.text()


async def _note() -> None: ...
