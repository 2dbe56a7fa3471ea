"""`Then`: a follow-up that is made exactly when its task succeeded."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from expirebridge import (
    AsyncBridge,
    Bridge,
    Change,
    Listener,
    Retry,
    ServerOutOfMemory,
    State,
    Then,
    current_task,
    handler,
)
from expirebridge.hooks import End, Made, Making
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, looking, producing
from expirebridge.task.calls.claiming import Settled, SettledThen, Settlement
from expirebridge.task.calls.producing import Obstacle
from expirebridge.task.partitions import PartitionLayout
from expirebridge.testing import Clock, run_handler
from tests.kit.modules import forgotten, put
from tests.kit.private_keys import K1
from tests.kit.steps import claim, found, new, settle, state_of
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")


def test_success_and_follow_up_are_one_step(store: Store) -> None:
    store.run(producing.make([new("a")]))
    claim(store)
    followed = Settlement("a", "t", "succeeded", then=new("b", 60_000, fields={"after": "a"}))
    assert settle_then(store, followed) == [SettledThen(Settled.DONE)]
    assert state_of(store, "a") is State.SUCCEEDED
    first, second = read(store, "a"), read(store, "b")
    assert (first.then, second.after, second.state) == ("b", "a", State.PENDING)


def test_a_resend_makes_nothing_again(store: Store, bridge: Bridge, client: redis.Redis) -> None:
    store.run(producing.make([new("a")]))
    claim(store)
    followed = Settlement("a", "t", "succeeded", then=new("b", 60_000, has_random_id=True))
    settle_then(store, followed)
    before = read(store, "b").due
    assert settle_then(store, followed) == [SettledThen(Settled.DONE)]
    assert read(store, "b").due == before
    bridge.cancel("b")  # it may have run, and be forgotten, before the resend
    client.delete("expirebridge:task:b")
    client.zrem("expirebridge:cancelled", "b")
    assert settle_then(store, followed) == [SettledThen(Settled.DONE)]
    assert bridge.get("b") is None


def test_nothing_is_made_when_the_lease_has_lapsed(store: Store) -> None:
    store.run(producing.make([new("a")]))
    claim(store)
    followed = Settlement("a", "another", "succeeded", then=new("b"))
    assert settle_then(store, followed) == [SettledThen(Settled.REFUSED)]
    assert state_of(store, "a") is State.RUNNING
    assert state_of(store, "b") is None


@pytest.mark.parametrize(
    ("if_exists", "code"), [("reject", Obstacle.EXISTS), ("extend", Obstacle.DIFFERS)]
)
def test_neither_is_done_if_the_id_is_taken(store: Store, if_exists: str, code: Obstacle) -> None:
    store.run(producing.make([new("a"), new("b", 60_000)]))
    claim(store)
    then = new("b", 5_000, call=b"mail.other?[]", if_exists=if_exists)
    assert settle_then(store, Settlement("a", "t", "succeeded", then=then)) == [
        SettledThen(code, State.PENDING)
    ]
    assert state_of(store, "a") is State.RUNNING
    assert read(store, "b").func == "mail.send"


@pytest.mark.parametrize(
    ("if_exists", "due_in"), [("keep", 60.0), ("replace", 5.0), ("extend", 5.0)]
)
def test_an_unfinished_task_is_kept_replaced_or_extended(
    store: Store, if_exists: str, due_in: float
) -> None:
    store.run(producing.make([new("a"), new("b", 60_000)]))
    now = claim(store).now_us / 1e6
    then = new("b", 5_000, if_exists=if_exists)
    assert settle_then(store, Settlement("a", "t", "succeeded", then=then))[0].state is None
    assert read(store, "a").then == "b"
    assert read(store, "b").due.timestamp() - now == pytest.approx(due_in, abs=1)


@pytest.mark.parametrize("if_exists", ["replace", "extend"])
def test_a_task_can_have_itself_run_once_more(store: Store, if_exists: str) -> None:
    store.run(producing.make([new("a")]))
    claim(store)
    then = new("a", 60_000, if_exists=if_exists)
    assert settle_then(store, Settlement("a", "t", "succeeded", then=then))[0].state is None
    assert state_of(store, "a") is State.PENDING


def test_of_a_batch_each_sees_what_those_before_it_did(store: Store) -> None:
    store.run(producing.make([new("a"), new("b")]))
    claim(store)
    first = Settlement("a", "t", "succeeded", then=new("c"))
    second = Settlement("b", "t", "succeeded", then=new("a", 60_000))  # it has finished by now
    assert settle_then(store, first, second) == [SettledThen(Settled.DONE)] * 2
    assert state_of(store, "a") is State.PENDING
    assert state_of(store, "b") is State.SUCCEEDED


def test_it_is_made_on_a_full_server(store: Store, client: redis.Redis) -> None:
    """Redis 6.2 refuses both until there is memory again."""
    store.run(producing.make([new("a")]))
    claim(store)
    followed = Settlement("a", "t", "succeeded", then=new("b"))
    version = int(client.info("server")["redis_version"].split(".")[0])
    client.config_set("maxmemory", 1)
    try:
        if version < 7:
            with pytest.raises(ServerOutOfMemory, match="nothing was written"):
                settle_then(store, followed)
            assert (state_of(store, "a"), state_of(store, "b")) == (State.RUNNING, None)
            client.config_set("maxmemory", 0)
        assert settle_then(store, followed) == [SettledThen(Settled.DONE)]
    finally:
        client.config_set("maxmemory", 0)
    assert state_of(store, "b") is State.PENDING


async def test_handlers_of_each_kind_have_follow_ups(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    seen: list[Any] = []

    def plain(order: int) -> Then:
        return Then("test.last", [order, "plain"], tags=["x"])

    async def awaited(order: int) -> Then:
        return Then("test.last", kwargs={"order": order, "how": "awaited"})

    def last(order: int, how: str) -> None:
        seen.append((order, how, current_task().tags))

    async with listening(settings, witness, plain=plain, awaited=awaited, last=last):
        one = await async_bridge.make_task("test.plain", [1], 0)
        two = await async_bridge.make_task("test.awaited", [2], 0)
        await witness.until_ended(4)
    assert sorted(seen) == [(1, "plain", ("x",)), (2, "awaited", ())]
    for task in (one, two):
        first = await found(async_bridge, task)
        assert first.then is not None
        follow_up = await async_bridge.get(first.then)
        assert follow_up is not None
        assert (follow_up.after, follow_up.state) == (task.id, State.SUCCEEDED)


async def test_a_failed_attempt_makes_nothing_and_the_next_one_once(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    def charge() -> Then:
        if current_task().attempt == 1:
            raise Retry(0.01)
        return Then("test.close", delay="1d")

    async with listening(settings, witness, charge=charge):
        await async_bridge.make_task("test.charge", [], 0)
        ended = await witness.until_ended(2)
    assert [one.end for one in ended] == [End.RETRY, End.SUCCEEDED]
    assert (await async_bridge.count()).pending == 1


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda: Then("close", delay="1d"), "the Then that its handler returned: func='close'"),
        (lambda: Then("a.b", [{1}]), "the Then that its handler returned: args"),
        (lambda: Then("a.b", ["x" * 70_000]), "at most 65,536"),
        (lambda: Then("a.b", delay="soon"), "delay"),
        (lambda: Then("a.b", id="taken"), "exists and is pending"),
    ],
)
async def test_what_cannot_be_made_fails_the_attempt(
    settings: Settings, async_bridge: AsyncBridge, bad: Any, words: str
) -> None:
    witness = Witness()

    @handler(retry=[])
    def charge() -> Then:
        then: Then = bad()
        return then

    await async_bridge.make_task("a.b", [], "1d", id="taken")
    async with listening(settings, witness, charge=charge):
        task = await async_bridge.make_task("test.charge", [], 0)
        await witness.until_ended()
    failed = await found(async_bridge, task)
    assert failed.state is State.FAILED
    assert failed.error is not None
    assert words in failed.error
    assert (await async_bridge.count()).pending == 1


async def test_a_second_success_has_a_second_follow_up(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async with listening(settings, witness, charge=lambda: Then("test.close", [17], "1d")):
        task = await async_bridge.make_task("test.charge", [], 0)
        await witness.until_ended()
        first = (await found(async_bridge, task)).then
        assert await async_bridge.run_now(task.id) is Change.DUE_NOW
        await witness.until_ended()
    second = (await found(async_bridge, task)).then
    assert first != second
    assert (await async_bridge.count()).pending == 2


PROCESS_HANDLERS = """
from expirebridge import Then, handler

