"""The fleet: which code each listener runs, what that code knows, and what `meta` says of it."""

from dataclasses import replace
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, inspection, reconciling
from expirebridge.task.calls import fleet as fleet_commands
from expirebridge.task.calls.claiming import HeartbeatReply
from expirebridge.task.calls.fleet import FleetListener
from tests.kit.patience import PATIENCE
from tests.kit.steps import age, beat_without_code, server_ms
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")

LEASE = 10.0
META, FLEET = "expirebridge:meta", "expirebridge:fleet"
OLD, NEW = {"mail.send": "(to)"}, {"mail.send": "(to, subject)", "mail.read": "()"}


async def note() -> None: ...


def beat(store: Store, listener: str, code: str, functions: int = 0) -> HeartbeatReply:
    call = claiming.heartbeat(listener, LEASE, [], code=code, functions=functions)
    return store.run(call)


def code_of(client: redis.Redis) -> Any:
    return client.hget(META, "code")


def join(store: Store, listener: str, code: str, shapes: dict[str, str]) -> None:
    """Beat as a listener does that starts."""
    if beat(store, listener, code, len(shapes)).undeclared:
        store.run(fleet_commands.declare(code.partition(" ")[0], shapes))


def test_a_listener_declares_what_it_knows_once(store: Store, client: redis.Redis) -> None:
    assert beat(store, "one", "aa", 1).undeclared
    store.run(fleet_commands.declare("aa", OLD))
    assert not beat(store, "one", "aa", 1).undeclared
    assert not beat(store, "two", "aa", 1).undeclared
    fleet = store.run(fleet_commands.read_fleet(LEASE))
    assert [(each.name, each.fingerprint) for each in fleet.listeners] == [
        ("one", "aa"), ("two", "aa")
    ]  # fmt: skip
    assert all(0 <= each.ago < LEASE for each in fleet.listeners)
    assert fleet.codes == {"aa": OLD}
    assert client.hgetall("expirebridge:code:aa") == {b"#": b"1", b"mail.send": b"(to)"}


def test_many_functions_are_declared_in_one_script(store: Store) -> None:
    shapes = {f"package/module.function_{number}": "(a, b=...)" for number in range(10_000)}
    join(store, "one", "aa", shapes)
    assert not beat(store, "one", "aa", len(shapes)).undeclared
    assert store.run(fleet_commands.read_fleet(LEASE)).codes["aa"] == shapes


def test_a_new_declaration_replaces_all_of_the_one_before(store: Store) -> None:
    store.run(fleet_commands.declare("aa", NEW))
    store.run(fleet_commands.declare("aa", OLD))
    join(store, "one", "aa", OLD)
    assert store.run(fleet_commands.read_fleet(LEASE)).codes == {"aa": OLD}


def test_meta_names_the_code_that_all_run_or_each_of_several(
    store: Store, client: redis.Redis
) -> None:
    beat_without_code(store, "older")
    assert code_of(client) is None
    beat(store, "one", "bb", 1)
    assert code_of(client) == b"bb"
    beat(store, "two", "bb", 1)
    assert code_of(client) == b"bb"
    beat(store, "three", "aa", 1)
    assert code_of(client) == b"aa bb"
    beat(store, "two", "bb ?", 1)
    assert code_of(client) == b"? aa bb"


def test_all_beat_when_a_listener_joins_or_the_code_changes_and_only_then(
    store: Store, client: redis.Redis
) -> None:
    with client.pubsub() as heard:
        database = client.get_connection_kwargs()["db"]
        heard.subscribe(f"expirebridge:doorbell:{database}")
        heard.get_message(timeout=PATIENCE)

        def told() -> list[str]:
            """What all were told since this was last asked."""
            client.publish(f"expirebridge:doorbell:{database}", "end")
            words: list[bytes] = []
            while not words or words[-1] != b"end":
                message: Any = heard.get_message(timeout=PATIENCE)
                words.append(message["data"])
            return ["beat" if word == b"beat" else "a time" for word in words[:-1]]

        beat_without_code(store, "older")
        for listener, code, expected in (
            ("one", "aa", ["beat"]),
            ("one", "aa", []),
            ("two", "aa", ["beat"]),
            ("three", "bb", ["beat", "a time"]),
            ("three", "bb", []),
            ("older", "aa", []),
        ):
            beat(store, listener, code, 1)
            assert told() == expected, (listener, code)


def test_a_silent_listener_counts_for_half_a_lease(store: Store, client: redis.Redis) -> None:
    beat(store, "dead", "aa", 1)
    age(client, "listeners", "dead", LEASE / 2 + 0.5)
    beat(store, "one", "bb", 1)
    assert code_of(client) == b"bb"


def test_who_leaves_is_forgotten_with_what_nobody_else_runs(
    store: Store, client: redis.Redis
) -> None:
    join(store, "one", "aa", OLD)
    join(store, "two", "aa", OLD)
    join(store, "three", "bb", NEW)
    store.run(claiming.leave("three"))
    assert client.hgetall(FLEET) == {b"one": b"aa", b"two": b"aa"}
    assert not client.exists("expirebridge:code:bb")
    store.run(claiming.leave("one"))
    assert client.exists("expirebridge:code:aa")
    beat(store, "two", "aa", 1)
    assert code_of(client) == b"aa"


