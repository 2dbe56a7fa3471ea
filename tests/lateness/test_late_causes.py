"""Why tasks began late: each cause, as a listener derives it."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from expirebridge import AsyncBridge, LateCause, Limit, handler
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.events import Misfired, Started
from expirebridge.hooks import End
from expirebridge.listener.execution import steps
from expirebridge.listener.hindrances import Hindrances
from expirebridge.listener.listener import Listener
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, inspection, reconciling
from expirebridge.task.calls.claiming import Settlement
from tests.kit.patience import PATIENCE
from tests.kit.steps import PREFIX, age, claim, found, server_ms, settle
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")

MINUTE = 60.0
"""By how many seconds tasks are late here: they are aged, and nobody waits for it."""
SOON = 0.1
"""Seconds from which on tasks count as late that are late in real time."""


@pytest.fixture(autouse=True)
def late_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a busy machine starts a second late does not count as late."""
    monkeypatch.setattr(steps, "LATE", MINUTE / 2)


@pytest.fixture
def soon_late(monkeypatch: pytest.MonkeyPatch, late_from: None) -> None:
    monkeypatch.setattr(steps, "LATE", SOON)


async def note() -> None: ...


def causes(witness: Witness) -> list[LateCause | None]:
    return [event.cause for event in witness.seen(Started)]


