"""Connections that break after a request was carried out and before its reply arrives.

Nobody can tell such a call from one that never arrived, so it is sent again. Here each script is
cut off from its caller: the answer must be that of a call whose connection held, and the effect
must be there once.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from sqlalchemy import MetaData, create_engine

from expirebridge import (
    AsyncBridge,
    Bridge,
    Change,
    Discard,
    HistoryEntry,
    Listing,
    Outcome,
    ServerUnreachable,
    State,
    Task,
    TaskExists,
    Then,
    current_task,
)
from expirebridge.checks import check_health, examine
from expirebridge.cli.stats import store_of
from expirebridge.connection import clients
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.hooks import End, Lapsed, Scanned, Started
from expirebridge.lateness import calls as forecasting
from expirebridge.ledger import calls as ledger_calls
from expirebridge.ledger import tables
from expirebridge.ledger.rows import RowVersion, Status
from expirebridge.ledger.schema import create
from expirebridge.limits.hold_calls import list_holds
from expirebridge.listener.execution.leases import Leases
from expirebridge.listener.listener import Listener
from expirebridge.listener.partition import lease_reaper
from expirebridge.moving import calls as migration
from expirebridge.moving.calls import RestoreGroupCode
from expirebridge.moving.migrator import Migrator
from expirebridge.sealing import calls as resealing
from expirebridge.series import calls as series_commands
from expirebridge.series.calls import Removal
from expirebridge.settings import Settings
from expirebridge.signals import calls as signals
from expirebridge.store.acl import LoginRole
from expirebridge.store.client import Store
from expirebridge.task.calls import (
    actions,
    circumstances,
    claiming,
    fleet,
    inspection,
    looking,
    pages,
    producing,
    reconciling,
)
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.keys import MAX_ARGS_IN_KEY
from expirebridge.task.new_task import CHUNK_TASKS
from expirebridge.task.task import to_ms
from tests.kit.colours import Ask, asking
from tests.kit.ledgers import LedgerHarness
from tests.kit.lua import NAMES
from tests.kit.patience import PATIENCE
from tests.kit.proxy import Proxy
from tests.kit.series import follow, put, retime, series
from tests.kit.sessions import code_without_handlers, owner_of
from tests.kit.states import KEY, bring
from tests.kit.steps import age, claim, new, server_ms, settle, state_of
from tests.kit.waiting import declare
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")

RETRIES = clients._PRODUCER_RETRIES
HOUR = 3600.0


@pytest.fixture
def proxy(server: EmbeddedServer) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


# Producers


@pytest.fixture(params=["sync", pytest.param("async", marks=pytest.mark.rest)])
async def ask(
    request: pytest.FixtureRequest, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Ask]:
    """A bridge by way of the proxy. It sends again at once: its pauses are not the subject."""
    monkeypatch.setattr(clients, "ExponentialWithJitterBackoff", lambda **_: NoBackoff())
    if request.param == "sync":
        with Bridge(proxy.url) as bridge:
            yield asking(bridge)
    else:
        async with AsyncBridge(proxy.url) as bridge:
            yield asking(bridge)


both = pytest.mark.parametrize("ask", ["sync", "async"], indirect=True)
"""Both colours, always: each sends again by means of its own client."""


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A producer's call that concerns task `a`."""

    script: str
    method: str
    args: tuple[Any, ...] = ("a",)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    async def of(self, ask: Ask, delay: float = 2 * HOUR) -> Any:
        """What the caller gets, an error or a result; `delay` is for the calls that take one."""
        takes_delay = self.method in {"make_task", "reschedule"}
        options = self.options | ({"delay": delay} if takes_delay else {})
        try:
            return described(await ask(self.method, *self.args, **options))
        except TaskExists as error:
            return repr(error)


def asked_to_make(if_exists: str, func: str = "f.g", args: tuple[int, ...] = (2,)) -> Asked:
    return Asked("make", "make_task", (func, args), {"id": "a", "if_exists": if_exists})


CHANGES = {
    "reject": asked_to_make("reject"),
    "keep": asked_to_make("keep"),
    "keep, throttled": Asked(
        "make", "make_task", ("f.g", (2,)), {"id": "a", "if_exists": "keep", "window": 60}
    ),
    "replace": asked_to_make("replace"),
    "extend": asked_to_make("extend", "mail.send", (1,)),
    "extend another": asked_to_make("extend"),
    "put off, limited": Asked(
        "make",
        "make_task",
        ("mail.send", (1,)),
        {"id": "a", "if_exists": "extend", "max_wait": 3 * HOUR},
    ),
    "watch": Asked("make", "watch", ("a", "mail.send", (1,)), {"ttl": 2 * HOUR}),
    "beat": Asked("beat", "beat"),
    "cancel": Asked("cancel", "cancel"),
    "reschedule": Asked("reschedule", "reschedule"),
    "put off": Asked("put_off", "put_off", ("a", HOUR)),
    "pause": Asked("pause", "pause"),
    "resume": Asked("resume", "resume"),
    "run_now": Asked("run_now", "run_now"),
    "edit": Asked("edit", "edit", ("a", [2])),
    "signal": Asked("signal", "signal", ("a", 7), {"by": "psp"}),
    "hold": Asked("hold", "hold", (), {"tag": "t"}),
    "release": Asked("release", "release", (), {"tag": "t"}),
    "let pass": Asked("let_pass", "let_pass"),
    "limit": Asked("set_limit", "set_limit", ("sms", 5)),
    "weight": Asked("set_weight", "weight", ("sms", "acme", 2)),
}
READS = {
    "get": Asked("get", "get"),
    "list": Asked("list", "list", ()),
    "list of a tag": Asked("list", "list", (), {"tag": "t"}),
    "count": Asked("count", "count", ()),
    "holds": Asked("list_holds", "holds", ()),
    "limits": Asked("read_limits", "limits", ()),
}
STATES = ("absent", "pending", "paused", "running", "succeeded")


def described(answer: Any) -> Any:
    """An answer that can be compared with that of another time: times count by the hour."""
    if isinstance(answer, Listing):
        return [described(task) for task in answer.tasks], answer.examined, answer.complete
    if isinstance(answer, Task | HistoryEntry):
        values = {item.name: getattr(answer, item.name) for item in dataclasses.fields(answer)}
        return {name: _described_value(value) for name, value in values.items()}
    return answer


def _described_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [described(item) for item in value]
    return hours_until(value.timestamp()) if isinstance(value, datetime) else value


def hours_until(seconds: float) -> int:
    return round((seconds - time.time()) / HOUR)


