"""Sealed arguments, which both functions open, and sealed signals; and what edits leave of them."""

from collections.abc import Iterator
from dataclasses import replace
from secrets import token_hex
from typing import Any

import pytest
import redis

from expirebridge import (
    AsyncBridge,
    Bridge,
    Change,
    InvalidTask,
    State,
    TaskDiffers,
    Then,
    current_task,
)
from expirebridge.hooks import End
from expirebridge.limits.calls import declare_limits
from expirebridge.sealing.checks import check_keys
from expirebridge.sealing.resealing import Resealed, reseal
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, fleet
from expirebridge.task.calls.fleet import digest_of
from expirebridge.task.key_ring import KeyRing
from tests.kit.private_keys import K1, K2
from tests.kit.steps import PREFIX, found
from tests.kit.witness import Witness, listening
from tests.signals.codec import Compression
from tests.signals.steps import end, make, read, taken

pytestmark = pytest.mark.servers("oldest")

SECRET = f"{token_hex(8)}-name-of-a-customer"


@pytest.fixture
def sealed(url: str) -> Iterator[Bridge]:
    with Bridge(url, keys=K1) as bridge:
        yield bridge


def reseal_with(store: Store, keys: str) -> Resealed:
    return store.run(reseal(KeyRing(keys)))


def all_stored(client: redis.Redis) -> str:
    return str([(name, client.hgetall(name)) for name in client.scan_iter(f"{PREFIX}:task:*")])


async def ship(order: str) -> list[Any]:
    signal = current_task().signal
    assert signal is not None
    return [order, signal.payload, signal.by]


async def cancel(order: str) -> str:
    return f"cancelled {order}"


FUNCS: dict[str, Any] = {"func": "test.cancel", "on_signal": "test.ship"}


async def test_the_server_sees_neither_arguments_nor_what_the_signal_said(
    settings: Settings, client: redis.Redis
) -> None:
    settings = replace(settings, keys=K1)
    witness = Witness()
    async with (
        AsyncBridge(settings.url, keys=K1) as bridge,
        listening(settings, witness, ship=ship, cancel=cancel),
    ):
        for id in ("signalled", "passed"):
            await bridge.make_task("test.cancel", [SECRET], "1h", id=id, on_signal="test.ship")
        assert await bridge.signal("signalled", {"of": SECRET}, by="psp") is Change.SIGNALLED
        await bridge.run_now("passed")
        await witness.until_ended(2, End.SUCCEEDED)
        one, other = [await bridge.get(id) for id in ("signalled", "passed")]
        assert one is not None
        assert other is not None
        assert (one.result, other.result) == (
            [SECRET, {"of": SECRET}, "psp"], f"cancelled {SECRET}"
        )  # fmt: skip
        assert one.signal is not None
        assert (one.args, one.signal.payload) == ([SECRET], {"of": SECRET})
    assert SECRET not in all_stored(client)
    async with AsyncBridge(settings.url) as plain:
        task = await plain.get("signalled")
        assert task is not None
        assert task.signal is not None
        assert task.args == [task.signal.payload] == ["(sealed with key k1)"]


async def test_a_listener_without_the_key_of_a_signal_leaves_the_task_to_one_that_has_it(
    settings: Settings,
) -> None:
    witness = Witness()
    async with AsyncBridge(settings.url) as plain, AsyncBridge(settings.url, keys=K1) as bridge:
        async with listening(settings, witness, ship=ship, cancel=cancel):
            task = await plain.make_task("test.cancel", ["x"], "1h", on_signal="test.ship")
            await bridge.signal(task.id, SECRET)
            await witness.until_ended(1, End.RELEASED)
            read = await found(plain, task)
            assert (read.state, read.func, read.error) == (
                State.PENDING, "test.ship",
                "its signal: it is sealed with key k1, and there are no keys here "
                "(EXPIREBRIDGE_KEYS); tried again every 15 s, for a day",
            )  # fmt: skip
            assert await bridge.signal(task.id, SECRET) is Change.SIGNALLED
            assert await bridge.signal(task.id, "another") is Change.SIGNALLED_BEFORE
            reason = await bridge.why(task.id)
            assert reason is not None
            assert (reason.code, "its signal: it is sealed" in str(reason)) == ("sealed", True)
        async with listening(replace(settings, keys=K1), witness, ship=ship, cancel=cancel):
            await bridge.run_now(task.id)
            await witness.until_ended(1, End.SUCCEEDED)
            assert (await found(bridge, task)).result == ["x", SECRET, ""]


