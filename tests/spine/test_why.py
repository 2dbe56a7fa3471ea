"""Why a task has not run: each reason, as a bridge gives it."""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, InvalidTask, Reason, State, Then
from expirebridge.checks.finding import Level
from expirebridge.fleet.checks import check_functions
from expirebridge.hooks import End
from expirebridge.ledger.calls import MOST_DIRTY
from expirebridge.limits.calls import declare_limits
from expirebridge.sealing.checks import check_opened
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, fleet, reconciling
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.calls.fleet import digest_of
from expirebridge.task.task import from_ms
from tests.kit.colours import Ask, asking_one
from tests.kit.private_keys import K1
from tests.kit.steps import PREFIX, age, claim, server_ms, settle
from tests.kit.witness import Witness, listening
from tests.machine import world

pytestmark = pytest.mark.servers("oldest")

AT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
IN_AN_HOUR = rf"in (1h|59m \d+s) \(at {AT}\)"
AGO = r"\d+(ms|s)"
CRASH = "Traceback (most recent call last):\n  ...\nValueError: no such address"


@pytest.fixture(params=[pytest.param(Bridge, marks=pytest.mark.rest), AsyncBridge])
async def ask(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Ask]:
    async with asking_one(request.param(url, unknown="off")) as ask:
        yield ask


@pytest.fixture
def check(ask: Ask) -> Ask:
    """Ask why about the task `a`, or another; check code, text and remedy; return the reason."""

    async def check(code: str, text: str, remedy: str = "", *, id: str = "a") -> Reason:
        reason: Reason = await ask("why", id)
        assert (reason.code, reason.remedy) == (code, remedy)
        assert re.fullmatch(text, reason.text), reason.text
        task = await ask("get", id)
        assert reason.state is task.state
        return reason

    return check


def beat(store: Store, *functions: str, concurrency: int = 10) -> None:
    """Beat as a listener with these functions."""
    shapes = dict.fromkeys(functions, "()")
    code = digest_of(shapes)
    words = f"{code} ={concurrency}"
    store.run(claiming.heartbeat("me", 10, [], code=words, functions=len(shapes)))
    store.run(fleet.declare(code, shapes))


def limit(store: Store, numbers: bytes, func: str = "mail.send") -> None:
    """Declare the limit `m` of a function, for each value of its argument `to`."""
    store.run(declare_limits("aa", [(f"f {func}", b'[["m",0,"to",null]]'), ("l m", numbers)]))


async def make_due(ask: Ask, *ids: str, **options: Any) -> None:
    """Make tasks that are due, for the same `to`."""
    for id in ids:
        await ask("make_task", "mail.send", [7], 0, id=id, **options)


# Pending, and not due.


async def test_a_task_that_is_not_due(ask: Ask, check: Ask) -> None:
    await ask("make_task", "mail.send", [7], "1h", id="a")
    reason = await check("scheduled", f"due {IN_AN_HOUR}", "expirebridge run a")
    assert reason.since == (await ask("get", "a")).created


async def test_a_client_put_it_off(ask: Ask, check: Ask, store: Store, client: redis.Redis) -> None:
    task = await ask("make_task", "mail.send", [7], 60, id="a")
    client.expire(task.key, 3600)
    text = f"a client set the TTL of its key: due {IN_AN_HOUR}"
    await check("put-off", text, "expirebridge run a")
    # The same once a listener has seen it.
    age(client, "pending", "a", 1)
    assert claim(store).tasks == []
    await check("put-off", text, "expirebridge run a")
    await ask("reschedule", "a", "1h")
    await check("scheduled", f"due {IN_AN_HOUR}", "expirebridge run a")


async def test_a_watched_task(ask: Ask, check: Ask) -> None:
    await ask("watch", "a", "mail.send", ttl="1h")
    text = f"it runs {IN_AN_HOUR}, unless a beat comes before"
    await check("watched", text, "expirebridge run a")
    await ask("beat", "a")
    await check("watched", text, "expirebridge run a")