def test_a_sweep_forgets_the_code_of_the_dead(store: Store, client: redis.Redis) -> None:
    join(store, "dead", "aa", OLD)
    join(store, "one", "bb", NEW)
    age(client, "listeners", "dead", 10 * LEASE + 1)
    store.run(reconciling.sweep(Settings(lease=LEASE)))
    assert client.hgetall(FLEET) == {b"one": b"bb"}
    assert not client.exists("expirebridge:code:aa")
    assert client.exists("expirebridge:code:bb")


# What other clients do to these keys


def test_a_code_that_is_no_hash_is_declared_again(store: Store, client: redis.Redis) -> None:
    join(store, "one", "aa", OLD)
    client.set("expirebridge:code:aa", "mine")
    assert store.run(fleet_commands.read_fleet(LEASE)).codes == {"aa": {}}
    join(store, "one", "aa", OLD)
    assert store.run(fleet_commands.read_fleet(LEASE)).codes == {"aa": OLD}


def test_a_code_of_another_length_is_declared_again(store: Store, client: redis.Redis) -> None:
    join(store, "one", "aa", OLD)
    client.hset("expirebridge:code:aa", "#", "7")
    assert beat(store, "one", "aa", 1).undeclared


def test_a_fleet_that_was_overwritten_stops_no_heartbeat(store: Store, client: redis.Redis) -> None:
    join(store, "one", "aa", OLD)
    client.set(FLEET, "mine")
    assert store.run(fleet_commands.read_fleet(LEASE)).listeners[0].fingerprint is None
    store.run(claiming.leave("two"))
    beat(store, "one", "aa", 1)
    assert store.run(inspection.find_overwritten()) == [FLEET]
    client.delete(FLEET)
    beat(store, "one", "aa", 1)
    assert client.hgetall(FLEET) == {b"one": b"aa"}
    assert store.run(inspection.find_overwritten()) == []


def test_words_that_are_no_fingerprints_do_not_reach_meta(
    store: Store, client: redis.Redis
) -> None:
    join(store, "one", "aa", OLD)
    beat(store, "two", "bb", 1)
    client.hset(FLEET, "two", "what? ../etc " + "f" * 41)
    beat(store, "one", "aa", 1)
    assert code_of(client) == b"aa"


def test_garbage_in_meta_is_replaced_by_the_next_heartbeat(
    store: Store, client: redis.Redis
) -> None:
    join(store, "one", "aa", OLD)
    client.hset(META, "code", "\x00 garbage")
    beat(store, "one", "aa", 1)
    assert code_of(client) == b"aa"


def test_the_names_of_the_fleet_are_never_taken_for_tasks(
    store: Store, client: redis.Redis
) -> None:
    join(store, "one", "aa", OLD)
    scanned = store.run(reconciling.scan("0", 1000, Settings()))
    assert (scanned.alien, scanned.repaired, scanned.found) == (0, [], [])
    assert client.exists(FLEET, "expirebridge:code:aa") == 2


def test_the_ago_of_a_listener_is_counted_by_the_server(store: Store, client: redis.Redis) -> None:
    beat(store, "one", "aa", 1)
    client.zadd("expirebridge:listeners", {"one": server_ms(client) - 4000})
    [listener] = store.run(fleet_commands.read_fleet(LEASE)).listeners
    assert 4 <= listener.ago < 5
    assert listener == FleetListener("one", listener.ago, "aa")


def test_a_fleet_s_concurrency_is_known_if_all_say_it(store: Store) -> None:
    def concurrency() -> int | None:
        return store.run(fleet_commands.read_fleet(LEASE)).concurrency

    assert concurrency() is None
    beat(store, "one", "aa =100", 1)
    beat(store, "two", "bb =20 ?", 1)
    assert concurrency() == 120
    for code in ("aa", "aa =", "aa =-1", "aa =x", "aa =1e3", "aa =" + "9" * 30):
        beat(store, "three", code, 1)
        assert concurrency() is None, code


async def test_a_listener_says_its_concurrency(settings: Settings, store: Store) -> None:
    async with listening(replace(settings, concurrency=7)):
        assert store.run(fleet_commands.read_fleet(LEASE)).concurrency == 7


async def test_claims_of_a_mixed_fleet_announce_nothing_if_somebody_has_each_function(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    one, other = Witness(), Witness()
    async with listening(settings, one, note=note), listening(settings, other, tell=note):
        with client.pubsub(ignore_subscribe_messages=True) as rings:
            for number in range(4):
                await async_bridge.make_task("test.note", [], 0)
                await async_bridge.make_task("test.tell", [], 0)
                await one.until_ended(number + 1)
                await other.until_ended(number + 1)
                if number == 0:  # both have joined
                    rings.subscribe("expirebridge:doorbell:1")
            client.publish("expirebridge:doorbell:1", "over")
            heard = list[Any]()
            while not heard or heard[-1] != b"over":
                message = rings.get_message(timeout=PATIENCE)
                heard += [message["data"]] if message else []
    assert b"beat" not in heard
