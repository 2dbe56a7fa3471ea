"""Heartbeats, leases that run out, and the sweep, which takes back and forgets."""

import pytest
import redis

from expirebridge import State
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, looking, producing, reconciling
from expirebridge.task.calls.claiming import Settled, Settlement
from tests.kit.patience import PATIENCE
from tests.kit.steps import (
    age,
    beating,
    claim,
    new,
    reschedule,
    server_ms,
    settle,
    state_of,
)

pytestmark = pytest.mark.servers("oldest")


def test_a_lapsed_holder_is_refused(store: Store, client: redis.Redis) -> None:
    beating(store)
    store.run(producing.make([new("a")]))
    claim(store, "first")
    age(client, "running", "a", 1)
    assert store.run(reconciling.sweep(Settings())).lapsed == ["a"]
    assert settle(store, Settlement("a", "first", "succeeded")) == [Settled.REFUSED]
    [again] = claim(store, "second").tasks
    assert (again.attempt, again.lapses) == (1, 1)  # a lapse restores the attempt
    assert settle(store, Settlement("a", "first", "succeeded")) == [Settled.REFUSED]
    assert settle(store, Settlement("a", "second", "succeeded")) == [Settled.DONE]


def test_a_heartbeat_renews_what_is_held_and_names_what_is_not(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a"), new("b")]))
    claim(store)
    age(client, "running", "a", -1)
    age(client, "running", "b", -1)
    held = [("a", "t"), ("b", "other"), ("c", "t")]
    store.run(claiming.heartbeat("l1", 10, [], code="c0de"))
    age(client, "running", "a", -1)
    age(client, "running", "b", -1)
    assert store.run(claiming.heartbeat("l1", 10, held, code="c0de")).lost == ["b", "c"]
    renewed = client.zscore("expirebridge:running", "a") or 0
    assert renewed - server_ms(client) > 9_000
    assert (client.zscore("expirebridge:running", "b") or 0) - server_ms(client) < 1_001


def test_ranks_follow_the_names_of_the_listeners_that_beat(
    store: Store, client: redis.Redis
) -> None:
    ranks = [
        store.run(claiming.heartbeat(name, 10, [], code="c0de")).rank for name in ("b", "a", "c")
    ]
    assert ranks == [0, 0, 2]
    client.zadd("expirebridge:listeners", {"a": server_ms(client) - 11_000})
    assert store.run(claiming.heartbeat("b", 10, [], code="c0de")).rank == 0
    store.run(claiming.leave("b"))
    assert store.run(claiming.heartbeat("c", 10, [], code="c0de")).listeners == 1


def test_when_nobody_beat_for_half_a_lease_running_tasks_get_one_more(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a")]))
    store.run(claiming.heartbeat("dead", 10, [], code="c0de"))
    claim(store)
    client.zadd("expirebridge:listeners", {"dead": server_ms(client) - 6_000})
    age(client, "running", "a", 1)
    assert store.run(claiming.heartbeat("new", 10, [], code="c0de")).gap
    assert store.run(reconciling.sweep(Settings())).lapsed == []
    age(client, "running", "a", 1)
    assert not store.run(claiming.heartbeat("new", 10, [], code="c0de")).gap
    assert store.run(reconciling.sweep(Settings())).lapsed == ["a"]


@pytest.mark.parametrize("beats", ["none", "old"])
def test_a_sweep_takes_nothing_back_while_nobody_beats(
    store: Store, client: redis.Redis, beats: str
) -> None:
    """A server that was away must not be answered by a sweep that waited in its queue."""
    store.run(producing.make([new("a")]))
    claim(store)
    age(client, "running", "a", 1)
    if beats == "old":
        client.zadd("expirebridge:listeners", {"me": server_ms(client) - 5_100})
    assert store.run(reconciling.sweep(Settings())).lapsed == []
    store.run(claiming.heartbeat("me", 10, [("a", "t")], code="c0de"))
    assert settle(store, Settlement("a", "t", "succeeded")) == [Settled.DONE]


def test_when_the_clock_went_back_leases_are_brought_in(store: Store, client: redis.Redis) -> None:
    store.run(producing.make([new("a")]))
    claim(store)
    hours = server_ms(client) + 10_800_000
    client.zadd("expirebridge:running", {"a": hours})
    client.zadd("expirebridge:listeners", {"me": hours})
    store.run(claiming.heartbeat("me", 10, [], code="c0de"))
    assert (client.zscore("expirebridge:running", "a") or 0) <= server_ms(client) + 10_000
    assert (client.zscore("expirebridge:listeners", "me") or 0) <= server_ms(client)


def test_a_task_that_lapsed_twice_is_claimed_alone_and_fails_after_the_third(
    store: Store, client: redis.Redis
) -> None:
    beating(store)
    store.run(producing.make([new("poison", 1_000, relative=False)]))
    for _ in range(2):
        assert [task.id for task in claim(store).tasks] == ["poison"]
        age(client, "running", "poison", 1)
        store.run(reconciling.sweep(Settings()))
    store.run(producing.make([new("innocent")]))
    busy = claim(store, idle=False)
    assert ([task.id for task in busy.tasks], busy.alone) == (["innocent"], True)
    store.run(producing.make([new("innocent2")]))
    call = claiming.claim("u", Settings(), places=100, idle=True)
    for alone in (store.run(call), store.run(claiming.resent(call))):
        assert ([task.id for task in alone.tasks], alone.alone) == (["poison"], True)
    age(client, "running", "poison", 1)
    sweep = store.run(reconciling.sweep(Settings()))
    assert (sweep.lapsed, sweep.failed) == ([], ["poison"])
    task = store.run(looking.get("poison"))
    assert task is not None
    assert (task.state, "3 listeners died" in str(task.error)) == (State.FAILED, True)


def test_finished_tasks_are_forgotten_with_their_tags_when_their_time_is_over(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a", fields={"tags": "x"}), new("b")]))
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"), Settlement("b", "t", "failed"))
    store.run(reconciling.sweep(Settings()))
    assert store.run(looking.count(10)).succeeded == 1
    age(client, "succeeded", "a", 1)
    age(client, "failed", "b", 1)
    assert store.run(reconciling.sweep(Settings())).forgotten == 2
    left = [name for name in client.keys("*") if b":minute:" not in name]
    assert left == [b"expirebridge:meta"]


def test_more_succeeded_tasks_than_are_kept_are_forgotten_but_not_in_their_first_15_s(
    store: Store, client: redis.Redis
) -> None:
    settings = Settings(keep_succeeded_count=2)
    store.run(producing.make([new(f"a{n}") for n in range(5)]))
    settle(store, *(Settlement(task.id, "t", "succeeded") for task in claim(store).tasks))
    assert store.run(reconciling.sweep(settings)).forgotten == 0
    for n in range(4):  # these ended 16 s ago
        age(client, "succeeded", f"a{n}", -3600 + 16)
    assert store.run(reconciling.sweep(settings)).forgotten == 3
    assert store.run(looking.count(10)).succeeded == 2


def test_a_sweep_is_bounded_and_says_when_there_is_more(store: Store, client: redis.Redis) -> None:
    beating(store)
    store.run(producing.make([new(f"a{n}") for n in range(5)]))
    claim(store)
    for n in range(5):
        age(client, "running", f"a{n}", 1)
    first = store.run(reconciling.sweep(Settings(), most=3))
    assert (len(first.lapsed), first.more) == (3, True)
    second = store.run(reconciling.sweep(Settings(), most=3))
    assert (len(second.lapsed), second.more) == (2, False)


def test_a_sweep_rings_for_the_earliest_of_all_that_wait_again(
    store: Store, client: redis.Redis
) -> None:
    """A paused task whose time has come is due now, later than what lapsed before it."""
    beating(store)
    store.run(producing.make([new("lapsing", 1_000, relative=False)]))
    claim(store)
    age(client, "running", "lapsing", 1)
    store.run(producing.make([new("paused", call=b"mail.send?[2]")]))
    client.hset("expirebridge:task:paused", "state", "paused")
    client.zrem("expirebridge:pending", "paused")
    age(client, "paused", "paused", 1)
    store.run(producing.make([new("due", 2_000, relative=False)]))
    with client.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.subscribe(store.database.doorbell_channel)
        pubsub.get_message(timeout=PATIENCE)
        assert store.run(reconciling.sweep(Settings())).lapsed == ["lapsing"]
        client.publish(store.database.doorbell_channel, "end")
        rung = pubsub.get_message(timeout=PATIENCE)
    assert rung is not None
    assert rung["data"] == b"1000"


def test_a_lapse_obeys_a_rearm_and_still_refuses_its_dead_holder(
    store: Store, client: redis.Redis
) -> None:
    beating(store)
    store.run(producing.make([new("a")]))
    client.hset("expirebridge:task:a", "lapses", 2)  # one more would be the last
    claim(store)
    reschedule(store, "a", 60_000)
    age(client, "running", "a", 1)
    sweep = store.run(reconciling.sweep(Settings()))
    assert (sweep.lapsed, sweep.failed) == (["a"], [])
    assert state_of(store, "a") is State.PENDING
    assert settle(store, Settlement("a", "t", "succeeded")) == [Settled.REFUSED]


def test_what_was_settled_while_the_heartbeat_was_on_its_way_is_not_lost(store: Store) -> None:
    store.run(producing.make([new("a"), new("b")]))
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"), Settlement("b", "t", "retry", 60))
    held = [("a", "t"), ("b", "t"), ("c", "t")]
    assert store.run(claiming.heartbeat("l", 10, held, code="c0de")).lost == ["c"]
