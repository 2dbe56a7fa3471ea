"""The client of listeners sends each command once, and no reply is taken for another's."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis
import redis.asyncio

from expirebridge.connection import clients

pytestmark = pytest.mark.servers("oldest")

BLOCK = ("BLPOP", "nothing", 0)
"""A command that is not answered until somebody pushes."""


@pytest.fixture
async def direct(url: str, client: redis.Redis) -> AsyncIterator[redis.asyncio.Redis]:
    for each in connections(client):  # a listener of an earlier test may still be leaving
        client.client_kill_filter(_id=str(each["id"]))
    direct = clients.listener_client(url, socket_timeout=30)
    await direct.client_setname("direct")
    yield direct
    await direct.aclose()


def connections(client: redis.Redis) -> list[dict[str, Any]]:
    """Those of the client under test, which have a name until they are opened again."""
    own = client.client_id()
    return [each for each in client.client_list() if int(each["id"]) != own]


def until_blocked(client: redis.Redis) -> str:
    """Wait until the command that is not answered has arrived; return its connection's id."""
    while True:
        for each in connections(client):
            if each["cmd"] == "blpop":
                return str(each["id"])


def opened(client: redis.Redis) -> int:
    """How many connections were opened: what is sent again needs another one."""
    stats: Any = client.info("stats")
    return int(stats["total_connections_received"])


async def test_commands_follow_each_other_on_one_connection(
    direct: redis.asyncio.Redis, client: redis.Redis
) -> None:
    for number in range(5):
        assert await direct.execute_command("ECHO", str(number)) == b"%d" % number
    [connection] = connections(client)
    assert connection["name"] == "direct"


async def test_commands_at_the_same_time_have_a_connection_each(
    direct: redis.asyncio.Redis, client: redis.Redis
) -> None:
    for _ in range(3):
        echoes = [direct.execute_command("ECHO", str(number)) for number in range(4)]
        assert await asyncio.gather(*echoes) == [b"0", b"1", b"2", b"3"]
    assert len(connections(client)) == 4


async def test_what_is_not_answered_in_time_is_given_up_with_its_connection(
    url: str, client: redis.Redis
) -> None:
    hasty = clients.listener_client(url, socket_timeout=0.3)
    before = opened(client)
    with pytest.raises(redis.TimeoutError, match=r"no answer within 0\.3 s"):
        await hasty.execute_command(*BLOCK)
    assert opened(client) == before + 1
    client.rpush("nothing", "late")
    assert await hasty.execute_command("ECHO", "mine") == b"mine"
    await hasty.aclose()


async def test_what_is_cancelled_leaves_no_reply_to_the_next(
    direct: redis.asyncio.Redis, client: redis.Redis
) -> None:
    blocked = asyncio.create_task(direct.execute_command(*BLOCK))
    await asyncio.to_thread(until_blocked, client)
    blocked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await blocked
    client.rpush("nothing", "late")
    assert await direct.execute_command("ECHO", "mine") == b"mine"


async def test_a_break_is_reported_and_nothing_repeated(
    direct: redis.asyncio.Redis, client: redis.Redis
) -> None:
    blocked = asyncio.create_task(direct.execute_command(*BLOCK))
    id = await asyncio.to_thread(until_blocked, client)
    before = opened(client)
    client.client_kill_filter(_id=id)
    with pytest.raises(redis.ConnectionError):
        await blocked
    assert opened(client) == before


async def test_an_idle_connection_that_was_closed_is_opened_again(
    direct: redis.asyncio.Redis, client: redis.Redis
) -> None:
    [idle] = connections(client)
    client.client_kill_filter(_id=idle["id"])
    [connection] = direct.connection_pool._available_connections
    reader: Any = connection._reader
    await reader.read()  # until this end knows
    assert await direct.execute_command("ECHO", "mine") == b"mine"
    [renewed] = connections(client)
    assert renewed["id"] != idle["id"]


async def test_a_refusal_keeps_the_connection(
    direct: redis.asyncio.Redis, client: redis.Redis
) -> None:
    with pytest.raises(redis.ResponseError, match="unknown command"):
        await direct.execute_command("NONSENSE")
    assert await direct.execute_command("ECHO", "mine") == b"mine"
    [connection] = connections(client)
    assert connection["name"] == "direct"


async def test_what_others_take_from_the_pool_has_its_timeout(
    direct: redis.asyncio.Redis,
) -> None:
    await direct.execute_command("PING")
    async with direct.pubsub() as pubsub:
        await pubsub.subscribe("channel")
        assert pubsub.connection is not None
        assert pubsub.connection.socket_timeout == 30