async def test_a_client_took_its_ttl(ask: Ask, check: Ask, client: redis.Redis) -> None:
    task = await ask("make_task", "mail.send", [7], 60, id="a")
    client.persist(task.key)
    text = "a client took the TTL off its key: a listener pauses it when due"
    await check("no-ttl", text, "expirebridge run a")


async def test_an_attempt_failed_and_another_one_follows(
    ask: Ask, check: Ask, store: Store
) -> None:
    await make_due(ask, "a")
    claim(store)
    settle(store, Settlement("a", "t", "retry", 3600, CRASH))
    text = f"attempt 1 failed: ValueError: no such address; the next one is due {IN_AN_HOUR}"
    reason = await check("retry", text, "expirebridge run a")
    assert reason.since is not None


async def test_its_handler_put_it_off(ask: Ask, check: Ask, store: Store) -> None:
    await make_due(ask, "a")
    claim(store)
    settle(store, Settlement("a", "t", "snoozed", 3600, "not yet"))
    await check(
        "snoozed", f"its handler put it off: not yet; due {IN_AN_HOUR}", "expirebridge run a"
    )


async def test_no_listener_had_its_function(ask: Ask, check: Ask, store: Store) -> None:
    await make_due(ask, "a")
    claim(store)
    settle(store, Settlement("a", "t", "unknown", 3600, "unknown function"))
    again = f"; it is tried again {IN_AN_HOUR}"
    await check("no-listener", f"no listener sends heartbeats{again}", "expirebridge listen")
    remedy = "expirebridge handlers --fleet"
    beat(store, "mail.sent")
    missing = r"its function mail\.send is missing: no listener knows it"
    lack = rf"{missing} \(did you mean 'mail\.sent'\?\)"
    await check("unknown-function", lack + again, remedy)
    beat(store, "mail.send")
    await check("unknown-function", rf"no listener had mail\.send{again}", remedy)


class Compression:
    def encode(self, args: bytes, id: str) -> bytes:  # noqa: ARG002
        return zlib.compress(args)

    def decode(self, encoded: bytes, id: str) -> bytes:  # noqa: ARG002
        return zlib.decompress(encoded)


NO_KEY = "it is sealed with key k1, and there are no keys here (EXPIREBRIDGE_KEYS)"
NO_CODEC = "its arguments are encoded, and its listener has no codec (EXPIREBRIDGE_CODEC)"


@pytest.mark.parametrize(
    ("given", "code", "reason", "lacks", "remedy"),
    [
        ({"keys": K1}, "sealed", NO_KEY, "the key that opens them", "keys (EXPIREBRIDGE_KEYS)"),
        (
            {"codec": Compression()}, "not-decoded", NO_CODEC, "the codec that decodes them",
            "codec (EXPIREBRIDGE_CODEC)",
        ),
    ],
)  # fmt: skip
async def test_a_listener_lacked_its_key_or_codec(
    settings: Settings, store: Store, given: dict[str, Any], code: str, reason: str, lacks: str,
    remedy: str,
) -> None:  # fmt: skip
    async def send(to: str) -> None: ...

    witness = Witness()
    async with listening(settings, witness, send=send), AsyncBridge(settings.url) as bridge:
        async with AsyncBridge(settings.url, **given) as other:
            await other.make_task("test.send", ["x" * 70_000 if code == "not-decoded" else "x"], 0,
                                  id="a")  # fmt: skip
        await witness.until_ended(1, End.RELEASED)
        why = await bridge.why("a")
        functions = await asyncio.to_thread(store.run, check_functions(settings.lease))
        arguments = await asyncio.to_thread(store.run, check_opened())
    assert why is not None
    assert (why.code, why.remedy) == (code, "expirebridge doctor")
    again = rf"; it is tried again in \d+s \(at {AT}\)"
    assert re.fullmatch(rf"no listener opened it: {re.escape(reason)}{again}", why.text), why.text
    assert functions.level is Level.OK
    assert arguments is not None
    assert arguments.message == (
        f"1 task waits, because a listener lacks {lacks}: test.send (1); each fails after 24 h"
    )
    assert f"{remedy}, and restart" in arguments.remedy


