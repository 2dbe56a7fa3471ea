"""`make_tasks` sends its tasks in chunks: each is made once, whatever replies are dropped."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import pytest
import redis
from redis.backoff import NoBackoff

from expirebridge import AsyncBridge, Bridge, Outcome, State
from expirebridge.connection import clients
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.errors import ServerUnreachable
from expirebridge.events import Event, Made, Making, NotMade
from expirebridge.store.client import AsyncStore, Store
from expirebridge.task.calls import looking, producing
from expirebridge.task.calls.call import CHUNK_TASKS, Command
from expirebridge.task.new_task import random_id
from tests.kit.proxy import Proxy
from tests.kit.steps import new

pytestmark = pytest.mark.servers("oldest")

T = TypeVar("T")

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


async def run(store: Store | AsyncStore, call: Command[T]) -> T:
    return store.run(call) if isinstance(store, Store) else await store.run(call)


@pytest.fixture(params=["waiting", "awaited"])
def either_store(
    request: pytest.FixtureRequest, store: Store, async_store: AsyncStore
) -> Store | AsyncStore:
    return store if request.param == "waiting" else async_store


async def test_while_the_server_works_something_else_is_done_once(
    either_store: Store | AsyncStore,
) -> None:
    done: list[str] = []
    call = replace(producing.make([drawn(), drawn()]), meanwhile=lambda: done.append("meanwhile"))
    replies = await run(either_store, call)
    assert done == ["meanwhile"]
    assert [reply.outcome for reply in replies] == [Outcome.CREATED] * 2


async def test_whoever_is_interrupted_meanwhile_leaves_no_reply_behind(
    either_store: Store | AsyncStore,
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    await run(either_store, producing.make([drawn(), drawn()]))
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            await run(
                either_store, replace(producing.make([drawn(), drawn()]), meanwhile=interrupt)
            )
        counts = await run(either_store, looking.count(10))
        assert counts.pending % 2 == 0
        assert counts.pending >= 2


def drawn() -> producing.NewTask:
    return new(random_id(), has_random_id=True)


@pytest.mark.parametrize("failing", range(3))
async def test_what_was_made_before_a_chunk_failed_is_told_to_hooks(
    failing: int, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "ExponentialWithJitterBackoff", lambda **_: NoBackoff())
    told: list[Event] = []
    place = failing * CHUNK_TASKS
    proxy.cut_reply_of(
        "make_drawn_many", clients._PRODUCER_RETRIES + 1, asking=b"a.b?[%d]\r\n" % place
    )
    items = [{"func": "a.b", "args": [n], "delay": 60} for n in range(3 * CHUNK_TASKS)]
    with Bridge(proxy.url, hooks=[told.append]) as bridge, pytest.raises(ServerUnreachable):
        bridge.make_tasks(items)
    chunk = [Making] * CHUNK_TASKS
    kinds = [type(event) for event in told]
    made = [*chunk, *[Made] * CHUNK_TASKS] * failing
    assert kinds == [*made, *chunk, *[NotMade] * CHUNK_TASKS]