def footprint(client: redis.Redis) -> dict[bytes, Any]:
    """All that the database holds, to be compared with that of another time.

    The tally of attempts goes by when things happened, and how late.
    """
    names = client.scan_iter(count=1000)
    return {name: _held(client, name) for name in names if b":minute:" not in name}


def _held(client: redis.Redis, name: bytes) -> Any:
    value: Any
    match client.type(name):
        case b"hash":
            value = client.hgetall(name)
            return {field: _plain(field, text) for field, text in value.items()}
        case b"zset":
            value = client.zrange(name, 0, -1, withscores=True)
            return {member: hours_until(score / 1000) for member, score in value}
        case b"set":
            return client.smembers(name)
    return round(client.pttl(name) / 1000 / HOUR)


def _plain(field: bytes, value: bytes) -> Any:
    match field:
        case b"due" | b"started" | b"ended" | b"rearm" | b"first":
            return hours_until(int(value) / 1000)
        case b"history":
            return [line.split(b" ")[1] for line in value.splitlines()]
        case b"made":
            return hours_until(int(value))
        case b"born":
            return hours_until(int(value) / 1_000_000)
        case b"left":
            return round(int(value) / 1000 / HOUR)
        case b"nonce":
            return value.partition(b":")[0]
        case b"next":
            return "a replacement"  # packed, with its due time inside
    return value


def run_all(store: Store) -> int:
    """End the run of task `a`, if it runs, and run what is due then; return how many that were."""
    settle(store, Settlement("a", "t", "succeeded"))
    runs = 0
    while tasks := claim(store, f"run-{runs}").tasks:
        runs += len(tasks)
        settle(store, *(Settlement(task.id, task.token, "succeeded") for task in tasks))
    return runs


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_is_made_once_and_answered_as_if_the_connection_had_held(
    ask: Ask, proxy: Proxy, store: Store, client: redis.Redis, name: str
) -> None:
    call = CHANGES[name]
    for cuts, state in enumerate(STATES, start=1):
        client.flushall()
        bring(store, client, state)
        declare(client, {"sms": {"most": 1, "fair": True}})
        expected = await call.of(ask), footprint(client)
        client.flushall()
        bring(store, client, state)
        declare(client, {"sms": {"most": 1, "fair": True}})
        proxy.cut_reply_of(call.script)
        assert (await call.of(ask), footprint(client)) == expected, state
        assert proxy.cuts == {call.script: cuts}, state


async def test_a_signal_that_is_sent_again_decides_once(
    ask: Ask, proxy: Proxy, store: Store, client: redis.Redis
) -> None:
    """By its nonce: another call that says the same, with nobody's name, would count."""
    await ask("make_task", "f.g", (1,), HOUR, id="a", on_signal="f.h")
    proxy.cut_reply_of("signal", times=2)
    assert await ask("signal", "a", 7) is Change.SIGNALLED
    assert proxy.cuts == {"signal": 2}
    assert [task.func for task in claim(store).tasks] == ["f.h"]
    assert client.hget("expirebridge:signals", "signalled") == b"1"


EFFECTIVE = [
    ("reject", "absent"), ("reject", "succeeded"), ("keep", "absent"), ("keep", "succeeded"),
    ("keep, throttled", "absent"),
    ("replace", "absent"), ("replace", "pending"), ("replace", "paused"), ("replace", "running"),
    ("replace", "succeeded"), ("extend", "absent"), ("extend", "pending"), ("extend", "paused"),
    ("extend", "running"), ("extend", "succeeded"), ("cancel", "pending"), ("cancel", "running"),
    ("reschedule", "pending"), ("reschedule", "paused"), ("reschedule", "running"),
    ("put off, limited", "absent"), ("put off, limited", "pending"),
    ("put off, limited", "running"),
    ("resume", "paused"), ("run_now", "pending"), ("run_now", "paused"), ("run_now", "succeeded"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "state"), EFFECTIVE)
async def test_a_task_that_runs_before_the_resend_arrives_runs_once(
    ask: Ask, proxy: Proxy, store: Store, client: redis.Redis, name: str, state: str
) -> None:
    call = CHANGES[name]

    def prepare() -> None:
        bring(store, client, state)
        if name == "resume":
            client.hset("expirebridge:task:a", "left", 0)

    prepare()
    expected = await call.of(ask, delay=0)
    runs = [run_all(store)]
    after = footprint(client)
    client.flushall()
    prepare()
    proxy.cut_reply_of(call.script, then=lambda: runs.append(run_all(store)))
    given = await call.of(ask, delay=0)
    if isinstance(given, dict):  # a task, as it stood when its call was answered
        given["state"] = expected["state"]
    assert given == expected
    assert footprint(client) == after
    runs.append(run_all(store))
    assert runs == ([0, 0, 0] if name == "cancel" else [1, 1, 0])


MEANWHILE: dict[str, Callable[[Bridge], object]] = {
    "extended": lambda bridge: bridge.make_task("f.g", [2], HOUR, id="a", if_exists="extend"),
    "replaced": lambda bridge: bridge.make_task("h.i", [3], HOUR, id="a", if_exists="replace"),
    "rescheduled": lambda bridge: bridge.reschedule("a", HOUR),
    "cancelled": lambda bridge: bridge.cancel("a"),
    "resumed": lambda bridge: bridge.resume("a"),
}


@pytest.mark.parametrize(
    ("name", "state", "other"),
    [
        ("reject", "absent", "extended"),
        ("reject", "absent", "replaced"),
        ("reject", "absent", "rescheduled"),
        ("reject", "succeeded", "cancelled"),
        ("replace", "running", "rescheduled"),
        ("reschedule", "pending", "cancelled"),
        ("pause", "pending", "resumed"),
    ],
)
async def test_what_another_producer_asks_for_before_the_resend_arrives_stays(
    ask: Ask, proxy: Proxy, store: Store, bridge: Bridge, client: redis.Redis,
    name: str, state: str, other: str,
) -> None:  # fmt: skip
    call = CHANGES[name]
    bring(store, client, state)
    expected = await call.of(ask)
    MEANWHILE[other](bridge)
    after = footprint(client)
    client.flushall()
    bring(store, client, state)
    proxy.cut_reply_of(call.script, then=lambda: MEANWHILE[other](bridge))
    given = await call.of(ask)
    if isinstance(given, dict):  # a task, as it stood when its call was answered
        given, expected = given["outcome"], expected["outcome"]
    assert given == expected
    assert footprint(client) == after


