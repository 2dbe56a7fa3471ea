"""Holds: due tasks of a function, or with a tag, wait until they are released."""

from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, Hold, InvalidTask, State
from expirebridge.connection import clients
from expirebridge.hooks import End
from expirebridge.limits.calls import declare_limits
from expirebridge.limits.checks import check_limits
from expirebridge.limits.hold_checks import check_holds
from expirebridge.observe.server_metrics import OfTheServer
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.store.partitions import Partitions
from expirebridge.task.calls import claiming, fleet, producing, reconciling
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.calls.fleet import digest_of
from expirebridge.task.calls.reconciling import EventKind
from expirebridge.task.partitions import PartitionLayout
from expirebridge.task.task import from_ms, to_ms
from tests.kit.colours import Ask, asking_one
from tests.kit.steps import claim, new, server_ms, settle
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")

HOLDS = "expirebridge:holds"


@pytest.fixture(params=[Bridge, AsyncBridge])
async def ask(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Ask]:
    async with asking_one(request.param(url)) as ask:
        yield ask


def make(store: Store, *ids: str, func: str = "mail.send", **options: Any) -> None:
    """Make tasks that are due, each a millisecond before the next."""
    call = f"{func}?[]".encode()
    store.run(producing.make([new(id, n - 1000, call=call, **options) for n, id in enumerate(ids)]))


def taken(store: Store) -> list[str]:
    return [task.id for task in claim(store).tasks]


def sweep(store: Store) -> bool:
    """Sweep once; true if there is more to do."""
    return store.run(reconciling.sweep(Settings())).more


def in_ms(client: redis.Redis, ms: int) -> datetime:
    return from_ms(server_ms(client) + ms)


