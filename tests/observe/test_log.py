"""The log: each thing that happened is logged once, and no argument or result stands in it."""

import asyncio

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, Discard, Snooze
from expirebridge.hooks import End
from expirebridge.store.client import Store
from expirebridge.task.calls import producing
from tests.kit.logs import SECRET, Log, telling
from tests.kit.steps import age, claim, new
from tests.kit.witness import Witness, logged


async def test_no_argument_and_no_result_is_logged(
    url: str, async_bridge: AsyncBridge, client: redis.Redis, log: Log
) -> None:
    async def give_back(card: str) -> str:
        return card

    async def fail(card: str) -> None:
        raise ValueError(f"no such card:\n{card}")

    def need_number(card: str) -> int:
        return int(card)

    def nothing() -> None: ...

    witness = Witness()
    handlers = {f.__name__: f for f in (give_back, fail, need_number, nothing)}
    async with telling(url, witness, **handlers):
        names = ["give_back", "fail", "need_number", "nothing", "unknown"]
        for name in names:
            retry = [0.01] if name == "fail" else []
            await async_bridge.make_task(f"test.{name}", [SECRET], 0, retry=retry)
        await async_bridge.make_task("test.nothing", kwargs={"card": SECRET}, delay=0, retry=[])
        client.set(f'f:?test.give_back?["{SECRET}', "", px=20)
        client.set(f'g:?test.give_back?[{{"card":"{SECRET}"', "", px=20)
        await witness.until_ended(len(names) + 2)
        await log.until("invalid key", 2)
        failed = (await async_bridge.list(state="failed", func="test.fail")).tasks
    assert SECRET in str(failed[0].error)  # there it is to be found
    assert log.events()["started"] >= len(names)
    assert [fields["reason"] for fields in log.fields("retry")] == ["ValueError"]
    assert SECRET not in log.text()


async def test_what_a_handler_says_of_itself_is_logged(
    url: str, async_bridge: AsyncBridge, log: Log
) -> None:
    async def give_up() -> None:
        raise Discard("the order is gone")

    async def wait() -> None:
        raise Snooze("1h", "a rate limit")

    witness = Witness()
    async with telling(url, witness, give_up=give_up, wait=wait):
        await async_bridge.make_task("test.give_up", [], 0)
        await async_bridge.make_task("test.wait", [], 0)
        await witness.until_ended(2)
    [fields] = log.fields("failed")
    assert fields["reason"] == "the order is gone"
    [fields] = log.fields("snoozed")
    assert fields["reason"] == "a rate limit"


async def test_a_lapse_is_told_once(url: str, store: Store, client: redis.Redis, log: Log) -> None:
    store.run(producing.make([new("a", call=b"test.note?[]")]))
    claim(store)
    witness = Witness()
    async with telling(url, witness, note=_note):
        age(client, "running", "a", 1)
        await witness.until_ended(end=End.SUCCEEDED)
    assert log.fields("lapsed") == [{"task": "a", "failed": False}]
    assert log.events()["lease lost"] == log.events()["refused"] == 0


async def test_a_lost_lease_and_a_refused_outcome_are_told_once(
    url: str, async_bridge: AsyncBridge, client: redis.Redis, log: Log
) -> None:
    go_on = asyncio.Event()

    async def wait() -> None:
        await go_on.wait()

    witness = Witness()
    async with telling(url, witness, wait=wait):
        await async_bridge.make_task("test.wait", [], 0, id="a")
        await log.until("started")
        client.hset("expirebridge:task:a", "token", "another's")
        await log.until("lease lost")
        go_on.set()
        await witness.until_ended(end=End.REFUSED)
    assert log.fields("lease lost") == [{"task": "a"}]
    [refused] = log.fields("refused")
    assert (refused["task"], refused["func"]) == ("a", "test.wait")


async def test_an_outage_its_end_and_the_gap_are_told_once(
    url: str, client: redis.Redis, log: Log
) -> None:
    async with telling(url, Witness(), note=_note):
        await log.until("gap")
        await log.until("late")  # all is subscribed: what was late meanwhile is known
        before = log.events()["gap"]
        client.client_kill_filter(_type="pubsub", skipme=True)
        await log.until("recovered")
        await log.until("gap", before + 1)
    assert log.events()["outage"] == log.events()["recovered"] == 1
    assert log.events()["gap"] == before + 1
    [outage] = log.fields("outage")
    assert (outage["role"], outage["kind"]) == ("the subscription", "ServerUnreachable")


async def test_an_alarm_is_told_once(url: str, client: redis.Redis, log: Log) -> None:
    async with telling(url, Witness(), note=_note):
        client.config_set("maxmemory-policy", "allkeys-lru")
        await log.until("alarm")
        client.config_set("maxmemory-policy", "noeviction")
        await log.until("alarm", 2)
    assert [fields["check"] for fields in log.fields("alarm")] == ["eviction"] * 2
    assert log.fields("alarm")[1]["found"] == "ok"


async def test_an_emptied_database_is_told_once(
    url: str, client: redis.Redis, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    async with telling(url, Witness(), note=_note):
        client.flushdb()
        await logged("the database was emptied", caplog)
        await asyncio.sleep(0.5)  # time passes: two more heartbeats
    assert log.events()["emptied"] == 1


async def test_a_start_and_a_stop_are_told_once(url: str, log: Log) -> None:
    async with telling(url, Witness(), note=_note):
        pass
    events = log.events()
    assert (events["listening"], events["stopping"], events["stopped"]) == (1, 1, 1)
    assert log.fields("listening")[0]["handlers"] == 1


async def _note() -> None: ...


@pytest.mark.parametrize("colour", ["sync", "async", "in bulk"])
async def test_a_handler_that_keeps_its_own_task_is_named(
    colour: str, url: str, async_bridge: AsyncBridge, bridge: Bridge, log: Log
) -> None:
    """It meant to run again; nothing follows, and no error would say so."""
    kept = {"func": "test.again", "args": [SECRET], "delay": 60, "id": "a", "if_exists": "keep"}

    async def again(_: str) -> None:
        # Another's task may be kept without a word.
        await async_bridge.make_task("test.again", [SECRET], 60, id="b", if_exists="keep")
        if colour == "async":
            await async_bridge.make_task(**kept)  # type: ignore[arg-type]
        else:
            await async_bridge.make_tasks([kept])

    def again_in_a_thread(_: str) -> None:
        bridge.make_task(**kept)  # type: ignore[arg-type]

    witness = Witness()
    await async_bridge.make_task("test.again", [SECRET], 60, id="b")
    await async_bridge.make_task("test.again", [SECRET], 0, id="a")
    handlers = {"again": again_in_a_thread if colour == "sync" else again}
    async with telling(url, witness, **handlers):
        await witness.until_ended(1, end=End.SUCCEEDED)
    assert log.fields("kept itself") == [{"func": "test.again", "task": "a"}]
    assert "call reschedule" in log.text()
    assert SECRET not in log.text()