def test_a_signal_and_its_arguments_open_for_their_own_task_alone(
    sealed: Bridge, client: redis.Redis
) -> None:
    for id in ("a", "b"):
        make(sealed, id, args=[id])
        sealed.signal(id, id)
    stolen: Any = client.hget(f"{PREFIX}:task:b", "signal")
    client.hset(f"{PREFIX}:task:a", "signal", stolen)
    task = read(sealed)
    assert task.signal is not None
    assert (task.args, task.signal.payload) == (["a"], "(sealed with key k1)")
    client.hset(f"{PREFIX}:task:a", "lost", "orders.other?@")
    assert read(sealed).args == ["(sealed with key k1)"]


async def test_a_sealed_follow_up_of_a_task_is_signalled(settings: Settings) -> None:
    settings = replace(settings, keys=K1)

    async def order(name: str) -> Then:
        return Then("test.cancel", [name], "1h", id="next", on_signal="test.ship")

    witness = Witness()
    async with (
        AsyncBridge(settings.url, keys=K1) as bridge,
        listening(settings, witness, order=order, ship=ship, cancel=cancel),
    ):
        await bridge.make_task("test.order", [SECRET], 0)
        await witness.until_ended(1, End.SUCCEEDED)
        assert await bridge.signal("next", 7) is Change.SIGNALLED
        await witness.until_ended(2, End.SUCCEEDED)
        task = await bridge.get("next")
        assert task is not None
        assert task.result == [SECRET, 7, ""]


@pytest.mark.parametrize("signalled", [False, True])
def test_a_claim_that_is_sent_again_says_what_opens_the_arguments(
    signalled: bool, sealed: Bridge, store: Store
) -> None:
    make(sealed, args=[SECRET])
    if signalled:
        sealed.signal("a", 7)
    else:
        sealed.run_now("a")
    command = claiming.claim("t", Settings(), places=10, idle=True)
    [first], [again] = store.run(command).tasks, store.run(claiming.resent(command)).tasks
    assert first.sealed_for == again.sealed_for == ("orders.cancel", "orders.ship")
    opened = KeyRing(K1).open_arguments(again.args, "a", *again.sealed_for)
    assert opened == f'["{SECRET}"]'.encode()


@pytest.mark.parametrize("when", ["before", "after", "passed"])
def test_keys_are_changed_before_and_after_the_signal(
    when: str, url: str, sealed: Bridge, store: Store, client: redis.Redis
) -> None:
    make(sealed, args=[SECRET])
    if when == "after":
        assert sealed.signal("a", SECRET, by="psp") is Change.SIGNALLED
    if when == "passed":
        sealed.run_now("a")
        taken(store)
        end(store, "a", how="retry")
    done = reseal_with(store, f"{K2} {K1}")
    assert not done.not_opened
    assert "sealed:k1" not in all_stored(client)
    with Bridge(url, keys=K2) as bridge:
        expected = Change.BEGUN if when == "passed" else Change.SIGNALLED
        assert bridge.signal("a", SECRET, by="psp") is expected
        assert read(bridge).args == [SECRET]
        if when != "passed":
            assert bridge.signal("a", "another", by="psp") is Change.SIGNALLED_BEFORE
            assert bridge.signal("a", SECRET, by="psp") is Change.SIGNALLED
            assert (signal := read(bridge).signal) is not None
            assert signal.payload == SECRET
    assert reseal_with(store, f"{K2} {K1}").resealed == 0


def test_while_both_keys_are_there_the_same_signal_is_known(url: str, sealed: Bridge) -> None:
    make(sealed)
    assert sealed.signal("a", SECRET) is Change.SIGNALLED
    with Bridge(url, keys=f"{K2} {K1}") as bridge:
        assert bridge.signal("a", SECRET) is Change.SIGNALLED
        assert bridge.signal("a", "another") is Change.SIGNALLED_BEFORE


def test_extend_finds_what_is_sealed_for_both(sealed: Bridge, store: Store) -> None:
    make(sealed)
    make(sealed, if_exists="extend", delay="1h")
    with pytest.raises(TaskDiffers):
        make(sealed, if_exists="extend", delay="1h", args=[43])
    sealed.signal("a")
    make(sealed, if_exists="extend", delay="1h")
    assert taken(store) == {"a": "orders.ship"}


# Values in clear


def test_values_in_clear_are_those_of_the_limits_of_both(
    sealed: Bridge, store: Store, client: redis.Redis
) -> None:
    limits = [
        ("f orders.cancel", b'[["c",0,"shop",null]]'), ("l c", b'{"most":1}'),
        ("f orders.ship", b'[["s",1,"area",null]]'), ("l s", b'{"most":1}'),
    ]  # fmt: skip
    store.run(declare_limits("aa", limits))
    for id in ("a", "b"):
        make(sealed, id, args=["corner", "north"])
        sealed.signal(id)
    stored: Any = client.hget(f"{PREFIX}:task:a", "args")
    assert stored.endswith(b' {"shop":"corner","area":"north"}')
    assert taken(store) == {"a": "orders.ship"}
    assert client.hget(f"{PREFIX}:task:b", "queue") == b"s=north"