async def test_a_function_on_hold_does_not_start_and_goes_on_in_order_when_released(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    make(store, "a", "b")
    make(store, "c", func="sms.send")
    await ask("hold", func="mail.send", reason="the provider is down")
    assert taken(store) == ["c"]
    [hold] = await ask("holds")
    assert (hold.func, hold.tag, hold.until, hold.reason) == (
        "mail.send", None, None, "the provider is down"
    )  # fmt: skip
    assert (hold.waiting, hold.readable) == (2, True)
    assert "@" in hold.by
    assert client.zrange("expirebridge:waiting", 0, -1) == [b"a", b"b"]
    assert await ask("release", func="mail.send") is True
    assert await ask("holds") == []
    assert taken(store) == ["a", "b"]


async def hold_many(ask: Ask, store: Store, count: int = 150) -> None:
    """Put so many due tasks on hold."""
    make(store, *(f"t{number:03}" for number in range(count)))
    await ask("hold", func="mail.send")
    while claim(store).parked:
        pass


async def test_what_is_released_over_a_time_is_due_one_after_the_other(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    await hold_many(ask, store, 250)
    before = server_ms(client)
    assert await ask("release", func="mail.send", spread="2500s") is True
    while sweep(store):
        pass
    after = server_ms(client)
    assert client.zcard("expirebridge:waiting") == 0
    due = [client.zscore("expirebridge:pending", f"t{number:03}") or 0 for number in range(250)]
    first = due[1] - 10_000
    assert due[0] < before <= first <= after
    assert due[1:] == [first + 10_000 * number for number in range(1, 250)]
    assert taken(store) == ["t000"]
    # Each of the others has a timer, which can be read and put off.
    ends = client.pttl("t249:?mail.send?[]") + server_ms(client)
    assert ends == pytest.approx(first + 2_490_000, abs=5000)
    assert client.hget("expirebridge:limits", "p hold func mail.send") is None
    # They can be held again.
    await ask("hold", func="mail.send")
    assert client.zcard("expirebridge:pending") == 249


async def test_a_hold_or_a_release_ends_a_release_over_a_time(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    await hold_many(ask, store)
    await ask("release", func="mail.send", spread="1h")
    assert client.zcard("expirebridge:waiting") == 50
    await ask("hold", func="mail.send")
    assert not sweep(store)
    assert client.zcard("expirebridge:waiting") == 50
    await ask("release", func="mail.send")
    assert client.zcard("expirebridge:waiting") == 0
    assert len(taken(store)) >= 50


async def test_a_new_hold_that_ends_by_itself_ends_a_release_over_a_time(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    await hold_many(ask, store)
    await ask("release", func="mail.send", spread="1h")
    await ask("hold", func="mail.send", until=in_ms(client, 60_000))
    client.hset(HOLDS, "func mail.send", f'{{"until": {server_ms(client) - 1}}}')
    sweep(store)
    assert client.zcard("expirebridge:waiting") == 0
    assert client.zcount("expirebridge:pending", "-inf", server_ms(client)) >= 51


async def test_a_plain_hold_ends_a_release_over_a_time_once_something_waits_for_it(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    await hold_many(ask, store)
    await ask("release", func="mail.send", spread="1h")
    client.hset(HOLDS, "func mail.send", "")
    make(store, "z")
    taken(store)
    client.hdel(HOLDS, "func mail.send")
    sweep(store)
    assert client.zcount("expirebridge:pending", "-inf", server_ms(client)) >= 51


async def test_what_a_client_put_off_while_it_was_held_keeps_that_time(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    make(store, "a", "b")
    await ask("hold", func="mail.send")
    taken(store)
    client.set("b:?mail.send?[]", "", px=7_200_000)  # no listener has heard of it yet
    await ask("release", func="mail.send", spread="1m")
    assert client.pttl("b:?mail.send?[]") > 7_000_000


async def test_a_broken_record_does_not_stop_a_release_over_a_time(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    make(store, "a", "b", "c")
    await ask("hold", func="mail.send")
    taken(store)
    client.hdel("expirebridge:task:b", "call")
    await ask("release", func="mail.send", spread="1m")
    assert client.zcard("expirebridge:waiting") == 0
    assert client.exists("c:?mail.send?[]")


@pytest.mark.parametrize(
    "pace",
    [
        "nan nan",
        "x",
        *(
            pytest.param(pace, marks=pytest.mark.rest)
            for pace in ("inf 1", "-inf 1", "1e300 1", "1 1e300", "1 inf", "1 -inf", "0 nan")
        ),
    ],
)
async def test_a_pace_that_cannot_be_does_not_stop_the_sweeps(
    ask: Ask, store: Store, client: redis.Redis, pace: str
) -> None:
    await hold_many(ask, store)
    await ask("release", func="mail.send", spread="1h")
    client.hset("expirebridge:limits", "p hold func mail.send", pace)
    sweep(store)
    assert client.zcard("expirebridge:waiting") == 0
    assert all(record != b"nan" for record in waited(client))
    taken(store)


def waited(client: redis.Redis) -> list[object]:
    return [client.hget(name, "waited") for name in client.keys("expirebridge:task:*")]


async def test_a_release_goes_on_beside_limits_that_another_client_overwrote(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    for spread in ("1m", None):
        make(store, "a", "b", if_exists="replace")
        await ask("hold", func="mail.send")
        taken(store)
        client.set("expirebridge:limits", "what")
        await ask("release", func="mail.send", spread=spread)
        assert client.zcard("expirebridge:waiting") == 0


async def test_a_row_gets_the_time_at_which_its_task_is_let_go(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    make(store, "a", "b")
    for id in ("a", "b"):
        client.hset(f"expirebridge:task:{id}", "ledger", "1 1")
    await ask("hold", func="mail.send")
    store.run(claiming.claim("t", Settings(), places=9, idle=True, gate=0))
    assert client.zrange("expirebridge:dirty", 0, -1) == []
    await ask("release", func="mail.send", spread="1m")
    assert client.zcard("expirebridge:waiting") == 0
    assert client.zrange("expirebridge:dirty", 0, -1) == [b"b"]


@pytest.mark.parametrize("heard", [EventKind.DELETED, EventKind.EXPIRED, EventKind.LIVE])
async def test_a_late_event_changes_no_task_that_is_let_go_later(
    ask: Ask, store: Store, client: redis.Redis, heard: EventKind
) -> None:
    make(store, "a")
    store.run(producing.make([new("b", 60_000, call=b"mail.send?[]")]))
    store.run(producing.run_now("b"))  # this deletes its key
    await ask("hold", func="mail.send")
    taken(store)
    await ask("release", func="mail.send", spread="1m")
    due = client.zscore("expirebridge:pending", "b")
    name = b"b:?mail.send?[]"
    if heard is EventKind.LIVE:
        assert store.run(reconciling.find_unexplained([name], heard)) == set()
    hint = reconciling.KeyEvent(name, "b", b"mail.send?[]", heard)
    store.run(reconciling.adopt([hint], Settings()))
    assert client.zscore("expirebridge:pending", "b") == due
    client.delete(name)
    hint = reconciling.KeyEvent(name, "b", b"mail.send?[]", EventKind.DELETED)
    store.run(reconciling.adopt([hint], Settings()))
    assert client.zrange("expirebridge:cancelled", 0, -1) == [b"b"]


async def test_a_spread_that_is_no_time_is_refused(ask: Ask) -> None:
    await ask("hold", func="mail.send")
    with pytest.raises(InvalidTask, match="spread="):
        await ask("release", func="mail.send", spread="soon")
    assert len(await ask("holds")) == 1


async def test_a_tag_on_hold(ask: Ask, store: Store) -> None:
    make(store, "a", fields={"tags": "customer-9 x"})
    make(store, "b", fields={"tags": "customer-90"})
    await ask("hold", tag="customer-9")
    assert taken(store) == ["b"]
    [hold] = await ask("holds")
    assert (hold.func, hold.tag, hold.reason) == (None, "customer-9", "")
    await ask("release", tag="customer-9")
    assert taken(store) == ["a"]


async def test_all_tasks_on_hold(ask: Ask, store: Store, client: redis.Redis) -> None:
    make(store, "a", "b", fields={"tags": "x"})
    make(store, "c", func="sms.send")
    await ask("hold", all=True, reason="the database is down")
    assert taken(store) == []
    [hold] = await ask("holds")
    assert (hold.name, hold.all, hold.func, hold.tag) == ("all", True, None, None)
    assert (hold.reason, hold.waiting) == ("the database is down", 3)
    assert client.smembers("expirebridge:lane:hold all") == set()
    make(store, "d")
    assert taken(store) == []
    assert await ask("release", all=True) is True
    assert await ask("holds") == []
    assert sorted(taken(store)) == ["a", "b", "c", "d"]
    assert await ask("release", all=True) is False


async def test_all_tasks_are_held_and_released_by_a_plain_command(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    client.hset(HOLDS, "all", "")
    sweep(store)  # finds the first hold of the database
    make(store, "a")
    assert taken(store) == []
    client.hdel(HOLDS, "all")
    sweep(store)
    assert taken(store) == ["a"]


async def test_a_task_with_another_hold_waits_on_when_all_are_released(
    ask: Ask, store: Store
) -> None:
    make(store, "a", fields={"tags": "customer-9"})
    make(store, "b")
    await ask("hold", tag="customer-9")
    await ask("hold", all=True)
    assert taken(store) == []
    assert [(hold.name, hold.waiting) for hold in await ask("holds")] == [
        ("all", 2), ("tag customer-9", 0)
    ]  # fmt: skip
    await ask("release", all=True)
    assert taken(store) == ["b"]
    await ask("release", tag="customer-9")
    assert taken(store) == ["a"]


async def test_what_runs_goes_on_when_all_are_held_and_its_retry_waits(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    make(store, "a", "b")
    assert taken(store) == ["a", "b"]
    await ask("hold", all=True)
    settle(store, Settlement("a", "t", "succeeded"), Settlement("b", "t", "snoozed", delay=0))
    assert client.zrange("expirebridge:succeeded", 0, -1) == [b"a"]
    assert taken(store) == []
    assert [hold.waiting for hold in await ask("holds")] == [1]


async def test_many_that_wait_for_the_hold_of_all_go_paced(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    make(store, *(f"t{number:03}" for number in range(250)))
    await ask("hold", all=True)
    while claim(store).parked:
        pass
    before = server_ms(client)
    await ask("release", all=True, spread="2500s")
    while sweep(store):
        pass
    due = [client.zscore("expirebridge:pending", f"t{number:03}") or 0 for number in range(250)]
    assert due[0] < before <= due[1] - 10_000
    assert {after - each for each, after in pairwise(due[1:])} == {10_000}
    assert client.hget("expirebridge:limits", "p hold all") is None


async def test_a_task_with_a_slot_gives_it_up_for_the_hold_of_all(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    store.run(declare_limits("aa", [("f mail.send", b'[["m"]]'), ("l m", b'{"most": 1}')]))
    make(store, "a", "b")
    assert taken(store) == ["a"]
    settle(store, Settlement("a", "t", "succeeded"))
    assert client.smembers("expirebridge:lane:m") == {b"b"}
    await ask("hold", all=True)
    assert taken(store) == []
    assert not client.exists("expirebridge:lane:m")
    await ask("release", all=True)
    assert taken(store) == ["b"]


async def test_a_task_with_two_holds_waits_for_both(ask: Ask, store: Store) -> None:
    make(store, "a", fields={"tags": "customer-9"})
    await ask("hold", func="mail.send")
    await ask("hold", tag="customer-9")
    assert taken(store) == []
    await ask("release", func="mail.send")
    assert taken(store) == []
    assert [hold.waiting for hold in await ask("holds")] == [1]
    await ask("release", tag="customer-9")
    assert taken(store) == ["a"]


async def test_a_hold_ends_by_the_clock_of_the_server(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    until = in_ms(client, 60_000)
    make(store, "a")
    await ask("hold", func="mail.send", until=until.astimezone())
    assert taken(store) == []
    assert [hold.until for hold in await ask("holds")] == [until]
    client.hset(HOLDS, "func mail.send", f'{{"until": {server_ms(client) - 1}}}')
    assert await ask("holds") == []
    sweep(store)
    assert taken(store) == ["a"]
    assert not client.exists(HOLDS)


async def test_a_new_hold_replaces_the_one_before(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    await ask("hold", tag="x", reason="one", until=in_ms(client, 60_000))
    await ask("hold", tag="x", reason="two")
    [hold] = await ask("holds")
    assert (hold.reason, hold.until) == ("two", None)


async def test_what_was_not_on_hold_is_not_released(ask: Ask, client: redis.Redis) -> None:
    assert await ask("release", func="mail.send") is False
    assert await ask("release", tag="customer-9") is False


async def test_many_go_at_once_and_the_rest_with_the_sweeps(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    make(store, *(f"t{n:03}" for n in range(250)))
    await ask("hold", func="mail.send")
    while claim(store).parked:
        pass
    assert (await ask("holds"))[0].waiting == 250
    await ask("release", func="mail.send")
    assert client.zcard("expirebridge:waiting") == 150
    assert sweep(store)
    assert client.zcard("expirebridge:waiting") == 50
    assert not sweep(store)
    assert client.zcard("expirebridge:waiting") == 0
    assert client.zcard("expirebridge:held") == 0
    assert [taken(store)[0] for _ in range(3)] == ["t000", "t100", "t200"]


async def test_those_that_stay_on_hold_do_not_keep_others_waiting(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    call = b"mail.send?[]"
    pairs = [(f"{letter}{n}", {"tags": f"c{n}"}) for n in range(300) for letter in "ab"]
    store.run(producing.make([new(id, -1000, call=call, fields=tags) for id, tags in pairs]))
    client.hset(HOLDS, mapping={f"tag c{n}": "" for n in range(300)})
    make(store, "z", fields={"tags": "z"})
    client.hset(HOLDS, "tag z", "")
    sweep(store)  # finds the first hold of the database
    while claim(store).parked:
        pass
    client.hdel(HOLDS, "tag z")
    for _ in range(100):
        sweep(store)
    assert taken(store) == ["z"]


async def test_a_task_that_was_granted_a_slot_gives_it_up(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    store.run(declare_limits("aa", [("f mail.send", b'[["m"]]'), ("l m", b'{"most": 1}')]))
    make(store, "a", "b", fields={"tags": "x"})
    assert taken(store) == ["a"]
    settle(store, Settlement("a", "t", "succeeded"))
    assert client.smembers("expirebridge:lane:m") == {b"b"}
    await ask("hold", tag="x")
    assert taken(store) == []
    assert not client.exists("expirebridge:lane:m")
    make(store, "c")
    assert taken(store) == ["c"]
    await ask("release", tag="x")
    assert taken(store) == []
    assert client.zrange("expirebridge:queue:m", 0, -1) == [b"b"]


@pytest.mark.parametrize("value", ["", "until further notice", "[]", '{"until": "noon"}', "{", "7"])
async def test_garbage_holds_without_end_and_is_shown(
    ask: Ask, store: Store, client: redis.Redis, value: str
) -> None:
    client.hset(HOLDS, "func mail.send", value)
    make(store, "a")
    assert taken(store) == []
    [hold] = await ask("holds")
    assert (hold.func, hold.until, hold.readable, hold.waiting) == ("mail.send", None, False, 1)
    assert await ask("release", func="mail.send")
    assert taken(store) == ["a"]


async def test_what_another_client_wrote_in_full_is_read(ask: Ask, client: redis.Redis) -> None:
    client.hset(HOLDS, "tag x", '{"reason": "by hand", "by": 7}')
    assert await ask("holds") == [
        Hold(name="tag x", until=None, reason="by hand", by="7", waiting=0, readable=True)
    ]


async def test_a_field_that_holds_nothing_is_shown(ask: Ask, client: redis.Redis) -> None:
    client.hset(HOLDS, "mail.send", "")
    client.hset(HOLDS, b"\xff", "")
    assert [(hold.name, hold.func, hold.tag) for hold in await ask("holds")] == [
        ("\\xff", None, None), ("mail.send", None, None)
    ]  # fmt: skip


async def test_a_value_of_another_type_is_put_aside(ask: Ask, client: redis.Redis) -> None:
    client.set(HOLDS, "mail.send")
    assert await ask("holds") == []
    assert await ask("release", tag="x") is False
    await ask("hold", tag="x")
    assert [hold.tag for hold in await ask("holds")] == ["x"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "give func, tag or all"),
        ({"func": "mail.send", "tag": "x"}, "give func, tag or all, one of them"),
        ({"tag": "x", "all": True}, "give func, tag or all, one of them"),
        ({"all": "mail.send"}, "all='mail.send': give True, or leave it out"),
        ({"func": "send"}, "func='send': write module.function"),
        ({"func": 7}, "func=7: give a handler"),
        ({"tag": "two words"}, "tag 'two words': a tag has 1 to 128"),
        ({"tag": 7}, "tag 7: a tag has 1 to 128"),
    ],
)
async def test_a_name_that_cannot_be_is_refused(
    ask: Ask, options: dict[str, Any], told: str
) -> None:
    for operation in ("hold", "release"):
        with pytest.raises(InvalidTask, match=f"^{told}"):
            await ask(operation, **options)
    assert await ask("holds") == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"until": datetime(2100, 1, 1)}, "until=2100-01-01T00:00:00: a naive datetime"),
        ({"until": "noon"}, "until='noon': give an aware datetime"),
        ({"until": datetime(2020, 1, 1, tzinfo=UTC)}, "until=2020-.*: this time has passed"),
        ({"reason": 7}, "reason=7: give text"),
        ({"reason": "x" * 1001}, "reason='xxx.*: give text of up to 1,000 characters"),
        ({"reason": "\ud800"}, "reason=.*: UTF-8 cannot encode it"),
        ({"by": 7}, "by=7: give text"),
    ],
)
async def test_an_end_or_a_text_that_cannot_be_is_refused(
    ask: Ask, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidTask, match=f"^{told}"):
        await ask("hold", tag="x", **options)
    assert await ask("holds") == []


def test_each_partition_has_the_hold(url: str, client: redis.Redis) -> None:
    with Bridge(url) as bridge:
        bridge.create_partitions(4)
        until = datetime.now(UTC) + timedelta(hours=1)
        bridge.hold(func="mail.send", until=until)
        assert len(client.keys("{*}expirebridge:holds")) == 4
        assert [to_ms(hold.until) for hold in bridge.holds() if hold.until] == [to_ms(until)]
        assert bridge.release(func="mail.send")
        assert client.keys("*holds") == []
        assert bridge.holds() == []


def test_all_tasks_are_held_in_each_partition(url: str, client: redis.Redis) -> None:
    with Bridge(url) as bridge:
        bridge.create_partitions(4)
        bridge.hold(all=True)
        assert len(client.keys("{*}expirebridge:holds")) == 4
        [hold] = bridge.holds()
        assert hold.all
        assert bridge.release(all=True, spread="1m")
        assert client.keys("*holds") == []


def test_a_held_task_can_be_cancelled(bridge: Bridge, store: Store) -> None:
    make(store, "a")
    bridge.hold(func="mail.send")
    taken(store)
    bridge.cancel("a")
    task = bridge.get("a")
    assert task is not None
    assert task.state is State.CANCELLED
    assert bridge.holds()[0].waiting == 0


async def test_a_release_rings_a_listener(settings: Settings, async_bridge: AsyncBridge) -> None:
    """Its next sweep would come after half a minute."""
    witness = Witness()

    async def send() -> None: ...

    async with listening(replace(settings, lease=60.0), witness, send=send):
        await async_bridge.hold(func="test.send")
        await async_bridge.make_task("test.send", [], 0)
        while not (await async_bridge.holds())[0].waiting:
            pass  # only the server knows
        await async_bridge.release(func="test.send")
        await witness.until_ended(1, End.SUCCEEDED)


# What looks at holds: the doctor, and metrics.


def checked(store: Store) -> tuple[str, str]:
    """The level and the message of the doctor's check."""
    finding = store.run(check_holds("expirebridge", 10))
    assert finding is not None
    return finding.level, finding.message


def test_the_doctor_says_what_is_on_hold(bridge: Bridge, store: Store) -> None:
    assert store.run(check_holds("expirebridge", 10)) is None
    bridge.hold(func="mail.send")
    bridge.hold(tag="x")
    make(store, "a")
    taken(store)
    assert checked(store) == ("ok", "on hold: func mail.send, tag x; 1 task waits for that")
    # What waits for a hold waits for no slot.
    assert store.run(check_limits(10)) is None
    assert bridge.limits().lanes == []


@pytest.mark.parametrize(
    ("value", "shown"), [('{"reason": "why"}', "tag x y"), ("", "tag x y (not readable)")]
)
def test_the_doctor_warns_of_a_hold_without_end_that_was_set_by_hand(
    store: Store, client: redis.Redis, value: str, shown: str
) -> None:
    client.hset(HOLDS, "tag x y", value)
    assert checked(store) == ("warning", f"set by hand, without an end: {shown}")
    finding = store.run(check_holds("expirebridge", 10))
    assert finding is not None
    assert "expirebridge release --tag 'x y'" in finding.remedy
    client.delete(HOLDS)
    client.hset(HOLDS, "all", value)
    finding = store.run(check_holds("expirebridge", 10))
    assert finding is not None
    assert finding.message == f"set by hand, without an end: {shown.replace('tag x y', 'all')}"
    assert "expirebridge release --all" in finding.remedy
    ends = server_ms(client) + 60_000
    client.delete(HOLDS)
    client.hset(HOLDS, "tag x y", f'{{"until": {ends}}}')
    assert checked(store)[0] == "ok"


@pytest.mark.parametrize(("count", "key"), [(1, "expirebridge"), (2, "{TAG}expirebridge")])
def test_the_doctor_warns_of_a_field_that_holds_nothing(
    bridge: Bridge, client: redis.Redis, url: str, count: int, key: str
) -> None:
    bridge.create_partitions(count)
    layout = PartitionLayout("expirebridge", count)
    for number in range(count):
        client.hset(f"{layout.prefix_of(number)}:holds", "mail.send", "")
    with closing(Partitions(clients.producer_client(url), prefix="expirebridge")) as store:
        finding = store.run(check_holds("expirebridge", 10))
    assert finding is not None
    assert finding.message.startswith("holds nothing: mail.send; write ")
    assert finding.remedy == f"HDEL {key}:holds mail.send"


def test_the_doctor_warns_of_a_function_that_no_listener_knows(
    bridge: Bridge, store: Store
) -> None:
    shapes = {"mail.send": "()"}
    code = digest_of(shapes)
    store.run(claiming.heartbeat("me", 10, [], code=code, functions=1))
    store.run(fleet.declare(code, shapes))
    bridge.hold(func="mail.sned")
    level, message = checked(store)
    assert level == "warning"
    assert message.startswith("a function on hold is not known: mail.sned: no listener knows it")
    assert "mail.send" in message


def test_metrics_count_what_is_held(bridge: Bridge, store: Store, settings: Settings) -> None:
    make(store, "a", "b")
    bridge.hold(func="mail.send")
    taken(store)
    found = {metric.name: metric.samples for metric in OfTheServer(settings, []).collect()}
    assert [sample.value for sample in found["expirebridge_held_tasks"]] == [2]
