"""The scripts that look at keys which other clients set, and take them in as tasks."""

import time
from dataclasses import replace

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, Change, State
from expirebridge.hooks import End
from expirebridge.listener.partition import reconciler
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, looking, producing, reconciling
from expirebridge.task.calls.call import When
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.calls.reconciling import Adoption, EventKind, KeyEvent
from expirebridge.task.keys import id_for_key
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")


def hint(name: str, id: str, call: str, heard: EventKind = EventKind.LIVE) -> KeyEvent:
    return KeyEvent(name.encode(), id, call.encode(), heard)


def adopt(store: Store, *hints: KeyEvent) -> list[Adoption]:
    return store.run(reconciling.adopt(hints, Settings()))


async def test_a_refused_key_that_somebody_runs_all_the_same_fails_again(
    settings: Settings, client: redis.Redis, store: Store, async_bridge: AsyncBridge
) -> None:
    """Its handler would get another number than the one that was written."""
    name = b"abc:?test.send?[36893488147419103232]"
    client.set(name, "", px=60_000)
    refused = reconciler.key_event_of(name, EventKind.LIVE)
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
    echo = hint("a:?f.g?[]", "a", "f.g?[]", EventKind.EXPIRED)
    assert adopt(store, echo) == [Adoption.ADOPTED]
    [task] = store.run(claiming.claim("t", Settings(), places=9, idle=True)).tasks
    assert adopt(store, echo) == [Adoption.KNOWN]
    store.run(claiming.settle([claiming.Settlement(task.id, "t", "succeeded")], Settings()))
    assert adopt(store, echo) == [Adoption.KNOWN]
    assert store.run(looking.count(10)).pending == 0


@pytest.mark.parametrize(("args", "finished"), [([2], False), ([3], False), ([3], True)])
def test_a_key_whose_every_id_is_taken_is_not_run_and_that_is_said(
    store: Store, bridge: Bridge, client: redis.Redis, args: list[int], finished: bool
) -> None:
    name = b"a:?f.g?[2]"
    ours = hint(name.decode(), "a", "f.g?[2]")
    bridge.make_task("f.g", [1], 60, id="a")
    bridge.make_task("f.g", args, 0 if finished else 30, id=id_for_key(name))
    if finished:
        store.run(claiming.claim("t", Settings(), places=9, idle=True))
        store.run(claiming.settle([Settlement(id_for_key(name), "t", "succeeded")], Settings()))
    assert adopt(store, ours, replace(ours, heard=EventKind.EXPIRED)) == [Adoption.NOTHING] * 2
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
    refused = reconciler.key_event_of(name, EventKind.LIVE)
    assert refused is not None
    assert adopt(store, refused) == [Adoption.TAKEN]
    client.delete(name)
    assert adopt(store, refused) == [Adoption.NOTHING]
    assert adopt(store, replace(refused, heard=EventKind.EXPIRED)) == [Adoption.TAKEN]


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


@pytest.mark.parametrize("how", ["replaced", "replaced while it ran", "made again", "cancelled"])
def test_the_end_of_a_key_that_its_id_had_before_runs_nothing(
    store: Store, bridge: Bridge, how: str
) -> None:
    """The record names another call by the time at which the event is looked at."""
    bridge.make_task("f.g", [1], 0, id="a")
    running = how in {"replaced while it ran", "made again"}
    if running:
        store.run(claiming.claim("t", Settings(), places=9, idle=True))
    if how == "cancelled":
        bridge.cancel("a")
    if how == "made again":
        store.run(claiming.settle([Settlement("a", "t", "succeeded")], Settings()))
    bridge.make_task("f.g", [2], 60, id="a", if_exists="replace")
    if how == "replaced while it ran":
        store.run(claiming.settle([Settlement("a", "t", "succeeded")], Settings()))
    for heard in EventKind:
        assert adopt(store, hint("a:?f.g?[1]", "a", "f.g?[1]", heard)) == [Adoption.NOTHING]
    [left] = bridge.list(state="pending").tasks
    assert (left.id, left.args) == ("a", [2])
    assert bridge.count().pending == 1


