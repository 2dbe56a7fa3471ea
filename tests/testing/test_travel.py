"""Travel does in a moment what a listener does in its time."""

import asyncio
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest
import redis

from expirebridge import (
    Bridge,
    Change,
    Discard,
    InvalidTask,
    Limit,
    Outcome,
    Rate,
    Retry,
    Spread,
    State,
    Then,
    current_task,
    handler,
    make_task,
)
from expirebridge.hooks import End
from expirebridge.store import script_loader
from expirebridge.task.policies import DEFAULT_POLICY
from expirebridge.testing import Clock, NeverIdle, Ran, TaskFailed, TravelError, made_tasks
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.servers("oldest")

DAY = 86400
Handlers = dict[str, Callable[..., Any]]

ran_in: list[object] = []
"""What a handler noticed."""


@pytest.fixture
def handlers() -> Handlers:
    """Those of the test; it may add more before it travels."""
    ran_in.clear()

    def work(*args: Any) -> list[Any]:
        return list(args)

    def fail() -> None:
        raise RuntimeError("the shop is closed")

    return {"test.work": work, "test.fail": fail}


@pytest.fixture
def clock(url: str, handlers: Handlers) -> Iterator[Clock]:
    with Clock(url, handlers=handlers) as clock:
        yield clock


def are_apart(ran: list[Ran], seconds: Iterable[float]) -> bool:
    """Whether it was so long from each attempt to the next, but for what a machine takes."""
    times = [(b.at - a.at).total_seconds() for a, b in pairwise(ran)]
    return times == pytest.approx(list(seconds), abs=PATIENCE)


