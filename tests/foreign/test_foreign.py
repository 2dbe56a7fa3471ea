"""Tasks that other clients set with plain commands, and edits that they make."""

import asyncio
import time

import pytest
import redis
from redis.asyncio.client import PubSub

from expirebridge import AsyncBridge, State, current_task
from expirebridge.connection import clients
from expirebridge.embedded.server import free_port
from expirebridge.hooks import End, Gap, Hooks, Rung, Source, Started
from expirebridge.listener.execution.capacity import Capacity, Wakeup
from expirebridge.listener.execution.in_flight import InFlight
from expirebridge.listener.hindrances import Hindrances, LoopPulse
from expirebridge.listener.partition import reconciler
from expirebridge.listener.partition import reconciler as news
from expirebridge.listener.partition.backlog import BacklogScan
from expirebridge.listener.partition.due_timer import DueTimer
from expirebridge.listener.partition.fair_share import FairShare
from expirebridge.listener.partition.misplaced_keys import MisplacedKeys
from expirebridge.listener.partition.reconciler import KeyReconciler
from expirebridge.listener.session import Membership, SessionOwner
from expirebridge.settings import Settings
from expirebridge.store.client import AsyncStore
from expirebridge.task.calls import looking as looking_calls
from expirebridge.task.calls.reconciling import EventKind, KeyEvent
from expirebridge.task.keys import id_for_key
from tests.kit.patience import PATIENCE
from tests.kit.sessions import code_without_handlers, owner_of
from tests.kit.witness import Witness, listening, logged

pytestmark = pytest.mark.servers("oldest")

STEPS = 20


