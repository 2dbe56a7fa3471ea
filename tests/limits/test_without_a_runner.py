"""Tasks of a function that no live listener has hold up nobody who shares a limit with them."""

from collections.abc import Sequence

import pytest
import redis

from expirebridge.limits.calls import declare_limits
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, fleet, producing, reconciling
from expirebridge.task.calls.claiming import Claim, Settlement, Walk
from tests.kit.steps import PREFIX, new, server_ms, settle

pytestmark = pytest.mark.servers("oldest")

CODES = {"aa": ("live.run",), "cc": ("live.run",), "bb": ("gone.run",)}
"""The functions of each code; the last has no listener any longer, in the end."""
KINDS = {
    "plain": (b'["all"]', b'{"most":1}'),
    "fair": (b'["all",null,null,null,0,"to",null]', b'{"most":1,"fair":true}'),
    "with per": (b'["all",0,"to",null]', b'{"most":1}'),
    "behind another": (b'["each",0,"to",null],["all"]', b'{"most":1}'),
    "a rate": (b'["pace"]', b'{"most":1}'),
}


def declare(store: Store, kind: str) -> None:
    limits, numbers = KINDS[kind]
    functions = [(f"f {func}", b"[%s]" % limits) for func in ("live.run", "gone.run")]
    others = [("l pace", b'{"starts":1,"every":3600000000,"burst":1}'), ("l each", b'{"most":9}')]
    store.run(declare_limits("dd", [*functions, ("l all", numbers), *others]))


def beat(store: Store, *codes: str) -> None:
    for code in codes:
        fingerprint = code.partition(" ")[0]
        store.run(fleet.declare(fingerprint, dict.fromkeys(CODES[fingerprint], "1")))
        store.run(claiming.heartbeat(f"of {fingerprint}", 10, [], code=code))


def make(store: Store, func: str, *ids: str, at: int = 0) -> None:
    due = server_ms(store.client) - 60_000 + at
    tasks = [
        new(id, due + place, call=f'{func}?["x"]'.encode(), relative=False)
        for place, id in enumerate(ids)
    ]
    store.run(producing.make(tasks))


def claim(store: Store, code: str) -> Claim:
    return store.run(
        claiming.claim_known(
            "t", Settings(), places=100, idle=True, limits="dd", code=code,
            walks=[Walk(b"-inf", b"", b"+inf", 1)],
        )
    )  # fmt: skip


def taken(store: Store, code: str) -> list[str]:
    return [task.id for task in claim(store, code).tasks]


def taken_soon(store: Store, code: str) -> list[str]:
    """What it takes by ten claims: a start of a rate may be due in the next millisecond."""
    found: list[str] = []
    for _ in range(10):
        found = found or taken(store, code)
    return found


def end(store: Store, ids: Sequence[str]) -> None:
    settle(store, *(Settlement(id, "t", "succeeded") for id in ids))


def gone(store: Store, client: redis.Redis, *codes: str) -> None:
    """The listener of `bb` is there no longer, and only these are."""
    client.zrem(f"{PREFIX}:listeners", "of bb")
    beat(store, *codes)


LIVE = ["l1", "l2", "l3"]


def wait_in_line(store: Store, kind: str, *, dead: Sequence[str]) -> str:
    """One runs, and others wait in its lane; those whose listener goes are the first."""
    declare(store, kind)
    beat(store, *CODES)
    make(store, "live.run", "first", at=-10)
    assert taken(store, "aa") == ["first"]
    make(store, "gone.run", *dead)
    make(store, "live.run", *LIVE, at=1000)
    while claim(store, "bb").parked or claim(store, "aa").parked:
        pass
    # The first start of a rate is granted at once.
    waiting = len(dead) + len(LIVE) - (kind == "a rate")
    assert store.client.zcard(f"{PREFIX}:waiting") == waiting
    return "first"


