"""The format of a database: a newer one is refused; and the features that it notes."""

from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, FormatTooNew
from expirebridge.moving import calls as migration
from expirebridge.store import script_loader
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, producing
from expirebridge.task.calls.call import script
from tests.kit.colours import asking_one
from tests.kit.lua import NAMES
from tests.kit.series import put, series
from tests.kit.steps import PREFIX, claim, new, server_ms, settle

pytestmark = pytest.mark.servers("oldest")

META = f"{PREFIX}:meta"
HOUR = 3_600_000


def features(client: redis.Redis) -> bytes | str | None:
    return client.hget(META, "features")


@pytest.mark.parametrize("colour", [Bridge, AsyncBridge])
async def test_a_newer_format_is_refused(url: str, client: redis.Redis, colour: Any) -> None:
    client.hset(META, "format", 2)
    asked: dict[str, tuple[Any, ...]] = {
        "make_task": ("mail.send", [1], 60), "get": ("a",), "count": (), "cancel": ("a",),
        "create_partitions": (4,), "schedule": ("s", "mail.send"),
    }  # fmt: skip
    async with asking_one(colour(url)) as ask:
        for name, words in asked.items():
            options = {"every": "1h"} if name == "schedule" else {}
            with pytest.raises(FormatTooNew, match=r"has format 2, but .* knows only up to 1"):
                await ask(name, *words, **options)
    assert client.keys() == [META.encode()]


WRITING = [name for name in NAMES if "no-writes" not in script_loader.load(name).flags]


def test_each_script_that_writes_refuses_a_newer_format(store: Store, client: redis.Redis) -> None:
    """Before it looks at its arguments, of which there are none here."""
    client.hset(META, "format", 2)
    before = client.hgetall(META)
    for name in WRITING:
        with pytest.raises(FormatTooNew):
            store.run(script(name, read=lambda reply: reply))
    assert (client.keys(), client.hgetall(META)) == ([META.encode()], before)


def test_plain_use_notes_no_feature(store: Store, client: redis.Redis) -> None:
    store.run(producing.make([new("a", 0)]))
    claim(store)
    settle(store, claiming.Settlement("a", "t", "succeeded"))
    store.run(claiming.heartbeat("h:1:a", 10.0, [], code="c0de"))
    assert client.hget(META, "format") == b"1"
    assert features(client) is None


def test_each_feature_is_noted_once(store: Store, client: redis.Redis) -> None:
    for id in ("s", "t"):
        put(store, series(id), server_ms(client) + HOUR)
    assert features(client) == b"series"
    store.run(migration.begin_receiving("redis://old"))
    assert features(client) == b"series moving"
    put(store, series("u"), server_ms(client) + HOUR)
    assert (client.hget(META, "format"), features(client)) == (b"1", b"series moving")


def test_plain_use_asks_for_nothing_that_only_a_feature_needs(
    store: Store, client: redis.Redis
) -> None:
    """A record's field `ledger` is read only where there can be a ledger."""

    def asked() -> list[str]:
        with client.monitor() as monitor:
            store.run(producing.cancel(["a"], keep=60))
            client.echo("end")
            sent: list[str] = []
            while not (command := monitor.next_command()["command"]).startswith("ECHO"):
                sent.append(command)
        return [words for words in sent if words.startswith(f"HMGET {PREFIX}:task:a ")]

    store.run(producing.make([new("a", 60_000)]))
    store.run(producing.cancel(["nobody"], keep=60))  # the script is known from now on
    assert [" ledger " in words for words in asked()] == [False]
    store.run(migration.begin_receiving("redis://old"))
    assert [" ledger " in words for words in asked()] == [True]