def test_no_task_waits_for_a_key_or_a_codec(store: Store) -> None:
    assert store.run(check_opened()) is None


# Pending, and due.


async def test_no_listener_beats(ask: Ask, check: Ask) -> None:
    task = await ask("make_task", "mail.send", [7], 0, id="a")
    text = f"due for {AGO}, but no listener sends heartbeats"
    reason = await check("no-listener", text, "expirebridge listen")
    assert reason.since == task.due


async def test_no_listener_has_its_function(ask: Ask, check: Ask, store: Store) -> None:
    await make_due(ask, "a")
    beat(store, "orders.rate")
    text = rf"due for {AGO}, but its function mail\.send is missing: no listener knows it"
    await check("unknown-function", text, "expirebridge handlers --fleet")


async def test_the_listeners_are_full(ask: Ask, check: Ask, store: Store) -> None:
    await make_due(ask, "x", "y")
    claim(store)
    await make_due(ask, "a")
    beat(store, "mail.send", concurrency=2)
    text = f"due for {AGO}, but the listeners are full: 2 tasks run, of at most 2"
    await check("full", text, "expirebridge listen")


async def test_others_are_due_before_it(
    ask: Ask, check: Ask, store: Store, client: redis.Redis
) -> None:
    await make_due(ask, "x", "y", "a")
    for place, id in enumerate(("x", "y", "a")):
        age(client, "pending", id, 9 - place)
    beat(store, "mail.send")
    text = f"due for {AGO}, but 2 tasks are due before it"
    await check("behind", text, "expirebridge doctor")
    assert (await ask("why", "y")).text.endswith("1 task is due before it")
    text = f"due for {AGO}, but no listener has claimed it yet"
    await check("due", text, "expirebridge doctor", id="x")


async def test_listeners_died_with_it(
    ask: Ask, check: Ask, store: Store, client: redis.Redis
) -> None:
    await make_due(ask, "a")
    client.hset(f"{PREFIX}:task:a", "lapses", 2)
    beat(store, "mail.send")
    text = f"due for {AGO}, but 2 listeners died with it: it runs when one has nothing else to do"
    await check("alone", text, "expirebridge show a")


async def test_it_was_granted_a_slot(ask: Ask, check: Ask, store: Store) -> None:
    limit(store, b'{"most":1}')
    await make_due(ask, "x")
    claim(store)
    await make_due(ask, "a")
    assert claim(store, "u").parked == 1
    settle(store, Settlement("x", "t", "succeeded"))
    beat(store, "mail.send")
    text = f"due for {AGO}, but it has its slot, and a listener is about to claim it"
    await check("granted", text)


async def test_its_ledger_must_catch_up(
    ask: Ask, check: Ask, store: Store, client: redis.Redis
) -> None:
    await make_due(ask, "a")
    client.hset(f"{PREFIX}:meta", "features", "ledger")
    client.hset(f"{PREFIX}:task:a", "ledger", "1 1")
    beat(store, "mail.send")
    text = "it is of a ledger: a listener that has it must first relay what was committed"
    await check("ledger", f"due for {AGO}, but {text}", "expirebridge ledger status")
    add = "for n = 1, ARGV[1] do redis.call('ZADD', KEYS[1], 1, 'r' .. n) end"
    client.eval(add, 1, f"{PREFIX}:dirty", MOST_DIRTY + 1000)
    text = "its ledger must first write 101,000 rows"
    await check("ledger", f"due for {AGO}, but {text}", "expirebridge ledger status")


# Waiting.


