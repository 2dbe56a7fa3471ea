"""Tasks that other clients set with plain commands, and edits that they make."""

import asyncio
import time
from dataclasses import replace

import pytest
import redis
from redis.asyncio.client import PubSub

from expirebridge import AsyncBridge, Bridge, Change, State, current_task
from expirebridge.hooks import End, Gap, Hooks, Rung, Source, Started
from expirebridge.listener.doorbell import Doorbell
from expirebridge.listener.footing import Footing
from expirebridge.listener.station import adopter
from expirebridge.listener.station.adopter import Adopter
from expirebridge.listener.station.clock import Clock
from expirebridge.listener.station.standing import Standing
from expirebridge.server import free_port
from expirebridge.settings import Doorbells, Settings
from expirebridge.store import calls, clients
from expirebridge.store.calls import Adoption, Heard, Hint, Settlement
from expirebridge.store.store import AsyncStore, Store
from expirebridge.wire import id_for_key
from tests.kit.footing import footing_on
from tests.kit.witness import Witness, listening, logged

STEPS = 20


def hearing(witness: Witness) -> bool:
    return any("subscription" in gap.reason for gap in witness.seen(Gap))


async def test_the_clock_knows_of_a_bare_key_before_it_expires(
    settings: Settings, client: redis.Redis, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def send(user: int) -> int:
        return user

    async with listening(settings, witness, send=send):
        await witness.until(lambda: hearing(witness))
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
        await witness.until(lambda: hearing(witness))
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
        await witness.until(lambda: hearing(witness))
        for n in range(50):
            client.set(f"k{n}:?test.note?[]", "", px=1 + n % 3)
        await witness.until_ended(50)
    assert sorted(ran) == sorted(f"k{n}" for n in range(50))


async def test_many_listeners_run_it_once(settings: Settings, client: redis.Redis) -> None:
    witness = Witness()
    ran: list[str] = []

    async def note() -> None:
        ran.append(current_task().id)

    events = Settings(url=settings.url, doorbell=Doorbells.EVENTS)  # all of these hear all events
    async with (
        listening(events, witness, note=note),
        listening(events, witness, note=note),
        listening(events, witness, note=note),
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
        await witness.until(lambda: hearing(witness))
        client.set(name, "", px=50)
        client.set("fine:?test.send?[1]", "", px=60)
        await witness.until_ended()
        await logged("cannot be a task", caplog)
        [task] = (await async_bridge.list(state="failed")).tasks
    assert reason in str(task.error)
    assert [event.task.id for event in witness.ended()] == ["fine"]


async def test_a_refused_key_that_somebody_runs_all_the_same_fails_again(
    settings: Settings, client: redis.Redis, store: Store, async_bridge: AsyncBridge
) -> None:
    """Its handler would get another number than the one that was written."""
    name = b"abc:?test.send?[36893488147419103232]"
    client.set(name, "", px=60_000)
    refused = adopter.hint_for(name, Heard.LIVE)
    assert refused is not None
    assert adopt(store, refused) == [Adoption.INVALID]
    assert await async_bridge.run_now(id_for_key(name)) is Change.DUE_NOW
    kept = await async_bridge.make_task("test.send", [1], 60, id=id_for_key(name), if_exists="keep")
    assert kept.args == ["[36893488147419103232]"]
    witness = Witness()

    async def send(user: int) -> None: ...

    async with listening(settings, witness, send=send):
        await witness.until_ended()
    assert witness.ended()[0].end is End.FAILED
    assert "beyond 64 bits" in witness.ended()[0].reason


async def test_keys_of_other_forms_are_left_alone(
    settings: Settings, client: redis.Redis, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def send(user: int) -> None: ...

    names = [b"session:1", b"a?b:?c", b"a:b?c?d", b"?f?[]", b":?", b"\xff\xfe?x?y"]
    async with listening(settings, witness, send=send):
        await witness.until(lambda: hearing(witness))
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
        await witness.until(lambda: hearing(witness))
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


# The adoption itself


def hint(name: str, id: str, call: str, heard: Heard = Heard.LIVE) -> Hint:
    return Hint(name.encode(), id, call.encode(), heard)


def adopt(store: Store, *hints: Hint) -> list[Adoption]:
    return store.run(calls.adopt(hints, Settings()))


def test_a_hint_counts_only_if_the_key_is_there(store: Store, client: redis.Redis) -> None:
    live = hint("a:?f.g?[]", "a", "f.g?[]")
    assert adopt(store, live) == [Adoption.NOTHING]
    client.set("a:?f.g?[]", "")  # without a TTL it is no timer
    assert adopt(store, live) == [Adoption.NOTHING]
    client.expire("a:?f.g?[]", 60)
    assert adopt(store, live, live) == [Adoption.ADOPTED, Adoption.KNOWN]


def test_the_echo_of_a_finished_task_does_not_run_it_again(
    store: Store, client: redis.Redis
) -> None:
    echo = hint("a:?f.g?[]", "a", "f.g?[]", Heard.EXPIRED)
    assert adopt(store, echo) == [Adoption.ADOPTED]
    [task] = store.run(calls.claim("t", Settings(), room=9, idle=True)).tasks
    assert adopt(store, echo) == [Adoption.KNOWN]
    store.run(calls.settle([calls.Settlement(task.id, "t", "succeeded")], Settings()))
    assert adopt(store, echo) == [Adoption.KNOWN]
    assert store.run(calls.count(10)).pending == 0


@pytest.mark.parametrize(("args", "finished"), [([2], False), ([3], False), ([3], True)])
def test_a_key_whose_every_id_is_taken_is_not_run_and_that_is_said(
    store: Store, bridge: Bridge, client: redis.Redis, args: list[int], finished: bool
) -> None:
    name = b"a:?f.g?[2]"
    ours = hint(name.decode(), "a", "f.g?[2]")
    bridge.make_task("f.g", [1], 60, id="a")
    bridge.make_task("f.g", args, 0 if finished else 30, id=id_for_key(name))
    if finished:
        store.run(calls.claim("t", Settings(), room=9, idle=True))
        store.run(calls.settle([Settlement(id_for_key(name), "t", "succeeded")], Settings()))
    assert adopt(store, ours, replace(ours, heard=Heard.EXPIRED)) == [Adoption.NOTHING] * 2
    client.set(name, "", px=60_000)
    assert adopt(store, ours) == [Adoption.TAKEN]
    other = bridge.get(id_for_key(name))
    assert other is not None
    assert other.args == args


def test_a_refused_key_whose_id_is_taken_is_kept_nowhere_and_that_is_said(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    name = b"abc:?f.g?[36893488147419103232]"
    bridge.make_task("f.g", [3], 60, id=id_for_key(name))
    client.set(name, "", px=60_000)
    refused = adopter.hint_for(name, Heard.LIVE)
    assert refused is not None
    assert adopt(store, refused) == [Adoption.TAKEN]
    client.delete(name)
    assert adopt(store, refused) == [Adoption.NOTHING]
    assert adopt(store, replace(refused, heard=Heard.EXPIRED)) == [Adoption.TAKEN]


def test_a_key_whose_own_id_is_free_takes_it_whoever_has_its_hash(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    name = b"a:?f.g?[2]"
    bridge.make_task("f.g", [3], 60, id=id_for_key(name))
    client.set(name, "", px=60_000)
    assert adopt(store, hint(name.decode(), "a", "f.g?[2]")) == [Adoption.ADOPTED]
    task = bridge.get("a")
    assert task is not None
    assert (task.args, task.key) == ([2], name)


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
        await logged(f"{id_for_key(refused)}, which is left for it, is another", caplog)
        client.set("a:?f.g?[2]", "", px=60_000)
        await logged(f"{id_for_key(b'a:?f.g?[2]')}, which is left for it, is another", caplog)
    assert "[2]" not in caplog.text


@pytest.mark.parametrize("how", ["replaced", "replaced while it ran", "made anew", "cancelled"])
def test_the_end_of_a_key_that_its_id_had_before_runs_nothing(
    store: Store, bridge: Bridge, how: str
) -> None:
    """The record names another call by the time at which the event is looked at."""
    bridge.make_task("f.g", [1], 0, id="a")
    running = how in {"replaced while it ran", "made anew"}
    if running:
        store.run(calls.claim("t", Settings(), room=9, idle=True))
    if how == "cancelled":
        bridge.cancel("a")
    if how == "made anew":
        store.run(calls.settle([Settlement("a", "t", "succeeded")], Settings()))
    bridge.make_task("f.g", [2], 60, id="a", if_exists="replace")
    if how == "replaced while it ran":
        store.run(calls.settle([Settlement("a", "t", "succeeded")], Settings()))
    for heard in Heard:
        assert adopt(store, hint("a:?f.g?[1]", "a", "f.g?[1]", heard)) == [Adoption.NOTHING]
    [left] = bridge.list(state="pending").tasks
    assert (left.id, left.args) == ("a", [2])
    assert bridge.count().pending == 1


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
        await async_bridge.make_task("test.step", [STEPS], 3 * adopter.ECHO_WAIT, id="last")
        await witness.until(lambda: ran.count(STEPS) == 2)
    assert ran == [*range(1, STEPS + 1), STEPS]


def test_a_finished_task_s_key_that_is_set_again_is_a_new_generation(
    store: Store, client: redis.Redis
) -> None:
    store.run(calls.adopt([hint("a:?f.g?[]", "a", "f.g?[]", Heard.EXPIRED)], Settings()))
    store.run(calls.claim("t", Settings(), room=9, idle=True))
    store.run(calls.settle([calls.Settlement("a", "t", "failed", text="x")], Settings()))
    client.set("a:?f.g?[]", "", px=60_000)
    assert adopt(store, hint("a:?f.g?[]", "a", "f.g?[]")) == [Adoption.ADOPTED]
    task = store.run(calls.get("a"))
    assert task is not None
    assert (task.state, task.error) == (State.PENDING, None)


def test_a_key_whose_id_belongs_to_another_call_gets_an_id_of_its_own(
    store: Store, client: redis.Redis
) -> None:
    for name in ("a:?f.g?[1]", "a:?f.g?[2]"):
        client.set(name, "", px=60_000)
    first, second = hint("a:?f.g?[1]", "a", "f.g?[1]"), hint("a:?f.g?[2]", "a", "f.g?[2]")
    assert adopt(store, first, second) == [Adoption.ADOPTED, Adoption.ADOPTED]
    assert adopt(store, second, first) == [Adoption.KNOWN, Adoption.KNOWN]
    other = store.run(calls.get(id_for_key(b"a:?f.g?[2]")))
    assert other is not None
    assert (other.args, other.key) == ([2], b"a:?f.g?[2]")
    # Its timer is the key that was set: a put-off of that key is followed.
    client.expire("a:?f.g?[2]", 3600)
    client.zadd("expirebridge:pending", {other.id: 1})
    assert store.run(calls.claim("t", Settings(), room=9, idle=True)).tasks == []


def test_a_scan_finds_what_no_record_knows_and_follows_edits(
    store: Store, client: redis.Redis
) -> None:
    def mine(id: str) -> calls.NewTask:
        when = calls.When(3_600_000, relative=True)
        return calls.NewTask(id=id, drawn=False, if_exists="reject", call=b"f.g?[]", when=when)

    store.run(calls.make([mine(id) for id in ("same", "sooner", "paused")]))
    client.expire("sooner:?f.g?[]", 60)
    client.persist("paused:?f.g?[]")
    client.set("new:?f.g?[]", "", px=60_000)
    client.set("unrelated", "x")
    found, alien, cursor = [], 0, "0"
    while True:
        scanned = store.run(calls.scan(cursor, 3))
        found += scanned.found
        alien += scanned.alien
        cursor = scanned.cursor
        if cursor == "0":
            break
    assert (found, alien) == ([b"new:?f.g?[]"], 1)
    states = {id: store.run(calls.get(id)) for id in ("same", "sooner", "paused")}
    assert [task.state for task in states.values() if task] == ["pending", "pending", "paused"]
    first = store.run(calls.claim("t", Settings(), room=9, idle=True)).next_due
    assert first is not None
    assert first / 1000 - time.time() < 61


def adopter_on(footing: Footing, settings: Settings, doorbell: Doorbell) -> Adopter:
    standing = Standing(settings.doorbell)
    clock = Clock(footing, settings.prefix, doorbell=doorbell, standing=standing, hooks=Hooks())
    return Adopter(footing, settings, doorbell=doorbell, clock=clock)


async def until_stale(store: AsyncStore, settings: Settings) -> None:
    """Hear of the end of a key, and look at it until that is no longer believed."""
    footing = footing_on(store)
    looking = adopter_on(footing, settings, Doorbell())
    looking.hear(b"gone:?test.send?[]", Heard.EXPIRED)
    role = asyncio.create_task(looking.run())
    try:
        async with asyncio.timeout(20):
            assert await footing.now.gaps.take() == ["events waited for too long to be believed"]
    finally:
        role.cancel()


async def test_an_event_that_waited_for_too_long_is_not_believed(
    settings: Settings, async_store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task may have run, and have been forgotten: it would be taken for another client's."""
    monkeypatch.setattr(adopter, "STALE_AFTER", 0.0)
    await until_stale(async_store, settings)
    assert await async_store.run(calls.get("gone")) is None


async def test_an_event_that_nobody_could_look_at_in_time_is_not_believed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a partition: the task may have been forgotten meanwhile."""
    monkeypatch.setattr(adopter, "STALE_AFTER", 0.3)
    monkeypatch.setattr(adopter, "RETRY_PAUSE", 0.05)
    async with clients.async_producer_client(f"redis://127.0.0.1:{free_port()}/1") as nobody:
        await until_stale(AsyncStore(nobody, prefix=settings.prefix), settings)


async def hear_of_one(channel: PubSub) -> None:
    while await channel.get_message(timeout=1.0) is None:
        pass


async def test_what_is_set_after_a_deletion_is_not_deleted_by_it(
    settings: Settings, client: redis.Redis, async_bridge: AsyncBridge
) -> None:
    """A replacement deletes the key and sets it; then somebody wants the task now."""
    witness = Witness()

    async def note() -> None: ...

    async with listening(settings, witness, note=note):
        await witness.until(lambda: hearing(witness))
        await async_bridge.make_task("test.note", [], 60, id="a")
        task = await async_bridge.make_task("test.note", [], 60, id="a", if_exists="replace")
        client.pexpire(task.key, 1)
        client.set("b:?test.note?[]", "", px=3600_000)
        client.delete("b:?test.note?[]")
        client.set("b:?test.note?[]", "", px=3600_000)
        client.pexpire("b:?test.note?[]", 1)
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
    async with asyncio.timeout(20):
        while True:
            task = await bridge.get(id)
            if task is not None and task.state is State.CANCELLED:
                return
            await asyncio.sleep(0.02)


async def test_an_expiry_is_looked_at_unless_it_is_the_echo_of_a_claim(
    settings: Settings, async_store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = iter([True, True, False])
    rung = Doorbell()
    looking = adopter_on(footing_on(async_store), settings, rung)
    monkeypatch.setattr(Clock, "behind", property(lambda _: next(behind)), raising=False)
    doorbell = async_store.client.pubsub(ignore_subscribe_messages=True)
    await doorbell.subscribe(async_store.database.doorbell)
    for name in (b"echo:?test.send?[]", b"news:?test.send?[]"):
        assert looking.hear(name, Heard.EXPIRED)
    assert looking.explain(b"echo:?test.send?[]")
    assert not looking.explain(b"unheard:?test.send?[]")
    role = asyncio.create_task(looking.run())
    try:
        async with asyncio.timeout(20):
            await rung.answer()
            assert next(behind, None) is None  # it waited while the listener was behind
            # It is adopted, and the doorbell told of it; the other one would come in the same look.
            await hear_of_one(doorbell)
    finally:
        role.cancel()
        await doorbell.aclose()
    counts = await async_store.run(calls.count(10))
    assert counts.pending == 1
    assert await async_store.run(calls.get("news")) is not None


async def test_timers_that_scripts_set_are_not_looked_at(
    settings: Settings,
    client: redis.Redis,
    async_bridge: AsyncBridge,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many tasks are made here, what other clients set does not wait for them."""
    looked_at: list[bytes] = []
    hint_for = adopter.hint_for

    def remember(name: bytes, heard: Heard) -> Hint | None:
        looked_at.append(name)
        return hint_for(name, heard)

    monkeypatch.setattr(adopter, "hint_for", remember)
    witness = Witness()

    async def note() -> None: ...

    async with listening(settings, witness, note=note):
        await witness.until(lambda: hearing(witness))
        for n in range(5):
            await async_bridge.make_task("test.note", [], 3600, id=f"t{n}")
            await async_bridge.reschedule(f"t{n}", 1800)
        client.set("foreign:?test.note?[]", "", px=50)
        await witness.until_ended()
    assert set(looked_at) == {b"foreign:?test.note?[]"}


def test_a_timer_is_news_if_its_id_is_that_of_another_key_which_ends_at_the_same_time(
    store: Store, client: redis.Redis
) -> None:
    """As at midnight: two functions for one user."""
    midnight = int(time.time() * 1000) + 3_600_000
    for name in ("user:?f.g?[1]", "user:?f.h?[1]"):
        client.set(name, "", pxat=midnight)
    assert adopt(store, hint("user:?f.g?[1]", "user", "f.g?[1]")) == [Adoption.ADOPTED]
    other = b"user:?f.h?[1]"
    assert store.run(calls.find_unexplained([b"user:?f.g?[1]", other], Heard.LIVE)) == {other}


def test_the_end_of_a_timer_is_news_unless_its_record_explains_it(
    store: Store, client: redis.Redis, bridge: Bridge
) -> None:
    keys = {id: bridge.make_task("test.note", [], 0, id=id).key for id in ("runs", "ran")}
    claimed = store.run(calls.claim("t", Settings(), room=9, idle=True)).tasks
    assert len(claimed) == 2
    store.run(calls.settle([Settlement("ran", "t", "succeeded")], Settings()))
    for id in ("ended early", "due", "paused", "cancelled", "set again", "other"):
        task = bridge.make_task("test.note", [], 3600, id=id.replace(" ", "-"))
        keys[id] = task.key
    bridge.pause("paused")
    bridge.cancel("cancelled")
    client.delete(keys["ended early"], keys["due"], keys["paused"])
    client.zadd("expirebridge:pending", {"due": 1})
    keys["other"] = b"other:?test.other?[]"  # the task of that id has another key
    keys["unknown"], keys["no id"] = b"nobody:?test.note?[]", b"no id:?test.note?[]"
    for heard in (Heard.EXPIRED, Heard.DELETED):
        names = {key: id for id, key in keys.items()}
        unexplained = {names[name] for name in store.run(calls.find_unexplained(names, heard))}
        assert unexplained == {"ended early", "paused", "set again", "other", "unknown", "no id"}


def test_a_name_that_takes_long_to_read_does_not_hold_the_server(
    store: Store, client: redis.Redis
) -> None:
    """Any client may set it; to ask for its TTL takes longer than the clock stands still."""
    name = b"huge:?f.g?[" + b"1," * 8_000_000 + b"1]"
    client.set(name, "", px=60_000)
    huge = adopter.hint_for(name, Heard.LIVE)
    assert huge is not None
    assert store.run(calls.adopt([huge], Settings())) == [Adoption.INVALID]
    failed = store.run(calls.get(id_for_key(name)))
    assert failed is not None
    assert failed.state is State.FAILED