def test_a_test_may_freeze_the_clock_of_the_event_loop(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As freezegun does: what waits by it waits for ever."""
    make_task("test.work", [1], "1h")
    make_task("test.work", [2], "2h")
    with monkeypatch.context() as frozen:
        frozen.setattr("time.monotonic", lambda: 1.0)
        ran = clock.travel("3h")
    assert [one.task.args for one in ran] == [[1], [2]]


def test_each_task_runs_at_its_moment_and_in_order(clock: Clock) -> None:
    began = clock.now
    for days in (3, 1, 2):
        make_task("test.work", [days], days * DAY)
    ran = clock.travel("3d")
    assert [one.task.args for one in ran] == [[1], [2], [3]]
    assert [one.result for one in ran] == [[1], [2], [3]]
    assert all(one.end is End.SUCCEEDED and one.attempt == 1 for one in ran)
    # Early never; late by what the work itself takes.
    assert all(0 <= one.late < PATIENCE for one in ran)
    assert timedelta(days=3) <= clock.now - began < timedelta(days=3, seconds=PATIENCE)


def test_what_is_due_later_than_the_travel_ends_waits(clock: Clock) -> None:
    make_task("test.work", delay="24h", id="a")
    assert clock.travel("23h") == []
    clock.assert_made("test.work", due_in="1h")
    assert [one.task.id for one in clock.travel("1h1s")] == ["a"]


def test_a_slow_test_finds_what_it_made(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    make_task("test.work", delay="24h")
    clock.travel("23h")
    with pytest.raises(AssertionError, match="too early"):
        clock.assert_made("test.work", due_in=2 * 3600)
    later = monotonic() + 3600
    monkeypatch.setattr(made_tasks, "monotonic", lambda: later)
    clock.assert_made("test.work", due_in=2 * 3600)
    with pytest.raises(AssertionError, match="too late"):
        clock.assert_made("test.work", due_in=1800)


def test_an_edited_task_runs_at_its_moment_with_its_new_arguments(clock: Clock) -> None:
    make_task("test.work", [1], "2d", id="a")
    clock.travel("1d")
    with Bridge() as bridge:
        assert bridge.edit("a", [2]) in {Change.EDITED, Change.EDITED_UNCHECKED}
    clock.assert_made("test.work", args=[2], due_in="1d")
    [ran] = clock.travel("1d")
    assert (ran.task.args, ran.result) == ([2], [2])


def test_at_is_a_time_on_the_clock_that_was_moved(clock: Clock) -> None:
    at = datetime.now(UTC) + timedelta(days=10)
    make_task("test.work", at=at)
    clock.travel("5d")
    assert clock.ran == []
    [ran] = clock.travel(at=at)
    assert timedelta(0) <= ran.at - at < timedelta(seconds=PATIENCE)
    with pytest.raises(InvalidTask, match="that has passed"):
        clock.travel(at=at - timedelta(days=1))


def test_a_failure_that_cancels_its_group_cancels_the_members(
    clock: Clock, handlers: Handlers
) -> None:
    def fail_at_first(number: int) -> None:
        if number == 0:
            raise Discard("no")

    handlers["rows.read"] = fail_at_first
    with Bridge() as bridge:
        rows = [{"func": "rows.read", "args": [n], "delay": n} for n in range(150)]
        bridge.make_group("g", rows, then=Then("rows.read", [1]), on_failed="cancel")
        assert [(one.task.id, one.end) for one in clock.travel("1h")] == [("g@g0", "failed")]
        group = bridge.get_group("g")
    assert group is not None
    assert (group.state, group.left, group.cancelled) == ("cancelled", 0, 149)


def test_retries_come_after_their_delays(clock: Clock) -> None:
    task = make_task("test.fail", delay="1h")
    ran = clock.travel(until="idle")
    assert are_apart(ran, DEFAULT_POLICY.seconds)
    assert [one.end for one in ran] == [End.RETRY] * 15 + [End.FAILED]
    assert [one.delay for one in ran] == [*DEFAULT_POLICY.seconds, None]
    assert isinstance(ran[-1].error, RuntimeError)
    [failed] = clock.failed()
    assert (failed.id, failed.attempt) == (task.id, 16)
    assert "the shop is closed" in (failed.error or "")


def test_a_handler_decides_when_it_runs_again_and_that_it_does_not(
    clock: Clock, handlers: Handlers
) -> None:
    def choose() -> None:
        if current_task().attempt == 1:
            raise Retry("2h", "not yet")
        raise Discard("never")

    handlers["test.choose"] = choose
    make_task("test.choose", delay=5)
    first, second = clock.travel("1d", raising=False)
    assert (first.end, first.delay, first.reason) == (End.RETRY, 7200, "not yet")
    assert (second.end, second.reason, second.error) == (End.FAILED, "never", None)
    assert are_apart([first, second], [7200])


def test_what_handlers_make_move_and_cancel_counts(clock: Clock, handlers: Handlers) -> None:
    def lead() -> None:
        make_task("test.work", ["made"], "1d")
        clock.bridge.cancel("cancelled")
        clock.bridge.reschedule("moved", "1h")

    handlers["test.lead"] = lead
    make_task("test.work", delay="2d", id="cancelled")
    make_task("test.work", ["moved"], "30d", id="moved")
    make_task("test.lead", delay="1d")
    ran = clock.travel(until="idle")
    assert [one.task.args for one in ran] == [[], ["moved"], ["made"]]
    assert are_apart(ran, [3600, DAY - 3600])


def test_plain_commands_put_off_bring_forward_pause_and_cancel(
    clock: Clock, client: redis.Redis
) -> None:
    keys = {id: make_task("test.work", [id], "2d", id=id).key for id in "abcd"}
    client.expire(keys["a"], 3 * DAY)
    client.expire(keys["b"], 3600)
    client.persist(keys["c"])
    client.delete(keys["d"])
    ran = clock.travel("2d12h")
    assert [one.task.args for one in ran] == [["b"]]
    states = {id: clock.bridge.get(id) for id in "abcd"}
    assert {id: task and task.state for id, task in states.items()} == {
        "a": State.PENDING, "b": State.SUCCEEDED, "c": State.PAUSED, "d": State.CANCELLED
    }  # fmt: skip
    # Between two travels, on the clock that was moved.
    client.expire(keys["a"], 10 * DAY)
    client.expire(keys["c"], 60)
    ran = clock.travel("20d")
    assert [one.task.args for one in ran] == [["c"], ["a"]]
    assert are_apart(ran, [10 * DAY - 60])


def test_tasks_of_other_clients_run(clock: Clock, client: redis.Redis) -> None:
    client.set("x:?test.work?[1]", "", ex=DAY)
    client.set("y:?test.work?[2]", "", px=1)
    assert [one.task.args for one in clock.travel("12h")] == [[2]]
    client.set("z:?test.work?[3]", "", ex=3600)
    assert [one.task.args for one in clock.travel("1d")] == [[3], [1]]


def test_a_timer_shows_what_is_left_to_any_client(clock: Clock, client: redis.Redis) -> None:
    task = make_task("test.work", delay="24h")
    clock.travel("23h")
    assert 3590 < client.ttl(task.key) <= 3600
    assert abs(task.due - clock.now - timedelta(hours=1)) < timedelta(seconds=PATIENCE)


def test_other_keys_really_expire_in_time_and_the_server_says_so(
    clock: Clock, client: redis.Redis, handlers: Handlers
) -> None:
    def look() -> dict[str, bool]:
        return {name: bool(client.exists(name)) for name in ("lock", "cache")}

    handlers["test.look"] = look
    events = client.pubsub()
    events.subscribe("__keyevent@1__:expired")
    client.set("lock", 1, ex=3600)
    client.hset("cache", "a", 1)
    client.expire("cache", 3 * DAY)
    make_task("test.look", delay="1h1s")
    make_task("test.look", delay="4d")
    first, second = clock.travel("5d")
    assert first.result == {"lock": False, "cache": True}
    assert second.result == {"lock": False, "cache": False}
    told: list[bytes] = []
    while message := events.get_message(timeout=0 if b"cache" in told else PATIENCE):
        if message["type"] == "message":
            told.append(message["data"])
    events.close()
    assert [name for name in told if name in {b"lock", b"cache"}] == [b"lock", b"cache"]


def test_a_key_that_ends_in_a_leap_expires_and_is_not_deleted(
    clock: Clock, client: redis.Redis
) -> None:
    """However many there are: the server's clock may run on while the script walks over them."""
    with client.pipeline(transaction=False) as pipe:
        for number in range(3000):
            pipe.set(f"cache:{number}", 1, ex=2 * DAY)
        pipe.set("lock", 1, ex=3600)
        pipe.execute()
    events = client.pubsub()
    kinds = ["__keyevent@1__:expired", "__keyevent@1__:del"]
    events.subscribe(*kinds)
    assert [events.get_message(timeout=PATIENCE) for _ in kinds]
    clock.travel("1d")
    message = events.get_message(timeout=PATIENCE)
    events.close()
    assert message is not None
    assert (message["channel"], message["data"]) == (b"__keyevent@1__:expired", b"lock")


def test_a_timer_that_was_moved_expires_by_itself(clock: Clock, client: redis.Redis) -> None:
    """With nobody to claim its task, its event comes when the moved clock says so."""
    task = make_task("test.work", delay="24h")
    events = client.pubsub()
    events.subscribe("__keyevent@1__:expired")
    assert events.get_message(timeout=PATIENCE)
    clock.travel("23h59m59s900ms", listening=False)
    message = events.get_message(timeout=PATIENCE)
    events.close()
    assert message is not None
    assert message["data"] == task.key
    assert clock.now >= task.due


def test_silence_is_noticed_and_beats_put_it_off(clock: Clock) -> None:
    clock.bridge.watch("device", "test.work", ["silent"], ttl="60m")
    for _ in range(3):
        assert clock.travel("50m") == []
        clock.bridge.beat("device")
    [ran] = clock.travel("61m")
    assert ran.task.args == ["silent"]


def test_after_a_night_late_tasks_are_skipped_or_spread(clock: Clock, handlers: Handlers) -> None:
    @handler(late_after="1m", misfire=Spread(over="10m"))
    def remind() -> None:
        ran_in.append("remind")

    handlers["test.remind"] = remind
    make_task("test.work", ["code"], "1h", late_after="5m", misfire="skip")
    make_task("test.remind", delay="2h")
    make_task("test.work", ["plain"], "3h")
    assert clock.travel("8h", listening=False) == []
    skipped, spread, plain = clock.travel(0)
    assert skipped.reason.startswith("skipped: found 7h")
    assert (spread.end, spread.reason.split(":")[0]) == (End.RELEASED, "spread")
    assert (plain.result, round(plain.late / 3600)) == (["plain"], 5)
    assert ran_in == []
    [later] = clock.travel("10m")
    assert later.attempt == 1
    assert ran_in == ["remind"]


def test_handlers_run_in_the_thread_of_the_test_without_an_event_loop(
    clock: Clock, handlers: Handlers
) -> None:
    async def call() -> str:
        await asyncio.sleep(0)
        return "async"

    def plain() -> str:
        ran_in.append(threading.get_ident())
        return asyncio.run(call())

    async def loop() -> None:
        ran_in.append(asyncio.get_running_loop())

    handlers |= {"test.plain": plain, "test.loop": loop}
    for delay, name in enumerate(("test.plain", "test.loop", "test.loop")):
        make_task(name, delay=delay)
    make_task("test.loop", delay=60)
    [plainly, *_] = clock.travel(10)
    clock.travel("1h")
    assert plainly.result == "async"
    thread, *loops = ran_in
    assert thread == threading.get_ident()
    assert len(loops) == 3
    assert len(set(loops)) == 1, "a pool that one handler opened serves the next"


async def test_async_handlers_run_in_the_loop_of_the_test(clock: Clock, handlers: Handlers) -> None:
    async def loop() -> None:
        ran_in.append(asyncio.get_running_loop())

    async def pause() -> str:
        return "none"

    def plain() -> str:
        return asyncio.run(pause())

    handlers |= {"test.loop": loop, "test.plain": plain}
    await asyncio.to_thread(make_task, "test.loop", delay=60)
    await asyncio.to_thread(make_task, "test.plain", delay=90)
    _, plainly = await clock.atravel("1h")
    assert ran_in == [asyncio.get_running_loop()]
    assert plainly.result == "none"
    with pytest.raises(TravelError, match="await atravel"):
        clock.travel("1h")


def test_each_handler_has_its_task_and_leaves_nothing_in_the_test(
    clock: Clock, handlers: Handlers
) -> None:
    place: ContextVar[str] = ContextVar("place", default="nowhere")
    place.set("the test")

    async def look() -> list[str]:
        seen = place.get()
        place.set("a handler")
        return [seen, current_task().id]

    handlers["test.look"] = look
    make_task("test.look", delay=0, id="a")
    make_task("test.look", delay=1, id="b")
    assert [one.result for one in clock.travel(2)] == [["the test", "a"], ["the test", "b"]]
    assert place.get() == "the test"
    with pytest.raises(LookupError):
        current_task()


def test_a_task_that_goes_on_for_ever_is_named(clock: Clock, handlers: Handlers) -> None:
    def again() -> None:
        clock.bridge.reschedule(current_task().id, "1d")

    handlers["test.again"] = again
    make_task("test.again", delay=0, id="weekly")
    make_task("test.work", delay="3d")
    with pytest.raises(NeverIdle) as caught:
        clock.travel(until="idle", limit=20)
    told = str(caught.value)
    assert "after 20 attempts more were due" in told
    assert "test.again, 19 times; the last was test.again(), task weekly" in told
    assert "travel('3d')" in told
    # Nothing is left half done: it goes on from there.
    assert len(clock.travel("2d1h")) == 2


def test_a_task_that_needs_no_time_ends_at_the_limit_too(clock: Clock, handlers: Handlers) -> None:
    def again() -> None:
        make_task("test.again", delay=0)

    handlers["test.again"] = again
    make_task("test.again", delay=0)
    with pytest.raises(NeverIdle, match=r"test\.again, 10 times"):
        clock.travel("1d", limit=10)


def test_failures_are_raised_if_that_is_asked_for(clock: Clock, handlers: Handlers) -> None:
    def refuse() -> None:
        raise Discard("no such order")

    handlers["test.refuse"] = refuse
    task = make_task("test.fail", delay=0)
    with pytest.raises(RuntimeError, match="the shop is closed"):
        clock.travel("1d", raising=True)
    # It is recorded all the same.
    found = clock.bridge.get(task.id)
    assert found is not None
    assert (found.state, found.attempt) == (State.PENDING, 1)
    clock.bridge.cancel(task.id)
    make_task("test.refuse", delay=0)
    with pytest.raises(TaskFailed, match="no such order"):
        clock.travel("1d", raising=True)


@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.fail.Exception])
def test_what_ends_the_test_is_not_taken_for_a_failed_task(
    error: type[BaseException], clock: Clock, handlers: Handlers
) -> None:
    def stop() -> None:
        raise error("stop")

    async def stop_too() -> None:
        raise error("stop")

    handlers |= {"test.stop": stop, "test.too": stop_too}
    for name in ("test.stop", "test.too"):
        make_task(name, delay=0)
        with pytest.raises(error):
            clock.travel(1)