@both
@pytest.mark.parametrize("delay", [HOUR, 0])
async def test_a_task_with_a_drawn_id_is_made_once(
    ask: Ask, proxy: Proxy, store: Store, client: redis.Redis, delay: float
) -> None:
    runs: list[int] = []
    proxy.cut_reply_of("make_drawn", then=lambda: runs.append(run_all(store)))
    task = await ask("make_task", "mail.send", [42], delay)
    assert task.outcome is Outcome.CREATED
    assert client.keys("expirebridge:task:*") == [f"expirebridge:task:{task.id}".encode()]
    assert (*runs, run_all(store)) == ((0, 0) if delay else (1, 0))


@pytest.mark.parametrize("delay", [HOUR, 0])
async def test_several_tasks_with_drawn_ids_are_made_once(
    ask: Ask, proxy: Proxy, store: Store, client: redis.Redis, delay: float
) -> None:
    """A resend tells what has become of each: one is over, or one was cancelled and forgotten."""

    def meanwhile() -> None:
        runs.append(run_all(store))
        if delay:
            first: Any = client.zrange("expirebridge:pending", 0, 0)[0]
            store.run(producing.cancel([first.decode()], keep=HOUR))

    runs: list[int] = []
    proxy.cut_reply_of("make_drawn_many", then=meanwhile)
    large = "x" * (MAX_ARGS_IN_KEY + 1)
    items = [{"func": "mail.send", "args": [arg], "delay": delay} for arg in (1, large, 3)]
    made = await ask("make_tasks", items)
    assert [task.args for task in made] == [[1], [large], [3]]
    assert {task.outcome for task in made} == {Outcome.CREATED}
    states = sorted(task.state for task in made)
    assert states == (["cancelled", "pending", "pending"] if delay else ["succeeded"] * 3)
    records = {f"expirebridge:task:{task.id}".encode() for task in made}
    assert set(client.keys("expirebridge:task:*")) == records
    assert (*runs, run_all(store)) == ((0, 0) if delay else (3, 0))


async def test_a_call_that_changed_nothing_may_be_answered_by_what_is_there_now(
    ask: Ask, proxy: Proxy, store: Store, client: redis.Redis
) -> None:
    """The task that was kept is over when the resend arrives: a new one is made, and said so."""
    bring(store, client, "running")
    proxy.cut_reply_of("make", then=lambda: run_all(store))
    task = await ask("make_task", "f.g", [], HOUR, id="a", if_exists="keep")
    assert task.outcome is Outcome.CREATED
    assert client.zrange("expirebridge:pending", 0, -1) == [b"a"]


async def test_a_resent_pause_does_not_undo_what_happened_since(
    ask: Ask, proxy: Proxy, store: Store, client: redis.Redis
) -> None:
    def put_off() -> None:
        client.expire(KEY, 90)
        store.run(reconciling.scan("0", 1000))

    bring(store, client, "pending")
    proxy.cut_reply_of("pause", then=put_off)
    assert await ask("pause", "a") is Change.PAUSED
    assert client.zrange("expirebridge:pending", 0, -1) == [b"a"]


@pytest.mark.parametrize("name", READS)
async def test_looking_again_shows_the_same(
    ask: Ask, proxy: Proxy, store: Store, client: redis.Redis, name: str
) -> None:
    bring(store, client, "pending")
    expected = await READS[name].of(ask)
    proxy.cut_reply_of(READS[name].script)
    assert await READS[name].of(ask) == expected
    assert proxy.cuts == {READS[name].script: 1}


async def test_a_release_that_is_sent_again_says_that_there_was_a_hold(
    ask: Ask, proxy: Proxy, store: Store
) -> None:
    await ask("hold", func="mail.send")
    store.run(producing.make([new("a")]))
    assert claim(store).parked == 1
    proxy.cut_reply_of("release")
    assert await ask("release", func="mail.send") is True
    assert proxy.cuts == {"release": 1}
    assert [task.id for task in claim(store).tasks] == ["a"]


@both
async def test_many_tasks_are_made_once_each(ask: Ask, proxy: Proxy, client: redis.Redis) -> None:
    items = [{"func": "a.b", "args": [n], "delay": HOUR} for n in range(1100)]
    items[20] |= {"id": "taken"}
    items[540] |= {"id": "taken-2", "if_exists": "keep"}
    for id in ("taken", "taken-2"):
        await ask("make_task", "a.b", [], HOUR, id=id)
    for n in (0, 541, 1099):  # one of each kind of chunk
        script = "make_drawn_many" if n == 1099 else "make"
        proxy.cut_reply_of(script, asking=b"a.b?[%d]\r\n" % n)
    made = await ask("make_tasks", items)
    assert proxy.cuts == {"make": 2, "make_drawn_many": 1}
    outcomes = [task.outcome for task in made]
    assert (outcomes.pop(540), outcomes.pop(20)) == (Outcome.KEPT, Outcome.REJECTED)
    assert set(outcomes) == {Outcome.CREATED}
    assert client.zcard("expirebridge:pending") == 1100
    assert client.dbsize() == 2 * 1100 + 2  # records, keys; the state set and the format


async def test_all_tasks_of_a_tag_are_found_and_cancelled_once(ask: Ask, proxy: Proxy) -> None:
    await ask("make_tasks", [{"func": "a.b", "delay": n, "tags": ["t"]} for n in range(60, 510)])
    proxy.cut_reply_of("list")
    proxy.cut_reply_of("cancel")
    assert await ask("cancel_tag", "t") == {Change.CANCELLED: 450, Change.RUNNING: 0}
    assert proxy.cuts == {"list": 1, "cancel": 1}
    assert (await ask("count")).cancelled == 450


@pytest.mark.parametrize("cut", ["EVALSHA", "EVAL", "both"])
async def test_the_first_call_of_all_which_sends_the_script_is_no_exception(
    ask: Ask, proxy: Proxy, client: redis.Redis, cut: str
) -> None:
    client.script_flush()
    if cut != "EVAL":
        proxy.cut_reply_of("make", holding=b"NOSCRIPT")
    if cut != "EVALSHA":
        proxy.cut_reply_of("make", holding=b"a:?mail.send?[]")
    task = await ask("make_task", "mail.send", [], HOUR, id="a")
    assert task.outcome is Outcome.CREATED
    assert proxy.cuts == {"make": 2 if cut == "both" else 1}
    assert client.zcard("expirebridge:pending") == 1


