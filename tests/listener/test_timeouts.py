"""Handlers that take too long, never return, or block the event loop."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, ListenerStuck, State, Task, current_task, handler
from expirebridge.hooks import Claimed, End, Started
from expirebridge.listener.execution.leases import Leases
from expirebridge.listener.listener import Listener
from expirebridge.settings import Settings
from expirebridge.task.calls import claiming
from tests.kit.logs import Log
from tests.kit.patience import PATIENCE
from tests.kit.steps import found
from tests.kit.witness import Witness, listening, registry_of


@pytest.mark.parametrize("own", ["task", "handler"])
async def test_an_async_handler_is_cancelled_at_its_timeout(
    settings: Settings, async_bridge: AsyncBridge, own: str
) -> None:
    witness = Witness()
    cancelled = asyncio.Event()

    @handler(timeout=0.05 if own == "handler" else 60)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with listening(settings, witness, slow=slow):
        await async_bridge.make_task(
            "test.slow", [], 0, retry=[], timeout=0.05 if own == "task" else None
        )
        await witness.until_ended()
    assert cancelled.is_set()
    assert witness.ended()[0].reason == "timed out after 0.05 s"


async def test_a_handler_s_own_timeout_error_is_not_the_task_s(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def fetch() -> None:
        raise TimeoutError("the shop did not answer")

    async with listening(settings, witness, fetch=fetch):
        await async_bridge.make_task("test.fetch", [], 0, retry=[])
        await witness.until_ended()
    assert witness.ended()[0].reason.endswith("TimeoutError: the shop did not answer")


async def test_a_plain_handler_keeps_its_task_after_its_timeout_until_it_returns(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    go_on = threading.Event()

    def slow() -> None:
        go_on.wait(PATIENCE)

    async with listening(settings, witness, slow=slow):
        task = await async_bridge.make_task("test.slow", [], 0, retry=[], timeout=0.05)
        await witness.until(lambda: witness.seen(Started))
        # Its timeout is over well before the second task has come and gone.
        other = await async_bridge.make_task("test.slow", [1], 0.2)
        await witness.until_ended()
        assert witness.ended()[0].task.id == other.id  # which failed for its arguments
        assert (await found(async_bridge, task)).state is State.RUNNING
        go_on.set()
        await witness.until_ended(2)
    assert witness.ended()[1].reason == "timed out after 0.05 s"


# A listener with a handler that cannot be stopped


class Stuck:
    """Handlers that end when the test says so, and a listener that gives up because of one."""

    def __init__(
        self,
        url: str,
        *,
        grace: float = 0.05,
        timeout: float = 60,
        **functions: Callable[..., Any],
    ) -> None:
        self.go_on, self.end = threading.Event(), threading.Event()
        self.witness = Witness()
        self.url = url
        self.blocked: list[tuple[str, int]] = []
        """The error of which a blocked program learns, and how many tasks still run by then."""
        known = {"overrun": self.overrun, "block": self.block, "toil": self.toil, "wait": self.wait}
        self.listener = Listener(
            Settings(url=url, grace=grace, timeout=timeout, lease=1),
            registry_of(**known, **functions),
            hooks=[self.witness],
            on_blocked=self.notice,
        )

    def overrun(self) -> None:
        self.end.wait(PATIENCE)

    async def block(self) -> None:
        """Let the others go on, as far as they can while the event loop is blocked.

        What the claimer does next, if the loop goes on after all, is claim.
        """
        self.listener._servers.consumers[0].wakeup.set()
        self.go_on.set()
        self.end.wait(PATIENCE)

    def toil(self) -> str:
        self.go_on.wait(PATIENCE)
        return "done"

    async def wait(self) -> None:
        await asyncio.to_thread(self.go_on.wait, PATIENCE)

    def notice(self, error: ListenerStuck) -> None:
        with Bridge(self.url) as bridge:
            self.blocked.append((str(error), bridge.count().running))
        self.end.set()

    async def run(self, *, take_signals: bool = False) -> None:
        """Run the listener until it gives up."""
        try:
            with pytest.raises(ListenerStuck):
                await self.listener.run(take_signals=take_signals)
        finally:
            self.end.set()
            self.go_on.set()


async def make_and_start(bridge: AsyncBridge, stuck: Stuck, *funcs: str) -> dict[str, Task]:
    """Start the functions, one after the other; the last overruns its timeout of 50 ms."""
    tasks: dict[str, Task] = {}

    def all_started() -> bool:
        return len(stuck.witness.seen(Started)) == len(tasks)

    for func in funcs:
        timeout = 0.05 if func == funcs[-1] else 60
        tasks[func] = await bridge.make_task(f"test.{func}", [], 0, retry=[], timeout=timeout)
        await stuck.witness.until(all_started)
    return tasks


async def states_of(bridge: AsyncBridge, tasks: dict[str, Task]) -> dict[str, tuple[State, int]]:
    """The state and the counted attempts of each; none has lapsed."""
    read = {name: await found(bridge, task) for name, task in tasks.items()}
    assert not any(task.lapses for task in read.values())
    return {name: (task.state, task.attempt) for name, task in read.items()}


async def test_a_stuck_listener_finishes_all_else_and_records_the_timeout(
    url: str, async_bridge: AsyncBridge, log: Log
) -> None:
    stuck = Stuck(url)
    async with asyncio.TaskGroup() as group:
        group.create_task(stuck.run())
        tasks = await make_and_start(async_bridge, stuck, "toil", "wait", "overrun")
        await log.until("stuck")
        tasks["new"] = await async_bridge.make_task("test.wait", [], 0)
        # In this time it would claim, or lose its leases.
        await asyncio.sleep(2 * stuck.listener.settings.lease)
        assert (await async_bridge.count()).running == 3
        stuck.go_on.set()
    assert await states_of(async_bridge, tasks) == {
        "toil": (State.SUCCEEDED, 1),
        "wait": (State.SUCCEEDED, 1),
        "overrun": (State.FAILED, 1),
        "new": (State.PENDING, 0),
    }
    overrun = await found(async_bridge, tasks["overrun"])
    assert overrun.error == "timed out after 0.05 s and could not be stopped"
    assert not stuck.blocked
    # Its thread ends in the end, and nobody records that, too.
    assert [ended.end for ended in stuck.witness.ended()].count(End.FAILED) == 1


async def ignore() -> None:
    """Ignore its cancellation, but only the first."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.Event().wait()


