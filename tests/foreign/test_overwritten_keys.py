"""Another client overwrote a key of ours, or wrote nonsense for us: listeners go on."""

import asyncio
import time

import pytest
import redis
from _pytest.mark import ParameterSet

from expirebridge import AsyncBridge, Bridge, State, Task
from expirebridge.checks.foreign_data import check_overwritten
from expirebridge.errors import FormatTooNew, ScriptFailed
from expirebridge.hooks import Claimed, End
from expirebridge.settings import Doorbells, Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import inspection, looking, producing
from tests.kit.patience import PATIENCE
from tests.kit.steps import new
from tests.kit.witness import Witness, listening, logged

pytestmark = pytest.mark.servers("oldest")

KEYS = ["pending", "paused", "running", "succeeded", "failed", "cancelled", "listeners", "meta"]
OF_HEARTBEATS = ["running", "listeners", "meta"]


def rest_but(quick: str, keys: list[str]) -> list[ParameterSet]:
    """Each key, of which make test takes one."""
    return [pytest.param(key, marks=() if key == quick else pytest.mark.rest) for key in keys]


async def note() -> None: ...


@pytest.fixture
def settings(url: str) -> Settings:
    return Settings(url=url, lease=1)


@pytest.mark.parametrize("key", rest_but("meta", KEYS))
async def test_a_key_that_was_overwritten_is_named_and_once_it_is_deleted_all_goes_on(
    settings: Settings,
    async_bridge: AsyncBridge,
    client: redis.Redis,
    store: Store,
    caplog: pytest.LogCaptureFixture,
    key: str,
) -> None:
    name = f"expirebridge:{key}"
    witness = Witness()
    async with listening(settings, witness, note=note):
        await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended(1, End.SUCCEEDED)
        client.delete(name)
        client.set(name, "what")
        assert store.run(inspection.find_overwritten()) == [name]
        await logged("a script failed on what it found in the database", caplog)
        client.delete(name)
        await logged("everything works again", caplog)
        await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended(2, End.SUCCEEDED)
        if key == "meta":  # there is still an alarm when there is a reason
            assert "the database was emptied" not in caplog.text
            client.flushdb()
            await logged("the database was emptied", caplog)


def test_of_several_tasks_none_is_made_while_their_set_is_overwritten(
    bridge: Bridge, client: redis.Redis
) -> None:
    client.set("expirebridge:pending", "what")
    with pytest.raises(ScriptFailed):
        bridge.make_tasks([{"func": "test.note", "delay": 60} for _ in range(3)])
    assert client.keys("*task*") == []
    client.delete("expirebridge:pending")
    bridge.make_tasks([{"func": "test.note", "delay": 60} for _ in range(3)])
    assert client.zcard("expirebridge:pending") == 3


@pytest.mark.parametrize(
    "key", rest_but("pending", [key for key in KEYS if key not in OF_HEARTBEATS])
)
async def test_a_listener_starts_beside_a_key_that_was_overwritten_and_names_it(
    settings: Settings,
    async_bridge: AsyncBridge,
    client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
    key: str,
) -> None:
    name = f"expirebridge:{key}"
    await async_bridge.make_task("test.note", [], 0, id="a")
    client.delete(name)
    client.set(name, "what")
    witness = Witness()
    async with listening(settings, witness, note=note):
        await logged(f"another client overwrote {name}: ", caplog)
        client.delete(name)
        await witness.until_ended(1, End.SUCCEEDED)


