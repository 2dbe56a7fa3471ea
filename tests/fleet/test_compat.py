"""Waiting tasks against a registry, on every server: what is read, and what is left out."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, State
from expirebridge.fleet.comparing import Scope, compare, compare_beside, scope_of
from expirebridge.fleet.compatibility import Arguments, Comparison, Verdict
from expirebridge.settings import Settings
from expirebridge.store.client import AsyncStore, Store
from expirebridge.task.calls import inspection, producing
from expirebridge.task.calls import pages as pages_commands
from expirebridge.task.calls.call import CHUNK, chunks
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.calls.inspection import CallsPage, StoredCall
from tests.kit.steps import claim, new, server_ms, settle
from tests.kit.witness import registry_of

pytestmark = pytest.mark.servers("oldest")


def send(to: int) -> None: ...


REGISTRY = registry_of(send=send)
LONG = "x" * 600


def look(store: Store, **options: Any) -> tuple[Comparison, Scope]:
    scope = store.run(scope_of(**options))
    examined: list[int] = []
    comparison = store.run(compare(REGISTRY, scope, progress=examined.append))
    assert sum(examined) == scope.total
    store.run(compare_beside(comparison, Settings(), options.get("due_within")))
    return comparison, scope


def found(comparison: Comparison) -> dict[str, tuple[Verdict, int]]:
    """Of each group, by one of its ids: the verdict, and how many there are."""
    return {group.ids[0]: (group.verdict, group.count) for group in comparison.groups()}


def test_every_task_that_waits_is_compared(bridge: Bridge, store: Store) -> None:
    bridge.make_task("test.send", [1], "1h", id="pending")
    bridge.make_task("test.sned", [1], "2h", id="unknown")
    bridge.make_task("test.send", [1, 2], "3h", id="long", tags=["x"])
    bridge.make_task("test.send", kwargs={"cc": "x" * 2000}, delay="4h", id="in-record")
    bridge.make_task("test.send", [], "1h", id="paused")
    bridge.pause("paused")
    comparison, scope = look(store)
    assert found(comparison) == {
        "pending": (Verdict.FITS, 1),
        "unknown": (Verdict.UNKNOWN_FUNCTION, 1),
        "long": (Verdict.ARGUMENTS_DO_NOT_FIT, 1),
        "in-record": (Verdict.ARGUMENTS_DO_NOT_FIT, 1),
        "paused": (Verdict.ARGUMENTS_DO_NOT_FIT, 1),
    }
    assert (scope.total, scope.later, scope.paused) == (5, 0, 0)
    dues = {group.ids[0]: group.first_due for group in comparison.groups()}
    task = bridge.get("long")
    assert task is not None
    assert dues["long"] == round(task.due.timestamp() * 1000)
    assert dues["paused"] is None
    assert [group.ids[0] for group in comparison.groups()] == [
        "unknown", "long", "in-record", "paused", "pending",
    ]  # fmt: skip


def test_a_series_is_compared_whether_a_tick_of_it_waits_or_not(
    bridge: Bridge, store: Store
) -> None:
    until = datetime.now(UTC) + timedelta(seconds=30)
    bridge.schedule("goes", "test.sned", [1], every="1h")
    bridge.schedule("paused", "test.send", ["x" * 2000, 2], every="1h")
    bridge.schedule("over", "test.gone", every="1h", until=until)
    bridge.pause_series("paused")
    comparison, scope = look(store)
    assert scope.total == 1
    verdicts = {id.partition("@")[0]: verdict for id, (verdict, _) in found(comparison).items()}
    assert verdicts == {
        "goes": Verdict.UNKNOWN_FUNCTION, "paused": Verdict.ARGUMENTS_DO_NOT_FIT
    }  # fmt: skip
    assert comparison.compared == comparison.failing == 2
    within, _ = look(store, due_within=86400)
    assert within.compared == 1


async def test_the_other_colour_compares_alike(
    async_bridge: AsyncBridge, async_store: AsyncStore
) -> None:
    await async_bridge.make_task("test.sned", [1], "2h", id="a")
    scope = await async_store.run(scope_of())
    comparison = await async_store.run(compare(REGISTRY, scope, progress=lambda _: None))
    assert found(comparison) == {"a": (Verdict.UNKNOWN_FUNCTION, 1)}


def test_finished_tasks_wait_for_nothing_but_failed_ones_can_be_asked_for(
    bridge: Bridge, store: Store
) -> None:
    for id, outcome in (("done", "succeeded"), ("bad", "failed")):
        bridge.make_task("gone.away", [], 0, id=id)
        [task] = claim(store).tasks
        settle(store, Settlement(id, task.token, outcome))
    bridge.make_task("gone.away", [], 60, id="off")
    bridge.cancel("off")
    assert found(look(store)[0]) == {}
    comparison, _ = look(store, failed=True)
    assert found(comparison) == {"bad": (Verdict.UNKNOWN_FUNCTION, 1)}
    assert comparison.groups()[0].first_due is None


def test_a_retry_that_waits_is_compared(bridge: Bridge, store: Store) -> None:
    bridge.make_task("gone.away", [], 0, id="again")
    [task] = claim(store).tasks
    settle(store, Settlement("again", task.token, "retry", 60))
    assert found(look(store)[0]) == {"again": (Verdict.UNKNOWN_FUNCTION, 1)}


def test_of_a_running_task_the_call_of_any_further_run_is_compared(
    bridge: Bridge, store: Store
) -> None:
    for id in ("plain", "cancelled", "replaced", "rearmed", "in-record"):
        bridge.make_task("gone.away", [], 0, id=id)
    claim(store)
    bridge.cancel("cancelled")
    bridge.make_task("test.send", [1, 2], "1h", id="replaced", if_exists="replace")
    bridge.make_task("test.send", [], 0, kwargs={LONG: 1}, id="in-record", if_exists="replace")
    bridge.cancel("rearmed")
    bridge.reschedule("rearmed", "2h")
    comparison, _ = look(store)
    groups = {group.ids[0]: group for group in comparison.groups()}
    away = groups.pop("plain")
    assert (away.func, sorted(away.ids)) == ("gone.away", ["plain", "rearmed"])
    assert {id: (group.func, group.arguments) for id, group in groups.items()} == {
        "replaced": ("test.send", Arguments(2, ())),
        "in-record": ("test.send", Arguments(0, (LONG,))),
    }


def test_only_what_is_due_soon_is_read(bridge: Bridge, store: Store, client: redis.Redis) -> None:
    now = server_ms(client)
    bridge.make_task("gone.soon", [], "1h", id="soon")
    bridge.make_task("gone.late", [], "3h", id="late")
    bridge.make_task("gone.paused", [], "1h", id="paused")
    bridge.pause("paused")
    comparison, scope = look(store, due_within=7200)
    assert found(comparison) == {"soon": (Verdict.UNKNOWN_FUNCTION, 1)}
    assert (scope.total, scope.later, scope.paused) == (1, 1, 1)
    assert scope.until is not None
    assert 7_200_000 <= scope.until - now < 7_260_000
    nothing, scope = look(store, due_within=0)
    assert (found(nothing), scope.total, scope.later) == ({}, 0, 2)


def test_what_is_due_at_the_end_of_that_time_is_left_out(bridge: Bridge, store: Store) -> None:
    due = round(bridge.make_task("test.send", [1], "1h", id="a").due.timestamp() * 1000)
    for until, ids in ((due, []), (due + 1, ["a"])):
        page = store.run(inspection.calls_page(State.PENDING, "0", until=until))
        assert [call.id for call in page.calls] == ids


# Pages


def pages_of(store: Store, state: State = State.PENDING) -> list[CallsPage]:
    walk = pages_commands.Pages(lambda cursor: inspection.calls_page(state, cursor))
    pages = []
    while page := store.run(walk.next()):
        pages.append(page)
    return pages


def ids_of(pages: list[CallsPage]) -> list[str]:
    return [call.id for page in pages for call in page.calls]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("count", [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_each_task_is_read_once_whatever_their_due_times(
    store: Store, count: int, at_once: bool
) -> None:
    tasks = [
        new(f"{n}", 2**42 + (0 if at_once else n), relative=False, call=b"test.send?[1]")
        for n in range(count)
    ]
    for chunk in chunks(tasks):
        store.run(producing.make(chunk))
    pages = pages_of(store)
    assert sorted(ids_of(pages)) == sorted(task.id for task in tasks)
    assert len(pages) == count // CHUNK + 1
    assert sum(page.examined for page in pages) == count


def test_of_ids_with_the_same_beginning_each_is_read(store: Store) -> None:
    ids = ["a" * n for n in range(1, CHUNK + 20)]
    store.run(producing.make([new(id, 2**42, relative=False) for id in ids]))
    assert ids_of(pages_of(store)) == ids


@pytest.mark.parametrize("at_once", [True, False])
def test_what_comes_and_goes_meanwhile_does_not_hide_the_others(
    store: Store, bridge: Bridge, at_once: bool
) -> None:
    """As listeners do: what was read is run, with the last one of the page."""
    kept = {f"kept-{n}" for n in range(150)}
    others = {f"{name}-{n}" for n in range(150) for name in ("a", "z")}
    for chunk in chunks(sorted(kept | others)):
        store.run(
            producing.make(
                [
                    new(id, 2**42 + (0 if at_once else n), relative=False)
                    for n, id in enumerate(chunk)
                ]
            )
        )
    walk = pages_commands.Pages(lambda cursor: inspection.calls_page(State.PENDING, cursor))
    read: list[str] = []
    number = 0
    while page := store.run(walk.next()):
        ids = [call.id for call in page.calls]
        read += ids
        bridge.cancel_all([id for id in ids if id in others])
        number += 1
        store.run(producing.make([new(f"b-{number}", 2**42, relative=False)]))
    assert len(read) == len(set(read))
    assert kept <= set(read)


# Bad data


def test_bad_data_is_counted_and_stops_nothing(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    for id in ("string", "no-call", "bad-args", "no-args", "stray", "good"):
        bridge.make_task("test.send", [1], "1h", id=id)
    client.delete("expirebridge:task:string")
    client.set("expirebridge:task:string", "not a hash")
    client.hdel("expirebridge:task:no-call", "call")
    client.hset("expirebridge:task:bad-args", "call", b"test.send?[\xff")
    client.hset("expirebridge:task:no-args", "call", "test.send?@")
    client.hset("expirebridge:task:stray", "state", "succeeded")
    ids = {b"gone": 1.0, b"": 2.0, b"\xff \x00 a": 3.0, b"inf": math.inf}
    client.zadd("expirebridge:pending", ids)
    comparison, scope = look(store)
    assert scope.total == 10
    verdicts = {group.verdict: group.count for group in comparison.groups()}
    assert verdicts == {
        Verdict.RECORD_UNREADABLE: 6, Verdict.ARGUMENTS_UNREADABLE: 2, Verdict.FITS: 1,
    }  # fmt: skip
    assert comparison.failing == 8


def test_a_page_that_ends_with_bad_ids_is_followed_by_the_next(
    store: Store, client: redis.Redis
) -> None:
    ids = [b"", b" ", b"\xff\xfe", b"\x00", b"0", b"a b", b"\xc3\xa9"]
    client.zadd("expirebridge:pending", {id + b"/%d" % n: 0 for n in range(CHUNK) for id in ids})
    client.zadd("expirebridge:pending", dict.fromkeys(ids, -1e300))
    pages = pages_of(store)
    assert sum(page.examined for page in pages) == (CHUNK + 1) * len(ids)
    assert len(set(ids_of(pages))) == (CHUNK + 1) * len(ids)


def test_a_bad_successor_of_a_running_task_is_passed_over(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    bridge.make_task("test.send", [1], 0, id="a")
    claim(store)
    client.hset("expirebridge:task:a", mapping={"next": "no msgpack", "due": "soon"})
    [page] = pages_of(store, State.RUNNING)
    assert page.calls == [StoredCall("a", "test.send", b"[1]", None)]


def test_nothing_is_written(store: Store, bridge: Bridge, client: redis.Redis) -> None:
    bridge.make_task("gone.away", [], "1h")
    before = client.info("persistence")["rdb_changes_since_last_save"]
    look(store, failed=True)
    assert client.info("persistence")["rdb_changes_since_last_save"] == before
