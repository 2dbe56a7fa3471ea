"""Series as producers and listeners use them."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from expirebridge import (
    AsyncBridge,
    Bridge,
    Change,
    InvalidTask,
    SeriesDeclared,
    SeriesOutcome,
    State,
    current_task,
    every,
)
from expirebridge.hooks import End
from expirebridge.settings import Settings
from tests.kit.logs import Log
from tests.kit.patience import PATIENCE
from tests.kit.witness import Witness, listening, logged

pytestmark = pytest.mark.servers("oldest")

SECOND = timedelta(seconds=1)
PREFIX = "expirebridge"


class Ticks:
    """A handler that notes for which times it was called."""

    def __init__(self) -> None:
        self.seen: list[datetime] = []
        self._more = asyncio.Event()

    async def __call__(self, *_: Any) -> None:
        tick = current_task().tick
        assert tick is not None
        self.seen.append(tick)
        self._more.set()

    async def until(self, holds: Callable[[list[datetime]], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds(self.seen):
                self._more.clear()
                await self._more.wait()

    @property
    def handler(self) -> Callable[..., Any]:
        async def tick(*args: Any) -> None:
            await self(*args)

        return tick


def three_in_a_row(seen: list[datetime]) -> bool:
    return any(last - first == 2 * SECOND for first, last in zip(seen, seen[2:], strict=False))


async def test_a_series_runs_again_and_again_without_drift(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    ticks, witness = Ticks(), Witness()
    async with listening(settings, witness, tick=ticks.handler):
        made = await async_bridge.schedule("s", "test.tick", [7], every="1s", tags=["a"])
        # Heartbeats, which say when the next tick is to be made, are more than 3 s apart.
        await ticks.until(lambda seen: three_in_a_row(seen[1:]))
    assert made.outcome is SeriesOutcome.CREATED
    assert made.created is not None
    first = ticks.seen[0]
    assert first == made.next
    assert timedelta(0) < first - made.created <= SECOND  # not at once
    # Each stands for a whole number of seconds after the first, and for its own.
    assert len(set(ticks.seen)) == len(ticks.seen)
    assert all((tick - first) % SECOND == timedelta(0) for tick in ticks.seen)
    read = await async_bridge.get_series("s")
    assert read is not None
    assert read.last in ticks.seen
    assert read.succeeded is not None


async def test_two_listeners_make_each_tick_once(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    one, other = Ticks(), Ticks()
    async with (
        listening(settings, Witness(), tick=one.handler),
        listening(settings, Witness(), tick=other.handler),
    ):
        for number in range(5):
            await async_bridge.schedule(f"s{number}", "test.tick", every="1s")
        await one.until(lambda seen: len(seen) + len(other.seen) >= 15)
    seen = sorted(one.seen + other.seen)
    tasks = await async_bridge.list(limit=1000)
    assert len({task.id for task in tasks.tasks}) == len(tasks.tasks)
    assert all(task.attempt <= 1 for task in tasks.tasks)
    assert len(seen) >= 15


async def test_declared_series_stand_when_a_listener_starts(
    settings: Settings, async_bridge: AsyncBridge, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    handler = every("30 2 * * *", id="nightly", tz="Europe/Berlin")(Ticks().handler)
    async with listening(settings, Witness(), tick=handler):
        await logged("series nightly: created", caplog)
        series = await async_bridge.get_series("nightly")
    assert series is not None
    assert (series.declared, series.carriers, series.func) == (True, 1, "test.tick")
    assert series.next is not None
    assert series.schedule is not None
    assert series.schedule.local(round(series.next.timestamp() * 1000)).strftime("%H:%M") == "02:30"
    with pytest.raises(SeriesDeclared, match="'nightly' is declared by handlers"):
        await async_bridge.schedule("nightly", "test.tick", every="1h")


async def test_declared_series_return_after_the_database_was_emptied(
    settings: Settings,
    async_bridge: AsyncBridge,
    client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    handler = every("1h", id="hourly")(Ticks().handler)
    async with listening(Settings(url=settings.url, lease=1), Witness(), tick=handler):
        await logged("series hourly: created", caplog)
        client.flushall()
        caplog.clear()
        await logged("series hourly: created", caplog)
        assert await async_bridge.get_series("hourly") is not None


async def test_a_schedule_that_cannot_be_read_stops_only_its_series(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, log: Log
) -> None:
    ticks = Ticks()
    await async_bridge.schedule("broken", "test.tick", every="1s")
    await async_bridge.schedule("whole", "test.tick", every="1s")
    client.hset(f"{PREFIX}:series:broken", "spec", "{}")
    async with listening(settings, Witness(), tick=ticks.handler):
        await ticks.until(lambda seen: len(seen) >= 4)
        broken = await async_bridge.get_series("broken")
    assert broken is not None
    assert (broken.schedule, broken.next) == (None, None)
    assert "series broken makes no more ticks" in log.text()


async def test_a_tick_is_a_task_that_any_client_may_move_or_delete(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    ticks, witness = Ticks(), Witness()
    async with listening(settings, witness, tick=ticks.handler):
        made = await async_bridge.schedule("s", "test.tick", every="1h")
        assert made.next is not None
        task = await async_bridge.get(f"s@{round(made.next.timestamp() * 1000)}")
        assert task is not None
        assert client.pexpire(task.key.decode(), 1)
        await witness.until_ended()
        assert ticks.seen == [made.next]
        after = await async_bridge.get_series("s")
    assert after is not None
    assert (after.next, after.last, after.over) == (None, made.next, False)


@pytest.fixture
def waiting(bridge: Bridge) -> Bridge:
    """With a series whose next tick is in an hour."""
    bridge.schedule("s", "mail.send", [1], every="1h")
    return bridge


def test_scheduling_again_changes_nothing_unless_it_differs(waiting: Bridge) -> None:
    before = waiting.get_series("s")
    again = waiting.schedule("s", "mail.send", [1], every="1h")
    assert again.outcome is SeriesOutcome.UNCHANGED
    assert before is not None
    assert again.next == before.next
    changed = waiting.schedule("s", "mail.send", [2], every="1h")
    assert changed.outcome is SeriesOutcome.CHANGED
    assert changed.next == before.next  # an interval counts from when the series was made
    [task] = waiting.list(state=State.PENDING).tasks
    assert task.args == [2]


def test_many_are_scheduled_at_once(waiting: Bridge) -> None:
    def item(id: str, **more: Any) -> dict[str, Any]:
        return {"id": id, "func": "mail.send", "args": [1], "every": "1h"} | more

    many = [item(f"tenant-{n}") for n in range(50)]
    outcomes = waiting.schedule_many([*many, item("s"), item("tenant-3", tags=["a"])])
    assert [one.value for one in outcomes] == ["created"] * 50 + ["unchanged", "changed"]
    assert waiting.count().pending == 51
    again = waiting.schedule_many(item(f"tenant-{n}") for n in range(5))
    assert [one.value for one in again] == ["unchanged"] * 3 + ["changed", "unchanged"]
    changed = waiting.get_series("tenant-3")
    assert changed is not None
    assert changed.tags == ()
    for wrong, problem in (
        (item("b", every="0.1s"), "series 1: .*at least a second"),
        (item("b", interval=3), "series 1: .*unexpected keyword argument 'interval'"),
        ({"func": "mail.send"}, "series 1: .*'id'"),
        ("b", "series 1: give a mapping"),
    ):
        with pytest.raises(InvalidTask, match=problem):
            waiting.schedule_many([item("a"), wrong])  # type: ignore[list-item]
    assert waiting.get_series("a") is None


def test_a_series_is_paused_resumed_and_removed(waiting: Bridge) -> None:
    assert waiting.pause_series("s") is Change.PAUSED
    paused = waiting.get_series("s")
    assert paused is not None
    assert paused.paused is not None
    assert (paused.next, paused.over, waiting.count().pending) == (None, False, 0)
    assert waiting.resume_series("s") is Change.RESUMED
    resumed = waiting.get_series("s")
    assert resumed is not None
    assert resumed.next is not None
    assert resumed.paused is None
    assert waiting.unschedule("s") is Change.REMOVED
    assert waiting.get_series("s") is None
    assert waiting.count().pending == 0
    for change in (waiting.unschedule, waiting.pause_series, waiting.resume_series):
        assert change("s") is Change.NOT_FOUND
    assert waiting.run_series("s") is None


def test_one_more_tick_can_be_asked_for(waiting: Bridge) -> None:
    task = waiting.run_series("s")
    assert task is not None
    assert task.tick == task.due
    assert waiting.count().pending == 2


def test_series_are_listed_in_pages(waiting: Bridge) -> None:
    for hours in (3, 2):
        waiting.schedule(f"every-{hours}h", "mail.send", every=f"{hours}h")
    first = waiting.list_series(limit=2)
    assert [one.id for one in first.series] == ["s", "every-2h"]
    rest = waiting.list_series(limit=2, cursor=first.cursor)
    assert ([one.id for one in rest.series], rest.cursor) == (["every-3h"], None)


def test_a_series_ends_with_its_last_tick(bridge: Bridge) -> None:
    until = datetime.now(UTC) + timedelta(minutes=30)
    series = bridge.schedule("s", "mail.send", every="1h", until=until)
    assert (series.next, series.over) == (None, True)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "either a cron expression or an interval"),
        ({"every": "1h", "cron": "* * * * *"}, "either a cron expression or an interval"),
        ({"every": "0.5s"}, "at least a second"),
        ({"cron": "0 0 9 * * *"}, "six fields"),
        ({"cron": "0 0 30 2 *"}, "never fires"),
        ({"cron": "@reboot"}, "@reboot"),
        ({"cron": "* * * * *", "tz": "Europe/Berln"}, "Europe/Berlin"),
        ({"every": "1h", "start": datetime(2035, 1, 1)}, "naive"),
        ({"every": "1h", "id": "x" * 115}, "115 characters"),
        ({"every": "1h", "id": "a b"}, "id='a b'"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    bridge: Bridge, client: redis.Redis, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidTask, match=named):
        bridge.schedule(**{"id": "s", "func": "mail.send"} | options)
    assert client.dbsize() == 0


async def test_what_nobody_declares_any_more_is_pruned(
    settings: Settings, async_bridge: AsyncBridge, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    handler = every("1h", id="hourly")(Ticks().handler)
    await async_bridge.schedule("dynamic", "mail.send", every="1h")
    async with listening(settings, Witness(), tick=handler):
        await logged("series hourly: created", caplog)
        assert await async_bridge.prune_series() == []
        assert await async_bridge.unschedule("hourly") is Change.DECLARED
    assert await async_bridge.prune_series() == []  # nobody beats who could tell
    async with listening(settings, Witness(), tick=Ticks().handler):
        assert await async_bridge.prune_series() == ["hourly"]
    assert [one.id for one in (await async_bridge.list_series()).series] == ["dynamic"]


async def test_a_tick_that_fails_is_not_retried_beyond_the_next(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def tick() -> None:
        raise RuntimeError("no")

    async with listening(settings, witness, tick=tick):
        await async_bridge.schedule("s", "test.tick", every="1s")
        await witness.until_ended()
    assert witness.ended()[0].end is End.FAILED
    series = await async_bridge.get_series("s")
    assert series is not None
    assert series.state is State.FAILED
