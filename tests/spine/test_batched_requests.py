"""Tasks that are made at the same time are sent in batches; each call is answered as if alone."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from subprocess import PIPE
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, Outcome, ServerOutOfMemory, Task, TaskExists
from expirebridge.embedded.server import EmbeddedServer
from tests.kit.patience import PATIENCE, until
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.servers("oldest")

CALLERS = 50
FIRST = {"threads": 1, "coroutines": 2}
"""How many are sent alone before the others are queued."""

Answer = Task | BaseException
Making = Callable[[Sequence[dict[str, Any]]], Awaitable[list[Answer]]]


@pytest.fixture(params=FIRST)
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def making(colour: str, url: str, client: redis.Redis) -> AsyncIterator[Making]:
    """Makes tasks at once: the server answers no call before all were made."""
    with Bridge(url) as bridge:
        load_script(bridge, client)
        async with AsyncBridge(url) as async_bridge:

            async def make(tasks: Sequence[dict[str, Any]]) -> list[Answer]:
                client.config_resetstat()
                client.client_pause(PATIENCE * 1000, all=False)
                if colour == "threads":
                    return await asyncio.to_thread(in_threads, bridge, client, tasks)
                return await in_coroutines(async_bridge, client, tasks)

            yield make


def load_script(bridge: Bridge, client: redis.Redis) -> None:
    """Load the script into the server: only calls of loaded scripts are batched."""
    bridge.make_task("a.b", delay=60)
    client.flushdb()


async def in_coroutines(
    bridge: AsyncBridge, client: redis.Redis, tasks: Sequence[dict[str, Any]]
) -> list[Answer]:
    asked = [asyncio.ensure_future(bridge.make_task(**task)) for task in tasks]
    await until_queued(bridge, len(tasks) - FIRST["coroutines"])
    client.client_unpause()
    return await asyncio.gather(*asked, return_exceptions=True)


async def until_queued(bridge: AsyncBridge, count: int) -> None:
    queue = bridge._stores.here()._whole._batcher._queue
    for _ in range(1000):
        if len(queue) == count:
            return
        await asyncio.sleep(0)
    pytest.fail(f"{len(queue)} are queued")


def in_threads(
    bridge: Bridge, client: redis.Redis, tasks: Sequence[dict[str, Any]]
) -> list[Answer]:
    def make(task: dict[str, Any]) -> Answer:
        try:
            return bridge.make_task(**task)
        except Exception as error:
            return error

    batcher = bridge._store._whole._batcher
    with ThreadPoolExecutor(len(tasks)) as threads:
        asked = [threads.submit(make, tasks[0])]
        until(lambda: not is_free(batcher._sending))
        asked += [threads.submit(make, task) for task in tasks[1:]]
        until(lambda: len(batcher._queue) == len(tasks) - 1)
        client.client_unpause()
        return [each.result() for each in asked]


def is_free(lock: AbstractContextManager[Any]) -> bool:
    """Whether nobody holds a lock."""
    free: bool = lock.acquire(blocking=False)  # type: ignore[attr-defined]
    if free:
        lock.release()  # type: ignore[attr-defined]
    return free


def scripts_run(client: redis.Redis) -> int:
    statistics: Any = client.info("commandstats")
    return int(statistics["cmdstat_evalsha"]["calls"])


async def test_they_are_sent_in_one_batch(
    making: Making, colour: str, bridge: Bridge, client: redis.Redis
) -> None:
    made = await making([{"func": "a.b", "args": [n], "delay": 60 + n} for n in range(CALLERS)])

    assert scripts_run(client) == FIRST[colour] + 1
    for number, task in enumerate(made):
        assert isinstance(task, Task)
        assert task.outcome is Outcome.CREATED
        assert task.args == [number]
        assert bridge.get(task.id) is not None
    assert bridge.count().pending == CALLERS


async def test_more_than_a_batch_holds_is_sent_in_several(
    making: Making, bridge: Bridge, client: redis.Redis
) -> None:
    large = "x" * 60_000
    made = await making([{"func": "a.b", "args": [large], "delay": 60} for _ in range(CALLERS)])

    assert all(isinstance(task, Task) for task in made)
    assert scripts_run(client) >= 4  # 3 MB, of which one takes 1 MB
    assert bridge.count().pending == CALLERS


async def test_those_for_one_id_are_sent_one_after_the_other(
    making: Making, bridge: Bridge
) -> None:
    made = await making([{"func": "a.b", "delay": 60, "id": "x"} for _ in range(8)])

    assert sum(isinstance(task, Task) for task in made) == 1
    assert sum(isinstance(task, TaskExists) for task in made) == 7
    kept = [{"func": "a.b", "delay": 60, "id": "x", "if_exists": "keep"} for _ in range(8)]
    assert {task.outcome for task in await making(kept) if isinstance(task, Task)} == {Outcome.KEPT}
    assert bridge.count().pending == 1


async def test_what_is_refused_is_refused_to_each(making: Making, client: redis.Redis) -> None:
    client.config_set("maxmemory", 1)
    made = await making([{"func": "a.b", "delay": 60} for _ in range(8)])

    assert [type(task) for task in made] == [ServerOutOfMemory] * 8


async def test_a_reply_that_is_lost_is_asked_for_again(
    server: EmbeddedServer, bridge: Bridge
) -> None:
    bridge.make_task("a.b", delay=60, id="n0")
    with Proxy(server.port) as proxy:
        async with AsyncBridge(proxy.url) as through:
            proxy.cut_reply_of("make", times=3)
            made = await asyncio.gather(
                *(through.make_task("a.b", [n], 60, id=f"n{n}") for n in range(1, CALLERS))
            )
    assert proxy.cuts["make"] == 3
    assert {task.outcome for task in made} == {Outcome.CREATED}
    assert bridge.count().pending == CALLERS


async def test_a_cancelled_caller_cancels_no_other(
    async_bridge: AsyncBridge, bridge: Bridge, client: redis.Redis
) -> None:
    load_script(bridge, client)
    client.client_pause(PATIENCE * 1000, all=False)
    asked = [asyncio.ensure_future(async_bridge.make_task("a.b", [n], 60)) for n in range(8)]
    await until_queued(async_bridge, 6)
    first, _, third, *_ = asked
    first.cancel()  # its request is in flight
    third.cancel()  # it is queued
    await asyncio.wait([first, third])
    client.client_unpause()

    made = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(task, Task) for task in made] == [False, True, False, *[True] * 5]
    # The first one may have been made.
    assert (await async_bridge.count()).pending in {6, 7}


FORK = """
import os, sys, threading
from expirebridge import Bridge

