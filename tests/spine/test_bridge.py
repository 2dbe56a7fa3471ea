"""The producers' calls, each in both colours."""

import asyncio
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest
import redis
import redis.asyncio

import expirebridge
from expirebridge import (
    AsyncBridge,
    Bridge,
    Change,
    InvalidSetting,
    InvalidTask,
    Outcome,
    ServerReadOnly,
    ServerUnreachable,
    State,
    TaskExists,
)
from expirebridge.connection import clients
from expirebridge.embedded.server import HOST, EmbeddedServer
from expirebridge.hooks import Event, Made, Making
from expirebridge.task.methods import warn_of_waiting
from expirebridge.task.operations import listing as searching
from tasks.mail import send
from tests.kit.colours import Ask, asking
from tests.kit.forwarder import Forwarder, until_either_ends
from tests.kit.patience import PATIENCE
from tests.kit.servers import AnyServer, hanging

pytestmark = pytest.mark.servers("container")


@pytest.fixture(params=["sync", "async"])
async def ask(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Ask]:
    if request.param == "sync":
        with Bridge(url) as bridge:
            yield asking(bridge)
    else:
        async with AsyncBridge(url) as bridge:
            yield asking(bridge)


async def test_make_task_answers_with_the_task(ask: Ask, client: redis.Redis) -> None:
    task = await ask("make_task", "mail.send", [42, "hi"], "24h", kwargs={"cc": None}, tags=["a"])
    assert (task.outcome, task.state, task.func) == (Outcome.CREATED, State.PENDING, "mail.send")
    assert (task.args, task.kwargs, task.tags) == ([42, "hi"], {"cc": None}, ("a",))
    assert task.key == f'{task.id}:?mail.send?{{"*":[42,"hi"],"cc":null}}'.encode()
    assert 86_390 < client.ttl(task.key) <= 86_400
    assert timedelta(hours=23) < task.due - datetime.now(UTC) < timedelta(hours=25)
    read = await ask("get", task.id)
    assert (read.args, read.kwargs, read.due, read.tags) == (
        task.args, task.kwargs, task.due, task.tags
    )  # fmt: skip


async def test_a_time_is_the_due_time_to_the_millisecond(ask: Ask) -> None:
    at = datetime(2099, 5, 1, 8, 0, 0, 123_000, tzinfo=UTC)
    assert (await ask("make_task", "mail.send", [], at=at)).due == at


async def test_an_id_that_is_taken_raises_or_is_kept(ask: Ask) -> None:
    long = ["x" * 600]
    first = await ask("make_task", "mail.send", long, 60, id="a", tags=["t"])
    with pytest.raises(TaskExists, match="task 'a' exists and is pending"):
        await ask("make_task", "mail.send", [2], 90, id="a")
    kept = await ask("make_task", "mail.send", [2], 90, id="a", if_exists="keep")
    assert (kept.outcome, kept.args) == (Outcome.KEPT, long)
    # Redis 6.2 tells a timer's end to the millisecond only.
    assert abs(kept.due - first.due) <= timedelta(milliseconds=1)


async def test_many_tasks_are_made_in_chunks_each_with_its_outcome(
    ask: Ask, client: redis.Redis
) -> None:
    await ask("make_task", "mail.send", [], 60, id="taken")
    items: list[dict[str, Any]] = [
        {"func": "mail.send", "args": [n], "delay": 60} for n in range(1100)
    ]
    items[700]["id"] = "taken"
    items[701] |= {"id": "taken2", "if_exists": "keep"}
    made = await ask("make_tasks", items)
    assert [task.outcome for task in made[699:702]] == ["created", "rejected", "created"]
    assert made[3].args == [3]
    assert client.zcard("expirebridge:pending") == 1100


async def test_bad_input_in_bulk_makes_nothing(ask: Ask, client: redis.Redis) -> None:
    items = [{"func": "mail.send", "delay": 60}] * 600 + [{"func": "mail.send", "delay": -1}]
    with pytest.raises(InvalidTask, match="task 600: delay=-1"):
        await ask("make_tasks", items)
    assert client.dbsize() == 0