async def test_it_waits_for_a_slot(ask: Ask, check: Ask, store: Store, client: redis.Redis) -> None:
    limit(store, b'{"most":1}')
    await make_due(ask, "x")
    claim(store)
    before = server_ms(client)
    await make_due(ask, "a")
    claim(store, "u")
    text = r"waits for a slot of m=7: 1 of 1 taken, 1st in line; taken by x \(running\)"
    reason = await check("slot", text, "expirebridge limits")
    assert reason.since is not None
    assert from_ms(before) <= reason.since <= from_ms(server_ms(client))


async def test_at_most_three_that_have_a_slot_are_named(ask: Ask, check: Ask, store: Store) -> None:
    limit(store, b'{"most":5}')
    await make_due(ask, *"vwxyz")
    claim(store)
    await make_due(ask, "a")
    claim(store, "u")
    shown = ", ".join([r"[v-z] \(running\)"] * 3)
    text = f"waits for a slot of m=7: 5 of 5 taken, 1st in line; taken by {shown} and others"
    await check("slot", text, "expirebridge limits")


async def test_an_ordered_lane_waits_for_a_retry(ask: Ask, check: Ask, store: Store) -> None:
    limit(store, b'{"most":1,"ordered":true,"blocks":true}')
    await make_due(ask, "x")
    claim(store)
    settle(store, Settlement("x", "t", "retry", 60, CRASH))
    await make_due(ask, "a")
    claim(store, "u")
    text = r"waits for a slot of m=7: 1 of 1 taken, 1st in line; taken by x \(pending\)"
    await check("slot", text, "expirebridge limits")


async def test_a_failed_task_lets_nobody_pass(ask: Ask, check: Ask, store: Store) -> None:
    limit(store, b'{"most":1,"ordered":true,"blocks":true}')
    await make_due(ask, "x")
    claim(store)
    settle(store, Settlement("x", "t", "failed", 0, CRASH))
    await make_due(ask, "a")
    claim(store, "u")
    text = "waits for a slot of m=7: 1 of 1 taken, 1st in line; x failed, and lets nobody pass"
    await check("blocked", text, "expirebridge let-pass x")
    text = f"failed {AGO} ago: ValueError: no such address; it lets nobody of its lane pass"
    await check("failed", text, "expirebridge run x", id="x")
    await ask("let_pass", "x")
    assert (await ask("why", "a")).state is State.PENDING


async def test_it_waits_for_a_start_of_a_rate(ask: Ask, check: Ask, store: Store) -> None:
    # Ten starts an hour, two at once.
    limit(store, b'{"starts":1,"every":360000000,"burst":2}')
    await make_due(ask, "x", "y")
    assert len(claim(store).tasks) == 2
    await make_due(ask, "a", "b")
    assert claim(store, "u").parked == 2
    place = r"waits for a start of m=7: one start every 6m, 2 at once"
    first, second = rf"in (6m|5m \d+s) \(at {AT}\)", rf"in (12m|11m \d+s) \(at {AT}\)"
    # The first one was granted the next start, and is pending for that time.
    await check("rate", f"{place}; its start is due {first}", "expirebridge limits")
    text = f"{place}, 1st in line; its start is due {second}"
    await check("rate", text, "expirebridge limits", id="b")


async def test_its_rate_rests_after_busy(ask: Ask, check: Ask, store: Store) -> None:
    limit(store, b'{"starts":1,"every":1000,"burst":2}')
    await make_due(ask, "x")
    claim(store)
    settle(store, Settlement("x", "t", "busy", 3600, "429", "m"))
    await make_due(ask, "a")
    claim(store, "u")
    place = "waits for a start of m=7: one start every 1ms, 2 at once"
    rest = f"the lane rests until {AT}; its start is due {IN_AN_HOUR}"
    await check("rests", f"{place}; {rest}", "expirebridge limits")