def is_over(store: Store) -> None:
    """A rate's next start has come."""
    store.client.delete(f"{PREFIX}:rates")
    store.run(reconciling.sweep(Settings()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("codes", [("aa", "cc"), ("aa ?",)])
@pytest.mark.parametrize("number", [3, 120])
def test_they_are_given_no_slot_for_which_others_wait(
    store: Store, client: redis.Redis, kind: str, codes: tuple[str, ...], number: int
) -> None:
    dead = [f"d{place:03}" for place in range(number)]
    running = wait_in_line(store, kind, dead=dead)
    gone(store, client, *codes)
    started: list[str] = []
    while len(started) < len(LIVE):
        end(store, [running])
        is_over(store)
        [running] = taken_soon(store, codes[0])  # no lease has passed
        started.append(running)
    assert started == LIVE
    # They are told of as any that no listener can run, and go on once one has the function.
    end(store, [running])
    is_over(store)
    while claim(store, codes[0]).tasks:
        pass
    assert client.zcard(f"{PREFIX}:waiting") == client.zcard(f"{PREFIX}:grants") == 0
    assert client.hget(f"{PREFIX}:task:{dead[0]}", "unknown")
    assert store.run(reconciling.sweep(Settings())).mended == 0
    beat(store, "bb")
    started = []
    for _ in range(3):
        started += (found := taken_soon(store, "bb"))
        end(store, found)
        is_over(store)
    assert started == dead[:3]


@pytest.mark.parametrize("lapsed", [False, True])
def test_what_had_a_slot_when_its_listener_went_loses_it(
    store: Store, client: redis.Redis, lapsed: bool
) -> None:
    running = wait_in_line(store, "behind another", dead=["d1", "d2"])
    end(store, [running])
    assert client.smembers(f"{PREFIX}:lane:all") == {b"d1"}
    gone(store, client, "aa", "cc")
    assert taken(store, "aa") == []
    if lapsed:
        client.zadd(f"{PREFIX}:grants", {"d1": 0})
    store.run(reconciling.sweep(Settings()))
    assert taken(store, "aa") == LIVE[:1]
    assert client.zcard(f"{PREFIX}:grants") == 0
    beat(store, "bb")
    assert taken(store, "bb") == []
    end(store, LIVE[:1])
    assert taken(store, "bb") == ["d1"]
    end(store, ["d1"])
    assert store.run(reconciling.sweep(Settings())).mended == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [3, 120])
def test_a_listener_without_a_declaration_may_run_anything(
    store: Store, client: redis.Redis, kind: str, number: int
) -> None:
    """It takes every task, as claims have it: what it makes wait is given a slot again."""
    dead = [f"d{place:03}" for place in range(number)]
    running = wait_in_line(store, kind, dead=dead)
    client.delete(f"{PREFIX}:code:bb")
    for id in dead[:3]:
        end(store, [running])
        is_over(store)
        assert taken_soon(store, "bb") == [id]
        running = id


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [3, 120])
def test_what_nobody_has_had_for_a_day_is_given_a_slot_and_fails(
    store: Store, client: redis.Redis, kind: str, number: int
) -> None:
    """A claim takes it then, for its listener to fail it."""
    dead = [f"d{place:03}" for place in range(number)]
    running = wait_in_line(store, kind, dead=dead)
    gone(store, client, "aa", "cc")
    for id in dead:
        client.hset(f"{PREFIX}:task:{id}", "unknown", server_ms(client) - 90_000_000)
    for id in dead[:3]:
        end(store, [running])
        is_over(store)
        assert taken_soon(store, "aa") == [id]
        running = id


def test_in_an_ordered_lane_they_are_not_passed_over(store: Store, client: redis.Redis) -> None:
    line = b'[["line",0,"to",null]]'
    fields = [("f live.run", line), ("f gone.run", line), ("l line", b'{"most":1,"ordered":true}')]
    store.run(declare_limits("dd", fields))
    beat(store, *CODES)
    make(store, "live.run", "first")
    assert taken(store, "aa") == ["first"]
    make(store, "gone.run", "d1", at=10)
    make(store, "live.run", "l1", at=20)
    assert taken(store, "bb") == taken(store, "aa") == []
    gone(store, client, "aa", "cc")
    end(store, ["first"])
    client.zadd(f"{PREFIX}:grants", {"d1": 0})
    store.run(reconciling.sweep(Settings()))
    assert taken(store, "aa") == []
    beat(store, "bb")
    assert taken(store, "bb") == ["d1"]