BAD_INPUT: list[tuple[dict[str, Any], str]] = [
    ({"args": [{1, 2}], "delay": 1}, r"args\[0\]"),
    ({"args": [float("nan")], "delay": 1}, r"args\[0\] = nan"),
    ({"args": [2**64], "delay": 1}, r"args\[0\] = 18446744073709551616"),
    ({"args": ["x" * 70_000], "delay": 1}, "70,004 bytes as JSON; at most 65,536"),
    ({"delay": -1}, "cannot be negative"),
    ({"at": datetime(2099, 1, 1)}, "naive datetime"),
    ({"at": datetime(2099, 1, 1, tzinfo=UTC), "delay": 1}, "not both"),
    ({}, "give either delay or at"),
    ({"delay": 1, "id": "a?b"}, "id='a\\?b'"),
    ({"delay": 1, "id": "a b"}, "id='a b'"),
    ({"delay": 1, "id": "{a}"}, "id='{a}'"),
    ({"delay": 1, "if_exists": "maybe"}, "if_exists='maybe': one of reject, keep"),
]


async def test_bad_input_is_refused_and_nothing_is_written(ask: Ask, client: redis.Redis) -> None:
    for options, wrong in BAD_INPUT:
        with pytest.raises(InvalidTask, match=wrong):
            await ask("make_task", "mail.send", **options)
    assert client.dbsize() == 0


def test_an_error_from_inside_of_an_operation_keeps_its_place(bridge: Bridge) -> None:
    with pytest.raises(TypeError, match=r"^expected string") as caught:
        bridge.list(func=5)  # type: ignore[arg-type]
    assert caught.traceback[-1].name == "check_func"


@pytest.mark.parametrize(("word", "ours"), [("countdown", "delay"), ("eta", "at")])
async def test_a_word_of_celery_is_refused_with_ours(ask: Ask, word: str, ours: str) -> None:
    wrong = rf"^make_task\(\) got an unexpected keyword argument '{word}'; use {ours}="
    options: dict[str, Any] = {word: 60}
    with pytest.raises(TypeError, match=wrong):
        await ask("make_task", "mail.send", [], **options)
    # An operation without that argument of ours says what it takes instead.
    with pytest.raises(
        TypeError, match=rf"^cancel\(\) got an unexpected .* '{word}'; it takes id=$"
    ):
        await ask("cancel", "a", **options)


async def test_a_handler_itself_may_be_given_and_its_signature_is_checked(
    ask: Ask, client: redis.Redis
) -> None:
    assert (await ask("make_task", send, [42, "hi"], 60)).func == "mail.send"
    with pytest.raises(InvalidTask, match="missing a required argument: 'subject'"):
        await ask("make_task", send, [42], 60)
    with pytest.raises(InvalidTask, match="is not under the handlers' folder"):
        await ask("make_task", inspect.getsource, [], 60)
    assert client.zcard("expirebridge:pending") == 1


async def test_tasks_are_found_counted_cancelled_and_rescheduled(ask: Ask) -> None:
    await ask("make_tasks", [{"func": "a.b", "delay": n, "tags": ["t"]} for n in range(60, 70)])
    last = await ask("make_task", "c.d", [], 60, id="last")
    assert (await ask("count")).pending == 11
    listing = await ask("list", state="pending", func="a.b", limit=3)
    assert (len(listing.tasks), listing.complete) == (3, False)
    assert [task.due for task in listing.tasks] == sorted(task.due for task in listing.tasks)
    assert len((await ask("list", tag="t")).tasks) == 10
    everything = await ask("list")
    assert (len(everything.tasks), everything.complete, everything.examined) == (11, True, 11)
    assert await ask("reschedule", "last", "2h") is Change.MOVED
    assert (await ask("get", "last")).due - last.due > timedelta(hours=1)
    assert await ask("cancel", "last") is Change.CANCELLED
    assert await ask("cancel", "nobody") is Change.NOT_FOUND
    assert (await ask("get", "last")).state is State.CANCELLED
    assert await ask("get", "nobody") is None
    with pytest.raises(InvalidTask, match="state='late': one of pending"):
        await ask("list", state="late")


