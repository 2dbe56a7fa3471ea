"""Another client deleted, overwrote or garbled what producers meet: each call ends, clearly."""

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import redis
from _pytest.mark import ParameterSet

from expirebridge import Bridge, Then
from expirebridge.errors import ExpirebridgeError, GroupNotFound
from tests.kit.patience import PATIENCE

# A call that does not end ends here.
pytestmark = pytest.mark.timeout(2 * PATIENCE)

PREFIX = "expirebridge"
RECORD, GROUP, SERIES = f"{PREFIX}:task:a", f"{PREFIX}:group:g", f"{PREFIX}:series:s"
GARBAGE = [b"\xff\xfe", b"nan", b"", b"1e308", b"{", b"-1"]
Call = Callable[[Bridge], object]


def rest_but(quick: set[str], names: Iterable[str]) -> list[ParameterSet]:
    """Each of them, of which make test takes these."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.rest) for name in names]


def task(if_exists: str, **options: object) -> Call:
    given = {"func": "test.note", "args": [1], "delay": 60, "id": "a", "if_exists": if_exists}
    return lambda bridge: bridge.make_tasks([given | options])


OF_TASKS: dict[str, Call] = {
    "reject": lambda bridge: bridge.make_task("test.note", [1], 60, id="a"),
    "keep": task("keep"),
    "replace": task("replace"),
    "extend": task("extend", max_wait=600),
    "several": lambda bridge: bridge.make_tasks([
        {"func": "test.note", "args": [1], "delay": 60, "id": id, "if_exists": "replace"}
        for id in ("b", "a")
    ]),
    "watch": lambda bridge: bridge.watch("a", "test.note", [1], ttl=60),
    "with a signal": task("replace", on_signal="test.sign"),
    "beat": lambda bridge: bridge.beat("a"),
    "signal": lambda bridge: bridge.signal("a", 1),
    "cancel": lambda bridge: bridge.cancel("a"),
    "cancel_tag": lambda bridge: bridge.cancel_tag("x"),
    "cancel_func": lambda bridge: bridge.cancel_func("test.note"),
    "reschedule": lambda bridge: bridge.reschedule("a", 30),
    "put_off": lambda bridge: bridge.put_off("a", 30),
    "put_off_tag": lambda bridge: bridge.put_off_tag("x", 30),
    "edit": lambda bridge: bridge.edit("a", [2]),
    "run_now": lambda bridge: bridge.run_now("a"),
    "pause": lambda bridge: bridge.pause("a"),
    "resume": lambda bridge: bridge.resume("a"),
    "let_pass": lambda bridge: bridge.let_pass("a"),
    "get": lambda bridge: bridge.get("a"),
    "why": lambda bridge: bridge.why("a"),
    "list": lambda bridge: bridge.list(),
    "count": lambda bridge: bridge.count(),
    "retry_failed": lambda bridge: bridge.retry_failed(["a"]),
    "purge_failed": lambda bridge: bridge.purge_failed(["a"]),
}  # fmt: skip
FIELDS = [
    "call", "made", "args", "key", "nonce", "tags", "retry", "timeout", "misfire", "ttl", "tick",
    "first", "state", "token", "due", "attempt", "lapses", "started", "ended", "result", "error",
    "unknown", "unfit", "rearm", "next", "snoozes", "cancel", "ledger", "history", "left", "slots",
    "queue", "parked", "waited", "after", "then", "late", "on_signal", "signalled",
]  # fmt: skip


def ends(call: Call, bridge: Bridge) -> None:
    """Let it end, with an answer or with an error of ours."""
    with contextlib.suppress(ExpirebridgeError):
        call(bridge)


def overwrite(client: redis.Redis, key: str, kind: str) -> None:
    client.delete(key)
    match kind:
        case "string":
            client.set(key, b"\xff what")
        case "set":
            client.sadd(key, "x")
        case "hash":
            client.hset(key, "x", "y")


KINDS = ["none", "string", "set", "hash"]


def make_in_state(bridge: Bridge, client: redis.Redis, state: str) -> None:
    bridge.make_task("test.note", [1], 60, id="a", tags=["x"])
    if state != "pending":
        due: Any = client.zscore(f"{PREFIX}:pending", "a")
        client.zrem(f"{PREFIX}:pending", "a")
        client.zadd(f"{PREFIX}:{state}", {"a": due})
        client.hset(RECORD, mapping={"state": state, "token": "t", "due": int(due)})


def names_in(client: redis.Redis) -> list[bytes]:
    found: Any = client.keys()
    return list(found)


def restore(client: redis.Redis, saved: Iterable[tuple[bytes, int, bytes]]) -> None:
    client.flushdb()
    for key, ttl, dump in saved:
        client.restore(key, max(ttl, 0), dump)


@pytest.mark.parametrize("call", OF_TASKS)
def test_a_record_that_was_overwritten(bridge: Bridge, client: redis.Redis, call: str) -> None:
    for state in ("pending", "running", "failed"):
        for kind in KINDS:
            client.flushdb()
            make_in_state(bridge, client, state)
            overwrite(client, RECORD, kind)
            ends(OF_TASKS[call], bridge)


@pytest.mark.parametrize("field", rest_but({"call", "state"}, FIELDS))
def test_a_field_of_a_record_that_was_garbled(
    bridge: Bridge, client: redis.Redis, field: str
) -> None:
    for state in ("pending", "running", "failed"):
        client.flushdb()
        make_in_state(bridge, client, state)
        saved: Any = [(key, client.pttl(key), client.dump(key)) for key in names_in(client)]
        for garbage in GARBAGE[:3]:
            for call in OF_TASKS.values():
                restore(client, saved)
                client.hset(RECORD, field, garbage)
                ends(call, bridge)


MEMBERS = [{"func": "test.note", "args": [number], "delay": 60} for number in range(3)]
OF_GROUPS: dict[str, Call] = {
    "make": lambda bridge: bridge.make_group("g", MEMBERS, then=Then("test.then", [1])),
    "close": lambda bridge: bridge.close_group("g"),
    "cancel": lambda bridge: bridge.cancel_group("g"),
    "add": lambda bridge: bridge.make_tasks(MEMBERS[:1], group="g"),
    "get": lambda bridge: bridge.get_group("g"),
    "list": lambda bridge: bridge.list_groups(),
    "members": lambda bridge: bridge.list(group="g"),
    "find_failed": lambda bridge: bridge.find_failed(group="g"),
    "why": lambda bridge: bridge.why("g@then"),
}
OF_SERIES: dict[str, Call] = {
    "the same": lambda bridge: bridge.schedule("s", "test.note", [1], every=60),
    "another": lambda bridge: bridge.schedule("s", "test.note", [2], every=90),
    "many": lambda bridge: bridge.schedule_many([{"id": "s", "func": "test.note", "every": 90}]),
    "unschedule": lambda bridge: bridge.unschedule("s"),
    "get": lambda bridge: bridge.get_series("s"),
    "list": lambda bridge: bridge.list_series(),
    "pause": lambda bridge: bridge.pause_series("s"),
    "resume": lambda bridge: bridge.resume_series("s"),
    "run": lambda bridge: bridge.run_series("s"),
    "prune": lambda bridge: bridge.prune_series(),
}


def make_group(bridge: Bridge, client: redis.Redis) -> None:
    bridge.make_group("g", MEMBERS, then=Then("test.then", [1]), close=False)


def make_series(bridge: Bridge, client: redis.Redis) -> None:
    bridge.schedule("s", "test.note", [1], every=60)


def make_paused_series(bridge: Bridge, client: redis.Redis) -> None:
    make_series(bridge, client)
    bridge.pause_series("s")


def damage_each_way(
    bridge: Bridge,
    client: redis.Redis,
    make: Callable[[Bridge, redis.Redis], None],
    calls: dict[str, Call],
    key: str,
) -> None:
    """Try each call on each damage of a key, and of each of its fields."""
    make(bridge, client)
    saved: Any = [(name, client.pttl(name), client.dump(name)) for name in names_in(client)]
    damages: list[Callable[[], object]] = [partial(overwrite, client, key, kind) for kind in KINDS]
    fields: Any = client.hkeys(key) if client.type(key) == b"hash" else []
    for field in fields:
        damages.append(partial(client.hdel, key, field))
        damages += [partial(client.hset, key, field, garbage) for garbage in GARBAGE[:3]]
    for damage in damages:
        for call in calls.values():
            restore(client, saved)
            damage()
            ends(call, bridge)


@pytest.mark.parametrize("key", rest_but({GROUP}, [
    GROUP, f"{GROUP}@members", f"{PREFIX}:groups", f"{PREFIX}:meta", f"{PREFIX}:task:g@then",
]))  # fmt: skip
def test_a_key_of_a_group_that_was_deleted_or_garbled(
    bridge: Bridge, client: redis.Redis, key: str
) -> None:
    damage_each_way(bridge, client, make_group, OF_GROUPS, key)


@pytest.mark.parametrize("make", [make_series, make_paused_series])
@pytest.mark.parametrize("key", rest_but({SERIES}, [SERIES, f"{PREFIX}:series", f"{PREFIX}:meta"]))
def test_a_key_of_a_series_that_was_deleted_or_garbled(
    bridge: Bridge, client: redis.Redis, make: Callable[[Bridge, redis.Redis], None], key: str
) -> None:
    damage_each_way(bridge, client, make, OF_SERIES, key)


def test_a_series_of_which_a_part_was_lost_is_made_again(
    bridge: Bridge, client: redis.Redis
) -> None:
    for lose in (
        lambda: client.delete(f"{PREFIX}:series"),
        lambda: client.hdel(SERIES, "call"),
        lambda: client.hset(SERIES, "fingerprint", b"\xff"),
    ):
        make_series(bridge, client)
        lose()
        made = bridge.schedule("s", "test.note", [2], every=90)
        assert list(made.args) == [2]
        assert client.zscore(f"{PREFIX}:series", "s") is not None
        assert client.ttl(SERIES) == -1
        assert client.zcard(f"{PREFIX}:pending") == 1
        bridge.unschedule("s")


def test_a_group_is_closed_and_cancelled_although_the_notes_of_the_format_were_lost(
    bridge: Bridge, client: redis.Redis
) -> None:
    for call in ("close_group", "cancel_group"):
        make_group(bridge, client)
        client.delete(f"{PREFIX}:meta")
        assert getattr(bridge, call)("g").closed
        assert client.zscore(f"{PREFIX}:groups", "g") is not None
        client.flushdb()


def test_a_group_whose_hash_is_none_is_not_found(bridge: Bridge, client: redis.Redis) -> None:
    make_group(bridge, client)
    client.hdel(GROUP, "on_failed")
    with pytest.raises(GroupNotFound):
        bridge.close_group("g")
    assert bridge.get_group("g") is None