async def test_a_stuck_listener_that_is_stopped_has_its_grace_time_and_no_more(
    url: str, async_bridge: AsyncBridge, log: Log
) -> None:
    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)

    stuck = Stuck(url, grace=0.1, linger=linger, ignore=ignore)
    async with asyncio.TaskGroup() as group:
        group.create_task(stuck.run())
        tasks = await make_and_start(async_bridge, stuck, "linger", "ignore")
        await log.until("stuck")
        stuck.listener.stop()
    assert await states_of(async_bridge, tasks) == {
        "linger": (State.PENDING, 0),
        "ignore": (State.FAILED, 1),  # given back, it would be stuck in the next listener
    }


async def test_the_first_signal_to_a_stuck_listener_leaves_it_its_grace_time(
    url: str, async_bridge: AsyncBridge, log: Log
) -> None:
    stuck = Stuck(url)
    async with asyncio.TaskGroup() as group:
        group.create_task(stuck.run(take_signals=True))
        tasks = await make_and_start(async_bridge, stuck, "wait", "overrun")
        await log.until("stuck")
        # However slow the machine is, the rest ends within it.
        stuck.listener.settings = replace(stuck.listener.settings, grace=PATIENCE)
        os.kill(os.getpid(), signal.SIGTERM)
        await log.until("stopping")
        stuck.go_on.set()
    assert await states_of(async_bridge, tasks) == {
        "wait": (State.SUCCEEDED, 1),
        "overrun": (State.FAILED, 1),
    }


async def test_what_else_is_stuck_holds_up_nothing(
    url: str, async_bridge: AsyncBridge, log: Log
) -> None:
    stuck = Stuck(url, ignore=ignore)
    names = ("overrun", "toil", "ignore")
    tasks = {
        name: await async_bridge.make_task(f"test.{name}", [], 0, retry=[], timeout=0.05)
        for name in names
    }
    await stuck.run()
    assert log.events()["stuck"] == 3
    assert await states_of(async_bridge, tasks) == dict.fromkeys(names, (State.FAILED, 1))


async def test_a_stuck_handler_that_ends_after_all_is_recorded_once(
    url: str, async_bridge: AsyncBridge, log: Log
) -> None:
    stuck = Stuck(url)
    async with asyncio.TaskGroup() as group:
        group.create_task(stuck.run())
        tasks = await make_and_start(async_bridge, stuck, "toil", "overrun")
        await log.until("stuck")
        stuck.end.set()
        await stuck.witness.until_ended()
        stuck.go_on.set()
    states = await states_of(async_bridge, tasks)
    assert states == {"toil": (State.SUCCEEDED, 1), "overrun": (State.FAILED, 1)}
    assert [ended.reason for ended in stuck.witness.ended(End.FAILED)] == ["timed out after 0.05 s"]