async def test_the_start_of_a_budget_is_the_one_that_it_tells(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    entry = b'[["m",0,"to",null,null,null,null,1,"tokens",null]]'
    numbers = b'{"starts":3600,"every":3600000000,"of":"tokens"}'
    store.run(declare_limits("aa", [("f mail.send", entry), ("l m", numbers)]))
    for id, cost in (("0", 3000), ("a", 1000), ("b", 1500), ("c", 20)):
        await ask("make_task", "mail.send", [7, cost], 0, id=id)
    assert [task.id for task in claim(store, "t").tasks] == ["0"]
    claim(store, "u")
    told = [(await ask("why", id)).text for id in ("a", "b", "c")]
    place = "waits for a start of m=7: 3,600 tokens in 1h"
    assert [text.partition(";")[0] for text in told] == [
        place, f"{place}, 1st in line", f"{place}, 2nd in line"
    ]  # fmt: skip
    # A second for each token.
    now, passed = server_ms(client) / 1000, 0.0
    for text, id, least in zip(told, "abc", (390, 1890, 1910), strict=True):
        [start] = re.findall(rf"\(at ({AT})\)", text)
        left = (
            datetime.strptime(start, "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC).timestamp() - now
        )
        assert least <= left <= least + 12
        world.age(client, left - 5 - passed)
        assert claim(store, f"{id}1").tasks == []
        world.age(client, 10)
        assert [task.id for task in claim(store, f"{id}2").tasks] == [id]
        passed = left + 5


async def test_its_limit_is_not_declared(
    ask: Ask, check: Ask, store: Store, client: redis.Redis
) -> None:
    limit(store, b'{"most":1}')
    await make_due(ask, "x")
    claim(store)
    await make_due(ask, "a")
    claim(store, "u")
    client.hdel(f"{PREFIX}:limits", "l m")
    text = "waits for a slot of m=7: its limit is not declared, 1st in line"
    await check("undeclared", text, "expirebridge limits")


async def test_it_is_on_hold(ask: Ask, check: Ask, store: Store, client: redis.Redis) -> None:
    until = from_ms(server_ms(client)) + timedelta(hours=1)
    await ask("hold", tag="customer-9", reason="moving house", by="ann", until=until)
    await make_due(ask, "a", tags=["customer-9"])
    claim(store)
    text = f"on hold: tag customer-9, until {AT}, by ann: moving house, 1st in line"
    await check("hold", text, "expirebridge release --tag customer-9")
    # Until a listener sees it, a release by another client has no effect.
    client.hdel(f"{PREFIX}:holds", "tag customer-9")
    await check("released", "the hold of tag customer-9 has ended: it is let go soon")
    store.run(reconciling.sweep(Settings()))
    assert (await ask("why", "a")).state is State.PENDING


async def test_all_tasks_are_on_hold(ask: Ask, check: Ask, store: Store) -> None:
    await ask("hold", all=True, reason="the database is down", by="ann")
    await make_due(ask, "a")
    claim(store)
    text = "on hold: all, by ann: the database is down, 1st in line"
    await check("hold", text, "expirebridge release --all")


# Paused, running, finished.


async def test_it_is_paused(ask: Ask, check: Ask, client: redis.Redis) -> None:
    await ask("make_task", "mail.send", [7], "1h", id="a")
    before = server_ms(client)
    await ask("pause", "a")
    text = r"paused, (1h|59m \d+s) before it is due"
    reason = await check("paused", text, "expirebridge resume a")
    assert reason.since is not None
    assert from_ms(before) <= reason.since <= from_ms(server_ms(client))


async def test_a_follow_up_waits_for_its_group(ask: Ask, check: Ask, store: Store) -> None:
    member = {"func": "mail.send", "args": [7], "delay": 0}
    made = await ask("make_group", "a", [], then=Then("mail.report"), close=False)
    text = "waits for group a: 0 of 0 members left; it is open"
    reason = await check("group", text, "expirebridge groups close a", id="a@then")
    assert reason.since == made.created
    await ask("make_tasks", [member, member], group="a")
    text = "waits for group a: 2 of 2 members left; it is open"
    await check("group", text, "expirebridge groups show a", id="a@then")
    claim(store)
    settle(store, Settlement("a@g0", "t", "failed"))
    await ask("close_group", "a")
    text = "waits for group a: 2 of 2 members left, 1 failed"
    await check("group", text, "expirebridge groups show a", id="a@then")
    settle(store, Settlement("a@g1", "t", "succeeded"))
    text = "waits for group a: 1 of 2 members left, 1 failed; only failed ones are left"
    remedy = "expirebridge failed retry --group a"
    await check("group", text, remedy, id="a@then")
    await ask("purge_failed", ["a@g0"])
    await ask("reschedule", "a@then", "1h")
    await ask("pause", "a@then")
    text = r"paused, (1h|59m \d+s) before it is due"
    await check("paused", text, "expirebridge resume a@then", id="a@then")


async def test_it_runs(ask: Ask, check: Ask, store: Store, client: redis.Redis) -> None:
    await make_due(ask, "a")
    claim(store)
    reason = await check("running", f"runs for {AGO}, in attempt 1")
    assert reason.since == (await ask("get", "a")).started
    age(client, "running", "a", 1)
    text = f"runs for {AGO}, in attempt 1; its listener is silent: another one takes it over"
    await check("silent", text, "expirebridge doctor")


async def test_it_runs_for_longer_than_its_timeout(
    ask: Ask, check: Ask, store: Store, client: redis.Redis
) -> None:
    await make_due(ask, "a", timeout=30)
    claim(store)
    client.hset(f"{PREFIX}:task:a", "started", server_ms(client) - 40_000)
    text = "runs for 40s, in attempt 1; its timeout of 30s has passed"
    await check("late", text, "expirebridge cancel a")


async def test_it_was_cancelled_while_it_runs(ask: Ask, check: Ask, store: Store) -> None:
    await make_due(ask, "a")
    claim(store)
    await ask("cancel", "a")
    text = f"runs for {AGO}, in attempt 1; it was cancelled: no further attempt follows"
    await check("cancelling", text)


async def test_it_has_ended(ask: Ask, check: Ask, store: Store) -> None:
    await make_due(ask, "a", "b", "c")
    await ask("cancel", "c")
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"), Settlement("b", "t", "failed", 0, CRASH))
    reason = await check("succeeded", f"succeeded {AGO} ago, in attempt 1")
    assert reason.since == (await ask("get", "a")).ended
    text = f"failed {AGO} ago: ValueError: no such address"
    await check("failed", text, "expirebridge run b", id="b")
    text = f"cancelled {AGO} ago, by request"
    await check("cancelled", text, "expirebridge run c", id="c")


async def test_a_tick_was_missed(ask: Ask, check: Ask, store: Store, client: redis.Redis) -> None:
    await make_due(ask, "a")
    await ask("cancel", "a")
    client.hset(f"{PREFIX}:task:a", "error", "missed: the next tick was due")
    text = f"cancelled {AGO} ago: missed: the next tick was due"
    await check("cancelled", text, "expirebridge run a")


# No such task, and bad data.


async def test_there_is_no_such_task(ask: Ask) -> None:
    assert await ask("why", "a") is None
    with pytest.raises(InvalidTask):
        await ask("why", "not an id")


async def test_keys_of_a_lane_that_were_overwritten(
    ask: Ask, check: Ask, store: Store, client: redis.Redis
) -> None:
    limit(store, b'{"starts":1,"every":360000000}')
    await make_due(ask, "x", "y")
    claim(store)
    await make_due(ask, "a")
    claim(store, "u")
    for key in ("rates", "lane:m=7", "holds", "grants"):
        client.delete(f"{PREFIX}:{key}")
        client.set(f"{PREFIX}:{key}", "")
    text = r"waits for a start of m=7: one start every 6m, 1st in line; its start is due .*"
    await check("rate", text, "expirebridge limits")


def test_partitions_have_their_tasks(url: str) -> None:
    with Bridge(url) as bridge:
        bridge.create_partitions(4)
        for number in range(8):
            bridge.make_task("mail.send", [], 0, id=f"a{number}")
            reason = bridge.why(f"a{number}")
            assert reason is not None
            assert reason.code == "no-listener"