def test_an_async_handler_has_its_time(clock: Clock, handlers: Handlers) -> None:
    async def hang() -> None:
        await asyncio.sleep(60)

    handlers["test.hang"] = hang
    make_task("test.hang", delay=0, timeout=0.02, retry=[30])
    first, second = clock.travel("1h")
    assert (first.reason, first.delay, second.end) == ("timed out after 0.02 s", 30, End.FAILED)


def test_a_function_that_nobody_knows_is_named_and_fails_after_a_day(clock: Clock) -> None:
    make_task("test.wrok", delay=0)
    [first] = clock.travel("1h")
    assert "did you mean 'test.work'?" in first.reason
    assert first.end is End.RELEASED
    [second] = clock.travel("2d")
    assert (second.end, clock.failed()[0].func) == (End.RELEASED, "test.wrok")
    make_task("test.wrok", delay=0)
    with pytest.raises(TaskFailed, match="did you mean"):
        clock.travel(1, raising=True)


def test_a_task_can_be_run_at_once(clock: Clock) -> None:
    task = make_task("test.work", ["now"], "30d")
    assert clock.run_now(task).result == ["now"]
    assert clock.run_now(task.id).attempt == 1, "it starts over"
    clock.assert_made("test.work", args=["now"], count=1)
    with pytest.raises(TravelError, match="'nobody' cannot be run now: not found"):
        clock.run_now("nobody")