@handler(process=True)
def charge(order):
    return Then("work.close", [order])

@handler(process=True, retry=[])
def mistake():
    return Then("work.close", delay="soon")

def close(order):
    return order
"""


async def test_a_process_returns_one(
    settings: Settings, async_bridge: AsyncBridge, tmp_path: Path
) -> None:
    witness = Witness()
    put(tmp_path / "apart", "work.py", PROCESS_HANDLERS)
    settings = replace(settings, tasks=tmp_path / "apart")
    with forgotten(tmp_path):
        async with Listener(settings, hooks=[witness]):
            good = await async_bridge.make_task("work.charge", [17], 0)
            bad = await async_bridge.make_task("work.mistake", [], 0)
            await witness.until_ended(3)
    follow_up = await async_bridge.get((await found(async_bridge, good)).then or "")
    assert follow_up is not None
    assert (follow_up.result, follow_up.after) == (17, good.id)
    failed = await found(async_bridge, bad)
    assert failed.state is State.FAILED
    assert "the Then that its handler returned: delay='soon'" in (failed.error or "")


async def test_a_follow_up_is_in_the_partition_of_its_task(
    settings: Settings, bridge: Bridge, url: str
) -> None:
    witness = Witness()
    layout = PartitionLayout("expirebridge", bridge.create_partitions(4))

    def charge(id: str | None = None) -> Then:
        return Then("test.close", delay="1d", id=id)

    ids = [f"n{number}" for number in range(20)]
    elsewhere = next(id for id in ids if layout.partition_of(id) != layout.partition_of("n0"))
    async with listening(settings, witness, charge=handler(retry=[])(charge)):
        with Bridge(url) as whole:  # it knows how many there are
            for id in ids[1:]:
                whole.make_task("test.charge", [], 0, id=id)
            whole.make_task("test.charge", ["n0@close"], 0, id="n0")
            whole.make_task("test.charge", [elsewhere], 0, id="n0@1x")
            await witness.until_ended(21)
            for id in ids:
                then = read_by(whole, id).then
                assert layout.partition_of(then) == layout.partition_of(id)
                assert read_by(whole, then).after == id
            failed = read_by(whole, "n0@1x")
    assert failed.state is State.FAILED
    assert "it belongs to another partition" in failed.error
    assert "begin it with 'n0@'" in failed.error


async def test_its_arguments_are_sealed(settings: Settings, client: redis.Redis) -> None:
    witness = Witness()
    settings = replace(settings, keys=K1)

    def charge() -> Then:
        return Then("test.close", ["ann@example.com"])

    def close(to: str) -> None:
        assert to == "ann@example.com"

    async with (
        listening(settings, witness, charge=charge, close=close),
        AsyncBridge(settings.url, keys=K1) as bridge,
    ):
        await bridge.make_task("test.charge", [], 0)
        ended = await witness.until_ended(2)
    assert [one.end for one in ended] == [End.SUCCEEDED] * 2
    assert b"ann@example.com" not in b"".join(client.dump(key) or b"" for key in client.scan_iter())


async def test_hooks_and_traces_know_of_it(settings: Settings, async_bridge: AsyncBridge) -> None:
    events: list[Any] = []
    witness = Witness()

    def note(event: Any) -> None:
        if isinstance(event, Making):
            event.trace = f"trace of {event.func}"
        events.append(event)
        witness(event)

    def charge() -> Then:
        return Then("test.close", [5], "1d")

    async with listening(settings, note, charge=charge):
        task = await async_bridge.make_task("test.charge", [], 0)
        await witness.until(lambda: witness.seen(Made))
    [made] = witness.seen(Made)
    assert (made.task.func, made.task.args, made.task.after) == ("test.close", [5], task.id)
    follow_up = await async_bridge.get(made.task.id)
    assert follow_up is not None
    assert follow_up.trace == "trace of test.close"
    assert follow_up.key == made.task.key
    assert abs(follow_up.due - made.task.due) < timedelta(seconds=2)


async def test_without_traces_of_its_own_a_listener_passes_on_that_of_the_task(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    def set_trace(event: Any) -> None:
        if isinstance(event, Making):
            event.trace = "00-producer"

    async with (
        listening(settings, witness, charge=lambda: Then("test.close", [], "1d")),
        AsyncBridge(settings.url, hooks=[set_trace]) as traced,
    ):
        task = await traced.make_task("test.charge", [], 0)
        await witness.until_ended()
    follow_up = await async_bridge.get((await found(async_bridge, task)).then or "")
    assert follow_up is not None
    assert follow_up.trace == "00-producer"


def test_travel_makes_it_and_runs_it(url: str) -> None:
    def charge() -> Then:
        return Then("test.close", [5], "3d")

    def close(order: int) -> int:
        return order

    def clash() -> Then:
        return Then("test.close", [6], "1d", id="taken")

    handlers: dict[str, Any] = {
        "test.charge": charge,
        "test.close": close,
        "test.clash": handler(retry=[])(clash),
    }
    with Clock(url, handlers=handlers) as clock:
        clock.bridge.make_task("test.charge", [], "1h", id="a")
        clock.bridge.make_task("test.close", [7], "30d", id="taken")
        clock.bridge.make_task("test.clash", [], "1h", id="b")
        first, second, third = clock.travel("4d")
    assert first.then is not None
    assert (first.then.func, first.then.args, first.then.after) == ("test.close", [5], "a")
    assert (second.func, second.end) == ("test.clash", End.FAILED)
    assert "task 'taken' exists and is pending" in second.reason
    assert (third.task.id, third.result) == (first.then.id, 5)


def test_run_handler_shows_it() -> None:
    def charge(order: int) -> Then:
        return Then("test.close", [order], "3d", tags=["x"])

    ran = run_handler(charge, [5])
    assert ran.then is not None
    assert (ran.then.func, ran.then.args, ran.then.after) == ("test.close", [5], "test")
    assert ran.then.due - ran.at == timedelta(days=3)


def read_by(bridge: Bridge, id: str | None) -> Any:
    task = bridge.get(id or "")
    assert task is not None
    return task


def settle_then(store: Store, *settlements: Settlement) -> list[SettledThen]:
    return store.run(claiming.settle_then(settlements, Settings()))


def read(store: Store, id: str) -> Any:
    task = store.run(looking.get(id))
    assert task is not None
    return task


def test_plain_settlements_have_no_follow_up(store: Store) -> None:
    store.run(producing.make([new("a")]))
    claim(store)
    assert settle(store, Settlement("a", "t", "succeeded")) == [Settled.DONE]
    assert read(store, "a").then is None
