"""Limits that a deploy changes: what was granted before, and what waits in lanes that are left."""

from collections.abc import Sequence

import pytest
import redis

from expirebridge.limits.calls import declare_limits
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import producing, reconciling
from expirebridge.task.calls.claiming import Settlement
from tests.kit.steps import PREFIX, claim, new, server_ms, settle

pytestmark = pytest.mark.servers("oldest")

Fields = list[tuple[str, bytes]]


def make(store: Store, *ids: str, func: str = "mail.send", args: str = '["x"]') -> None:
    """Make tasks that are due, each a millisecond after the one before."""
    due = server_ms(store.client) - 60_000
    call = f"{func}?{args}".encode()
    store.run(
        producing.make([
            new(id, due + place, call=call, relative=False) for place, id in enumerate(ids)
        ])
    )  # fmt: skip


def taken(store: Store, *, places: int = 100) -> list[str]:
    return [task.id for task in claim(store, places=places).tasks]


def end(store: Store, ids: Sequence[str]) -> None:
    settle(store, *(Settlement(id, "t", "succeeded") for id in ids))


def sweep(store: Store) -> int:
    """Sweep until nothing is left to do; returns how many places were wrong."""
    mended, more = 0, True
    while more:
        swept = store.run(reconciling.sweep(Settings()))
        mended, more = mended + swept.mended, swept.more
    return mended


KINDS = {
    "plain": (b'["all"]', b'{"most":%d}'),
    "fair": (b'["all",null,null,null,0,"to",null]', b'{"most":%d,"fair":true}'),
    "with per": (b'["all",0,"to",null]', b'{"most":%d}'),
    "behind a rate": (b'["pace"],["all"]', b'{"most":%d}'),
    "before another": (b'["all",0,"to",null],["wide"]', b'{"most":%d}'),
}
"""The limits of the function, and the numbers of the one that changes."""