@both
async def test_a_call_outlasts_as_many_cuts_as_it_has_retries(
    ask: Ask, proxy: Proxy, client: redis.Redis
) -> None:
    await ask("count")  # connected, and the script may be known or not
    proxy.cut_reply_of("make", RETRIES, holding=b"a:?mail.send?[]")
    task = await ask("make_task", "mail.send", [], HOUR, id="a")
    assert (task.outcome, proxy.cuts["make"]) == (Outcome.CREATED, RETRIES)
    assert client.zcard("expirebridge:pending") == 1


@both
async def test_after_more_cuts_nobody_can_say_and_keep_makes_it_safe_to_call_again(
    ask: Ask, proxy: Proxy, client: redis.Redis
) -> None:
    make = asked_to_make("keep")
    proxy.cut_reply_of("make", RETRIES + 1, holding=b"a:?f.g?[2]")
    with pytest.raises(ServerUnreachable):
        await make.of(ask)
    assert proxy.cuts["make"] == RETRIES + 1
    with pytest.raises(TaskExists):  # a call of its own, not a resend
        await ask("make_task", "f.g", [2], HOUR, id="a")
    assert (await make.of(ask))["outcome"] is Outcome.KEPT
    assert client.keys("expirebridge:task:*") == [b"expirebridge:task:a"]