@pytest.mark.parametrize(
    "ask", ["sync", pytest.param("async", marks=pytest.mark.rest)], indirect=True
)
async def test_a_listing_goes_on_where_it_ended(ask: Ask) -> None:
    for func, count in (("a.b", 210), ("c.d", 20), ("e.f", 30)):
        items = [{"func": func, "delay": 60 + n, "tags": ["t"]} for n in range(count)]
        made = await ask("make_tasks", items)
        if func == "e.f":
            await ask("cancel_all", [task.id for task in made])
    await check_listings(ask, {}, 260, limits=(7, 100, 130, 500))
    for options, expected in (
        ({"state": "pending"}, 230),
        ({"state": "cancelled"}, 30),
        ({"state": "pending", "func": "a.b"}, 210),
        ({"tag": "t"}, 260),
        ({"tag": "t", "state": "cancelled"}, 30),
        ({"tag": "nobody"}, 0),
    ):
        await check_listings(ask, options, expected, limits=(17, 100, 130, 500))


async def check_listings(
    ask: Ask, options: dict[str, Any], expected: int, *, limits: tuple[int, ...]
) -> None:
    whole = await ask("list", **options, limit=1000)
    assert (len(whole.tasks), whole.complete, whole.cursor) == (expected, True, None)
    for limit in limits:
        cursor, ids = None, list[str]()
        while True:
            listing = await ask("list", **options, limit=limit, cursor=cursor)
            assert len(listing.tasks) == limit or listing.complete
            ids += [task.id for task in listing.tasks]
            cursor = listing.cursor
            assert listing.complete is (cursor is None)
            if cursor is None:
                break
        assert ids == [task.id for task in whole.tasks]


async def test_a_listing_that_found_little_goes_on_where_it_looked(
    ask: Ask, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "MAX_EXAMINED", 100)
    items = [{"func": "a.b", "delay": 60 + n} for n in range(250)]
    await ask("make_tasks", [*items, {"func": "c.d", "delay": "1h", "id": "last"}])
    seen = []
    cursor = None
    for _ in range(3):
        page = await ask("list", state="pending", func="c.d", cursor=cursor)
        seen.append((page.examined, [task.id for task in page.tasks]))
        cursor = page.cursor
    assert (seen, cursor) == ([(100, []), (100, []), (51, ["last"])], None)


async def test_a_client_of_the_caller_s_is_used_and_left_open(url: str) -> None:
    client = redis.Redis.from_url(url)
    with Bridge(client=client) as bridge:
        task = bridge.make_task("mail.send", [], 60)
    assert client.exists(task.key) == 1
    client.close()
    async_client = redis.asyncio.Redis.from_url(url, decode_responses=False)
    async with AsyncBridge(client=async_client) as async_bridge:
        assert await async_bridge.get(task.id) is not None
    assert await async_client.exists(task.key) == 1
    await async_client.aclose()


def clients_that_do_not_fit(colour: type[Bridge | AsyncBridge], url: str) -> list[tuple[Any, str]]:
    """Clients of a caller's that a bridge of this colour cannot use, and what is said of each."""
    if colour is Bridge:
        return [
            (redis.Redis.from_url(url, decode_responses=True), "decode_responses=False"),
            (redis.asyncio.Redis.from_url(url), "for AsyncBridge; give a redis.Redis"),
            (url, "give a redis.Redis, not a str"),
        ]
    return [
        (redis.asyncio.Redis.from_url(url, decode_responses=True), "decode_responses=False"),
        (redis.Redis.from_url(url), "for Bridge; give a redis.asyncio.Redis"),
        (url, "give a redis.asyncio.Redis, not a str"),
    ]


@pytest.mark.parametrize("colour", [Bridge, AsyncBridge])
def test_a_client_that_does_not_fit_is_refused_at_once(
    colour: type[Bridge | AsyncBridge], url: str
) -> None:
    for client, reason in clients_that_do_not_fit(colour, url):
        with pytest.raises(InvalidSetting, match=r"^client: ") as caught:
            colour(client=client)
        assert reason in str(caught.value)