def test_time_stands_while_a_handler_runs(clock: Clock, handlers: Handlers) -> None:
    def travel() -> None:
        clock.travel("1d")

    async def await_travel() -> None:
        await clock.atravel("1d")

    handlers |= {"test.travel": travel, "test.await": await_travel}
    make_task("test.travel", delay=0, retry=[])
    make_task("test.await", delay=0, retry=[])
    ran = clock.travel(1)
    assert [type(one.error) for one in ran] == [TravelError] * 2
    assert all("while a handler runs" in one.reason for one in ran)


def test_the_program_is_led_to_the_database_and_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_URL", "redis://localhost:1/1")
    with Clock(url, handlers={}) as clock:
        assert os.environ["EXPIREBRIDGE_URL"] == url
        assert make_task("a.b", delay=1).outcome is Outcome.CREATED
        assert script_loader.load("claim") is not script_loader.SHIPPED.load("claim")
        with Bridge() as bridge:
            assert bridge.count().pending == 1
        assert len(clock.made()) == 1
    assert os.environ["EXPIREBRIDGE_URL"] == "redis://localhost:1/1"
    assert script_loader.load("claim") is script_loader.SHIPPED.load("claim")
    with Clock(url, handlers={}) as clock:
        assert clock.made() == [], "each has an empty database"
        assert abs(clock.now - datetime.now(UTC)) < timedelta(seconds=PATIENCE)