async def test_bulk_that_was_cut_off_for_good_can_be_repeated_with_keep(
    ask: Ask, proxy: Proxy, client: redis.Redis
) -> None:
    items = [
        {"func": "a.b", "args": [n], "delay": HOUR, "id": f"n{n}", "if_exists": "keep"}
        for n in range(440)
    ]
    proxy.cut_reply_of("make", RETRIES + 1, holding=b"?a.b?[200]")
    with pytest.raises(ServerUnreachable):
        await ask("make_tasks", items)
    made = (200 // CHUNK_TASKS + 1) * CHUNK_TASKS  # the chunk that was cut off, too
    assert client.zcard("expirebridge:pending") == made
    outcomes = [task.outcome for task in await ask("make_tasks", items)]
    assert outcomes == [Outcome.KEPT] * made + [Outcome.CREATED] * (440 - made)
    assert client.zcard("expirebridge:pending") == 440


# Listeners


class Scene:
    """A listener by way of the proxy, whose leases outlast the test: waiting one out fails it."""

    def __init__(
        self, proxy: Proxy, bridge: AsyncBridge, store: Store, client: redis.Redis
    ) -> None:
        self.proxy = proxy
        self.bridge = bridge
        self.store = store
        self.client = client
        self.witness = Witness()
        self.ran: list[str] = []

    def listening(self, **others: Callable[..., Any]) -> AbstractAsyncContextManager[Listener]:
        async def note() -> str:
            self.ran.append(current_task().id)
            return f"{current_task().id} ran"

        settings = Settings(url=self.proxy.url, lease=60.0)
        return listening(settings, self.witness, note=note, **others)

    async def make(self, *ids: str) -> None:
        """Make tasks that are due at once, all in the same moment."""
        await self.bridge.make_tasks([{"func": "test.note", "delay": 0, "id": id} for id in ids])

    async def cannot_start(self) -> None:
        with pytest.raises(ServerUnreachable):
            async with self.listening():
                pass

    async def until_replied(self, holds: Callable[[], object]) -> None:
        """Wait until `holds` is true after some reply, without holding up the listener."""
        await asyncio.to_thread(self.proxy.until, holds)

    async def check_each_ran_once(self, *ids: str) -> None:
        await self.witness.until_ended(len(ids))
        assert sorted(self.ran) == sorted(ids)
        assert [event.end for event in self.witness.ended()] == [End.SUCCEEDED] * len(ids)
        assert self.witness.seen(Lapsed) == []
        for id in ids:
            task = await self.bridge.get(id)
            assert task is not None
            assert (task.state, task.attempt, task.lapses) == (State.SUCCEEDED, 1, 0), id
            assert task.result == f"{id} ran"


@pytest.fixture
def scene(
    proxy: Proxy,
    async_bridge: AsyncBridge,
    store: Store,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> Scene:
    monkeypatch.setattr(lease_reaper, "EVERY", 0.05)
    return Scene(proxy, async_bridge, store, client)


async def cut_claims(scene: Scene) -> None:
    """What was claimed is found by the resend, be it the listener's first claim or a later one."""
    await scene.make("a1", "a2", "a3")
    scene.proxy.cut_reply_of("claim", holding=b"a1")
    async with scene.listening():
        await scene.witness.until_ended(3)
        scene.proxy.cut_reply_of("claim", times=2, holding=b"b1")
        await scene.make("b1", "b2", "b3")
        await scene.check_each_ran_once("a1", "a2", "a3", "b1", "b2", "b3")
    assert scene.proxy.cuts == {"claim": 3}


async def cut_settles(scene: Scene) -> None:
    """An outcome that was recorded is not recorded again, and not refused."""
    records: list[Any] = []

    def read() -> None:
        records.append(scene.client.hgetall("expirebridge:task:a"))

    scene.proxy.cut_reply_of("settle", then=read)
    async with scene.listening():
        await scene.make("a")
        await scene.witness.until_ended()
        scene.proxy.cut_reply_of("settle", times=2, then=read)
        await scene.make("b")
        await scene.check_each_ran_once("a", "b")
    assert scene.proxy.cuts == {"settle": 3}
    read()
    assert records == records[:1] * 4


async def cut_heartbeats(scene: Scene) -> None:
    """One that fails is followed by another, which brings the same news."""
    scene.proxy.cut_reply_of("heartbeat")
    stopped = asyncio.Event()

    async def hold() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with scene.listening(hold=hold):
        await scene.make("a")
        task = await scene.bridge.make_task("test.hold", [], 0)
        await scene.witness.until(lambda: len(scene.witness.seen(Started)) == 2)
        scene.proxy.cut_reply_of("heartbeat", holding=task.id.encode())
        assert await scene.bridge.cancel(task.id) is Change.RUNNING
        async with asyncio.timeout(PATIENCE):
            await stopped.wait()
        await scene.witness.until_ended(2)
    assert scene.proxy.cuts == {"heartbeat": 2}
    assert [event.end for event in scene.witness.ended()] == [End.SUCCEEDED, End.RELEASED]
    read = await scene.bridge.get(task.id)
    assert read is not None
    assert (read.state, read.attempt, read.lapses) == (State.CANCELLED, 1, 0)


async def cut_adoptions(scene: Scene) -> None:
    """A foreign task that was adopted is known when it is looked at again."""
    async with scene.listening():
        for count, id in enumerate(("first", "later"), start=1):
            scene.proxy.cut_reply_of("adopt", holding=id.encode())
            scene.client.set(f"{id}:?test.note?[]", "", px=50)
            await scene.witness.until_ended(count)
        await scene.check_each_ran_once("first", "later")
    assert scene.proxy.cuts == {"adopt": 2}


async def cut_siftings(scene: Scene) -> None:
    """What was heard of a key waits until somebody answered."""
    async with scene.listening():
        scene.proxy.cut_reply_of("find_unexplained", holding=b"foreign")
        scene.client.set("foreign:?test.note?[]", "", px=60_000)
        while not scene.proxy.cuts:  # perhaps it does not hear of keys yet
            scene.client.pexpire("foreign:?test.note?[]", 60_000)
            await asyncio.sleep(0.05)
        scene.client.pexpire("foreign:?test.note?[]", 1)
        await scene.check_each_ran_once("foreign")
    assert scene.proxy.cuts == {"find_unexplained": 1}


async def cut_scans(scene: Scene) -> None:
    """A scan that was cut off is made again from the beginning."""
    scene.proxy.cut_reply_of("scan")
    await scene.cannot_start()
    async with scene.listening():
        for id in ("first", "later"):
            scene.proxy.cut_reply_of("scan", holding=f"{id}:?".encode())
            # Set while nobody hears it: only the scan that follows such a gap finds it.
            with scene.client.pipeline() as together:
                together.client_kill_filter(_type="pubsub")
                together.set(f"{id}:?test.note?[]", "", ex=60)
                together.execute()
            await scene.until_replied(partial(scene.client.exists, f"expirebridge:task:{id}"))
            assert await scene.bridge.run_now(id) is Change.DUE_NOW
        await scene.check_each_ran_once("first", "later")
    assert scene.proxy.cuts == {"scan": 3}


async def cut_walks(scene: Scene) -> None:
    """A walk over several partitions that was cut off is made again from the beginning."""
    await scene.bridge.create_partitions(2)
    keys = [await scene.bridge.key_of(id, "test.note") for id in ("a", "b")]
    for key in keys:
        scene.client.set(key, "", ex=60)
    scene.proxy.cut_reply_of("check_keys")
    async with scene.listening():
        await scene.until_replied(lambda: scene.proxy.cuts["check_keys"] == 1)
        await scene.witness.until(lambda: scene.witness.seen(Scanned))
        for id in ("a", "b"):
            assert await scene.bridge.run_now(id) is Change.DUE_NOW
        await scene.check_each_ran_once("a", "b")
    assert scene.proxy.cuts == {"check_keys": 1}


async def cut_sweeps(scene: Scene) -> None:
    """What was taken back from a dead listener is run, although nobody was told of the lapse."""
    await scene.make("orphan")
    assert claim(scene.store, "dead").tasks
    scene.proxy.cut_reply_of("sweep")
    async with scene.listening():
        await scene.until_replied(lambda: scene.proxy.cuts["sweep"] == 1)
        scene.proxy.cut_reply_of("sweep", holding=b"orphan")
        age(scene.client, "running", "orphan", 1)
        await scene.check_each_ran_once("orphan")
        swept = scene.proxy.answered["sweep"]
        await scene.until_replied(lambda: scene.proxy.answered["sweep"] > swept)
    assert scene.proxy.cuts == {"sweep": 2}
    assert [event.task.lapses for event in scene.witness.seen(Started)] == [1]


async def cut_goodbyes(scene: Scene) -> None:
    """A listener that is not answered ends all the same, and nobody counts it any longer."""
    scene.proxy.cut_reply_of("leave")
    async with scene.listening():
        await scene.make("a")
        await scene.check_each_ran_once("a")
    assert scene.proxy.cuts == {"leave": 1}
    assert (await scene.bridge.count()).listeners == 0


async def cut_known_claims(scene: Scene) -> None:
    """As `claim`, while the fleet runs more than one code."""
    scene.store.run(fleet.declare("aa", {"other.func": "()"}))
    scene.store.run(claiming.heartbeat("other", 60, [], code="aa", functions=1))
    async with scene.listening():
        scene.proxy.cut_reply_of("claim_known", times=2, holding=b"a1")
        await scene.make("a1", "a2", "a3")
        await scene.check_each_ran_once("a1", "a2", "a3")
    assert scene.proxy.cuts == {"claim_known": 2}


async def cut_declarations(scene: Scene) -> None:
    """A listener that starts declares again what it knows, and claims nothing before."""
    scene.proxy.cut_reply_of("declare")
    async with scene.listening():
        [declared] = (await asyncio.to_thread(scene.store.run, fleet.read_fleet(60))).codes.values()
        assert declared == {"test.note": "()"}
        await scene.make("a")
        await scene.check_each_ran_once("a")
    assert scene.proxy.cuts == {"declare": 1}


async def cut_declared_limits(scene: Scene) -> None:
    """So it is with its limits."""
    scene.proxy.cut_reply_of("declare_limits")
    async with scene.listening():
        await scene.make("a")
        await scene.check_each_ran_once("a")
    assert scene.proxy.cuts == {"declare_limits": 1}


async def cut_declared_urgency(scene: Scene) -> None:
    """So it is with what it says of urgent handlers."""
    scene.proxy.cut_reply_of("declare_urgent")
    async with scene.listening():
        await scene.make("a")
        await scene.check_each_ran_once("a")
    assert scene.proxy.cuts == {"declare_urgent": 1}


async def cut_follow_ups(scene: Scene) -> None:
    """A follow-up is made once, and by the time of the resend it may have run."""

    def charge() -> Then:
        return Then("test.note", id="next")

    async with scene.listening(charge=charge):
        scene.proxy.cut_reply_of("settle_then", times=2)
        await scene.bridge.make_task("test.charge", [], 0, id="a")
        await scene.witness.until_ended(2)
    assert scene.proxy.cuts == {"settle_then": 2}
    assert scene.ran == ["next"]
    counts = await scene.bridge.count()
    assert (counts.succeeded, counts.pending, counts.running) == (2, 0, 0)


LISTENER: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "claim": cut_claims,
    "settle": cut_settles,
    "settle_then": cut_follow_ups,
    "heartbeat": cut_heartbeats,
    "claim_known": cut_known_claims,
    "declare": cut_declarations,
    "declare_limits": cut_declared_limits,
    "declare_urgent": cut_declared_urgency,
    "adopt": cut_adoptions,
    "find_unexplained": cut_siftings,
    "scan": cut_scans,
    "check_keys": cut_walks,
    "sweep": cut_sweeps,
    "leave": cut_goodbyes,
}


@pytest.mark.parametrize("script", LISTENER)
async def test_a_listener_goes_on_and_each_task_runs_once(
    scene: Scene, script: str, caplog: pytest.LogCaptureFixture
) -> None:
    await LISTENER[script](scene)
    assert "lapsed while it ran" not in caplog.text


async def test_every_outcome_is_recorded_once(scene: Scene) -> None:
    """A retry that is due at once may have begun when the resend of its settlement arrives."""

    async def flaky() -> str:
        if current_task().attempt == 1:
            raise ConnectionError("no answer")
        return "at last"

    async def hopeless() -> None:
        raise Discard("it will never work")

    async with scene.listening(flaky=flaky, hopeless=hopeless):
        scene.proxy.cut_reply_of("settle", times=3)
        flaky_one = await scene.bridge.make_task("test.flaky", [], 0, retry=[0])
        hopeless_one = await scene.bridge.make_task("test.hopeless", [], 0)
        await scene.witness.until_ended(3)
    assert scene.proxy.cuts == {"settle": 3}
    assert sorted(event.end for event in scene.witness.ended()) == sorted(
        [End.RETRY, End.SUCCEEDED, End.FAILED]
    )
    read = await scene.bridge.get(flaky_one.id)
    assert read is not None
    assert (read.state, read.attempt, read.result) == (State.SUCCEEDED, 2, "at last")
    read = await scene.bridge.get(hopeless_one.id)
    assert read is not None
    assert (read.state, read.attempt, read.error) == (State.FAILED, 1, "it will never work")


def test_a_gap_that_an_unanswered_heartbeat_told_of_is_told_by_the_next(proxy: Proxy) -> None:
    client = clients.heartbeat_client(proxy.url, socket_timeout=PATIENCE)
    with contextlib.closing(Store(client, prefix="expirebridge")) as store:
        leases = Leases(
            owner_of(heart_store=store), "one", lease=60.0, code=code_without_handlers()
        )
        assert leases.send_heartbeat().gap
        assert not leases.send_heartbeat().gap
        proxy.cut_reply_of("heartbeat")
        with pytest.raises(ServerUnreachable):
            leases.send_heartbeat()
        assert leases.send_heartbeat().gap
        assert not leases.send_heartbeat().gap


async def test_a_listener_that_stops_runs_what_its_last_claim_brought(scene: Scene) -> None:
    loop = asyncio.get_running_loop()
    async with scene.listening() as listener:

        async def stop() -> None:
            listener.stop()
            for _ in range(5):  # until the claimer has been told
                await asyncio.sleep(0)

        def stop_here() -> None:
            asyncio.run_coroutine_threadsafe(stop(), loop).result(PATIENCE)

        scene.proxy.cut_reply_of("claim", holding=b"last", then=stop_here)
        await scene.make("last")
        await scene.check_each_ran_once("last")


# Those who look after a server


OPERATORS: dict[str, Callable[[Store], object]] = {
    "find_overwritten": lambda store: store.run(inspection.find_overwritten()),
    "find_refused": lambda store: examine(store, Settings(), LoginRole.LISTENER),
    "find_ids": lambda store: store.run(
        inspection.find_ids(State.PENDING, "a", rank=0, examine=10, find=10)
    ),
    "survey_functions": lambda store: store.run(inspection.survey_functions(10)),
    "list_calls": lambda store: store.run(inspection.calls_page(State.PENDING, pages.BEGINNING)),
    "find_unhandled": lambda store: examine(store, Settings(), LoginRole.LISTENER),
    "read_health": lambda store: store.run(check_health(store.database, Settings())),
    "count_subscribers": lambda store: store.run(inspection.count_subscribers()),
    "count_before": lambda store: store.run(inspection.count_before(State.PENDING, [0])),
    "read_fleet": lambda store: store.run(fleet.read_fleet(10)),
    "list_listeners": lambda store: store.run(inspection.list_listeners(10)),
    "read_tally": lambda store: store.run(inspection.read_tally(spans=2, minutes=1)),
    "read_actions": lambda store: store.run(actions.read_actions(10)),
    "forecast": lambda store: store.run(forecasting.forecast(60, 2, sample=2)),
    "read_durations": lambda store: store.run(forecasting.read_durations()),
    "find_known": lambda store: store.run(migration.find_known(["a"])),
    "read_decisions": lambda store: store.run(signals.read_decisions()),
    "read_circumstances": lambda store: store.run(circumstances.read_circumstances("a")),
}


@pytest.mark.parametrize("script", OPERATORS)
def test_who_only_looks_is_told_so_and_may_look_again(
    proxy: Proxy, client: redis.Redis, script: str
) -> None:
    """The doctor and a probe ask nothing twice: they shall not wait for a server that is away."""
    store = Store(clients.probe_client(proxy.url), prefix="expirebridge")
    bring(store, client, "pending")
    before = footprint(client)
    proxy.cut_reply_of(script)
    with pytest.raises(ServerUnreachable):
        OPERATORS[script](store)
    assert proxy.cuts == {script: 1}
    OPERATORS[script](store)
    assert footprint(client) == before
    store.close()


def test_an_action_is_noted_once(proxy: Proxy, client: redis.Redis) -> None:
    with contextlib.closing(
        Store(clients.producer_client(proxy.url), prefix="expirebridge")
    ) as store:
        proxy.cut_reply_of("note_action", times=2)
        store.run(actions.note_action(who="ann", action="cancel", target="a", result="1 cancelled"))
    assert proxy.cuts == {"note_action": 2}
    assert client.llen("expirebridge:actions") == 1


def test_durations_that_are_noted_twice_have_the_same_mean(proxy: Proxy) -> None:
    with contextlib.closing(
        Store(clients.producer_client(proxy.url), prefix="expirebridge")
    ) as store:
        proxy.cut_reply_of("note_durations", times=1)
        store.run(forecasting.note_durations({"mail.send": forecasting.Took(2, 3)}))
        assert store.run(forecasting.read_durations()) == {"mail.send": forecasting.Took(4, 6)}
    assert proxy.cuts == {"note_durations": 1}


def test_the_first_import_from_a_source_stays_the_first_if_it_is_sent_again(
    proxy: Proxy, store: Store
) -> None:
    with contextlib.closing(
        Store(clients.producer_client(proxy.url), prefix="expirebridge")
    ) as asking:
        proxy.cut_reply_of("note_import", times=2)
        now, earlier = asking.run(migration.note_import("arq old:6379/0", look_only=False))
    assert proxy.cuts == {"note_import": 2}
    assert earlier == 0
    _, began = store.run(migration.note_import("arq old:6379/0", look_only=False))
    assert 0 < began <= now
    assert store.run(migration.note_import("arq other:6379/0", look_only=True))[1] == 0
    assert store.run(migration.note_import("arq other:6379/0", look_only=True))[1] == 0


def test_a_purge_that_is_sent_again_says_the_same(
    proxy: Proxy, store: Store, bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "ExponentialWithJitterBackoff", lambda **_: NoBackoff())
    bridge.make_task("mail.send", [], 0, id="a")
    [task] = store.run(claiming.claim("t", Settings(), places=1, idle=True)).tasks
    store.run(claiming.settle([claiming.Settlement("a", task.token, "failed")], Settings()))
    proxy.cut_reply_of("purge")
    with Bridge(proxy.url) as asking:
        assert asking.purge_failed(["a"]) == {Change.FORGOTTEN: 1}
    assert proxy.cuts == {"purge": 1}
    # It stays for the 15 seconds in which a doorbell of its run may come.
    kept = bridge.get("a")
    assert kept is not None
    assert kept.ended is not None
    assert store.client.zscore("expirebridge:failed", "a") == to_ms(kept.ended) + 15_000


def test_what_was_sealed_again_is_known_to_be(
    proxy: Proxy, client: redis.Redis, bridge: Bridge
) -> None:
    bridge.make_task("mail.send", ["x" * 600], 60, id="a")
    old: Any = client.hget("expirebridge:task:a", "args")
    with contextlib.closing(
        Store(clients.producer_client(proxy.url), prefix="expirebridge")
    ) as asking:
        proxy.cut_reply_of("reseal", times=2)
        again = resealing.replace([resealing.Replacement("task", "a", "args", old, b"new")])
        assert asking.run(again) == [True]
    assert proxy.cuts == {"reseal": 2}
    assert client.hget("expirebridge:task:a", "args") == b"new"


def test_partitions_are_created_once(proxy: Proxy, client: redis.Redis) -> None:
    with Bridge(proxy.url) as through:
        proxy.cut_reply_of("create_partitions", times=2)
        assert through.create_partitions(4) == 4
        proxy.cut_reply_of("mark_partition", times=2)
        assert through.create_partitions(4) == 4
        proxy.cut_reply_of("read_partitions", times=2)
        assert through.count_partitions() == 4
        assert proxy.cuts == {"create_partitions": 2, "mark_partition": 2, "read_partitions": 2}
    assert client.hget("expirebridge:meta", "partitions") == b"4"


def remove_one(store: Store, _: int) -> None:
    assert store.run(series_commands.remove_series(["s", "gone"], 9.0)) == [
        Removal.REMOVED, Removal.NOT_FOUND
    ]  # fmt: skip
    assert store.run(series_commands.remove_series(["s"], 9.0)) == [
        Removal.NOT_FOUND
    ]  # another call


HOUR_IN_MS = 3_600_000
SERIES: dict[str, tuple[Callable[[Store, int], object], int]] = {
    "put_series": (lambda store, tick: put(store, series("t"), tick), 2),
    "declare_series": (
        lambda store, _: store.run(series_commands.declare_series("l", 9.0, [("s", "f1")])),
        1,
    ),
    "make_ticks": (lambda store, tick: follow(store, "s", tick, tick + HOUR_IN_MS), 2),
    "remove_series": (remove_one, 0),
    "pause_series": (lambda store, _: store.run(series_commands.pause_series("s")), 0),
    "resume_series": (
        lambda store, tick: store.run(
            series_commands.resume_series("paused", b"f1", series_commands.Times(tick, tick, None))
        ),
        2,
    ),
    "run_series": (lambda store, _: store.run(series_commands.run_series("s")), 2),
    "get_series": (lambda store, _: store.run(series_commands.get_series("s", 9.0)), 1),
    "list_series": (lambda store, _: store.run(series_commands.series_page("0", 9.0)), 1),
    "find_due_series": (lambda store, _: store.run(series_commands.find_due_series()), 1),
    "find_outdated": (lambda store, _: store.run(series_commands.find_outdated("2026a", 0)), 1),
    "retime_ticks": (lambda store, tick: retime(store, "s", tick, tick + HOUR_IN_MS), 1),
}
"""What is asked of each, and how many ticks wait then."""


@pytest.mark.parametrize("script", SERIES)
def test_what_is_asked_of_series_is_done_once(
    proxy: Proxy, client: redis.Redis, script: str
) -> None:
    ask, ticks = SERIES[script]
    with contextlib.closing(
        Store(clients.producer_client(proxy.url), prefix="expirebridge")
    ) as store:
        tick = server_ms(client) + HOUR_IN_MS
        put(store, series("paused"), tick)
        store.run(series_commands.pause_series("paused"))
        put(store, series(), tick, successor=tick + HOUR_IN_MS)
        proxy.cut_reply_of(script, times=2)
        ask(store, tick)
    assert proxy.cuts == {script: 2}
    assert client.zcard("expirebridge:pending") == ticks


# The ledger's relay


LEDGER = (
    "read_ledger",
    "read_run_id",
    "relay",
    "read_dirty",
    "forget_dirty",
    "bind_ledger",
    "note_horizon",
    "forget_ended",
)


@pytest.mark.parametrize("script", LEDGER)
def test_a_pass_whose_reply_is_lost_is_made_again(
    proxy: Proxy, store: Store, script: str, tmp_path: Path
) -> None:
    engine, made = create_engine(f"sqlite:///{tmp_path}/ledger.db"), tables(MetaData())
    with engine.begin() as connection:
        create(connection, made)
    through = Store(clients.producer_client(proxy.url), prefix="expirebridge")
    harness = LedgerHarness(engine, made, through, horizon=3600.0)
    harness.insert("a")
    if script in {"read_ledger", "note_horizon", "relay"}:
        proxy.cut_reply_of(script)
    harness.settle_down()
    [task] = store.run(claiming.claim("t", Settings(), places=1, idle=True, gate=0)).tasks
    settle(store, Settlement(task.id, "t", "succeeded"))
    if script not in proxy.cuts:
        proxy.cut_reply_of(script)
    if script == "bind_ledger":
        harness.relay().rebind()
    if script == "forget_ended":
        harness.settle_down()
        harness.insert("old", status=30, todo=0, modified=1)
        assert harness.prune_old() == 1
    harness.settle_down()
    harness.settle_down()
    assert proxy.cuts == {script: 1}
    assert harness.status("a") is Status.SUCCEEDED
    assert store.run(claiming.claim("u", Settings(), places=1, idle=True, gate=0)).tasks == []
    through.close()
    engine.dispose()


EARLY = ("send_early", "judge_early")


@pytest.mark.parametrize("script", EARLY)
def test_what_is_sent_early_is_sent_and_judged_once(
    proxy: Proxy, store: Store, client: redis.Redis, script: str
) -> None:
    through = Store(clients.producer_client(proxy.url), prefix="expirebridge")
    store.run(ledger_calls.bind_ledger("nonce"))
    proxy.cut_reply_of(script)
    row = ledger_calls.RelayedRow(
        id="a", version=RowVersion(1, 1), what="waits", hint="", call=b"mail.send?[1]",
        when="in", ms=0,
    )  # fmt: skip
    sent = through.run(ledger_calls.send_early([row], nonce="nonce", least=0))
    assert sent == [script != "send_early"]  # a resend finds its record
    store.run(claiming.claim("t", Settings(), places=1, idle=True, gate=0))
    client.hset("expirebridge:task:a", "early", 1)
    verdict = through.run(ledger_calls.judge_early("a", "t", "no row", Settings()))
    over, not_early = ledger_calls.EarlyVerdict.OVER, ledger_calls.EarlyVerdict.NOT_EARLY
    assert verdict is (over if script == "send_early" else not_early)  # which ends it, too
    settle(store, Settlement("a", "t", "cancelled"))
    assert state_of(store, "a") is State.CANCELLED
    assert client.zcard("expirebridge:dirty") == 0
    assert proxy.cuts == {script: 1}
    through.close()


# Groups


GROUPS = (
    "make_group", "reserve_members", "count_lacking", "close_group", "cancel_group", "get_group",
    "list_groups",
)  # fmt: skip


@pytest.mark.parametrize("script", GROUPS)
async def test_what_is_asked_of_groups_is_done_once(
    ask: Ask, proxy: Proxy, store: Store, script: str
) -> None:
    """Numbers that were reserved twice leave a gap, and nothing else."""
    items = [{"func": "mail.send", "args": [n], "delay": 0} for n in range(3)]
    proxy.cut_reply_of(script, times=2)
    await ask("make_group", "g", items, then=Then("orders.close"), close=False)
    [added] = await ask("make_tasks", items[:1], group="g")
    assert added.id == ("g@g5" if script == "reserve_members" else "g@g3")
    await ask("close_group", "g")
    claimed = [task.id for task in claim(store).tasks]
    settle(store, *(Settlement(id, "t", "succeeded") for id in claimed))
    assert [task.id for task in claim(store).tasks] == ["g@then"]
    later = [{"func": "mail.send", "delay": HOUR}] * 250
    await ask("make_group", "h", [dict(one) for one in later], then=Then("orders.close"))
    await ask("cancel_group", "h")
    found = {group.name: group for group in (await ask("list_groups")).groups}
    assert (found["g"].state, found["g"].total, found["g"].left) == ("ended", 4, 0)
    assert (found["h"].state, found["h"].cancelled) == ("cancelled", 250)
    assert proxy.cuts == {script: 2}


@pytest.mark.parametrize("script", ["read_groups", "restore_group"])
def test_groups_are_exported_and_imported_once(proxy: Proxy, bridge: Bridge, script: str) -> None:
    later = [{"func": "mail.send", "delay": HOUR}]
    bridge.make_group("g", later, then=Then("orders.close"))
    with contextlib.closing(store_of(Settings(url=proxy.url))) as store:
        proxy.cut_reply_of(script, times=2)
        [stored] = store.run(migration.stored_groups(pages.BEGINNING)).groups
        assert (stored.name, stored.fields["left"]) == ("g", b"1")
        restoring = migration.restore_group("h", stored.members, {**stored.fields}, None)
        assert store.run(restoring) in set(RestoreGroupCode) - {RestoreGroupCode.TAKEN}
    assert proxy.cuts == {script: 2}
    assert [(one.name, one.left) for one in bridge.list_groups().groups] == [("h", 1), ("g", 1)]


def test_an_imported_task_gets_its_slot_once(
    proxy: Proxy, bridge: Bridge, client: redis.Redis
) -> None:
    bridge.make_task("mail.send", [], HOUR, id="a")
    with contextlib.closing(store_of(Settings(url=proxy.url))) as store:
        proxy.cut_reply_of("restore_slots", times=2)
        store.run(migration.restore_slots({"a": ["line=x"], "unknown": ["line=y"]}))
    assert client.smembers("expirebridge:lane:line=x") == {b"a"}
    assert not client.exists("expirebridge:lane:line=y")
    assert client.zscore("expirebridge:lanes", "line=x") == 1
    assert proxy.cuts == {"restore_slots": 2}


# A move


MOVE = (
    "begin_arrival", "begin_move", "read_arrivals", "pack_batch", "receive_batch", "drop_batch",
    "end_arrival", "open_lanes", "read_holds_and_weights", "receive_holds_and_weights",
)  # fmt: skip


@pytest.mark.parametrize("script", MOVE)
def test_what_a_mover_asks_is_done_once(proxy: Proxy, bridge: Bridge, script: str) -> None:
    for id in ("a", "b"):
        bridge.make_task("mail.send", [1], HOUR, id=id)
    bridge.hold(func="other.call")
    old, new = Settings(url=proxy.url), Settings(url=f"{proxy.url[:-1]}3")
    with contextlib.closing(store_of(old)) as source, contextlib.closing(store_of(new)) as target:
        mover = Migrator(source, target, old, new)
        proxy.cut_reply_of(script, times=2)
        mover.begin()
        assert mover.run()
        assert mover.moved.tasks == 2 or script == "receive_batch"
        assert target.run(looking.count(10)).pending == 2
        assert source.run(looking.count(10)).pending == 0
        assert [hold.name for hold in target.run(list_holds())] == ["func other.call"]
    assert proxy.cuts == {script: 2}


def test_every_script_is_cut_off_somewhere_above() -> None:
    producers = {call.script for call in (CHANGES | READS).values()} | {
        "make_drawn",
        "make_drawn_many",
        "purge",
        "note_action",
        "note_durations",
        "note_import",
        "mark_partition",
        "create_partitions",
        "reseal",
        "read_partitions",
    }
    every = producers | set(LISTENER) | set(OPERATORS) | set(SERIES) | set(LEDGER) | set(GROUPS)
    every |= {"read_groups", "restore_group", "restore_slots", *MOVE, *EARLY}
    assert every == set(NAMES)