@pytest.mark.parametrize("key", rest_but("meta", OF_HEARTBEATS))
async def test_a_listener_that_cannot_beat_names_the_key_and_ends(
    settings: Settings, client: redis.Redis, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    client.set(f"expirebridge:{key}", "what")
    with pytest.raises(ScriptFailed):
        async with listening(settings, Witness(), note=note):
            pass
    assert f"another client overwrote expirebridge:{key}: " in caplog.text


@pytest.mark.parametrize(
    "doorbell", [Doorbells.BOTH, pytest.param(Doorbells.CLOCK, marks=pytest.mark.rest)]
)
async def test_the_tasks_of_an_overwritten_set_are_found_by_the_next_listener(
    url: str, async_bridge: AsyncBridge, client: redis.Redis, store: Store, doorbell: Doorbells
) -> None:
    """What the doctor says: delete it, and restart the listeners."""
    settings = Settings(url=url, lease=1, doorbell=doorbell)
    tasks = await async_bridge.make_tasks([{"func": "test.note", "delay": 1} for _ in range(50)])
    async with listening(settings, Witness(), note=note):
        client.set("expirebridge:pending", "what")
        [finding] = store.run(check_overwritten(store.database.layout))
        client.execute_command(*finding.remedy.partition(";")[0].split())
    witness = Witness()
    async with listening(settings, witness, note=note):
        ended = await witness.until_ended(50, End.SUCCEEDED)
    assert {event.task.id for event in ended} == {task.id for task in tasks}
    assert all(event.task.due >= tasks[0].due for event in ended)


def test_a_task_is_made_whole_although_its_tag_s_set_was_overwritten(
    store: Store, client: redis.Redis
) -> None:
    client.set("expirebridge:tag:x", "what")
    store.run(producing.make([new("a", 60_000, fields={"tags": "x"})]))
    found = store.run(looking.get("a"))
    assert found is not None
    assert (found.state, found.tags) == (State.PENDING, ("x",))


# A format that is not ours


async def test_a_newer_format_is_told_of_by_all_and_waited_for_by_listeners(
    settings: Settings,
    async_bridge: AsyncBridge,
    client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:
    witness = Witness()
    async with listening(settings, witness, note=note):
        await async_bridge.make_task("test.note", [], 60, id="a")
        client.hset("expirebridge:meta", "format", 2)
        await logged("the database has format 2, but this expirebridge knows only up to 1", caplog)
        with pytest.raises(FormatTooNew, match="upgrade it, or use another database"):
            await async_bridge.make_task("test.note", [], 0)
        client.hset("expirebridge:meta", "format", 1)
        await logged("everything works again", caplog)
        await async_bridge.run_now("a")
        await witness.until_ended(1, End.SUCCEEDED)
    assert caplog.text.count("has format 2") == 1


async def test_a_listener_does_not_start_on_a_newer_format_and_changes_nothing(
    settings: Settings, client: redis.Redis
) -> None:
    client.hset("expirebridge:meta", "format", 2)
    client.set("expirebridge:pending", "of another type in that format")
    with pytest.raises(FormatTooNew):
        async with listening(settings, Witness(), note=note):
            pass
    assert sorted(client.keys()) == [b"expirebridge:meta", b"expirebridge:pending"]


async def test_a_format_that_is_no_number_stops_nobody(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    client.hset("expirebridge:meta", "format", "what")
    witness = Witness()
    async with listening(settings, witness, note=note):
        await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended(1, End.SUCCEEDED)


# Records that cannot run

WRONG: dict[str, tuple[dict[str, bytes], str]] = {
    "arguments that are no JSON": ({"call": b"test.note?[1,"}, "its arguments (unexpected end"),
    "arguments that are no array": ({"call": b"test.note?7"}, "neither an array nor an object"),
    "arguments in a record that lacks them": ({"call": b"test.note?@"}, "its arguments ("),
    "a function that is not UTF-8": ({"call": b"\xff?[]"}, "no handler"),
    "a timeout that is no number": ({"timeout": b"soon"}, "its timeout cannot be read"),
    "a policy that is none": ({"retry": b"{"}, "its retry policy cannot be read: unexpected"),
    "no call": ({}, "the record held a hash without a call"),
}


async def test_a_record_that_cannot_run_says_why_and_stops_nobody(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    for number, (fields, _) in enumerate(WRONG.values()):
        await async_bridge.make_task("test.note", [], 0, id=f"bad{number}", retry=[])
        record = f"expirebridge:task:bad{number}"
        if fields:
            client.hset(record, mapping=fields)  # type: ignore[arg-type]
        else:
            client.hdel(record, "call")
    witness = Witness()
    async with listening(settings, witness, note=note):
        await async_bridge.make_task("test.note", [], 0.05, id="good")
        await witness.until_ended(1, End.SUCCEEDED)
        tasks = dict[str, Task]()
        async with asyncio.timeout(PATIENCE):
            while sum(task.error is not None for task in tasks.values()) < len(WRONG):
                tasks = {task.id: task for task in (await async_bridge.list()).tasks}
    assert tasks["good"].state is State.SUCCEEDED
    for number, (wrong, (_, reason)) in enumerate(WRONG.items()):
        bad = tasks[f"bad{number}"]
        # Another listener may know the function, so that one is tried again for a day.
        assert bad.state is (State.PENDING if "no handler" in reason else State.FAILED), wrong
        assert reason in str(bad.error), wrong


# Doorbells that nobody rang

FORGED = [
    b"", b"what", b"-1", b"0", b"1", b"999999999999999", b"9" * 400, b"1e308", b"nan", b" 5 ",
    b"\xff\xfe\x00", "٣".encode(), b"beat", b"beat beat", b"\x00" * 100_000,
]  # fmt: skip


async def test_forged_doorbells_wake_and_do_no_more(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness = Witness()
    async with listening(settings, witness, note=note):
        for message in FORGED:
            client.publish("expirebridge:doorbell:1", message)
        later = await async_bridge.make_task("test.note", [], 0.3)
        for name in (b"\xff:?x?y", b":?", b"a:?test.note?[", b"\x00" * 70_000 + b":?a.b?[]"):
            client.publish("__keyevent@1__:expired", name)
        [ended] = await witness.until_ended(1, End.SUCCEEDED)
        assert ended.task.id == later.id
        before, began = len(witness.seen(Claimed)), time.monotonic()
        await asyncio.sleep(1)  # time passes: what wakes it without end would by then
        # Its clock looks once a second; a busy loop would look thousands of times.
        passed = time.monotonic() - began
        assert len(witness.seen(Claimed)) - before < 50 * passed
        await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended(2, End.SUCCEEDED)
    assert (await async_bridge.count()).pending == 0
