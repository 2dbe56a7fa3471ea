"""While the server works on one chunk of `make_tasks`, the tasks of the one before are built."""

import time
from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff

from expirebridge import AsyncBridge, Bridge, State
from expirebridge.connection import clients
from expirebridge.embedded.server import Server
from tests.kit.proxy import Proxy

PATIENCE = 20
MANY = 300


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


def until_set(client: redis.Redis) -> None:
    """Wait until the server has done a command that nobody has read the reply of."""
    end = time.monotonic() + PATIENCE
    while client.get("a") != b"1":
        assert time.monotonic() < end, "the command was not sent before"


def fail() -> None:
    raise InterruptedError


def test_the_command_is_sent_before_what_is_done_meanwhile(url: str, client: redis.Redis) -> None:
    with clients.producer_client(url) as overlapping:
        done = overlapping.execute_command("SET", "a", "1", meanwhile=lambda: until_set(client))
        assert done is True
        assert overlapping.execute_command("INCR", "a") == 2


async def test_it_is_in_the_other_colour(url: str, client: redis.Redis) -> None:
    async with clients.async_producer_client(url) as overlapping:
        await overlapping.execute_command("SET", "a", "1", meanwhile=lambda: until_set(client))
        assert await overlapping.execute_command("INCR", "a") == 2


def test_what_fails_meanwhile_leaves_no_reply_for_the_next(url: str) -> None:
    with clients.producer_client(url) as overlapping:
        with pytest.raises(InterruptedError):
            overlapping.execute_command("ECHO", "a", meanwhile=fail)
        assert overlapping.execute_command("ECHO", "b") == b"b"


async def test_what_fails_meanwhile_leaves_no_reply_in_the_other_colour(url: str) -> None:
    async with clients.async_producer_client(url) as overlapping:
        with pytest.raises(InterruptedError):
            await overlapping.execute_command("ECHO", "a", meanwhile=fail)
        assert await overlapping.execute_command("ECHO", "b") == b"b"


@pytest.mark.parametrize("cuts", [1, clients._PRODUCER_RETRIES])
async def test_each_task_of_many_is_made_once_whatever_replies_are_dropped(
    cuts: int, proxy: Proxy, bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "ExponentialWithJitterBackoff", lambda **_: NoBackoff())
    new = [{"func": "mail.send", "args": [n], "delay": 60} for n in range(MANY)]
    bridge.make_task("mail.send", [-1], 60)
    proxy.cut_reply_of("make", cuts, holding=b"[150]")
    with Bridge(proxy.url) as cutting:
        made = cutting.make_tasks(new)
    proxy.cut_reply_of("make", cuts, holding=b"[150]")
    async with AsyncBridge(proxy.url) as cutting_async:
        made += await cutting_async.make_tasks(new)
    assert [task.args for task in made] == [[n] for n in range(MANY)] * 2
    assert {task.state for task in made} == {State.PENDING}
    assert bridge.count().pending == len({task.id for task in made}) + 1 == 2 * MANY + 1


def test_a_client_of_the_callers_own_makes_many_tasks(client: redis.Redis) -> None:
    with Bridge(client=client) as bridge:
        made = bridge.make_tasks({"func": "a.b", "args": [n], "delay": 9} for n in range(MANY))
    assert [task.args for task in made] == [[n] for n in range(MANY)]
