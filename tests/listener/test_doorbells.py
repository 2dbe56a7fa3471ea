"""What makes a listener look for due tasks: events, the clock, and producers."""

import asyncio
import time
from dataclasses import replace

import pytest
import redis

from expirebridge import AsyncBridge, State, current_task
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.hooks import Claimed, End, Gap
from expirebridge.listener.partition import due_timer
from expirebridge.listener.partition.due_timer import LeadTime
from expirebridge.listener.server import subscriber
from expirebridge.listener.session import ServerClock
from expirebridge.settings import Doorbells, Settings
from tests.kit.patience import PATIENCE
from tests.kit.servers import AnyServer, hanging
from tests.kit.steps import found
from tests.kit.witness import Witness, listening, logged

pytestmark = pytest.mark.servers("oldest")


EVENTS = "events"
"""What wakes a listener of a test, and no other: its clock stands still."""


@pytest.fixture
def ringing(request: pytest.FixtureRequest, url: str) -> Settings:
    """The settings of a listener that this doorbell wakes."""
    if request.param == EVENTS:
        request.getfixturevalue("without_clock")
        return Settings(url=url)
    return Settings(url=url, doorbell=request.param)


@pytest.mark.parametrize("ringing", [Doorbells.CLOCK, EVENTS, Doorbells.BOTH], indirect=True)
async def test_each_doorbell_alone_runs_tasks_once_and_never_early(
    ringing: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    started: list[tuple[str, float]] = []

    async def note() -> None:
        started.append((current_task().id, time.time() - current_task().due.timestamp()))

    async with listening(ringing, witness, note=note):
        made = [await async_bridge.make_task("test.note", [], 0.02 * n) for n in range(1, 20)]
        await witness.until_ended(len(made))
    assert sorted(id for id, _ in started) == sorted(task.id for task in made)
    assert min(lateness for _, lateness in started) >= 0


class FarAhead(LeadTime):
    """Always so much that the claim comes too early, however late the listener is."""

    def __init__(self) -> None:
        self.seconds = 1.9

    def learn(self, delay: float) -> None: ...


@pytest.fixture
def only_when_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks just because a second has passed: what is forgotten stays where it is."""
    monkeypatch.setattr(due_timer, "LONGEST_SLEEP", 3600.0)


@pytest.mark.usefixtures("only_when_due")
async def test_a_claim_that_comes_too_early_finds_nothing_and_is_repeated(
    url: str, async_bridge: AsyncBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's clock decides, however far ahead the listener asks."""
    monkeypatch.setattr(due_timer, "LeadTime", FarAhead)
    witness = Witness()

    async def note() -> None: ...

    async with listening(Settings(url=url, doorbell=Doorbells.CLOCK), witness, note=note):
        made = [await async_bridge.make_task("test.note", [], 2) for _ in range(3)]
        await witness.until_ended(len(made))
    for task in made:
        read = await found(async_bridge, task)
        assert read.started is not None
        assert read.started >= task.due
    assert 1 <= sum(claim.count == 0 for claim in witness.seen(Claimed)) < 20


@pytest.mark.usefixtures("only_when_due")
async def test_a_producer_rings_a_listener_that_sleeps(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    """Without the doorbell channel each task would wait for the clock's next look."""
    witness = Witness()

    async def note() -> None: ...

    async with listening(Settings(url=settings.url, doorbell=Doorbells.CLOCK), witness, note=note):
        await async_bridge.make_task("test.note", [], 3600)
        for number in range(5):
            await async_bridge.make_task("test.note", [], 0)
            await witness.until_ended(number + 1)


@pytest.mark.parametrize("ringing", [Doorbells.CLOCK, EVENTS], indirect=True)
async def test_a_task_that_is_due_at_once_needs_no_event(
    ringing: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def note() -> None: ...

    async with listening(ringing, witness, note=note):
        await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended()
    assert witness.ended()[0].end is End.SUCCEEDED


@pytest.mark.usefixtures("without_clock")
async def test_a_task_that_is_due_at_once_runs_though_the_servers_time_is_not_known_exactly(
    url: str, async_bridge: AsyncBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerClock, "seconds_until", lambda *_: 0.001)
    witness = Witness()

    async def note() -> None: ...

    async with listening(Settings(url=url), witness, note=note):
        await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended()  # this one may be found by what is done at the start
        await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended(2)


@pytest.mark.parametrize("kind", ["pubsub", "normal"])
async def test_it_reconnects_by_itself_and_sweeps_after_the_gap(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, kind: str
) -> None:
    witness = Witness()

    async def note() -> None: ...

    async with listening(settings, witness, note=note):
        await witness.until_hearing()
        gaps = len(witness.seen(Gap))
        client.execute_command("CLIENT", "KILL", "TYPE", kind)
        if kind == "pubsub":
            await witness.until(lambda: len(witness.seen(Gap)) > gaps)
        task = await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended()
    assert (await found(async_bridge, task)).state is State.SUCCEEDED


async def test_an_ear_that_opens_while_it_reconnects_hears(
    settings: Settings, client: redis.Redis, shared_server: AnyServer
) -> None:
    if not isinstance(shared_server, EmbeddedServer):
        pytest.skip("a container cannot be stopped like this")
    client.zadd("expirebridge:listeners", {"!1": time.time() * 1000, "!2": time.time() * 1000})
    witness = Witness()
    async with listening(replace(settings, lease=600.0), witness) as listener:
        [node] = listener._servers.nodes.values()
        before = node.subscriber._channels
        client.client_kill_filter(_type="pubsub")
        with hanging(shared_server):
            async with asyncio.timeout(PATIENCE):
                while node.subscriber._channels is before:  # noqa: ASYNC110 - nothing signals it
                    await asyncio.sleep(0.01)
            node._event_demand.want("the test", True)
            await asyncio.sleep(0)
            assert not witness.seen(Gap)
        await witness.until_hearing()


async def test_a_listener_outlives_a_subscription_that_breaks_while_it_changes(
    settings: Settings, client: redis.Redis
) -> None:
    """At whichever step of the event loop: its end may be read while the change is being sent."""
    client.zadd("expirebridge:listeners", {"!1": time.time() * 1000, "!2": time.time() * 1000})
    witness = Witness()
    async with listening(replace(settings, lease=600.0), witness) as listener:
        [node] = listener._servers.nodes.values()
        for steps in range(8):
            async with asyncio.timeout(PATIENCE):
                while node.subscriber._pubsub is None:  # noqa: ASYNC110 - nothing signals it
                    await asyncio.sleep(0.01)
            client.client_kill_filter(_type="pubsub")
            for _ in range(steps):
                await asyncio.sleep(0)
            node._event_demand.want("the test", not node._event_demand.open)
            await asyncio.sleep(0.01)
        if not node._event_demand.open:
            node._event_demand.want("the test", True)
        await witness.until_hearing()


async def test_a_subscription_that_is_not_answered_is_told_of(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriber, "FRESH", 0.05)  # the second ping comes after a second
    async with listening(Settings(url=url)):
        await logged("no answer to a ping for 0.05 s", caplog)