def test_one_name_for_two_values_in_clear_is_refused(sealed: Bridge, store: Store) -> None:
    limits = [
        ("f orders.cancel", b'[["c",0,"of",null]]'), ("l c", b'{"most":1}'),
        ("f orders.ship", b'[["s",1,"of",null]]'), ("l s", b'{"most":1}'),
    ]  # fmt: skip
    store.run(declare_limits("aa", limits))
    make(sealed, args=["same", "same"])
    with pytest.raises(InvalidTask, match="both ask for 'of', which is another argument of each"):
        make(sealed, "b", args=["corner", "north"])


# Arguments in the record, encoded or long


@pytest.mark.parametrize("keys", [None, K1])
def test_arguments_of_a_codec_are_those_of_both(
    keys: str | None, url: str, store: Store, client: redis.Redis
) -> None:
    with Bridge(url, codec=Compression(), keys=keys) as bridge:
        make(bridge, args=["x" * 100_000])
        before: Any = client.hget(f"{PREFIX}:task:a", "args")
        assert bridge.signal("a") is Change.SIGNALLED
        assert client.hget(f"{PREFIX}:task:a", "args") == before
        assert taken(store) == {"a": "orders.ship"}


@pytest.mark.parametrize("length", [500, 600])
def test_arguments_too_long_for_the_key_stay_in_the_record(
    length: int, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    task = make(bridge, args=["x" * length])
    assert task.key.endswith(b"?@") is (length == 600)
    bridge.pause("a")
    assert bridge.signal("a") is Change.SIGNALLED
    assert client.exists(task.key) == 0
    assert client.exists(task.key.replace(b"cancel", b"ship")) == 1
    client.set(task.key, "", px=60_000)
    bridge.resume("a")
    assert taken(store) == {"a": "orders.ship"}
    assert read(bridge).args == ["x" * length]


# Edits


@pytest.mark.parametrize("keys", [None, K1])
@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_arguments_are_edited_before_and_after_a_signal(
    when: str, keys: str | None, url: str, store: Store, client: redis.Redis
) -> None:
    with Bridge(url, keys=keys, unknown="off") as bridge:
        old = make(bridge)
        if when != "after":
            assert bridge.edit("a", [43]) is Change.EDITED_UNCHECKED
        assert bridge.signal("a", 7) is Change.SIGNALLED
        if when != "before":
            assert bridge.edit("a", [44]) is Change.EDITED_UNCHECKED
        task = read(bridge)
        assert (task.func, task.args) == ("orders.ship", [43 if when == "before" else 44])
        assert bridge.signal("a", 7) is Change.SIGNALLED
        assert client.exists(old.key) == 0
        assert taken(store) == {"a": "orders.ship"}


def beat(store: Store, shapes: dict[str, str]) -> None:
    """Beat as a listener with these signatures."""
    code = digest_of(shapes)
    store.run(claiming.heartbeat("me", 10, [], code=code, functions=len(shapes)))
    store.run(fleet.declare(code, shapes))


def test_new_arguments_must_fit_each_function_that_may_run(bridge: Bridge, store: Store) -> None:
    beat(store, {"orders.cancel": "(order, why=...)", "orders.ship": "(order)"})
    for id in ("a", "b", "c"):
        make(bridge, id)
    assert bridge.edit("a", [43]) is Change.EDITED
    with pytest.raises(InvalidTask, match=r"the arguments do not fit: orders\.ship"):
        bridge.edit("a", [43, "late"])
    with pytest.raises(InvalidTask, match=r"the arguments do not fit: orders\.cancel"):
        bridge.edit("a", [])
    # Once one of both is lost, the other one alone counts.
    bridge.signal("b")
    with pytest.raises(InvalidTask, match=r"the arguments do not fit: orders\.ship"):
        bridge.edit("b", [43, "late"])
    bridge.run_now("c")
    taken(store)
    end(store, "c", how="retry")
    assert bridge.edit("c", [43, "late"]) is Change.EDITED


def test_the_doctor_names_the_key_of_what_a_signal_said(url: str, store: Store) -> None:
    with Bridge(url, keys=K1) as producer, Bridge(url, keys=f"{K2} {K1}") as psp:
        producer.make_task(**FUNCS, args=[SECRET], delay="1h", id="a")
        assert psp.signal("a", {"ref": 7}) is Change.SIGNALLED
    fine = store.run(check_keys(KeyRing(f"{K1} {K2}")))
    assert fine is not None
    assert fine.message == "1 task is sealed with known keys"
    lacking = store.run(check_keys(KeyRing(K1)))
    assert lacking is not None
    assert lacking.message.startswith("1 task is sealed with key k2, which EXPIREBRIDGE_KEYS lacks")