def test_a_client_that_decodes_makes_no_task(url: str, client: redis.Redis) -> None:
    decoding = redis.Redis.from_url(url, decode_responses=True)
    with pytest.raises(InvalidSetting):
        Bridge(client=decoding).make_task("mail.send", [], 60)
    with pytest.raises(InvalidSetting):
        Bridge(f"{url}?decode_responses=True").make_task("mail.send", [], 60)
    assert client.dbsize() == 0
    decoding.close()


def test_the_module_s_own_make_task_uses_the_environment(
    url: str, monkeypatch: pytest.MonkeyPatch, client: redis.Redis
) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_URL", url)
    expirebridge.bridge.default_bridge.cache_clear()
    task = expirebridge.make_task("mail.send", [42], "24h")
    [other] = expirebridge.make_tasks([{"func": "mail.send", "delay": 1}])
    assert client.exists(task.key, other.key) == 2
    expirebridge.bridge.default_bridge().close()
    expirebridge.bridge.default_bridge.cache_clear()


def test_hooks_are_told_of_what_was_made(url: str) -> None:
    seen: list[Event] = []
    with Bridge(url, hooks=[seen.append]) as bridge:
        task = bridge.make_task("mail.send", [], 60)
    assert seen == [Making(id=task.id, func="mail.send"), Made(task=task)]


def test_an_unreachable_server_is_said_to_be_so() -> None:
    with Bridge("redis://127.0.0.1:1/1") as bridge, pytest.raises(ServerUnreachable):
        bridge.make_task("mail.send", [], 60)


def test_a_read_only_server_is_said_to_be_so(server: AnyServer) -> None:
    with EmbeddedServer() as replica, redis.Redis(port=replica.port) as client:
        client.replicaof("127.0.0.1", str(server.port))
        with Bridge(replica.url) as bridge, pytest.raises(ServerReadOnly, match="primary"):
            bridge.make_task("mail.send", [], 60)


async def test_calls_side_by_side_are_answered_each_with_its_own(
    url: str, client: redis.Redis
) -> None:
    """More of them than there are connections wait for one."""
    async with AsyncBridge(f"{url}?client_name=many") as bridge:
        made = await asyncio.gather(*(bridge.make_task("a.b", [n], 60) for n in range(300)))
        connected = [one for one in client.client_list() if one["name"] == "many"]
    assert [task.args for task in made] == [[n] for n in range(300)]
    assert len(connected) <= 100


def test_calls_of_many_threads_wait_for_a_connection(url: str, client: redis.Redis) -> None:
    client.client_pause(500)  # until all threads have sent theirs, or wait
    with Bridge(url) as bridge, ThreadPoolExecutor(120) as threads:
        made = list(threads.map(lambda n: bridge.make_task("a.b", [n], 60), range(120)))
    assert [task.args for task in made] == [[n] for n in range(120)]


LOOPS_LEFT_OPEN = """
import asyncio, gc, sys
import redis
from expirebridge import AsyncBridge

url = sys.argv[1]
bridge = AsyncBridge(f"{url}?client_name=loops")
for n in range(5):
    print(asyncio.run(bridge.make_task("a.b", [n], 60)).args)
    gc.collect()
with redis.Redis.from_url(url) as client:
    print(len([one for one in client.client_list() if one["name"] == "loops"]) <= 2)
"""


def test_an_async_bridge_serves_one_event_loop_after_another(url: str) -> None:
    """The loops of `asyncio.run` end without closing what was opened in them."""
    command = [sys.executable, "-c", LOOPS_LEFT_OPEN, url]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (ran.stdout, ran.stderr) == ("[0]\n[1]\n[2]\n[3]\n[4]\nTrue\n", "")