def test_a_database_that_holds_something_is_not_emptied(url: str, client: redis.Redis) -> None:
    client.set("precious", 1)
    with pytest.raises(TravelError, match="is not empty"), Clock(url):
        pass
    assert client.get("precious") == b"1"
    client.delete("precious")
    with Clock(url), pytest.raises(TravelError, match="another Clock uses"), Clock(url):
        pass
    assert client.dbsize() == 0
    client.set("expirebridge:offset", 0)  # a test that crashed
    client.set("left", 1)
    with Clock(url):
        assert client.get("left") is None


def test_handlers_of_a_folder_run_between_their_lifespans_and_hooks(
    url: str, tmp_path: Path
) -> None:
    folder = tmp_path / f"tasks_{uuid4().hex}"  # a package has its name to itself
    folder.mkdir()
    (folder / "mail.py").write_text(
        "from expirebridge import hook, lifespan\n"
        "log = []\n"
        "@lifespan\n"
        "async def pool():\n    log.append('open')\n    yield\n    log.append('closed')\n"
        "@hook\n"
        "def hear(event):\n    log.append(type(event).__name__)\n"
        "def send():\n    log.append('send')\n    return list(log)\n"
    )
    with Clock(url, tasks=folder) as clock:
        clock.travel("1d")
        make_task("mail.send", delay=60)
        [ran] = clock.travel("1d")
        assert ran.result == ["open", "Claimed", "Started", "send"]
        make_task("mail.send", delay=60)
        [ran] = clock.travel("1d")
        assert ran.result[4:] == ["Ended", "closed", "open", "Claimed", "Started", "send"]