bridge = Bridge(sys.argv[1])
threading.Thread(target=bridge.make_task, args=("a.b", [1], 60), daemon=True).start()
sys.stdin.readline()
if os.fork() == 0:
    print(bridge.make_task("a.b", [2], 60).outcome, flush=True)
    os._exit(0)
os._exit(os.wait()[1])
"""


def test_a_fork_while_another_thread_makes_a_task(
    url: str, bridge: Bridge, client: redis.Redis
) -> None:
    load_script(bridge, client)
    client.client_pause(PATIENCE * 1000, all=False)
    words = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, url]
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE, text=True) as program:
        assert program.stdin is not None
        try:
            until(lambda: waiting_at(client) == 1)
            program.stdin.write("\n")
            program.stdin.flush()
            until(lambda: waiting_at(client) == 2)  # the child's call, too
            client.client_unpause()
            said, _ = program.communicate(timeout=PATIENCE)
        except BaseException:
            program.kill()
            raise
    assert (said, program.returncode) == ("created\n", 0)


THREADS = """
import os, sys, threading
from expirebridge import Bridge

bridge = Bridge(sys.argv[1])
bridge.make_task("a.b", [0], 60)
for _ in range(20):
    child = os.fork()
    if child == 0:
        sys.setswitchinterval(1e-6)
        threads = [
            threading.Thread(target=bridge.make_task, args=("a.b", [n], 60), daemon=True)
            for n in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        os._exit(any(thread.is_alive() for thread in threads))
    if os.waitpid(child, 0)[1]:
        sys.exit("a thread hangs")
"""


def test_threads_of_a_forked_child_that_make_their_first_tasks_at_once(
    url: str, bridge: Bridge
) -> None:
    words = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", THREADS, url]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert bridge.count().pending == 1 + 20 * 16


def waiting_at(client: redis.Redis) -> int:
    """How many clients wait for the server to go on."""
    clients: Any = client.info("clients")
    return int(clients["blocked_clients"])
