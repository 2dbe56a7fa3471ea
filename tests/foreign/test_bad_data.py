"""What another client may have done to the database stops no listener, and is shown."""

import asyncio
from collections.abc import Callable

import pytest
import redis

from expirebridge import AsyncBridge, Change, Discard, Retry, State
from expirebridge.hooks import End, Started
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, looking, producing, reconciling
from tests.kit.patience import PATIENCE
from tests.kit.steps import age, beating, claim, new, settle, state_of
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")

RECORD = "expirebridge:task:bad"

FIELDS = {
    "timeout": b"abc",
    "made": b"nan",
    "tags": b"\xff\xfe",
    "attempt": b"many",
    "lapses": b"none",
    "snoozes": b"some",
    "retry": b"[1e308]",
    "due": b"xyz",
    "call": b"\xff?\xfe",
    "result": b"{",
    "error": b"\xff",
    "started": b"-99999999999999999999",
    "misfire": b"[7]",
    "history": b"\xff 1 2 3 many\n\n",
    "first": b"never",
    "ttl": b"a while",
    "unknown": b"x",
    "rearm": b"garbage",
    "state": b"nonsense",
    "args": b"{",
}


async def test_a_record_with_a_broken_field_harms_no_other_task(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness = Witness()

    async def note() -> None: ...

    for field, broken in FIELDS.items():
        await async_bridge.make_task("test.note", [], 0, id=f"bad-{field}")
        client.hset(f"expirebridge:task:bad-{field}", field, broken)
    async with listening(settings, witness, note=note):
        good = await async_bridge.make_task("test.note", [], 0.02)
        await witness.until(lambda: [e for e in witness.ended() if e.task.id == good.id])
        assert len((await async_bridge.list()).tasks) >= 1
        for field in FIELDS:
            await async_bridge.get(f"bad-{field}")


async def test_a_score_beyond_all_times_harms_no_other_task(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness = Witness()

    async def note() -> None: ...

    for number, score in enumerate(("-inf", "-1e15", "1e308")):
        await async_bridge.make_task("test.note", [], 60, id=f"bad{number}")
        client.execute_command("ZADD", "expirebridge:pending", score, f"bad{number}")
        client.delete(f"bad{number}:?test.note?[]")
    async with listening(settings, witness, note=note):
        good = await async_bridge.make_task("test.note", [], 0)
        await witness.until(lambda: [e for e in witness.ended() if e.task.id == good.id])
        await async_bridge.list()


async def test_an_id_without_a_record_is_dropped_from_its_set(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness = Witness()

    async def note() -> None: ...

    ids = {
        state: [id + state.encode() for id in (b"\xff\xfe", b"a b", b"nobody")]
        for state in ("pending", "running", "paused", "succeeded")
    }

    def found() -> list[bytes]:
        return [id for state, some in ids.items() for id in some
                if client.zscore(f"expirebridge:{state}", id) is not None]  # fmt: skip

    for state, some in ids.items():
        client.zadd(f"expirebridge:{state}", dict.fromkeys(some, 1))
    assert len(found()) == 12
    async with listening(Settings(url=settings.url, lease=0.5), witness, note=note):
        await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended()
        async with asyncio.timeout(PATIENCE):
            while (await async_bridge.count()).running or found():  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # a sweep, each second, finds it


async def test_a_record_of_the_wrong_type_holds_up_nobody_s_settling(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness = Witness()
    go_on = asyncio.Event()

    async def wait() -> None:
        await go_on.wait()

    async with listening(settings, witness, wait=wait):
        await async_bridge.make_task("test.wait", [], 0, id="bad")
        await async_bridge.make_tasks([{"func": "test.wait", "delay": 0} for _ in range(9)])
        await witness.until(lambda: len(witness.seen(Started)) == 10)
        client.delete(RECORD)
        client.set(RECORD, "what")
        go_on.set()
        await witness.until_ended(10)
    assert len(witness.ended(End.SUCCEEDED)) == 9
    assert [event.task.id for event in witness.ended(End.REFUSED)] == ["bad"]


async def test_a_record_of_the_wrong_type_stops_no_start_and_no_foreign_task(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness = Witness()

    async def note() -> None: ...

    client.set(RECORD, "what")
    client.zadd("expirebridge:running", {"bad": 1})
    client.set("bad:?test.note?[]", "", px=3_600_000)
    client.set("good:?test.note?[]", "", px=500)
    async with listening(settings, witness, note=note):
        await witness.until_ended()
        assert witness.ended()[0].task.id == "good"
        await async_bridge.list()


def test_an_id_in_a_set_that_its_record_does_not_name_is_taken_out(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("waits", 60_000), new("lost")]))
    client.hset("expirebridge:task:lost", "state", "succeeded")
    beating(store)
    for state in ("running", "succeeded"):
        client.zadd(f"expirebridge:{state}", {"waits": 1})
    assert claim(store).tasks == []
    store.run(reconciling.sweep(Settings()))
    assert state_of(store, "waits") is State.PENDING
    assert client.zscore("expirebridge:running", "waits") is None
    assert client.zscore("expirebridge:succeeded", "waits") is None
    lost = store.run(looking.get("lost"))
    assert lost is not None
    assert (lost.state, lost.error) == (State.FAILED, "its record named the state succeeded")


def test_a_settlement_that_could_not_be_recorded_is_not_answered_as_done(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a")]))
    claim(store)
    client.hset("expirebridge:task:a", "rearm", "garbage")
    assert settle(store, claiming.Settlement("a", "t", "succeeded")) == [claiming.Settled.DONE]
    assert state_of(store, "a") is State.PENDING  # somebody wanted it once more: at once, then


@pytest.mark.parametrize(
    "packed",
    [
        b"garbage",
        b"\xc1",
        b"\x90",
        b"\x83\xa4call\xa3a?b\xa3due\x01\xa6fields\x91\xa1x",
        b"\x83\xa4call\xa3a?b\xa3due\x01\xa6fields\xdd" + (10_000).to_bytes(4) + b"\xa1x" * 10_000,
        b"\x83\xa4call\xa3a?b\xa3due\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00\xa6fields\x90",
    ],
    ids=["a number", "no MessagePack", "no task", "half a field", "too many fields", "no time"],
)
def test_what_shall_not_be_a_task_replaces_none(
    store: Store, client: redis.Redis, packed: bytes
) -> None:
    """Neither the settlement nor the sweep that meets it stops at it."""
    for id in ("settled", "lapsed"):
        store.run(producing.make([new(id)]))
        claim(store)
        client.hset(f"expirebridge:task:{id}", "next", packed)
    assert settle(store, claiming.Settlement("settled", "t", "succeeded")) == [
        claiming.Settled.DONE
    ]
    assert state_of(store, "settled") is State.SUCCEEDED
    beating(store)
    age(client, "running", "lapsed", 1)
    assert store.run(reconciling.sweep(Settings())).lapsed == ["lapsed"]
    assert state_of(store, "lapsed") is State.PENDING


def test_a_time_to_live_that_is_none_is_beaten_by_nobody(store: Store, client: redis.Redis) -> None:
    store.run(producing.make([new("a", 60_000, fields={"ttl": "a while"})]))
    assert store.run(producing.beat("a")) is Change.NOT_WATCHED
    assert client.pttl("a:?mail.send?[1]") > 50_000


def test_a_tag_set_that_was_overwritten_stops_no_forgetting(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a", fields={"tags": "x"})]))
    claim(store)
    settle(store, claiming.Settlement("a", "t", "succeeded"))
    client.set("expirebridge:tag:x", "what")
    age(client, "succeeded", "a", 1)
    assert store.run(reconciling.sweep(Settings())).forgotten == 1


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("raised", "end"),
    [
        (lambda: ValueError("\udcff"), End.FAILED),
        (lambda: Discard("\ud800"), End.FAILED),
        (lambda: Retry(0.01, reason="\udc80"), End.RETRY),
        (lambda: ExceptionGroup("\udcff", [ValueError("\udcff")]), End.FAILED),
        (Unprintable, End.FAILED),
        (lambda: SyntaxError("x", ("f", 1, 1, 5)), End.FAILED),  # type: ignore[arg-type]
        (lambda: ValueError("x" * 10_000_000), End.FAILED),
    ],
)
async def test_an_exception_that_is_hard_to_tell_ends_its_task_only(
    settings: Settings,
    async_bridge: AsyncBridge,
    raised: Callable[[], BaseException],
    end: End,
) -> None:
    witness = Witness()

    async def act() -> None:
        raise raised()

    async def note() -> None: ...

    async with listening(settings, witness, act=act, note=note):
        await async_bridge.make_task("test.act", [], 0, retry=[])
        await witness.until_ended()
        assert witness.ended()[0].end is end
        await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended(end=End.SUCCEEDED)