def test_pythons_clock_moves_as_well_if_that_is_asked_for(url: str) -> None:
    def tell() -> str:
        return datetime.now(UTC).isoformat()

    with Clock(url, handlers={"test.tell": tell}, python_clock=True) as clock:
        began = datetime.now(UTC)
        make_task("test.tell", delay="3d")
        make_task("test.tell", at=began + timedelta(days=4))
        ran = clock.travel("7d")
        for one in ran:
            told = datetime.fromisoformat(one.result)
            assert abs(told - one.at) < timedelta(seconds=PATIENCE)
        assert abs(datetime.now(UTC) - clock.now) < timedelta(seconds=PATIENCE)
        # The two clocks differ by what it takes to ask the server.
        assert datetime.now(UTC) - began >= timedelta(days=7, milliseconds=-50)
    assert datetime.now(UTC) - began < timedelta(days=1)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "give one of"),
        ({"duration": 1, "until": "idle"}, "give one of"),
        ({"until": "noon"}, "can only be 'idle'"),
        ({"duration": "soon"}, "not a duration"),
        ({"at": datetime(2050, 1, 1)}, "naive"),
        ({"until": "idle", "listening": False}, "for how long"),
    ],
)
def test_a_travel_that_cannot_be_is_refused(given: Any, told: str, clock: Clock) -> None:
    with pytest.raises(InvalidTask, match=told):
        clock.travel(**given)


def test_rates_and_order_are_obeyed(clock: Clock, handlers: Handlers) -> None:
    @handler(rate=Rate(24, "24h", burst=3))
    def text(number: int) -> None: ...

    @handler(limit=Limit(1, per="order", ordered=True), retry=["1m"])
    def ship(order: int, event: int) -> None:
        if event == 1 and current_task().attempt == 1:
            raise OSError("the address is not there yet")

    handlers |= {"test.text": text, "test.ship": ship}
    for number in range(6):
        make_task("test.text", [number], "1h")
    ran = clock.travel(until="idle")
    assert are_apart(ran, [0, 0, 3600, 3600, 3600])
    for event in (1, 2, 3):
        make_task("test.ship", [17, event], 60 + event)
    ran = clock.travel(until="idle")
    assert [one.task.args[1] for one in ran] == [1, 1, 2, 3]


MANY = int(os.environ.get("LIMIT_TASKS", "200"))
PER_MINUTE, BURST = 100, 20
A_MOMENT = 0.05
"""Seconds between the claim, which is what a rate counts, and the start."""


@pytest.mark.rest
def test_an_outage_is_followed_by_the_burst_and_then_by_the_rate(
    clock: Clock, handlers: Handlers, url: str
) -> None:
    @handler(rate=Rate(PER_MINUTE, "1m", burst=BURST))
    def text(number: int) -> None: ...

    handlers["test.text"] = text
    most = 2 * MANY
    with Bridge(url) as bridge:
        tasks = bridge.make_tasks(
            {"func": "test.text", "args": [number], "delay": 3600 * number / MANY}
            for number in range(MANY)
        )
        clock.travel("1h", listening=False)
        ran = clock.travel("3s", limit=most)
        # Some that wait are cancelled, some are put off; and some that ran are to run again.
        cancelled = [bridge.cancel(task.id) for task in tasks[50::7]]
        put_off = [bridge.reschedule(task.id, delay="2m") for task in tasks[51::7]]
        again = [bridge.run_now(task.id) for task in tasks[:BURST:2]]
        ran += clock.travel(until="idle", limit=most)
    assert {*cancelled} == {Change.CANCELLED}
    assert ({*put_off}, {*again}) == ({Change.MOVED}, {Change.DUE_NOW})
    assert len(ran) == MANY - len(cancelled) + len(again)
    starts = sorted(one.at.timestamp() for one in ran)
    interval, latest = 60 / PER_MINUTE, -math.inf
    assert starts[BURST - 1] - starts[0] < 5 * interval
    for place, start in enumerate(starts):
        # In any time t, which begins with any start, there are at most burst + rate * t.
        latest = max(latest, start - place * interval)
        assert start - (place + 1 - BURST) * interval >= latest - A_MOMENT
    # And it is used: those that waited took no longer than they had to.
    assert starts[-1] - starts[0] <= (len(ran) - BURST) * interval + 121
