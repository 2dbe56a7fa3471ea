"""What belongs together and was torn apart: whichever half is left is found, and told of."""

import pytest
import redis

from expirebridge import AsyncBridge, State
from expirebridge.hooks import End
from expirebridge.listener.partition.reconciler import key_event_of
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import looking, producing, reconciling
from tests.kit.steps import beating, claim, new, server_ms, state_of
from tests.kit.witness import Witness, listening, logged

pytestmark = pytest.mark.servers("oldest")

HOUR = 3_600_000


async def note() -> None: ...


def scan(store: Store) -> reconciling.ScanStep:
    return store.run(reconciling.scan("0", 1000, Settings()))


async def test_a_pending_record_without_a_place_runs(
    settings: Settings,
    async_bridge: AsyncBridge,
    client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await async_bridge.make_task("test.note", [], 0, id="stray")
    client.zrem("expirebridge:pending", "stray")
    witness = Witness()
    async with listening(settings, witness, note=note):
        await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended(2, End.SUCCEEDED)
    assert "task stray was in no state set" in caplog.text


def test_a_pending_record_without_a_place_is_due_when_its_key_expires(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a", HOUR)]))
    client.delete("expirebridge:pending", "a:?mail.send?[1]")
    hint = key_event_of(b"a:?mail.send?[1]", reconciling.EventKind.EXPIRED)
    assert hint is not None
    assert store.run(reconciling.adopt([hint], Settings())) == [reconciling.Adoption.KNOWN]
    assert [task.id for task in claim(store).tasks] == ["a"]


def test_a_record_whose_key_still_ticks_gets_its_place_at_that_time(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a", HOUR)]))
    score = client.zscore("expirebridge:pending", "a")
    client.delete("expirebridge:pending")
    assert scan(store).repaired == ["a"]
    assert client.zscore("expirebridge:pending", "a") == score
    assert scan(store).repaired == []


@pytest.mark.parametrize("state", ["paused", "running", "succeeded", "failed", "cancelled"])
def test_a_record_without_a_place_gets_one_in_the_set_of_its_state(
    store: Store, client: redis.Redis, state: str
) -> None:
    store.run(producing.make([new("a", HOUR)]))
    client.delete("expirebridge:pending", "a:?mail.send?[1]")
    client.hset("expirebridge:task:a", "state", state)
    assert scan(store).repaired == ["a"]
    assert state_of(store, "a") == state
    score = client.zscore(f"expirebridge:{state}", "a")
    assert score is not None
    assert score > server_ms(client)  # nobody is hurried: its holder may still beat


def test_a_running_record_without_a_place_lapses_and_runs(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a")]))
    claim(store)
    beating(store)
    client.delete("expirebridge:running")
    store.run(reconciling.scan("0", 1000, Settings(lease=0.5)))
    client.zincrby("expirebridge:running", -HOUR, "a")
    assert store.run(reconciling.sweep(Settings())).lapsed == ["a"]
    assert [task.id for task in claim(store).tasks] == ["a"]


@pytest.mark.parametrize("wrong", ["text", "without a call", "in a state that is none"])
def test_what_stands_in_no_set_and_is_no_record_is_kept_as_failed(
    store: Store, client: redis.Redis, wrong: str
) -> None:
    match wrong:
        case "text":
            client.set("expirebridge:task:a", "what")
            reason = "the record held a string without a call"
        case "without a call":
            client.hset("expirebridge:task:a", "made", 1)
            reason = "the record held a hash without a call"
        case _:
            client.hset("expirebridge:task:a", mapping={"call": "f.g?[]", "state": "odd"})
            reason = "its record named the state odd"
    assert scan(store).repaired == ["a"]
    task = store.run(looking.get("a"))
    assert task is not None
    assert (task.state, task.error) == (State.FAILED, reason)
    assert scan(store).repaired == []


def test_a_name_that_is_no_id_is_left_alone(store: Store, client: redis.Redis) -> None:
    for id in (b"", b"a b", b"\xff"):
        client.set(b"expirebridge:task:" + id, "what")
    assert scan(store).repaired == []


async def test_a_key_without_its_record_runs_as_any_client_s(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    task = await async_bridge.make_task("test.note", [], 0.5)
    client.delete(f"expirebridge:task:{task.id}")
    witness = Witness()
    async with listening(settings, witness, note=note):
        [ended] = await witness.until_ended(end=End.SUCCEEDED)
    assert ended.task.id == task.id


async def test_a_task_whose_key_was_deleted_unheard_runs_when_it_is_due(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    task = await async_bridge.make_task("test.note", [], 0.3)
    client.delete(task.key)
    witness = Witness()
    async with listening(settings, witness, note=note):
        [ended] = await witness.until_ended(end=End.SUCCEEDED)
        found = await async_bridge.get(task.id)
    assert ended.task.due == task.due
    assert found is not None
    assert found.started is not None
    assert found.started >= task.due


async def test_an_id_without_a_record_is_told_of_once(
    settings: Settings,
    async_bridge: AsyncBridge,
    client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:
    witness = Witness()
    client.zadd("expirebridge:pending", {"nobody": 1})
    async with listening(settings, witness, note=note):
        await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended(end=End.SUCCEEDED)
        await logged("task 'nobody' cannot run: its record is missing or broken", caplog)
    assert client.zscore("expirebridge:pending", "nobody") is None
    assert caplog.text.count("nobody") == 1