async def test_the_clock_knows_of_a_bare_key_before_it_expires(
    settings: Settings, client: redis.Redis, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def send(user: int) -> int:
        return user

    async with listening(settings, witness, send=send):
        await witness.until_hearing()
        client.set("abc:?test.send?[42]", "", px=400)
        await witness.until_ended()
    task = await async_bridge.get("abc")
    assert task is not None
    assert (task.state, task.result) == (State.SUCCEEDED, 42)
    assert witness.seen(Started)[0].lateness >= 0
    # So it is as punctual as our own: Redis would take some 100 ms on average to expire it.
    before = witness.events[: witness.events.index(witness.seen(Started)[0])]
    assert Rung(source=Source.PRODUCER) in before


async def test_the_classic_producer_sets_a_key_and_then_its_ttl(
    settings: Settings, client: redis.Redis
) -> None:
    witness = Witness()

    async def send(user: int) -> None: ...

    async with listening(settings, witness, send=send):
        await witness.until_hearing()
        producer = client.pipeline()
        producer.set("abc:?test.send?[42]", "")
        producer.expire("abc:?test.send?[42]", 1)
        producer.execute()
        await witness.until_ended()
    assert witness.ended()[0].task.id == "abc"


async def test_however_short_its_ttl_it_runs_once(settings: Settings, client: redis.Redis) -> None:
    witness = Witness()
    ran: list[str] = []

    async def note() -> None:
        ran.append(current_task().id)

    async with listening(settings, witness, note=note):
        await witness.until_hearing()
        for n in range(50):
            client.set(f"k{n}:?test.note?[]", "", px=1 + n % 3)
        await witness.until_ended(50)
    assert sorted(ran) == sorted(f"k{n}" for n in range(50))


@pytest.mark.usefixtures("without_clock")  # so that all hear all events
async def test_many_listeners_run_it_once(settings: Settings, client: redis.Redis) -> None:
    witness = Witness()
    ran: list[str] = []

    async def note() -> None:
        ran.append(current_task().id)

    async with (
        listening(settings, witness, note=note),
        listening(settings, witness, note=note),
        listening(settings, witness, note=note),
    ):
        await witness.until(lambda: len(witness.seen(Gap)) >= 3)
        for n in range(20):
            client.set(f"k{n}:?test.note?[]", "", px=30)
        await witness.until_ended(20)
    assert sorted(ran) == sorted(f"k{n}" for n in range(20))


async def test_a_key_that_was_set_while_nobody_listened_is_found_by_the_scan(
    settings: Settings, client: redis.Redis
) -> None:
    client.set("abc:?test.send?[42]", "", px=2000)
    client.set("other:data", "left alone")
    witness = Witness()

    async def send(user: int) -> None: ...

    async with listening(settings, witness, send=send):
        await witness.until_ended()
    assert witness.ended()[0].end is End.SUCCEEDED
    assert client.get("other:data") == b"left alone"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"abc:?test.send?[42", "args: "),
        (b"abc:?test.send?12", "neither an array nor an object"),
        (b"abc:?test.send?[NaN]", "args: "),
        (b"abc:?test.send?[36893488147419103232]", "beyond 64 bits"),
        (b"abc:?../test.send?[]", "func='../test.send'"),
        (b"a b:?test.send?[]", "id='a b'"),
        (b"abc\xff:?test.send?[]", "must be ASCII"),
        (b"abc:?test.send?@", "in no record"),
        (b"abc:?test.send?[" + b"1," * 40_000 + b"1]", "at most 65,536"),
    ],
)
async def test_a_key_that_cannot_be_a_task_is_kept_as_failed_with_the_reason(
    settings: Settings,
    client: redis.Redis,
    async_bridge: AsyncBridge,
    name: bytes,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    witness = Witness()

    async def send(user: int) -> None: ...

    async with listening(settings, witness, send=send):
        await witness.until_hearing()
        client.set(name, "", px=50)
        client.set("fine:?test.send?[1]", "", px=60)
        await witness.until_ended()
        await logged("cannot be a task", caplog)
        [task] = (await async_bridge.list(state="failed")).tasks
    assert reason in str(task.error)
    assert [event.task.id for event in witness.ended()] == ["fine"]


async def test_keys_of_other_forms_are_left_alone(
    settings: Settings, client: redis.Redis, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def send(user: int) -> None: ...

    names = [b"session:1", b"a?b:?c", b"a:b?c?d", b"?f?[]", b":?", b"\xff\xfe?x?y"]
    async with listening(settings, witness, send=send):
        await witness.until_hearing()
        for name in names:
            client.set(name, "", px=20)
        client.set("fine:?test.send?[1]", "", px=60)
        await witness.until_ended()
        assert len((await async_bridge.list()).tasks) == 1


async def test_a_sooner_deadline_is_followed_when_it_is_heard(
    settings: Settings, client: redis.Redis, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def note() -> None: ...

    async with listening(settings, witness, note=note):
        await witness.until_hearing()
        task = await async_bridge.make_task("test.note", [], 3600)
        client.pexpire(task.key, 50)
        await witness.until_ended()
    assert witness.ended()[0].task.id == task.id


async def test_put_offs_are_followed_however_many(
    settings: Settings, client: redis.Redis, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    started: list[float] = []

    async def note() -> None:
        started.append(time.time())

    async with listening(settings, witness, note=note):
        task = await async_bridge.make_task("test.note", [], 0.1)
        for more in range(50, 300, 50):
            client.pexpire(task.key, 100 + more)
        last = time.time() * 1000 + client.pttl(task.key) - 2
        await witness.until_ended()
    assert len(started) == 1
    assert started[0] >= last / 1000


async def test_a_key_that_is_not_run_because_its_ids_are_taken_is_logged(
    settings: Settings, client: redis.Redis, async_bridge: AsyncBridge,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    refused = b"abc:?f.g?[36893488147419103232]"
    async with listening(settings):
        for name in (refused, b"a:?f.g?[2]"):
            await async_bridge.make_task("f.g", [1], 60, id=id_for_key(name))
        await async_bridge.make_task("f.g", [1], 60, id="a")
        client.set(refused, "", px=60_000)
        await logged(f"{id_for_key(refused)}, belongs to another task", caplog)
        client.set("a:?f.g?[2]", "", px=60_000)
        await logged(f"{id_for_key(b'a:?f.g?[2]')}, belongs to another task", caplog)
    assert "[2]" not in caplog.text


async def test_an_id_that_is_used_again_with_other_arguments_runs_once_for_each(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    """Two listeners hear of each end, and only one of them has claimed the task."""
    witness, ran = Witness(), list[int]()

    async def step(n: int) -> None:
        ran.append(n)
        if n < STEPS:
            await async_bridge.make_task("test.step", [n + 1], 0.01, id="a", if_exists="replace")

    async with listening(settings, witness, step=step), listening(settings, witness, step=step):
        await async_bridge.make_task("test.step", [1], 0, id="a")
        await witness.until(lambda: STEPS in ran)
        # Whatever else these ends would start is started by the time that they are believed.
        await async_bridge.make_task("test.step", [STEPS], 3 * reconciler.ECHO_WAIT, id="last")
        await witness.until(lambda: ran.count(STEPS) == 2)
    assert ran == [*range(1, STEPS + 1), STEPS]


def reconciler_on(consumer: SessionOwner, settings: Settings, wakeup: Wakeup) -> KeyReconciler:
    membership = Membership(settings.doorbell)
    due_timer = DueTimer(
        consumer, settings.prefix, wakeup=wakeup, hooks=Hooks(),
        hindrances=Hindrances(consumer, LoopPulse(), lease=settings.lease),
        fair_share=FairShare(membership, Capacity(1, InFlight())),
        scan=BacklogScan(code_without_handlers(), membership),
    )  # fmt: skip
    misplaced = MisplacedKeys(consumer.session.store.database.layout, Hooks())
    return KeyReconciler(consumer, settings, None, misplaced, wakeup=wakeup, due_timer=due_timer)


async def until_stale(store: AsyncStore, settings: Settings) -> None:
    """Hear of the end of a key, and look at it until that is no longer believed."""
    consumer = owner_of(store)
    looking = reconciler_on(consumer, settings, Wakeup())
    looking.hear(b"gone:?test.send?[]", EventKind.EXPIRED)
    role = asyncio.create_task(looking.run())
    try:
        async with asyncio.timeout(PATIENCE):
            assert await consumer.session.resyncs.take() == [
                "events waited for too long to be believed"
            ]
    finally:
        role.cancel()


async def test_an_event_that_waited_for_too_long_is_not_believed(
    settings: Settings, async_store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task may have run, and have been forgotten: it would be taken for another client's."""
    monkeypatch.setattr(reconciler, "STALE_AFTER", 0.0)
    await until_stale(async_store, settings)
    assert await async_store.run(looking_calls.get("gone")) is None


async def test_an_event_that_nobody_could_look_at_in_time_is_not_believed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a partition: the task may have been forgotten meanwhile."""
    monkeypatch.setattr(reconciler, "STALE_AFTER", 0.3)
    monkeypatch.setattr(reconciler, "RETRY_PAUSE", 0.05)
    async with clients.async_producer_client(f"redis://127.0.0.1:{free_port()}/1") as nobody:
        await until_stale(AsyncStore(nobody, prefix=settings.prefix), settings)


async def hear_of_one(channel: PubSub) -> None:
    while await channel.get_message(timeout=PATIENCE) is None:
        pass


async def test_what_is_set_after_a_deletion_is_not_deleted_by_it(
    settings: Settings, client: redis.Redis, async_bridge: AsyncBridge
) -> None:
    """A replacement deletes the key and sets it; then somebody wants the task now."""
    witness = Witness()

    async def note() -> None: ...

    async with listening(settings, witness, note=note):
        await witness.until_hearing()
        await async_bridge.make_task("test.note", [], 60, id="a")
        task = await async_bridge.make_task("test.note", [], 60, id="a", if_exists="replace")
        client.pexpire(task.key, 1)
        # At once: a deletion that was looked at ends the task, and then an expiry says nothing.
        with client.pipeline() as pipeline:
            pipeline.set("b:?test.note?[]", "", px=3600_000)
            pipeline.delete("b:?test.note?[]")
            pipeline.set("b:?test.note?[]", "", px=3600_000)
            pipeline.pexpire("b:?test.note?[]", 1)
            pipeline.execute()
        await witness.until_ended(2)
    assert {event.task.id for event in witness.ended(End.SUCCEEDED)} == {"a", "b"}


async def test_the_end_of_a_former_timer_does_not_bring_the_present_one_forward(
    settings: Settings, client: redis.Redis, async_bridge: AsyncBridge
) -> None:
    """The other listener than the one that ran the task still waits for what explains its end."""
    witness = Witness()

    async def note() -> None: ...

    async with listening(settings, witness, note=note), listening(settings, witness, note=note):
        await witness.until(lambda: len(witness.seen(Gap)) >= 2)
        for count in range(1, 4):
            await async_bridge.make_task("test.note", [], 0.05, id="a")
            await witness.until_ended(count)
            task = await async_bridge.make_task("test.note", [], 3600, id="a")
            client.delete(task.key)
            await until_cancelled(async_bridge, "a")
    assert len(witness.ended()) == 3


async def until_cancelled(bridge: AsyncBridge, id: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            task = await bridge.get(id)
            if task is not None and task.state is State.CANCELLED:
                return
            await asyncio.sleep(0.02)


async def test_an_expiry_is_looked_at_unless_it_is_the_echo_of_a_claim(
    settings: Settings, async_store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = iter([True, True, False])
    wakeup = Wakeup()
    looking = reconciler_on(owner_of(async_store), settings, wakeup)
    monkeypatch.setattr(DueTimer, "behind", property(lambda _: next(behind)), raising=False)
    doorbell = async_store.client.pubsub(ignore_subscribe_messages=True)
    await doorbell.subscribe(async_store.database.doorbell_channel)
    for name in (b"echo:?test.send?[]", b"news:?test.send?[]"):
        assert looking.hear(name, EventKind.EXPIRED)
    assert looking.explain(b"echo:?test.send?[]")
    assert not looking.explain(b"unheard:?test.send?[]")
    role = asyncio.create_task(looking.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await wakeup.wait()
            assert next(behind, None) is None  # it waited while the listener was behind
            # It is adopted, and the doorbell told of it; the other one would come in the same look.
            await hear_of_one(doorbell)
    finally:
        role.cancel()
        await doorbell.aclose()
    counts = await async_store.run(looking_calls.count(10))
    assert counts.pending == 1
    assert await async_store.run(looking_calls.get("news")) is not None


async def test_timers_that_scripts_set_are_not_looked_at(
    settings: Settings,
    client: redis.Redis,
    async_bridge: AsyncBridge,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many tasks are made here, what other clients set does not wait for them."""
    looked_at: list[bytes] = []
    key_event_of = news.key_event_of

    def remember(name: bytes, heard: EventKind, home: str) -> KeyEvent | None:
        looked_at.append(name)
        return key_event_of(name, heard)

    monkeypatch.setattr(news, "key_event_of", remember)
    witness = Witness()

    async def note() -> None: ...

    async with listening(settings, witness, note=note):
        await witness.until_hearing()
        for n in range(5):
            await async_bridge.make_task("test.note", [], 3600, id=f"t{n}")
            await async_bridge.reschedule(f"t{n}", 1800)
        client.set("foreign:?test.note?[]", "", px=50)
        await witness.until_ended()
    assert set(looked_at) == {b"foreign:?test.note?[]"}