async def make_overdue(bridge: AsyncBridge, client: redis.Redis, id: str = "a") -> None:
    """Make a task as if that had been two minutes ago, and it is due for one."""
    await bridge.make_task("test.note", [], 0, id=id)
    client.hset(f"{PREFIX}:task:{id}", "made", server_ms(client) // 1000 - 120)
    age(client, "pending", id, MINUTE)


async def eventually(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.01)


def hindrances_of(listener: Listener) -> Hindrances:
    [consumer] = listener._servers.consumers
    return consumer.hindrances


def age_hindrances(hindrances: Hindrances) -> None:
    """What hinders now has done so for two minutes, and nothing else did."""
    hindrances._spans.clear()
    for cause in hindrances._open:
        hindrances._open[cause] -= 2 * MINUTE
    backlog = hindrances.backlog
    if backlog._since is not None and backlog._full_since is not None:
        backlog._since -= 2 * MINUTE
        backlog._full_since -= 2 * MINUTE


async def age_waiting(witness: Witness, client: redis.Redis, id: str) -> None:
    """Wait until a task waits in a lane, and make all that it has behind it a minute older."""
    await witness.until(lambda: client.zscore(f"{PREFIX}:waiting", id))
    for field, unit in (("made", 1), ("due", 1000), ("parked", 1000)):
        client.hincrby(f"{PREFIX}:task:{id}", field, -round(MINUTE * unit))


async def test_what_is_on_time_has_no_cause_and_its_record_no_field(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, store: Store
) -> None:
    witness = Witness()
    async with listening(settings, witness, note=note):
        await async_bridge.make_task("test.note", [], 0.05, id="a")
        await witness.until_ended()
    assert causes(witness) == [None]
    assert not client.hexists(f"{PREFIX}:task:a", "late")
    assert inspection.late_seconds(store.run(inspection.read_tally(spans=2, minutes=1))) == {}


async def test_nobody_listened_and_its_record_and_the_tally_say_so(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, store: Store
) -> None:
    witness = Witness()
    await make_overdue(async_bridge, client)
    async with listening(settings, witness, note=note):
        await witness.until_ended()
    assert causes(witness) == [LateCause.NOBODY]
    task = await async_bridge.get("a")
    assert task is not None
    assert task.late is not None
    assert 60 <= task.late.seconds < 120
    assert str(task.late) == "1m late: nobody listened"
    reason = await async_bridge.why("a")
    assert reason is not None
    assert reason.text.endswith("in attempt 1; it began 1m late: nobody listened")
    spans = store.run(inspection.read_tally(spans=2, minutes=1))
    assert inspection.late_seconds(spans) == {LateCause.NOBODY: pytest.approx(60, abs=30)}
    # Its next run is on time, and what the last one left there is not believed.
    async with listening(settings, witness, note=note):
        await async_bridge.run_now("a")
        await witness.until_ended(2)
    assert (await found(async_bridge, task)).late is None


async def test_those_that_were_there_were_full(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, store: Store
) -> None:
    """It joins others, which run as many tasks as they can."""
    witness = Witness()
    store.run(claiming.heartbeat("other", settings.lease, [], code="c0de =1"))
    await async_bridge.make_task("test.note", [], 0, id="runs")
    claim(store)
    await make_overdue(async_bridge, client)
    async with listening(settings, witness, note=note):
        await witness.until_ended()
    assert causes(witness) == [LateCause.NO_ROOM]


async def test_those_that_were_there_had_room_so_they_are_dead(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, store: Store
) -> None:
    witness = Witness()
    store.run(claiming.heartbeat("dead", settings.lease, [], code="c0de =1"))
    await make_overdue(async_bridge, client)
    async with listening(settings, witness, note=note):
        await witness.until_ended()
    assert causes(witness) == [LateCause.NOBODY]


async def test_the_listener_was_suspended(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness = Witness()
    async with listening(settings, witness, note=note) as listener:
        await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended()
        listener.suspend()
        hindrances = hindrances_of(listener)
        await eventually(lambda: LateCause.NOBODY in hindrances._open)
        await make_overdue(async_bridge, client)
        age_hindrances(hindrances)
        listener.resume()
        await witness.until_ended(2)
    assert causes(witness) == [None, LateCause.NOBODY]


async def test_the_listener_has_no_room(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness, go_on = Witness(), asyncio.Event()

    async def hold() -> None:
        await go_on.wait()

    one = replace(settings, concurrency=1)
    async with listening(one, witness, hold=hold, note=note) as listener:
        await async_bridge.make_task("test.hold", [], 0)
        await witness.until(lambda: witness.seen(Started))
        await make_overdue(async_bridge, client)
        hindrances = hindrances_of(listener)
        await eventually(lambda: hindrances.backlog._full_since is not None)
        age_hindrances(hindrances)
        go_on.set()
        await witness.until_ended(2)
    assert causes(witness) == [None, LateCause.NO_ROOM]


@pytest.mark.rest
@pytest.mark.usefixtures("soon_late")
async def test_many_were_due_earlier(settings: Settings, async_bridge: AsyncBridge) -> None:
    witness = Witness()
    due = datetime.now(UTC) + timedelta(seconds=5)
    async with listening(settings, witness, note=note):
        await async_bridge.make_tasks([{"func": "test.note", "at": due}] * 5000)
        await witness.until_ended(5000)
    late = Counter(cause for cause in causes(witness) if cause is not None)
    assert late.total() > 1000
    assert late.most_common(1)[0][0] is LateCause.MANY_DUE, late


async def test_it_waited_for_its_limit(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness, go_on = Witness(), asyncio.Event()

    @handler(limit=Limit(1))
    async def export() -> None:
        await go_on.wait()

    async with listening(settings, witness, export=export):
        await async_bridge.make_task("test.export", [], 0)
        await witness.until(lambda: witness.seen(Started))
        await async_bridge.make_task("test.export", [], 0, id="waits")
        await age_waiting(witness, client, "waits")
        go_on.set()
        await witness.until_ended(2)
    assert causes(witness) == [None, LateCause.LIMIT]
    [_, late] = witness.seen(Started)
    assert late.lateness < MINUTE / 2 < late.task.waited


async def test_it_was_on_hold(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness = Witness()
    async with listening(settings, witness, note=note):
        await async_bridge.hold(func="test.note")
        await async_bridge.make_task("test.note", [], 0, id="a")
        await age_waiting(witness, client, "a")
        await async_bridge.release(func="test.note")
        await witness.until_ended()
    assert causes(witness) == [LateCause.HOLD]


@pytest.mark.rest
@pytest.mark.usefixtures("soon_late")
async def test_the_server_was_away(tmp_path: Path) -> None:
    witness = Witness()
    with EmbeddedServer(directory=tmp_path) as server:
        bridge, listener = (
            AsyncBridge(server.url),
            listening(Settings(url=server.url), witness, note=note),
        )
        async with bridge, listener:
            await bridge.make_task("test.note", [], 3 * SOON)
            server.kill()
            await asyncio.sleep(6 * SOON)  # time passes: the server is away
            await asyncio.to_thread(server.start)  # the loop goes on meanwhile
            await witness.until_ended()
    assert causes(witness) == [LateCause.NODE_AWAY]


@pytest.mark.rest
@pytest.mark.usefixtures("soon_late")
async def test_the_server_was_slow(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness = Witness()
    async with listening(settings, witness, note=note):
        await async_bridge.make_task("test.note", [], SOON)
        client.execute_command("CLIENT", "PAUSE", 800, "ALL")
        await witness.until_ended()
    assert causes(witness) == [LateCause.SERVER_SLOW]


@pytest.mark.rest
@pytest.mark.usefixtures("soon_late")
async def test_a_handler_blocked_the_event_loop(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def block() -> None:
        time.sleep(1)  # noqa: ASYNC251 - that is what it is about

    async with listening(settings, witness, block=block, note=note):
        at = datetime.now(UTC) + timedelta(seconds=SOON)
        tasks = [
            {"func": "test.block", "at": at},
            {"func": "test.note", "at": at + timedelta(seconds=0.2)},
        ]
        await async_bridge.make_tasks(tasks)
        await witness.until_ended(2)
    assert causes(witness) == [None, LateCause.BLOCKED_LOOP]


async def test_it_was_made_late(settings: Settings, async_bridge: AsyncBridge) -> None:
    witness = Witness()
    async with listening(settings, witness, note=note):
        await async_bridge.make_task(
            "test.note", [], at=datetime.now(UTC) - timedelta(seconds=MINUTE)
        )
        await witness.until_ended()
    assert causes(witness) == [LateCause.MADE_LATE]


@pytest.mark.parametrize("lapses", [True, False])
async def test_another_listener_had_it_first(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, store: Store, lapses: bool
) -> None:
    witness = Witness()
    await make_overdue(async_bridge, client)
    claim(store)
    if lapses:
        store.run(claiming.heartbeat("other", settings.lease, [], code="c0de"))
        age(client, "running", "a", 1)
        assert store.run(reconciling.sweep(settings)).lapsed == ["a"]
    else:
        settle(store, Settlement("a", "t", "released", text="it stops"))
    async with listening(settings, witness, note=note):
        await witness.until_ended()
    assert causes(witness) == [LateCause.TAKEN_OVER]


async def test_what_is_skipped_since_it_is_late_has_its_cause(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness = Witness()

    @handler(late_after="10s", misfire="skip")
    async def note() -> None: ...

    await make_overdue(async_bridge, client)
    async with listening(settings, witness, note=note):
        [ended] = await witness.until_ended()
    assert ended.end is End.FAILED
    assert [event.cause for event in witness.seen(Misfired)] == [LateCause.NOBODY]
    task = await async_bridge.get("a")
    assert task is not None
    assert task.late is not None


async def test_what_may_be_late_has_no_cause(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness = Witness()

    @handler(late_after="1h", misfire="skip")
    async def note() -> None: ...

    await make_overdue(async_bridge, client)
    async with listening(settings, witness, note=note):
        await witness.until_ended(1, End.SUCCEEDED)
    assert causes(witness) == [None]


async def test_an_objective_is_kept_or_missed_under_each_name(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, store: Store
) -> None:
    witness = Witness()

    @handler(late="30s", aliases=["test.old"])
    async def note() -> None: ...

    await make_overdue(async_bridge, client)
    async with listening(settings, witness, note=note):
        await async_bridge.make_task("test.note", [], 0)
        await async_bridge.make_task("test.old", [], 0)
        await witness.until_ended(3)
    spans = store.run(inspection.read_tally(spans=2, minutes=1))
    results = {one.func: (one.within, one.over) for one in inspection.objective_results(spans)}
    assert results == {"test.note": (1, 1), "test.old": (1, 0)}
