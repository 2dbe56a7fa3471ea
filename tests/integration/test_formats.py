"""The format of a database: shown, raised and lowered, and who is in the way."""

from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, Format, FormatRefused
from expirebridge.checks import Level
from expirebridge.checks.work import check_format
from expirebridge.handlers.fingerprint import Fingerprint
from expirebridge.store import calls
from expirebridge.store.partitions import Partitions
from expirebridge.store.store import Store
from tests.kit.colours import asking
from tests.kit.invoked import invoke, invoke_json
from tests.kit.witness import registry_of

LEASE = 10.0


def join(store: Store, listener: str) -> None:
    """Beat as a listener does that says which code it runs."""
    code = Fingerprint.of(registry_of()).digest
    store.run(calls.heartbeat(listener, LEASE, [], code=code))


def join_silently(store: Store, listener: str) -> None:
    """Beat as one of the first version does."""
    store.run(calls.heartbeat(listener, LEASE, []))


def meta(client: redis.Redis) -> dict[bytes | str, bytes | str]:
    fields = client.hgetall("expirebridge:meta")
    fields.pop(b"born", None)
    return fields


@pytest.mark.parametrize("colour", [Bridge, AsyncBridge])
async def test_it_is_raised_and_lowered_again(
    url: str, client: redis.Redis, store: Store, colour: Any
) -> None:
    join(store, "h:1:a")
    bridge = colour(url)
    ask = asking(bridge)
    assert await ask("read_format") == Format(written=1, known=2, uses=[], older_listeners=[])
    for _ in range(2):
        await ask("raise_format")
        assert (await ask("read_format")).written == 2
    await ask("make_task", "mail.send", [1], 60)
    for _ in range(2):
        await ask("lower_format")
        assert (await ask("read_format")).written == 1
    await ask("aclose" if colour is AsyncBridge else "close")
    assert meta(client)[b"partitions"] == b"1"


def test_a_database_that_is_new_can_be_raised(bridge: Bridge, client: redis.Redis) -> None:
    assert bridge.read_format().written is None
    bridge.lower_format()
    assert client.dbsize() == 0
    bridge.raise_format()
    assert meta(client) == {b"format": b"2", b"partitions": b"1"}
    assert client.hexists("expirebridge:meta", "born")


def test_it_is_not_raised_while_a_listener_beats_that_knows_only_format_1(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    join(store, "h:1:a")
    join_silently(store, "old:2:b")
    before = client.hgetall("expirebridge:meta")
    assert bridge.read_format().older_listeners == ["old:2:b"]
    with pytest.raises(FormatRefused, match=r"stays at format 1.* know no other: old:2:b; upgrade"):
        bridge.raise_format()
    assert client.hgetall("expirebridge:meta") == before
    # One that is silent for a lease is dead, or is refused when it comes back.
    silent_since = client.time()[0] * 1000 - LEASE * 1000 - 1000
    client.zadd("expirebridge:listeners", {"old:2:b": silent_since})
    bridge.raise_format()
    assert bridge.read_format().written == 2


def test_a_refusal_names_a_few_of_many(bridge: Bridge, store: Store) -> None:
    for number in range(7):
        join_silently(store, f"old:{number}:b")
    with pytest.raises(FormatRefused, match="old:4:b and 2 others; upgrade them"):
        bridge.raise_format()


def test_it_is_not_lowered_while_something_needs_it(bridge: Bridge, client: redis.Redis) -> None:
    bridge.raise_format()
    client.hset("expirebridge:meta", "partitions", 4)
    assert bridge.read_format().uses == ["partitions"]
    with pytest.raises(FormatRefused, match="needs format 2, for partitions"):
        bridge.lower_format()
    assert meta(client) == {b"format": b"2", b"partitions": b"4"}


def test_the_command_shows_and_changes_it(url: str, store: Store) -> None:
    join_silently(store, "old:2:b")
    assert invoke_json("format", url=url) == {
        "written": 1, "known": 2, "uses": [], "older_listeners": ["old:2:b"],
    }  # fmt: skip
    invoke("format", "2", url=url, code=3)
    assert invoke_json("format", url=url)["written"] == 1
    store.run(calls.leave("old:2:b"))
    assert invoke("format", "2", url=url).splitlines()[0].split() == ["format", "2"]
    assert invoke_json("format", "1", url=url)["written"] == 1
    invoke("format", "3", url=url, code=2)


def test_the_doctor_says_that_partitions_need_it(bridge: Bridge, client: redis.Redis) -> None:
    bridge.create_partitions(4)
    apart = Partitions(client, prefix="expirebridge")
    assert apart.run(check_format(LEASE)).message == "format 2, for partitions"


def test_the_doctor_reports_it(bridge: Bridge, store: Store) -> None:
    def level() -> Level:
        return store.run(check_format(LEASE)).level

    assert store.run(check_format(LEASE)).message == "plain use: format 1"
    bridge.raise_format()
    assert store.run(check_format(LEASE)).message == "format 2, for nothing at present"
    assert level() is Level.OK
    join_silently(store, "old:2:b")
    assert level() is Level.ERROR