def test_a_finished_task_s_key_that_is_set_again_is_a_new_generation(
    store: Store, client: redis.Redis
) -> None:
    store.run(reconciling.adopt([hint("a:?f.g?[]", "a", "f.g?[]", EventKind.EXPIRED)], Settings()))
    store.run(claiming.claim("t", Settings(), places=9, idle=True))
    store.run(claiming.settle([claiming.Settlement("a", "t", "failed", text="x")], Settings()))
    client.set("a:?f.g?[]", "", px=60_000)
    assert adopt(store, hint("a:?f.g?[]", "a", "f.g?[]")) == [Adoption.ADOPTED]
    task = store.run(looking.get("a"))
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
    other = store.run(looking.get(id_for_key(b"a:?f.g?[2]")))
    assert other is not None
    assert (other.args, other.key) == ([2], b"a:?f.g?[2]")
    # Its timer is the key that was set: a put-off of that key is followed.
    client.expire("a:?f.g?[2]", 3600)
    client.zadd("expirebridge:pending", {other.id: 1})
    assert store.run(claiming.claim("t", Settings(), places=9, idle=True)).tasks == []


def test_a_scan_finds_what_no_record_knows_and_follows_edits(
    store: Store, client: redis.Redis
) -> None:
    def mine(id: str) -> producing.NewTask:
        when = When(3_600_000, relative=True)
        return producing.NewTask(
            id=id, has_random_id=False, if_exists="reject", call=b"f.g?[]", when=when, fields={}
        )

    store.run(producing.make([mine(id) for id in ("same", "sooner", "paused")]))
    client.expire("sooner:?f.g?[]", 60)
    client.persist("paused:?f.g?[]")
    client.set("new:?f.g?[]", "", px=60_000)
    client.set("unrelated", "x")
    found, alien, cursor = [], 0, "0"
    while True:
        scanned = store.run(reconciling.scan(cursor, 3))
        found += scanned.found
        alien += scanned.alien
        cursor = scanned.cursor
        if cursor == "0":
            break
    assert (found, alien) == ([b"new:?f.g?[]"], 1)
    states = {id: store.run(looking.get(id)) for id in ("same", "sooner", "paused")}
    assert [task.state for task in states.values() if task] == ["pending", "pending", "paused"]
    first = store.run(claiming.claim("t", Settings(), places=9, idle=True)).next_due
    assert first is not None
    assert first / 1000 - time.time() < 61


def test_a_timer_is_news_if_its_id_is_that_of_another_key_which_ends_at_the_same_time(
    store: Store, client: redis.Redis
) -> None:
    """As at midnight: two functions for one user."""
    midnight = int(time.time() * 1000) + 3_600_000
    for name in ("user:?f.g?[1]", "user:?f.h?[1]"):
        client.set(name, "", pxat=midnight)
    assert adopt(store, hint("user:?f.g?[1]", "user", "f.g?[1]")) == [Adoption.ADOPTED]
    other = b"user:?f.h?[1]"
    assert store.run(reconciling.find_unexplained([b"user:?f.g?[1]", other], EventKind.LIVE)) == {
        other
    }


def test_the_end_of_a_timer_is_news_unless_its_record_explains_it(
    store: Store, client: redis.Redis, bridge: Bridge
) -> None:
    keys = {id: bridge.make_task("test.note", [], 0, id=id).key for id in ("runs", "ran")}
    claimed = store.run(claiming.claim("t", Settings(), places=9, idle=True)).tasks
    assert len(claimed) == 2
    store.run(claiming.settle([Settlement("ran", "t", "succeeded")], Settings()))
    for id in ("ended early", "due", "paused", "cancelled", "set again", "other"):
        task = bridge.make_task("test.note", [], 3600, id=id.replace(" ", "-"))
        keys[id] = task.key
    bridge.pause("paused")
    bridge.cancel("cancelled")
    client.delete(keys["ended early"], keys["due"], keys["paused"])
    client.zadd("expirebridge:pending", {"due": 1})
    keys["other"] = b"other:?test.other?[]"  # the task of that id has another key
    keys["unknown"], keys["no id"] = b"nobody:?test.note?[]", b"no id:?test.note?[]"
    for heard in (EventKind.EXPIRED, EventKind.DELETED):
        names = {key: id for id, key in keys.items()}
        unexplained = {
            names[name] for name in store.run(reconciling.find_unexplained(names, heard))
        }
        assert unexplained == {"ended early", "paused", "set again", "other", "unknown", "no id"}


@pytest.mark.rest
def test_a_name_that_takes_long_to_read_does_not_hold_the_server(
    store: Store, client: redis.Redis
) -> None:
    """Any client may set it; to ask for its TTL takes longer than the clock stands still."""
    name = b"huge:?f.g?[" + b"1," * 8_000_000 + b"1]"
    client.set(name, "", px=60_000)
    huge = reconciler.key_event_of(name, EventKind.LIVE)
    assert huge is not None
    assert store.run(reconciling.adopt([huge], Settings())) == [Adoption.INVALID]
    failed = store.run(looking.get(id_for_key(name)))
    assert failed is not None
    assert failed.state is State.FAILED
