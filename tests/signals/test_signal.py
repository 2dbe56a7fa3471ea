"""Signals: of two functions exactly one runs, that of the deadline or that of the signal."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from expirebridge import (
    AsyncBridge,
    Bridge,
    Change,
    InvalidTask,
    Outcome,
    State,
    TaskDiffers,
    current_task,
)
from expirebridge.hooks import End
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import reconciling
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.calls.reconciling import Adoption, EventKind, KeyEvent
from tests.kit.colours import Ask, asking_one
from tests.kit.steps import claim, settle
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")


@pytest.fixture(params=[Bridge, AsyncBridge])
async def ask(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Ask]:
    async with asking_one(request.param(url)) as ask:
        yield ask


def make(bridge: Bridge, id: str = "pay-42", delay: str = "15m", **options: Any) -> None:
    bridge.make_task("orders.cancel", [42], delay, id=id, **{"on_signal": "orders.ship", **options})


def taken(store: Store) -> Mapping[str, str]:
    """What a claim takes: the function of each."""
    return {task.id: task.func for task in claim(store).tasks}


async def test_a_signal_runs_the_other_function_with_the_payload(settings: Settings) -> None:
    ran: list[tuple[str, Any]] = []

    def ship(order: int) -> None:
        signal = current_task().signal
        assert signal is not None
        ran.append((f"ship {order}", (signal.payload, signal.by, signal.instead_of)))

    def cancel(order: int) -> None:
        ran.append((f"cancel {order}", current_task().signal))

    witness = Witness()
    async with (
        listening(settings, witness, ship=ship, cancel=cancel),
        AsyncBridge(settings.url) as bridge,
    ):
        await bridge.make_task("test.cancel", [42], "15m", id="a", on_signal="test.ship")
        assert await bridge.signal("a", {"ref": 7}, by="psp") is Change.SIGNALLED
        await witness.until_ended(1, End.SUCCEEDED)
        await bridge.make_task("test.cancel", [43], "50ms", id="b", on_signal="test.ship")
        await witness.until_ended(2, End.SUCCEEDED)
        assert await bridge.signal("b") is Change.FINISHED
    assert ran == [("ship 42", ({"ref": 7}, "psp", "test.cancel")), ("cancel 43", None)]


async def test_a_task_tells_what_it_waits_for_and_what_came(ask: Ask) -> None:
    made = await ask("make_task", "orders.cancel", [42], "15m", id="a", on_signal="orders.ship")
    assert (made.func, made.on_signal) == ("orders.cancel", "orders.ship")
    waits = await ask("get", "a")
    assert (waits.func, waits.on_signal, waits.signal) == ("orders.cancel", "orders.ship", None)
    assert await ask("signal", "a", [1], by="psp") is Change.SIGNALLED
    came = await ask("get", "a")
    assert (came.func, came.args, came.on_signal) == ("orders.ship", [42], None)
    assert (came.signal.payload, came.signal.by, came.signal.instead_of) == (
        [1], "psp", "orders.cancel"
    )  # fmt: skip
    assert [entry.what for entry in came.history] == ["created", "signal"]


def test_the_old_key_is_gone(bridge: Bridge, client: redis.Redis, store: Store) -> None:
    make(bridge)
    assert client.exists("pay-42:?orders.cancel?[42]") == 1
    bridge.signal("pay-42")
    assert client.keys("pay-42*") == []
    assert taken(store) == {"pay-42": "orders.ship"}


def test_the_first_claim_decides_against_it(bridge: Bridge, store: Store) -> None:
    make(bridge, delay="0s")
    assert taken(store) == {"pay-42": "orders.cancel"}
    assert bridge.signal("pay-42") is Change.RUNNING
    [_] = settle(store, Settlement("pay-42", "t", "retry", 60.0, "it failed"))
    assert bridge.signal("pay-42") is Change.BEGUN
    bridge.run_now("pay-42")
    assert taken(store) == {"pay-42": "orders.cancel"}
    settle(store, Settlement("pay-42", "t", "succeeded"))
    assert bridge.signal("pay-42") is Change.FINISHED
    bridge.run_now("pay-42")
    assert bridge.signal("pay-42") is Change.BEGUN


def test_a_claim_that_is_given_back_has_decided(bridge: Bridge, store: Store) -> None:
    make(bridge, delay="0s")
    claim(store)
    settle(store, Settlement("pay-42", "t", "unbegun", 0.0, "its listener stops"))
    assert bridge.signal("pay-42") is Change.BEGUN


def test_a_cancelled_one_that_runs_again_has_its_deadline(bridge: Bridge, store: Store) -> None:
    make(bridge)
    bridge.cancel("pay-42")
    assert bridge.signal("pay-42") is Change.FINISHED
    bridge.run_now("pay-42")
    assert bridge.signal("pay-42") is Change.BEGUN
    assert taken(store) == {"pay-42": "orders.cancel"}


def test_what_was_signalled_stays_so_when_it_runs_again(bridge: Bridge, store: Store) -> None:
    make(bridge)
    bridge.signal("pay-42", {"ref": 7})
    bridge.cancel("pay-42")
    bridge.run_now("pay-42")
    [task] = claim(store).tasks
    assert (task.func, task.told["signal"]) == ("orders.ship", b'{"ref":7}')
    settle(store, Settlement("pay-42", "t", "succeeded"))
    bridge.run_now("pay-42")
    assert taken(store) == {"pay-42": "orders.ship"}


@pytest.mark.parametrize("end", ["pending", "running", "succeeded", "retry"])
def test_the_same_signal_has_its_first_answer_and_another_one_not(
    end: str, bridge: Bridge, store: Store
) -> None:
    make(bridge)
    assert bridge.signal("pay-42", {"ref": 7}, by="psp") is Change.SIGNALLED
    if end != "pending":
        claim(store)
    if end in {"succeeded", "retry"}:
        settle(store, Settlement("pay-42", "t", end))
    assert bridge.signal("pay-42", {"ref": 7}, by="psp") is Change.SIGNALLED
    assert bridge.signal("pay-42", {"ref": 8}, by="psp") is Change.SIGNALLED_BEFORE
    assert bridge.signal("pay-42", {"ref": 7}, by="else") is Change.SIGNALLED_BEFORE


def test_a_new_life_begins_anew(bridge: Bridge, store: Store) -> None:
    make(bridge)
    bridge.signal("pay-42")
    claim(store)
    settle(store, Settlement("pay-42", "t", "succeeded"))
    make(bridge)
    task = bridge.get("pay-42")
    assert task is not None
    assert (task.func, task.on_signal, task.signal) == ("orders.cancel", "orders.ship", None)
    assert bridge.signal("pay-42") is Change.SIGNALLED


def test_a_paused_one_stays_paused(bridge: Bridge, client: redis.Redis, store: Store) -> None:
    make(bridge)
    bridge.pause("pay-42")
    assert bridge.signal("pay-42") is Change.SIGNALLED
    assert client.ttl("pay-42:?orders.ship?[42]") == -1
    assert client.exists("pay-42:?orders.cancel?[42]") == 0
    assert taken(store) == {}
    bridge.resume("pay-42")
    assert taken(store) == {"pay-42": "orders.ship"}


def test_one_that_another_client_has_paused_stays_paused(
    bridge: Bridge, client: redis.Redis, store: Store
) -> None:
    make(bridge)
    client.persist("pay-42:?orders.cancel?[42]")
    assert bridge.signal("pay-42") is Change.SIGNALLED
    task = bridge.get("pay-42")
    assert task is not None
    assert (task.state, task.func) == (State.PAUSED, "orders.ship")
    assert taken(store) == {}


@pytest.mark.parametrize("event", [EventKind.LIVE, EventKind.EXPIRED, EventKind.DELETED])
def test_the_old_key_that_is_set_again_is_deleted(
    event: EventKind, bridge: Bridge, client: redis.Redis, store: Store
) -> None:
    make(bridge)
    bridge.signal("pay-42")
    name = b"pay-42:?orders.cancel?[42]"
    client.set(name, 0, px=60_000)
    assert store.run(reconciling.find_unexplained([name], event)) == {name}
    hint = KeyEvent(name, "pay-42", b"orders.cancel?[42]", event)
    assert store.run(reconciling.adopt([hint], Settings())) == [Adoption.KNOWN]
    assert client.exists(name) == 0
    assert client.keys("expirebridge:task:*") == [b"expirebridge:task:pay-42"]
    assert taken(store) == {"pay-42": "orders.ship"}


def test_a_signal_for_one_that_was_replaced_while_it_ran_is_for_its_successor(
    bridge: Bridge, store: Store
) -> None:
    make(bridge, delay="0s")
    claim(store)
    make(bridge, if_exists="replace")
    assert bridge.signal("pay-42", 7) is Change.SIGNALLED
    assert bridge.signal("pay-42", 7) is Change.SIGNALLED
    assert bridge.signal("pay-42", 8) is Change.SIGNALLED_BEFORE
    settle(store, Settlement("pay-42", "t", "succeeded"))
    assert bridge.signal("pay-42", 7) is Change.SIGNALLED
    assert taken(store) == {"pay-42": "orders.ship"}


def test_extending_one_that_was_signalled_keeps_it(bridge: Bridge, store: Store) -> None:
    make(bridge)
    bridge.signal("pay-42")
    make(bridge, if_exists="extend", delay="1h")
    assert taken(store) == {"pay-42": "orders.ship"}
    make(bridge, if_exists="extend", delay="1h")
    settle(store, Settlement("pay-42", "t", "succeeded"))
    make(bridge, if_exists="extend", delay="0s")
    assert taken(store) == {"pay-42": "orders.cancel"}


def test_one_without_it_is_not_awaited(bridge: Bridge, store: Store) -> None:
    bridge.make_task("mail.send", [1], "1h", id="a")
    assert bridge.signal("a") is Change.NOT_AWAITED
    assert bridge.signal("nobody") is Change.NOT_FOUND
    bridge.run_now("a")
    claim(store)
    assert bridge.signal("a") is Change.NOT_AWAITED


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"on_signal": "orders.cancel"}, "it is the function that runs at the deadline"),
        ({"on_signal": "ship"}, "^on_signal='ship': write module.function"),
        ({"on_signal": 7}, "^on_signal=7: give a handler, or its name"),
    ],
)
def test_what_cannot_be_awaited_is_refused(
    options: Mapping[str, Any], fault: str, bridge: Bridge
) -> None:
    with pytest.raises(InvalidTask, match=fault):
        make(bridge, **options)
    assert bridge.get("pay-42") is None


def test_a_payload_is_json_of_64_kib_at_most(bridge: Bridge) -> None:
    make(bridge)
    with pytest.raises(InvalidTask, match="payload: it has 65,537 bytes"):
        bridge.signal("pay-42", "x" * (64 * 1024 - 1))
    with pytest.raises(InvalidTask, match=r"^payload = \{1, 2\}: JSON has no set; pass list"):
        bridge.signal("pay-42", {1, 2})
    with pytest.raises(InvalidTask, match=r"^payload\['at'\] = .* pass value.isoformat\(\)$"):
        bridge.signal("pay-42", {"at": datetime.now(UTC)})
    with pytest.raises(InvalidTask, match=r"^payload: nested too deep"):
        bridge.signal("pay-42", deep())
    with pytest.raises(InvalidTask, match="by="):
        bridge.signal("pay-42", by="x" * 201)
    with pytest.raises(InvalidTask, match=r"^by=17: give text of at most 200 printable"):
        bridge.signal("pay-42", by=17)  # type: ignore[arg-type]
    assert bridge.signal("pay-42", "x" * (64 * 1024 - 2)) is Change.SIGNALLED


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(2000):
        value = [value]
    return value


def test_random_ids_can_be_signalled(bridge: Bridge, store: Store) -> None:
    one, two = bridge.make_tasks(
        [
            {"func": "orders.cancel", "args": [n], "delay": "1h", "on_signal": "orders.ship"}
            for n in (1, 2)
        ]
    )
    assert bridge.signal(one.id) is Change.SIGNALLED
    assert taken(store) == {one.id: "orders.ship"}
    assert bridge.signal(two.id) is Change.SIGNALLED


def test_the_first_of_a_database_may_be_a_successor(
    bridge: Bridge, client: redis.Redis, store: Store
) -> None:
    bridge.make_task("orders.cancel", [42], "0s", id="pay-42")
    claim(store)
    make(bridge, if_exists="replace")
    assert client.hget("expirebridge:meta", "features") == b"signals"
    bridge.signal("pay-42")
    kept = bridge.make_task(
        "orders.cancel", [42], "1h", id="pay-42", on_signal="orders.ship", if_exists="extend"
    )
    assert kept.outcome is Outcome.KEPT


def test_extending_one_that_waits_for_another_signal_is_refused(
    bridge: Bridge, store: Store
) -> None:
    bridge.make_task("orders.cancel", [42], "15m", id="plain")
    with pytest.raises(TaskDiffers):
        make(bridge, "plain", if_exists="extend")
    make(bridge)
    for other in ("orders.refund", None):
        with pytest.raises(TaskDiffers):
            make(bridge, if_exists="extend", on_signal=other)
    make(bridge, if_exists="extend", delay="0s")
    claim(store)
    settle(store, Settlement("pay-42", "t", "retry", 60.0, "it failed"))
    make(bridge, if_exists="extend", delay="0s")
    assert taken(store) == {"pay-42": "orders.cancel"}


def test_a_second_signal_of_nobody_is_for_the_successor(bridge: Bridge, store: Store) -> None:
    make(bridge)
    bridge.signal("pay-42")
    claim(store)
    make(bridge, if_exists="replace")
    assert bridge.signal("pay-42") is Change.SIGNALLED
    settle(store, Settlement("pay-42", "t", "succeeded"))
    assert taken(store) == {"pay-42": "orders.ship"}
