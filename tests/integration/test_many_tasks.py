"""`make_tasks` sends its tasks in chunks: each is made once, whatever replies are dropped."""

from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff

from expirebridge import AsyncBridge, Bridge, State
from expirebridge.connection import clients
from expirebridge.embedded.server import EmbeddedServer
from tests.kit.proxy import Proxy

MANY = 300


@pytest.fixture
def proxy(server: EmbeddedServer) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.mark.parametrize("cuts", [1, clients._PRODUCER_RETRIES])
async def test_each_task_of_many_is_made_once_whatever_replies_are_dropped(
    cuts: int, proxy: Proxy, bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "ExponentialWithJitterBackoff", lambda **_: NoBackoff())
    new = [{"func": "mail.send", "args": [n], "delay": 60} for n in range(MANY)]
    bridge.make_task("mail.send", [-1], 60)
    proxy.cut_reply_of("make_drawn_many", cuts, asking=b"[150]")
    with Bridge(proxy.url) as cutting:
        made = cutting.make_tasks(new)
    proxy.cut_reply_of("make_drawn_many", cuts, asking=b"[150]")
    async with AsyncBridge(proxy.url) as cutting_async:
        made += await cutting_async.make_tasks(new)
    assert [task.args for task in made] == [[n] for n in range(MANY)] * 2
    assert {task.state for task in made} == {State.PENDING}
    assert bridge.count().pending == len({task.id for task in made}) + 1 == 2 * MANY + 1


def test_a_client_of_the_callers_own_makes_many_tasks(client: redis.Redis) -> None:
    with Bridge(client=client) as bridge:
        made = bridge.make_tasks({"func": "a.b", "args": [n], "delay": 9} for n in range(MANY))
    assert [task.args for task in made] == [[n] for n in range(MANY)]