def all_of(most: int, kind: str = "plain") -> Fields:
    """What the handlers declare with that number."""
    limits, numbers = KINDS[kind]
    return [
        ("f mail.send", b"[%s]" % limits), ("l all", numbers % most),
        ("l pace", b'{"starts":1,"every":1,"burst":1000000}'), ("l wide", b'{"most":50}'),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_granted_above_a_lowered_number_does_not_start(
    store: Store, client: redis.Redis, kind: str
) -> None:
    store.run(declare_limits("aa", all_of(5, kind)))
    ids = [f"a{number:02}" for number in range(15)]
    make(store, *ids)
    running = taken(store)
    assert running == ids[:5]
    # Three of them end, and three are granted their slots. Before these are claimed, it is two.
    end(store, running[:3])
    running = running[3:]
    assert client.zcard(f"{PREFIX}:pending") == 3
    store.run(declare_limits("aa", all_of(2, kind)))
    started: list[str] = []
    while running:
        sweep(store)
        found = taken(store)
        assert len(running) + len(found) <= 2
        started += found
        running += found
        end(store, running[:1])
        running = running[1:]
    assert started == ids[5:]
    assert sweep(store) == 0
    assert client.zcard(f"{PREFIX}:lanes") == client.zcard(f"{PREFIX}:grants") == 0


def test_a_lapsed_task_does_not_start_again_above_a_lowered_number(
    store: Store, client: redis.Redis
) -> None:
    store.run(declare_limits("aa", all_of(3)))
    make(store, "a", "b", "c")
    assert taken(store) == ["a", "b", "c"]
    store.run(declare_limits("aa", all_of(1)))
    client.zadd(f"{PREFIX}:running", {"b": 0, "c": 0})
    settle(store, Settlement("x", "t", "succeeded"))
    store.client.zadd(f"{PREFIX}:listeners", {"another": server_ms(client)})
    sweep(store)
    assert taken(store) == []
    end(store, "a")
    assert taken(store) == ["b"]
    end(store, "b")
    assert taken(store) == ["c"]


# A handler that gives up a limit, or has another

SHARED: Fields = [
    ("f mail.send", b'[["all"]]'), ("f post.send", b'[["all"]]'), ("l all", b'{"most":1}'),
    ("l other", b'{"most":500}'),
]  # fmt: skip


def taken_and_ended(store: Store) -> list[str]:
    """Claim and end until nothing can start; returns who ran, in order."""
    found: list[str] = []
    while some := taken(store):
        end(store, some)
        found += some
    return found


@pytest.mark.parametrize(
    "left", [b"[]", b'[["other"]]', b'[["all",0,"to",null]]'], ids=["none", "another", "with per"]
)
@pytest.mark.parametrize("number", [3, 130])
def test_what_waits_in_a_lane_that_its_handler_gave_up_goes_on_elsewhere(
    store: Store, client: redis.Redis, left: bytes, number: int
) -> None:
    store.run(declare_limits("aa", SHARED))
    make(store, "first", func="post.send")
    assert taken(store) == ["first"]
    posts, mails = ([f"{name}{n:03}" for n in range(number)] for name in "pm")
    make(store, *posts, func="post.send")
    make(store, *mails)
    while claim(store).parked:
        pass
    assert client.zcard(f"{PREFIX}:waiting") == 2 * number
    store.run(declare_limits("bb", [("f mail.send", left)]))
    assert sweep(store) == 0
    assert taken_and_ended(store) == mails
    end(store, ["first"])
    assert taken_and_ended(store) == posts
    assert sweep(store) == 0
    for key in ("lanes", "waiting", "grants"):
        assert client.zcard(f"{PREFIX}:{key}") == 0, key


def test_a_limit_that_no_handler_has_holds_nobody_back(store: Store, client: redis.Redis) -> None:
    store.run(declare_limits("aa", SHARED))
    make(store, "a", "b", "c", "d")
    assert taken(store) == ["a"]
    end(store, ["a"])
    store.run(declare_limits("bb", [("f mail.send", b"[]"), ("f post.send", b"[]")]))
    assert sweep(store) == 0
    assert taken(store) == ["b", "c", "d"]
    for key in ("lanes", "waiting", "grants"):
        assert client.zcard(f"{PREFIX}:{key}") == 0, key


@pytest.mark.parametrize("outcome", ["retry", "failed"])
def test_what_has_begun_in_an_ordered_lane_that_its_handler_gave_up_keeps_it_no_longer(
    store: Store, client: redis.Redis, outcome: str
) -> None:
    line = b'[["line",0,"to",null]]'
    ordered = ("l line", b'{"most":1,"ordered":true,"blocks":true}')
    store.run(declare_limits("aa", [("f mail.send", line), ("f post.send", line), ordered]))
    make(store, "a")
    make(store, "b", func="post.send")
    assert taken(store) == ["a"]
    settle(store, Settlement("a", "t", outcome, 3600, "why"))
    assert taken(store) == []
    store.run(declare_limits("bb", [("f mail.send", b"[]")]))
    assert sweep(store) == 0
    assert taken_and_ended(store) == ["b"]
    client.zadd(f"{PREFIX}:pending", {"a": 1}, xx=True)
    client.delete('a:?mail.send?["x"]')
    assert taken_and_ended(store) == (["a"] if outcome == "retry" else [])
    assert sweep(store) == client.zcard(f"{PREFIX}:lanes") == 0


def test_what_runs_in_a_lane_that_its_handler_gave_up_keeps_its_slot_until_it_ends(
    store: Store,
) -> None:
    store.run(declare_limits("aa", SHARED))
    make(store, "a")
    make(store, "b", func="post.send")
    assert taken(store) == ["a"]
    store.run(declare_limits("bb", [("f mail.send", b"[]")]))
    assert sweep(store) == 0
    assert taken(store) == []
    end(store, ["a"])
    assert taken(store) == ["b"]


def test_while_the_limits_of_a_function_are_lost_its_tasks_wait(
    store: Store, client: redis.Redis
) -> None:
    store.run(declare_limits("aa", SHARED))
    make(store, "a", "b")
    assert taken(store) == ["a"]
    end(store, ["a"])
    client.delete(f"{PREFIX}:limits")
    store.run(declare_limits("bb", [("f post.send", b'[["all"]]'), ("l all", b'{"most":9}')]))
    assert sweep(store) == 0
    assert client.zcard(f"{PREFIX}:waiting") + client.scard(f"{PREFIX}:lane:all") == 1
