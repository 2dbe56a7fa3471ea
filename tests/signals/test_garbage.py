"""What other clients write where signals are: it stops nobody, and is shown with its reason."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, Change, State, current_task
from expirebridge.hooks import End
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming
from tests.kit.steps import PREFIX
from tests.kit.witness import Witness, listening
from tests.signals.steps import end, make, read, taken

pytestmark = pytest.mark.servers("oldest")

RECORD = f"{PREFIX}:task:a"


@pytest.mark.parametrize(
    "garbage",
    [b"", b" ", b"ship", b"orders.ship now", b"orders.ship?[1]", b"?", b"\xff.\xff", b"x" * 300],
)  # fmt: skip
def test_what_is_no_function_is_not_awaited_and_the_deadline_counts(
    garbage: bytes, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    make(bridge)
    client.hset(RECORD, "on_signal", garbage)
    assert read(bridge).func == "orders.cancel"
    assert bridge.signal("a") is Change.NOT_AWAITED
    bridge.run_now("a")
    assert taken(store) == {"a": "orders.cancel"}
    end(store, "a")
    assert read(bridge).state is State.SUCCEEDED


@pytest.mark.parametrize("call", [b"orders.cancel", b"", b"?", b"orders.cancel?", b"\xff"])
def test_a_call_that_cannot_be_read_stops_no_signal(
    call: bytes, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    make(bridge)
    client.hset(RECORD, "call", call)
    assert bridge.signal("a") is Change.SIGNALLED
    assert taken(store) == {"a": "orders.ship"}
    read(bridge)


def overwrite_counts(client: redis.Redis) -> None:
    client.delete(f"{PREFIX}:signals")
    client.set(f"{PREFIX}:signals", "x")


def lose_meta(client: redis.Redis) -> None:
    client.delete(f"{PREFIX}:meta")


@pytest.mark.parametrize("break_it", [overwrite_counts, lose_meta])
@pytest.mark.parametrize("before", ["make", "signal", "claim"])
def test_a_key_that_another_client_overwrote_stops_nothing(
    break_it: Callable[[redis.Redis], None], before: str, bridge: Bridge, store: Store,
    client: redis.Redis,
) -> None:  # fmt: skip
    if before == "make":
        break_it(client)
    make(bridge)
    make(bridge, "b", "0s")
    if before == "signal":
        break_it(client)
    assert bridge.signal("a") is Change.SIGNALLED
    if before == "claim":
        break_it(client)
    assert taken(store) == {"a": "orders.ship", "b": "orders.cancel"}
    assert bridge.signal("b") is Change.RUNNING


FIELDS = {
    "signalled": [b"", b"now", b"1", b"1 2", b"-1 x y", b"9" * 40 + b" x y", b"\xff\xff \xff \xff"],
    "signal": [b"", b"{", b"\xff", b"sealed:k1:AAAA", b"sealed:", b"9" * 70],
    "lost": [b"", b"?", b"\xff", b"orders.cancel", b"a:?b?c"],
    "passed": [b"", b"?", b"\xff"],
}  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
async def test_garbage_in_a_field_stops_no_listener(
    field: str, settings: Settings, client: redis.Redis
) -> None:
    ran: list[Any] = []

    async def ship(number: int) -> None:
        ran.append((number, current_task().signal))

    async def cancel(number: int) -> None: ...

    witness, values = Witness(), FIELDS[field]
    async with AsyncBridge(settings.url) as bridge:
        for number, value in enumerate(values):
            await bridge.make_task(
                "test.cancel", [number], "1h", id=f"a{number}", on_signal="test.ship"
            )
            assert await bridge.signal(f"a{number}", {"ref": 7}, by="psp") is Change.SIGNALLED
            client.hset(f"{PREFIX}:task:a{number}", field, value)
            shown = await bridge.get(f"a{number}")
            assert shown is not None
            assert shown.func == "test.ship"
            again = await bridge.signal(f"a{number}", {"ref": 7}, by="psp")
            assert again in {Change.SIGNALLED, Change.SIGNALLED_BEFORE}
        async with listening(settings, witness, ship=ship, cancel=cancel):
            await bridge.make_task("test.cancel", [99], 0, id="behind")
            await witness.until_ended(len(values) + 1)
        assert {event.end for event in witness.ended()} <= {End.SUCCEEDED, End.RELEASED}


@pytest.mark.parametrize("how", ["retry", "released", "snoozed"])
def test_while_nobody_knows_of_signals_a_claim_decides_all_the_same(
    how: str, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    make(bridge, delay="0s")
    lose_meta(client)  # until the next heartbeat of a listener, or the next task
    assert taken(store) == {"a": "orders.cancel"}
    assert bridge.signal("a") is Change.RUNNING
    end(store, "a", how=how)
    assert bridge.signal("a") is Change.BEGUN
    bridge.run_now("a")
    assert taken(store) == {"a": "orders.cancel"}


def test_a_claim_that_was_given_back_then_has_decided(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    make(bridge, delay="0s")
    lose_meta(client)
    assert taken(store) == {"a": "orders.cancel"}
    end(store, "a", how="unbegun")
    assert bridge.signal("a") is Change.BEGUN
    assert taken(store) == {"a": "orders.cancel"}


def test_the_feature_is_known_again_although_the_notes_of_the_format_were_lost(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    make(bridge, "a", "0s")
    lose_meta(client)
    store.run(claiming.heartbeat("another", 10, [], code="c0de"))
    assert client.hget(f"{PREFIX}:meta", "features") == b"signals"
    assert taken(store) == {"a": "orders.cancel"}
    end(store, "a", how="retry")
    assert bridge.signal("a") is Change.BEGUN