async def test_an_async_bridge_serves_event_loops_side_by_side(
    url: str, client: redis.Redis
) -> None:
    bridge = AsyncBridge(f"{url}?client_name=loops")

    async def make_many() -> None:
        async with bridge:  # closes the connections of this loop alone
            await asyncio.gather(*(bridge.make_task("a.b", [n], 60) for n in range(30)))

    in_threads = [asyncio.to_thread(asyncio.run, make_many()) for _ in range(3)]
    await asyncio.gather(make_many(), *in_threads)
    until_connected(client, "loops", at_most=0)
    assert client.zcard("expirebridge:pending") == 120


def until_connected(client: redis.Redis, name: str, *, at_most: int) -> None:
    """Wait until the server has noticed that connections were closed."""
    end = monotonic() + PATIENCE
    while len([one for one in client.client_list() if one["name"] == name]) > at_most:
        assert monotonic() < end


class Counted(Forwarder):
    """A way to the server that counts the connections that are made on it."""

    made = 0

    async def _connect(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.made += 1
        server, to_server = await asyncio.open_connection(HOST, self._server_port)
        try:
            await until_either_ends(copied(client, to_server), copied(server, to_client))
        finally:
            to_server.close()
            to_client.close()


async def copied(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        target.write(data)


async def test_a_server_that_hangs_is_given_up_after_six_seconds() -> None:
    """In both colours, with a connection that is there, and with one that is to be made."""

    async def give_up(bridge: Bridge | AsyncBridge) -> float:
        began = monotonic()
        with pytest.raises(ServerUnreachable):
            await asking(bridge)("make_task", "a.b", [], 60)
        return monotonic() - began

    def give_up_in_a_thread(bridge: Bridge) -> float:
        return asyncio.run(give_up(bridge))

    with EmbeddedServer() as server, ExitStack() as ways:
        warm, cold, async_warm, async_cold = (
            ways.enter_context(Counted(server.port)) for _ in range(4)
        )
        with Bridge(warm.url) as first, Bridge(cold.url) as second:
            async with AsyncBridge(async_warm.url) as third, AsyncBridge(async_cold.url) as fourth:
                first.count()
                await third.count()
                with hanging(server):
                    took = await asyncio.gather(
                        asyncio.to_thread(give_up_in_a_thread, first),
                        asyncio.to_thread(give_up_in_a_thread, second),
                        give_up(third),
                        give_up(fourth),
                    )
    assert clients.producer_client(server.url).get_connection_kwargs()["socket_timeout"] == 3
    # Each connection is given its three seconds: the first was there before, the second is new.
    assert (warm.made, async_warm.made) == (2, 2)
    assert min(took[0], took[2]) > 2 * 2.95
    # Older versions of redis-py greet a server once.
    assert {cold.made, async_cold.made} <= {1, 2}
    assert min(took) > 2.95


async def test_tls_with_a_server_that_speaks_plain_text_is_said_to_be_so(
    url: str, client: redis.Redis
) -> None:
    def connections() -> int:
        received: int = client.info("stats")["total_connections_received"]
        return received

    secure = url.replace("redis://", "rediss://")
    wrong = "no TLS connection to the server: .* answers in plain text; .* redis://"

    async def awaited() -> None:
        async with AsyncBridge(secure) as bridge:
            with pytest.raises(ServerUnreachable, match=wrong):
                await bridge.make_task("a.b", [], 60)

    def waited() -> None:
        with Bridge(secure) as bridge, pytest.raises(ServerUnreachable, match=wrong):
            bridge.make_task("a.b", [], 60)

    before = connections()
    await asyncio.gather(awaited(), asyncio.to_thread(waited))
    # Each tries once with TLS, asks once without it, and repeats neither.
    assert connections() - before == 4


async def test_waiting_inside_of_an_event_loop_is_said_once(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    def lines() -> int:
        return len([r for r in caplog.records if getattr(r, "event", "") == "loop waits"])

    warn_of_waiting.cache_clear()
    with Bridge(url) as bridge:
        await asyncio.to_thread(bridge.count)  # as a plain handler does
        assert lines() == 0
        bridge.count()
        assert "use AsyncBridge" in caplog.text
        bridge.make_task("a.b", [], 60)
    assert lines() == 1