async def test_a_listener_whose_event_loop_is_blocked_for_good_records_what_it_can(
    url: str, async_bridge: AsyncBridge, log: Log
) -> None:
    """Plain functions go on in their threads, and async ones cannot."""

    def outlast() -> None:
        stuck.go_on.wait(PATIENCE)
        time.sleep(3 * stuck.listener.settings.lease / 2)
        outlasted.set()

    outlasted = threading.Event()
    stuck = Stuck(url, outlast=outlast)
    async with asyncio.TaskGroup() as group:
        group.create_task(stuck.run())
        tasks = await make_and_start(async_bridge, stuck, "toil", "outlast", "wait", "block")
    assert outlasted.is_set()
    assert await states_of(async_bridge, tasks) == {
        "toil": (State.SUCCEEDED, 1),
        "outlast": (State.SUCCEEDED, 1),
        "wait": (State.PENDING, 0),
        "block": (State.FAILED, 1),
    }
    block_read = await found(async_bridge, tasks["block"])
    assert block_read.error == "timed out after 0.05 s and could not be stopped"
    assert stuck.blocked == [(str(ListenerStuck("test.block", 0.05)), 0)]
    # What it gave back it did not claim again, although it could look before it ended.
    assert sum(claimed.count for claimed in stuck.witness.seen(Claimed)) == len(tasks)


async def test_if_nobody_knows_what_blocks_the_loop_async_handlers_are_left_to_their_leases(
    url: str, async_bridge: AsyncBridge, log: Log
) -> None:
    """Any of them may be the culprit: given back, it would block the next listener for ever."""

    async def spawn() -> None:
        await asyncio.create_task(stuck.block())

    stuck = Stuck(url, timeout=0.05, spawn=spawn)
    async with asyncio.TaskGroup() as group:
        group.create_task(stuck.run())
        tasks = await make_and_start(async_bridge, stuck, "toil", "wait", "spawn")
    assert stuck.blocked == [(str(ListenerStuck("something that is not a handler", 0.05)), 2)]
    assert (await found(async_bridge, tasks["toil"])).state is State.SUCCEEDED
    assert log.fields("stuck") == [{"func": "something that is not a handler", "task": ""}]


async def test_a_blocked_event_loop_keeps_its_leases(
    url: str, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness = Witness()

    async def block() -> None:
        """Block the loop, as a careless handler would, until its lease was renewed twice."""
        ends: set[object] = set()
        while len(ends) < 3:
            ends.add(client.zscore("expirebridge:running", current_task().id))
            threading.Event().wait(0.01)

    async with listening(Settings(url=url, lease=3), witness, block=block):
        await async_bridge.make_task("test.block", [], 0)
        await witness.until_ended()
    assert witness.ended()[0].end is End.SUCCEEDED


async def test_what_waits_behind_a_blocked_event_loop_is_given_back(
    url: str, async_bridge: AsyncBridge, caplog: pytest.LogCaptureFixture
) -> None:
    """It is claimed again, by whoever can run it; nobody counts what did not begin."""
    witness = Witness()
    attempts: list[int] = []

    async def block() -> None:
        threading.Event().wait(1)  # time passes: the loop is blocked

    async def wait() -> None:
        attempts.append(current_task().attempt)

    past = datetime.now(UTC) - timedelta(seconds=1)
    await async_bridge.make_task("test.block", [], at=past)
    task = await async_bridge.make_task("test.wait", [], 0)
    async with listening(Settings(url=url, lease=0.5), witness, block=block, wait=wait):
        await witness.until_ended(2, end=End.SUCCEEDED)
    # A claim that was about to be sent looks as old as the block is long, and is given back, too.
    released = witness.ended(End.RELEASED)
    assert {event.task.id for event in released} == {task.id}
    assert released[0].reason == "its listener's event loop was blocked"
    assert [started.task.func for started in witness.seen(Started)] == ["test.block", "test.wait"]
    assert attempts == [1]
    assert "test.block blocks the event loop" in caplog.text


async def test_the_heartbeat_outlives_any_error(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the listener would run tasks whose leases nobody keeps."""
    beats = 0
    again = threading.Event()
    send = Leases.send_heartbeat

    def count(leases: Leases) -> claiming.HeartbeatReply:
        nonlocal beats
        beats += 1
        if beats == 2:  # the first is made before the thread begins
            raise MemoryError
        if beats == 4:
            again.set()
        return send(leases)

    monkeypatch.setattr(Leases, "send_heartbeat", count)
    async with listening(Settings(url=url, lease=0.5)):
        assert await asyncio.to_thread(again.wait, PATIENCE)
    assert "the heartbeat failed" in caplog.text
    assert "MemoryError" in caplog.text
