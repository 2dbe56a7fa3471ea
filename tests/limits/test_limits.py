"""Handlers with limits, in real listeners."""

import asyncio
import re
import time
from dataclasses import replace
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Busy, Limit, Rate, State, handler
from expirebridge.hooks import End
from expirebridge.settings import Settings
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")


async def test_at_most_so_many_run_for_each_customer_and_all_in_the_end(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    running: dict[str, int] = {"a": 0, "b": 0}
    most = {"a": 0, "b": 0}

    @handler(limit=Limit(2, per="customer"))
    async def export(customer: str) -> None:
        running[customer] += 1
        most[customer] = max(most[customer], running[customer])
        await asyncio.sleep(0.005)
        running[customer] -= 1

    tasks = [{"func": "test.export", "args": ["ab"[n % 2]], "delay": 0} for n in range(60)]
    await async_bridge.make_tasks(tasks)
    async with listening(replace(settings, concurrency=20), witness, export=export):
        await witness.until_ended(60)
    assert most == {"a": 2, "b": 2}


async def test_a_busy_provider_is_left_alone_by_all_tasks(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    started: list[float] = []

    @handler(rate=Rate(1000, "1s", per="account", burst=10), retry=[])
    async def send(account: str) -> None:
        started.append(time.monotonic())
        if len(started) == 1:
            raise Busy(after=0.3, per="account")

    async with listening(replace(settings, concurrency=1), witness, send=send):
        await async_bridge.make_task("test.send", ["a"], 0)
        await witness.until_ended(1, End.SNOOZED)
        await async_bridge.make_tasks([{"func": "test.send", "args": ["a"], "delay": 0}] * 5)
        await witness.until_ended(6, End.SUCCEEDED)
    assert len(started) == 7
    assert started[1] - started[0] > 0.29


# What another client wrote into the hash `limits`

SENDS = [{"func": "test.send", "delay": 0} for _ in range(3)]


@handler(rate=Rate(1000, "1s", name="sms", burst=10))
async def send() -> None: ...


async def other() -> None: ...


async def all_run_with(
    settings: Settings, bridge: AsyncBridge, client: redis.Redis, field: str, stored: str
) -> None:
    """Write a field of the limits by hand beside a listener: all tasks succeed."""
    witness = Witness()
    async with listening(settings, witness, send=send, other=other):
        client.hset("expirebridge:limits", field, stored)
        await bridge.make_tasks([*SENDS, {"func": "test.other", "delay": 0}])
        await witness.until_ended(4, End.SUCCEEDED)


@pytest.mark.parametrize(
    "stored",
    [
        '{"starts":1,"every":0}', '{"starts":1,"every":-5}', '{"starts":1,"every":-1e400}',
        '{"starts":1,"every":"x"}', '{"starts":0,"every":1}', '{"starts":-1,"every":-1}',
        '{"starts":NaN,"every":1,"of":"n"}', '{"starts":1e400,"every":1,"of":"n","burst":"x"}',
        '{"starts":1,"every":true}', '{"starts":1,"every":NaN}', '{"starts":1,"every":"nan"}',
        '{"starts":1,"every":0, "burst": 1e400}', '{"starts":1,"every":1, "burst": -3}',
        "{}", "[]",
    ],
)  # fmt: skip
async def test_a_rate_of_nothing_limits_nothing(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, stored: str
) -> None:
    await all_run_with(settings, async_bridge, client, "l sms", stored)


@pytest.mark.parametrize(
    "stored", [b"", b"{", b"7", b"null", b"\xff", b'{"most": 0}', b'{"most":-1}']
)
async def test_a_rate_that_cannot_be_read_stands_still_until_it_is_declared_again(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, stored: bytes
) -> None:
    settings = replace(settings, lease=1.0)
    first, second = Witness(), Witness()
    async with listening(settings, first, send=send, other=other):
        client.hset("expirebridge:limits", "l sms", stored)
        await async_bridge.make_tasks(SENDS)
        await async_bridge.make_task("test.other", [], 0)
        [ended] = await first.until_ended()
        assert ended.task.func == "test.other"
        assert (await async_bridge.count()).waiting == 3
        assert not first.ended(End.FAILED)
        async with listening(settings, second, send=send):
            await first.until(lambda: len(first.ended() + second.ended()) >= 4)


@pytest.mark.parametrize(
    "stored",
    ["", "[5]", "[true]", '["sms"]', "[[5]]", "[[]]", "[[null]]", "[[{}]]", '[["sms"],"x"]'],
)
async def test_limits_of_a_function_that_cannot_be_read_are_declared_again(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, stored: str
) -> None:
    witness = Witness()
    for func in ("test.send", "test.unknown"):
        client.hset("expirebridge:limits", f"f {func}", stored)
    async with listening(settings, witness, send=send):
        await async_bridge.make_tasks(SENDS)
        await witness.until_ended(3, End.SUCCEEDED)


@pytest.mark.parametrize(
    "stored", ["[5]", "[true]", '["sms"]', "[[null]]", "[[{}]]", '[["sms"],"x"]']
)
async def test_limits_of_a_function_that_are_no_limits_hold_up_no_claim(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, stored: str
) -> None:
    await all_run_with(settings, async_bridge, client, "f test.send", stored)


@pytest.mark.parametrize("interval", [b"1000", b"0", b"-5", b"-3600000000"])
async def test_what_waits_for_a_rate_goes_on_when_it_is_raised_or_becomes_nothing(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, interval: bytes
) -> None:
    witness = Witness()

    @handler(rate=Rate(1, "1h", name="hourly"))
    async def hourly() -> None: ...

    async with listening(replace(settings, lease=1.0), witness, hourly=hourly):
        await async_bridge.make_tasks([{"func": "test.hourly", "delay": 0}] * 5)
        await witness.until_ended(1)
        client.hset(
            "expirebridge:limits", "l hourly", b'{"starts":1,"every":%b,"burst":1}' % interval
        )
        await witness.until_ended(5, End.SUCCEEDED)


async def test_what_waits_goes_on_after_the_limits_are_lost_although_nothing_is_claimed(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness = Witness()
    go_on = asyncio.Event()

    @handler(limit=Limit(1))
    async def one() -> None:
        await go_on.wait()

    async def other() -> None: ...

    async with listening(replace(settings, lease=1.0), witness, one=one, other=other):
        await async_bridge.make_tasks([{"func": "test.one", "delay": 0}] * 3)
        await async_bridge.make_task("test.other", [], 0.01)
        await witness.until_ended(1)
        assert (await async_bridge.count()).waiting == 2
        client.delete("expirebridge:limits")
        go_on.set()
        await witness.until_ended(4, End.SUCCEEDED)


# Arguments that cannot be decoded


@pytest.mark.parametrize(
    "args", [b"{", b'["a"', b'{"customer": "a', b"7", b"\xff", b'["\\ud800"]', b""]
)
@pytest.mark.parametrize("fair", [None, "customer"])
async def test_arguments_that_cannot_be_decoded_fail_without_a_call_and_hold_up_nobody(
    settings: Settings,
    async_bridge: AsyncBridge,
    client: redis.Redis,
    args: bytes,
    fair: str | None,
) -> None:
    witness = Witness()
    calls: list[str] = []

    @handler(limit=Limit(1, per="customer", fair=fair))
    async def export(customer: str) -> None:
        calls.append(customer)

    fields: list[dict[Any, Any]] = [
        {"call": b"test.export?" + args},
        {"call": b"test.export?@", "args": args},
    ]
    for n, stored in enumerate(fields * 2):
        await async_bridge.make_task("test.export", ["a"], 60, id=f"bad-{n}")
        await async_bridge.run_now(f"bad-{n}")
        client.hset(f"expirebridge:task:bad-{n}", mapping=stored)
    await async_bridge.make_tasks(
        [{"func": "test.export", "args": [customer], "delay": 0} for customer in ("a", "b", "")]
    )
    async with listening(settings, witness, export=export):
        await witness.until_ended(3, End.SUCCEEDED)
        await witness.until_ended(4, End.FAILED)
        failed = (await async_bridge.list(state=State.FAILED)).tasks
        assert {task.id for task in failed} == {f"bad-{n}" for n in range(4)}
        for task in failed:
            assert task.error is not None
            assert re.fullmatch(r"its arguments \(.+\) cannot be read", task.error)
        assert (await async_bridge.limits()).lanes == []
    assert sorted(calls) == ["", "a", "b"]
